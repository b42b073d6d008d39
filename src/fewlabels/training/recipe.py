"""Recipe: all settings of a training, as one TOML file.

The package has the recipes `modern` (SGD, cosine schedule, bf16: minutes on one GPU), `s2m2` (that
of S2M2's authors: Adam, two stages of hundreds of epochs) and `simpleshot` (plain cross-entropy).
The header of each file gives its command, time and result.
"""

import dataclasses
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any, Self, get_args, get_origin

from fewlabels.errors import FileFormatError, InputError, unknown_choice
from fewlabels.io.files import reading

OBJECTIVES = ("plain", "rotation", "mixup+rotation")
HEADS = ("cosine", "linear")
OPTIMIZERS = ("sgd", "adam")
SCHEDULES = ("cosine", "constant", "steps")
PRECISIONS = ("float32", "bf16")
KEPT = ("best", "last")
N_ROTATIONS = 4
SMALLEST_CROP = 8  # pixels
# Of the colors of ImageNet's training images in [0, 1], as most published backbones use them.
MEANS = (0.485, 0.456, 0.406)
STDS = (0.229, 0.224, 0.225)


@dataclass(frozen=True)
class Stage:
    """Some epochs of training with one objective."""

    objective: str
    epochs: int
    image_size: int = 0  # side of the crops; 0 means the recipe's. Smaller ones make epochs cheap

    def __post_init__(self) -> None:
        if self.image_size and self.image_size < SMALLEST_CROP:
            raise InputError(
                f"image_size of a stage must be 0 or at least {SMALLEST_CROP}, "
                f"got {self.image_size}."
            )
        if self.objective not in OBJECTIVES:
            raise unknown_choice("objective", self.objective, OBJECTIVES)
        if self.epochs < 1:
            raise InputError(f"epochs must be at least 1, got {self.epochs}.")


@dataclass(frozen=True)
class Augment:
    """Settings of augmentation: random crops, colors, mirror images."""

    crop_area: tuple[float, float] = (0.25, 1.0)  # area of a random crop over that of the image
    crop_aspect: tuple[float, float] = (3 / 4, 4 / 3)  # width over height
    jitter: float = 0.4  # brightness, contrast and saturation change by a factor of 1 ± jitter
    flip: bool = True

    def __post_init__(self) -> None:
        low, high = self.crop_area
        if not 0 < low <= high <= 1:
            raise InputError(
                "crop_area must be two fractions of the image, 0 < low <= high <= 1, "
                f"got {list(self.crop_area)}."
            )
        if not 0 < self.crop_aspect[0] <= self.crop_aspect[1]:
            raise InputError(
                "crop_aspect must be two positive numbers, low <= high, "
                f"got {list(self.crop_aspect)}."
            )
        if not 0 <= self.jitter < 1:
            raise InputError(f"jitter must be from 0 to below 1, got {self.jitter}.")


@dataclass(frozen=True)
class Optimizer:
    """Settings of the optimizer and of its learning rate."""

    name: str = "sgd"
    lr: float = 0.1
    momentum: float = 0.9
    weight_decay: float = 5e-4
    decay_norms: bool = True  # whether weight decay also applies to normalization scales and biases
    schedule: str = "cosine"
    lowest_lr: float = 0.0  # the last rate of the cosine schedule
    warmup_epochs: float = 2.0
    milestones: tuple[float, ...] = ()  # "steps": rate / 10 at these fractions of the training
    clip_norm: float = 0.0  # largest gradient norm; 0 for no clipping

    def __post_init__(self) -> None:
        for what, value, choices in (
            ("optimizer name", self.name, OPTIMIZERS),
            ("schedule", self.schedule, SCHEDULES),
        ):
            if value not in choices:
                raise unknown_choice(what, value, choices)
        if self.lr <= 0:
            raise InputError(f"lr must be positive, got {self.lr}.")
        if not 0 <= self.lowest_lr <= self.lr:
            raise InputError(f"lowest_lr must be from 0 to lr = {self.lr}, got {self.lowest_lr}.")
        if min(self.momentum, self.weight_decay, self.warmup_epochs, self.clip_norm) < 0:
            raise InputError(
                "momentum, weight_decay, warmup_epochs and clip_norm must not be negative."
            )


class Sizes:
    """What follows from the sizes of images, in both kinds of recipes."""

    image_size: int
    stored_size: int

    @property
    def storage_size(self) -> int:
        """Short side in pixels of the images before cropping."""
        return self.stored_size or self.image_size

    @property
    def shown_sizes(self) -> tuple[tuple[int, int], ...]:
        """Short side and crop in pixels of images in tests; validation sees the first."""
        return ((self.storage_size, self.image_size),)

    @property
    def transforms(self) -> list[str]:
        """The transforms of test images, as texts for `fewlabels.data.transforms`."""
        means, stds = (" ".join(map(str, values)) for values in (MEANS, STDS))
        return [
            f"resize({side}) | crop({crop}) | normalize({means}, {stds})"
            for side, crop in self.shown_sizes
        ]

    @property
    def transform(self) -> str:
        """The transform of the trained network: the first of `transforms`."""
        return self.transforms[0]

    def check_sizes(self) -> None:
        """Refuse crops that are too small, or larger than the images."""
        if self.image_size < SMALLEST_CROP:
            raise InputError(f"image_size must be at least {SMALLEST_CROP}, got {self.image_size}.")
        if self.stored_size and self.stored_size < self.image_size:
            raise InputError(
                f"stored_size must be 0 or at least image_size = {self.image_size}, "
                f"got {self.stored_size}."
            )


@dataclass(frozen=True)
class Recipe(Sizes):
    """All settings of a training; see the TOML files in recipes/.

    >>> Recipe.load("modern").stages[-1].objective
    'mixup+rotation'
    """

    backbone: str
    stages: tuple[Stage, ...]
    image_size: int = 32
    stored_size: int = 0  # short side before cropping to image_size, in pixels; 0 for image_size
    # Short side and crop of images in tests, in pixels; () for those of training. Random crops show
    # objects enlarged, so larger images suit tests better (Touvron et al. 2019, "Fixing the
    # train-test resolution discrepancy"). Written features are means over all these sizes;
    # validation sees the first.
    test_sizes: tuple[tuple[int, int], ...] = ()
    batch_size: int = 256  # different images per step; objectives with rotations have more rows
    n_shards: int = 1  # parts of a batch with separate normalization statistics; >= 1 per process
    dropout: float = 0.0
    head: str = "cosine"
    head_scale: float = 10.0  # initial value of the cosine head's learned scale
    mixup_alpha: float = 2.0  # mixing weight ~ Beta(alpha, alpha)
    rotated_share: float = 0.25  # fraction of the batch in four rotations under mixup+rotation
    ema: float = 0.0  # decay per step of the running average of the weights; 0 for no average
    keep: str = "best"  # the weights of the best validation (the last without one), or "last"
    precision: str = "bf16"
    compile: bool = True
    seed: int = 0
    augment: Augment = field(default_factory=Augment)
    optimizer: Optimizer = field(default_factory=Optimizer)

    def __post_init__(self) -> None:
        if not self.stages:
            raise InputError("stages must hold at least one stage.")
        for what, value, choices in (
            ("head", self.head, HEADS),
            ("precision", self.precision, PRECISIONS),
            ("keep", self.keep, KEPT),
        ):
            if value not in choices:
                raise unknown_choice(what, value, choices)
        self.check_sizes()
        for side, crop in self.test_sizes:
            if not side >= crop >= SMALLEST_CROP:
                raise InputError(
                    "test_sizes must be pairs of a short side and a crop of at most it and at "
                    f"least {SMALLEST_CROP}, got {[side, crop]}."
                )
        if self.batch_size < 2 or self.n_shards < 1 or self.batch_size % self.n_shards:
            raise InputError(
                "batch_size must be at least 2 and a multiple of n_shards, "
                f"got batch_size {self.batch_size} and n_shards {self.n_shards}."
            )
        if not 0 <= self.ema < 1:
            raise InputError(f"ema must be from 0 to below 1, got {self.ema}.")
        if not 0 < self.rotated_share <= 1:
            raise InputError(
                f"rotated_share must be above 0 and at most 1, got {self.rotated_share}."
            )
        if self.mixup_alpha <= 0 or self.head_scale <= 0:
            raise InputError("mixup_alpha and head_scale must be positive.")

    @property
    def shown_sizes(self) -> tuple[tuple[int, int], ...]:
        """Short side and crop in pixels of images in tests; validation sees the first."""
        return self.test_sizes or super().shown_sizes

    @property
    def n_epochs(self) -> int:
        """The epochs of all stages."""
        return sum(stage.epochs for stage in self.stages)

    def stage_of(self, epoch: int) -> Stage:
        """The stage of epoch number `epoch`, counted from 0."""
        for stage in self.stages:
            if epoch < stage.epochs:
                return stage
            epoch -= stage.epochs
        raise InputError(f"epoch must be below {self.n_epochs}.")

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for records and for comparing with a checkpoint."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """From plain values, as a TOML file gives them."""
        built: Self = build(cls, values, where="the recipe")
        return built

    @classmethod
    def load(cls, recipe: str | Path, changes: Sequence[str] = ()) -> Self:
        """A recipe of the package by name, or of a file, with changes of single settings.

        Args:
            recipe: A name of `list_recipes`, or the path of a TOML file.
            changes: Such as "optimizer.lr=0.05" or "stages.0.epochs=10".
        """
        values = read_values(recipe)
        for change in changes:
            apply_change(values, change)
        try:
            return cls.from_dict(values)
        except InputError as error:
            raise InputError(f"recipe {recipe}: {error}") from error


def list_recipes() -> list[str]:
    """The names of the recipes of the package."""
    folder = resources.files("fewlabels.training") / "recipes"
    names = (entry.name for entry in folder.iterdir())
    return sorted(name.removesuffix(".toml") for name in names if name.endswith(".toml"))


def read_values(recipe: str | Path) -> dict[str, Any]:
    """The content of a recipe of the package by name, or of a TOML file."""
    if str(recipe) in list_recipes():
        place = resources.files("fewlabels.training") / "recipes" / f"{recipe}.toml"
        text = place.read_text(encoding="utf-8")
    else:
        path = Path(recipe)
        if not path.is_file():
            raise InputError(
                f"recipe must be one of {', '.join(list_recipes())} or a TOML file, got '{recipe}'."
            )
        with reading(path, holds="a recipe as TOML"):
            text = path.read_text(encoding="utf-8")
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # also of nested lists and very long numbers
        raise FileFormatError(f"recipe {recipe} is not TOML ({error}).") from error


def apply_change(values: dict[str, Any], change: str) -> None:
    """Set one value in place: "optimizer.lr=0.05"."""
    name, separator, text = change.partition("=")
    if not separator:
        raise InputError(
            f"a change of the recipe must be NAME=VALUE, such as optimizer.lr=0.05, got '{change}'."
        )
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except (ValueError, RecursionError):
        value = text  # a bare word: backbone=resnet18
    *parents, last = name.strip().split(".")
    place: Any = values
    try:
        for key in parents:
            place = place[int(key)] if isinstance(place, list) else place.setdefault(key, {})
        place[int(last) if isinstance(place, list) else last] = value
    except (IndexError, ValueError, TypeError, AttributeError):
        raise InputError(f"the recipe has no '{name}' to change.") from None


def build(kind: Any, values: Any, *, where: str) -> Any:
    """A dataclass from plain values, each converted to the type of its field."""
    fields = {entry.name: entry for entry in dataclasses.fields(kind)}
    if not isinstance(values, Mapping):
        raise InputError(f"{where} must be a table, got {values!r}.")
    if unknown := [name for name in values if name not in fields]:
        raise unknown_choice(f"a setting of {where}", unknown[0], fields)
    required = [
        name
        for name, entry in fields.items()
        if entry.default is entry.default_factory is dataclasses.MISSING
    ]
    if missing := [name for name in required if name not in values]:
        raise InputError(f"{where} must have '{missing[0]}'.")
    types = {name: fields[name].type for name in values}
    return kind(
        **{
            name: _convert(types[name], value, where=f"'{name}' of {where}")
            for name, value in values.items()
        }
    )


def _convert(kind: Any, value: Any, *, where: str) -> Any:
    if dataclasses.is_dataclass(kind):
        return build(kind, value, where=where)
    if get_origin(kind) is tuple:
        each = get_args(kind)[0]
        fixed = None if Ellipsis in get_args(kind) else len(get_args(kind))
        if not isinstance(value, list | tuple) or (fixed is not None and len(value) != fixed):
            raise InputError(
                f"{where} must be a list{'' if fixed is None else f' of {fixed}'}, got {value!r}."
            )
        return tuple(_convert(each, item, where=where) for item in value)
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise InputError(f"{where} must be of type {kind.__name__}, got {value!r}.")
    return value
