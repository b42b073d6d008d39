"""One lossless mosaic per class: <split>/<class>.webp, square tiles, described by index.json."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np

from fewlabels.data.class_lists import Benchmark
from fewlabels.data.forms.form import Form
from fewlabels.data.image_set import SPLITS, Problem
from fewlabels.data.listing import ListedImage, relative_name
from fewlabels.data.sources import Tile, decoded_mosaic
from fewlabels.errors import FileFormatError
from fewlabels.io.stamps import short_hash

INDEX = "index.json"
MOST_TILES = 100_000  # of a class, which has 600 images in these benchmarks: memory
CHECKSUM = "sha256_uint8_"  # prefix of the key of a checksum; the shape of the array follows


@dataclass(eq=False)
class Mosaics(Form):
    """Mosaics of tiles, one per class."""

    NAME: ClassVar[str] = "mosaics"
    WORDS: ClassVar[str] = f"{INDEX} with a mosaic per class, SPLIT/CLASS.webp"

    tile: int  # pixels per side
    columns: int
    rows: int
    classes: dict[str, Any]

    @classmethod
    def find(cls, folder: Path, benchmark: Benchmark) -> Self | None:
        """The form, if the folder has an index of tiles."""
        index = folder / INDEX
        if not index.is_file():
            return None
        try:
            about = json.loads(index.read_text(encoding="utf-8"))
            tile, columns, rows = (int(about[key]) for key in ("tile", "cols", "rows"))
            if min(tile, columns, rows) < 1 or any(
                each["split"] not in SPLITS for each in about["classes"].values()
            ):
                raise ValueError("sizes must be positive and splits one of " + ", ".join(SPLITS))
            if columns * rows > MOST_TILES:
                raise ValueError(f"a mosaic must have at most {MOST_TILES:,} tiles")
        except (
            *(ValueError, KeyError, TypeError, AttributeError),
            *(OverflowError, RecursionError),  # of Infinity as a size, of lists in lists
        ) as error:
            raise FileFormatError(
                f"{index} must have tile, cols, rows and the split of each class, but cannot be "
                f"read ({type(error).__name__}: {error}). Copy it again."
            ) from error
        return cls(folder, benchmark, tile, columns, rows, about["classes"])

    def list_class(self, class_name: str) -> list[ListedImage]:
        """The tiles of a class, row by row."""
        path = self._mosaic(class_name)
        if path is None:
            return []
        name = relative_name(path, self.root)
        side = self.tile
        places = [
            (row * side, left * side) for row in range(self.rows) for left in range(self.columns)
        ]
        return [
            ListedImage(f"{name}#{number}", Tile(path, left, top, side))
            for number, (top, left) in enumerate(places)
        ]

    def placed(self) -> dict[str, set[str]]:
        """The classes of the index, each with its split."""
        return {name: {about["split"]} for name, about in self.classes.items()}

    def verify(self) -> Iterator[Problem]:
        """Compare each class's pixels with the checksum in the index."""
        for class_name, about in self.classes.items():
            path = self._mosaic(class_name)
            wanted = next((about[key] for key in about if key.startswith(CHECKSUM)), None)
            if path is None or wanted is None:
                continue
            try:
                shape = (self.rows, self.tile, self.columns, self.tile, 3)
                sheet = decoded_mosaic(path).reshape(shape)
            except (FileFormatError, ValueError):  # reading its tiles reports it
                continue
            tiles = np.ascontiguousarray(sheet.swapaxes(1, 2))  # (rows, columns, tile, tile, 3)
            if short_hash(tiles.data, digits=64) != wanted:
                differs = f"its pixels differ from the checksum in {INDEX}"
                yield Problem(relative_name(path, self.root), differs)

    def _mosaic(self, class_name: str) -> Path | None:
        if class_name not in self.classes or Path(class_name).name != class_name:
            return None  # a name that leads out of the folder is none
        path = self.root / self.classes[class_name]["split"] / f"{class_name}.webp"
        return path if path.is_file() else None
