"""The paper's numbers, as data: rows of its tables and curves of its figures, from published.toml."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple

SHOTS = (1, 5)
DATASETS = {  # as the paper spells them
    "mini-imagenet": "miniImageNet",
    "cub": "CUB",
    "cifar-fs": "CIFAR-FS",
    "tiered-imagenet": "tieredImageNet",
    "mini-imagenet-to-cub": "miniImageNet → CUB",
}


class Accuracy(NamedTuple):
    """Percent, with the half-width of the 95 % interval where the paper gives one."""

    accuracy: float
    ci95: float | None = None


@dataclass(frozen=True)
class Row:
    """A row of a table; `recipe` and `features` say how to measure it, and are None for the methods of others."""

    dataset: str
    setting: str
    method: str
    backbone: str
    published: Mapping[int, Accuracy]  # by shots; empty where the paper has no such row
    recipe: str | None = None
    features: str | None = None  # dataset/backbone


@dataclass(frozen=True)
class Series:
    """A curve of a figure: points, or a formula of x with its numbers."""

    panel: str
    name: str
    points: tuple[tuple[float, float], ...] = ()
    curve: str = ""
    numbers: Mapping[str, float] | None = None


@dataclass(frozen=True)
class PaperTable:
    """A table of the paper."""

    title: str
    caption: str
    rows: tuple[Row, ...]


@dataclass(frozen=True)
class PaperFigure:
    """A figure of the paper."""

    title: str
    caption: str
    series: tuple[Series, ...]

    def find(self, panel: str, name: str) -> Series:
        """The curve of a panel by its name."""
        return next(each for each in self.series if (each.panel, each.name) == (panel, name))


@dataclass(frozen=True)
class Published:
    """All that the paper prints in numbers."""

    tables: Mapping[str, PaperTable]
    figures: Mapping[str, PaperFigure]
    time_caption: str
    seconds: float  # of one run


@cache
def read_published() -> Published:
    """The numbers of the paper.

    >>> read_published().tables["table2"].rows[-1].published[1]
    Accuracy(accuracy=87.69, ci95=0.23)
    """
    content = tomllib.loads(
        files("fewlabels.paper").joinpath("published.toml").read_text(encoding="utf-8")
    )
    return Published(
        tables={
            name: PaperTable(each["title"], each["caption"], tuple(map(_row, each["rows"])))
            for name, each in content["tables"].items()
        },
        figures={
            name: PaperFigure(each["title"], each["caption"], tuple(map(_series, each["series"])))
            for name, each in content["figures"].items()
        },
        time_caption=content["time"]["caption"],
        seconds=content["time"]["seconds"],
    )


def _row(entry: dict[str, Any]) -> Row:
    published = {shots: Accuracy(*entry.pop(f"{shots}-shot")) for shots in SHOTS}
    return Row(**entry, published=published)


def _series(entry: dict[str, Any]) -> Series:
    panel, name = entry.pop("panel"), entry.pop("name")
    points = tuple((float(x), float(y)) for x, y in entry.pop("points", ()))
    return Series(panel, name, points, entry.pop("curve", ""), entry or None)
