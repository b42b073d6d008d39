"""One lossless mosaic a class: <split>/<class>.webp, square tiles in rows, described by index.json."""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np

from fewlabels.data.class_lists import Benchmark
from fewlabels.data.forms.form import Form
from fewlabels.data.image_set import SPLITS, Problem
from fewlabels.data.listing import Entry, relative_name
from fewlabels.data.sources import Tile, decoded_mosaic
from fewlabels.errors import FileFormatError

INDEX = "index.json"
CHECKSUM = "sha256_uint8_"  # how the key of a checksum begins; the shape of the array follows


@dataclass(eq=False)
class Mosaics(Form):
    """Mosaics of tiles, class by class."""

    NAME: ClassVar[str] = "mosaics"
    WORDS: ClassVar[str] = f"{INDEX} with a mosaic for each class, SPLIT/CLASS.webp"

    tile: int  # pixels
    columns: int
    rows: int
    classes: dict[str, Any]

    @classmethod
    def find(cls, folder: Path, benchmark: Benchmark) -> Self | None:
        """The form, if an index lies there that speaks of tiles."""
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
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise FileFormatError(
                f"{index} must give tile, cols, rows and the split of each class, but cannot be read so "
                f"({type(error).__name__}: {error}). Copy it anew."
            ) from error
        return cls(folder, benchmark, tile, columns, rows, about["classes"])

    def entries(self, class_name: str) -> list[Entry]:
        """The tiles of a class, row by row."""
        path = self._mosaic(class_name)
        if path is None:
            return []
        name = relative_name(path, self.root)
        places = (
            (row * self.tile, column * self.tile)
            for row in range(self.rows)
            for column in range(self.columns)
        )
        return [
            Entry(f"{name}#{number}", Tile(path, left, top, self.tile))
            for number, (top, left) in enumerate(places)
        ]

    def placed(self) -> dict[str, set[str]]:
        """The classes of the index, each in the split it names."""
        return {name: {about["split"]} for name, about in self.classes.items()}

    def verify(self) -> Iterator[Problem]:
        """Compare each class's pixels with the checksum in the index."""
        for class_name, about in self.classes.items():
            path, wanted = (
                self._mosaic(class_name),
                next((about[key] for key in about if key.startswith(CHECKSUM)), None),
            )
            if path is None or wanted is None:
                continue
            try:
                sheet = decoded_mosaic(path)
                tiles = sheet.reshape(self.rows, self.tile, self.columns, self.tile, 3).swapaxes(
                    1, 2
                )  # (rows, columns, tile, tile, 3)
            except (FileFormatError, ValueError):  # reading its tiles says so already
                continue
            if hashlib.sha256(np.ascontiguousarray(tiles).data).hexdigest() != wanted:
                yield Problem(
                    relative_name(path, self.root),
                    f"its pixels differ from the checksum in {INDEX}",
                )

    def _mosaic(self, class_name: str) -> Path | None:
        if class_name not in self.classes:
            return None
        path = self.root / self.classes[class_name]["split"] / f"{class_name}.webp"
        return path if path.is_file() else None
