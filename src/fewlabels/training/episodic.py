"""EpisodicRecipe: all settings of a training on episodes, the second kind of recipe.

A TOML file with the key `system` is of this kind. Its table `settings` holds those of the system.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Self

from fewlabels.errors import InputError, unknown_choice
from fewlabels.training.recipe import (
    KEPT,
    PRECISIONS,
    Augment,
    Optimizer,
    Recipe,
    Sizes,
    apply_change,
    build,
    read_values,
)
from fewlabels.training.systems import SYSTEMS, Shape, System
from fewlabels.training.validation import SHOTS


class EpisodicStage(NamedTuple):
    """What the loop asks of a stage; here all epochs are one stage."""

    objective: str
    image_size: int = 0


@dataclass(frozen=True)
class EpisodicRecipe(Sizes):
    """All settings of a training on episodes; see the TOML files in recipes/.

    >>> load_recipe("protonet").system
    'protonet'
    """

    system: str
    backbone: str
    n_epochs: int
    n_way: int = 5
    shots: tuple[int, ...] = (1, 5)  # one after the other: step i has shots[i % len(shots)]
    n_query: int = 15  # per class
    episodes_per_step: int = 1
    steps_per_epoch: int = 100
    start: str = ""  # file of a backbone: its weights at the start, or the features if frozen
    image_size: int = 32
    stored_size: int = 0  # as in Recipe
    n_shards: int = 1
    dropout: float = 0.0
    ema: float = 0.0
    keep: str = "best"
    precision: str = "bf16"
    compile: bool = False
    seed: int = 0
    augment: Augment = field(default_factory=Augment)
    optimizer: Optimizer = field(default_factory=Optimizer)
    settings: Any = None  # of the type that the system declares

    def __post_init__(self) -> None:
        kind = SYSTEMS[self.system]
        for what, value, choices in (
            ("precision", self.precision, PRECISIONS),
            ("keep", self.keep, KEPT),
        ):
            if value not in choices:
                raise unknown_choice(what, value, choices)
        if not self.shots:
            raise InputError("shots must hold at least one number, got none.")
        for name in ("n_epochs", "n_query", "episodes_per_step", "steps_per_epoch", "n_shards"):
            if (number := getattr(self, name)) < 1:
                raise InputError(f"{name} must be at least 1, got {number}.")
        if self.n_way < 2 or min(self.shots) < 1:
            raise InputError(
                "n_way must be at least 2 and shots at least 1, "
                f"got n_way {self.n_way} and shots {list(self.shots)}."
            )
        if self.episodes_per_step % self.n_shards:
            raise InputError(
                "episodes_per_step must be a multiple of n_shards, "
                f"got {self.episodes_per_step} and {self.n_shards}."
            )
        self.check_sizes()
        if not 0 <= self.ema < 1:
            raise InputError(f"ema must be from 0 to below 1, got {self.ema}.")
        if kind.frozen and not self.start:
            raise InputError(
                f"start must name the file of a trained backbone for system {self.system}, which "
                "works on its features, got none. Set start=FOLDER/backbone.safetensors."
            )
        if self.compile and self.system == "maml":
            raise InputError("compile must be false for system maml. Set compile=false.")

    @property
    def kind(self) -> type[System]:
        """The class of the system."""
        return SYSTEMS[self.system]

    @property
    def validation_shots(self) -> tuple[int, ...]:
        """The shots that decide which epoch is kept: those of training, where they are usual."""
        trained = tuple(n_shot for n_shot in SHOTS if n_shot in self.shots)
        return trained if trained and self.kind.uses_shots else SHOTS

    def stage_of(self, epoch: int) -> EpisodicStage:  # noqa: ARG002 - as Recipe.stage_of
        """The only stage."""
        return EpisodicStage(self.system)

    def shape(self, step: int) -> Shape:
        """The episodes of step number `step`, counted from 0."""
        return Shape(self.n_way, self.shots[step % len(self.shots)], self.n_query)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for records and for comparing with a checkpoint."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """From plain values, as a TOML file gives them."""
        others = {entry.name for entry in dataclasses.fields(Recipe)} - _names(cls)
        if wrong := [name for name in values if name in others]:
            raise InputError(
                f"'{wrong[0]}' is a setting of recipes for classification such as modern, and "
                "must be left out of a recipe for episodes."
            )
        if "system" not in values:
            raise InputError("the recipe must have 'system'.")
        declared = SYSTEMS[values["system"]].Settings
        settings = build(
            declared,
            values.get("settings", {}),
            where=f"'settings' of the recipe for system {values['system']}",
        )
        plain = {name: value for name, value in values.items() if name != "settings"}
        built: Self = build(cls, plain, where="the recipe")
        return dataclasses.replace(built, settings=settings)


AnyRecipe = Recipe | EpisodicRecipe


def recipe_from_dict(values: Mapping[str, Any]) -> AnyRecipe:
    """A recipe of either kind, from plain values."""
    if "system" in values:
        return EpisodicRecipe.from_dict(values)
    if wrong := [name for name in values if name in _names(EpisodicRecipe) - _names(Recipe)]:
        raise InputError(
            f"'{wrong[0]}' is a setting of recipes for episodes such as protonet, and must be "
            "left out of a recipe for classification."
        )
    return Recipe.from_dict(values)


def load_recipe(recipe: str | Path, changes: Sequence[str] = ()) -> AnyRecipe:
    """A recipe of either kind; arguments as in `Recipe.load`."""
    values = read_values(recipe)
    for change in changes:
        apply_change(values, change)
    try:
        return recipe_from_dict(values)
    except InputError as error:
        raise InputError(f"recipe {recipe}: {error}") from error


def _names(kind: type[AnyRecipe]) -> set[str]:
    return {entry.name for entry in dataclasses.fields(kind)}
