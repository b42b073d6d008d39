"""The paper's numbers as data: rows of its tables and curves of its figures (published.toml)."""

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
    """A row of a table; `variant` is None for methods of other papers."""

    dataset: str
    setting: str
    method: str
    backbone: str
    published: Mapping[int, Accuracy]  # by shots; empty where the paper has no such row
    variant: str | None = None  # how to measure it, see `ledger.VARIANTS`
    rival: str | None = None  # likewise, of another paper
    features: str | None = None  # dataset/backbone
    system: str | None = None  # of another paper, trained here: folder in artifacts/*/systems


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
    """All numbers that the paper prints."""

    parameters: Mapping[str, Any]  # Table 1: title, caption, and rows of texts
    illustration: Mapping[str, Any]  # Figure 1: title, caption, and steps in words
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
        parameters=content["parameters"],
        illustration=content["illustration"],
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


def _row(content: dict[str, Any]) -> Row:
    published = {shots: Accuracy(*content.pop(f"{shots}-shot")) for shots in SHOTS}
    return Row(**content, published=published)


def _series(content: dict[str, Any]) -> Series:
    panel, name = content.pop("panel"), content.pop("name")
    points = tuple((float(x), float(y)) for x, y in content.pop("points", ()))
    return Series(panel, name, points, content.pop("curve", ""), content or None)
