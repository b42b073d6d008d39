"""A method is a preprocessing and a classifier with their settings: what a row of a results table stands for."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from numbers import Integral, Real
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from fewlabels.errors import InputError, name_rows, unknown_choice
from fewlabels.methods.assignment import Assignment
from fewlabels.methods.kmeans import assign_kmeans
from fewlabels.methods.map import LAM, assign_map, assign_soft_kmeans, check_settings
from fewlabels.methods.nearest import assign_nearest
from fewlabels.preprocess import PAPER, PAPER_INDUCTIVE, Pipeline

CLASSIFIERS: dict[str, Callable[..., Assignment]] = {
    "nearest": assign_nearest,
    "kmeans": assign_kmeans,
    "soft-kmeans": assign_soft_kmeans,
    "map": assign_map,
}
KNOBS = {
    "nearest": (),
    "kmeans": (),
    "soft-kmeans": ("lam", "alpha", "n_steps"),
    "map": ("lam", "alpha", "n_steps", "proportions"),
}
METHODS = {  # name: (title in tables, pipeline, classifier)
    "ncm-raw": ("NCM", "none", "nearest"),
    "ncm": ("PT+NCM", PAPER_INDUCTIVE, "nearest"),
    "kmeans": ("PT+K-Means", PAPER, "kmeans"),
    "soft-kmeans": ("PT+soft K-Means", PAPER, "soft-kmeans"),
    "map": ("PT+MAP", PAPER, "map"),
}
VARIANTS: dict[
    str, tuple[str, str, str, dict[str, Any]]
] = {  # likewise, with settings other than the paper's
    "map-auto": (
        "PT+MAP, estimated",
        "power(auto) | unit | center(support) | unit",
        "map",
        {"proportions": "estimate", "lam": "auto"},
    ),
    "map-truth": (
        "PT+MAP, told the truth",
        PAPER,
        "map",
        {"proportions": "truth"},
    ),  # the class sizes, which only an evaluation knows
}
SMALL_ALPHA_DATASETS = (
    "tiered-imagenet",
    "cifar-fs",
)  # Section 4.3: alpha = 0.3 at 1 shot, 0.4 elsewhere


@dataclass(frozen=True)
class Method:
    """A classifier behind a pipeline, all settings filled in."""

    name: str
    title: str
    pipeline: Pipeline
    classifier: str
    settings: Mapping[str, Any] = field(default_factory=dict)

    def decide(self, features: Tensor) -> "Method":
        """The method with all of its preprocessing decided for these features, (N, D)."""
        return (
            replace(self, pipeline=self.pipeline.decide(features))
            if self.pipeline.undecided
            else self
        )

    def assign(
        self, support: Tensor, support_labels: Tensor, query: Tensor, *, n_way: int
    ) -> Assignment:
        """Classify vectors that went through the pipeline: (E, S, D), (E, S), (E, Q, D) -> Assignment."""
        return CLASSIFIERS[self.classifier](
            support, support_labels, query, n_way=n_way, **self.settings
        )


def find_method(name: str) -> tuple[str, str, str, dict[str, Any]]:
    """Title, pipeline, classifier and settings of a method or a variant of one."""
    if name in METHODS:
        return *METHODS[name], {}
    if name not in VARIANTS:
        raise unknown_choice("method", name, (*METHODS, *VARIANTS))
    return VARIANTS[name]


def paper_settings(n_shot: int, dataset: str | None = None) -> dict[str, Any]:
    """lam, alpha and n_steps of the paper for a number of shots, (Sections 4.2 and 4.3)."""
    if n_shot == 1:
        return {"lam": LAM, "alpha": 0.3 if dataset in SMALL_ALPHA_DATASETS else 0.4, "n_steps": 30}
    return {"lam": LAM, "alpha": 0.2, "n_steps": 20}


def configure(
    name: str,
    *,
    n_shot: int,
    dataset: str | None = None,
    beta: float | str | None = None,
    pipeline: str | None = None,
    **settings: Any,
) -> Method:
    """A method by name, with the paper's settings for what is not given.

    Args:
        name: One of `METHODS` or `VARIANTS`.
        n_shot: Labelled rows per class, which decides the paper's alpha and n_steps.
        dataset: Name as in a FeatureSet's provenance; decides the paper's alpha at one shot.
        beta: Power of the pipeline's power step; "auto" leaves it to the features (`preprocess.power_rule`).
        pipeline: Another pipeline, as its line.
        **settings: lam, alpha, n_steps, proportions; those that the classifier does not use are
            ignored, so that one call can configure several methods.

    >>> configure("map", n_shot=5, beta=0.3).pipeline.steps
    ('power(0.3)', 'unit', 'center', 'unit')
    """
    title, line, classifier, preset = find_method(name)
    parsed = Pipeline.parse(line if pipeline is None else pipeline)
    if beta is not None:
        if pipeline is not None:
            raise InputError(
                "give beta or pipeline, not both: the pipeline's line has its own power."
            )
        parsed = Pipeline.parse(
            " | ".join(
                f"power({beta})" if step.startswith("power") else step for step in parsed.steps
            )
        )
    chosen = {**paper_settings(n_shot, dataset), "proportions": "uniform", **preset}
    if unknown := set(settings) - set(chosen):
        raise unknown_choice("setting", unknown.pop(), chosen)
    chosen.update({knob: value for knob, value in settings.items() if value is not None})
    if (
        pipeline is None
        and isinstance(chosen["proportions"], str)
        and chosen["proportions"] == "estimate"
        and "proportions" in KNOBS[classifier]
    ):
        # The queries' mean lies towards the larger classes; the support's does not.
        parsed = Pipeline.parse(
            " | ".join("center(support)" if step == "center" else step for step in parsed.steps)
        )
    check_number("lam", chosen["lam"], also=("auto",))
    check_number("alpha", chosen["alpha"])
    check_number("n_steps", chosen["n_steps"], whole=True)
    check_settings(lam=chosen["lam"], alpha=chosen["alpha"], n_steps=chosen["n_steps"])
    return Method(
        name, title, parsed, classifier, {knob: chosen[knob] for knob in KNOBS[classifier]}
    )


def check_number(
    name: str, value: object, *, whole: bool = False, also: tuple[str | None, ...] = ()
) -> None:
    """Refuse a setting that is no number, nor one of the words in `also`; its range is for the classifier to check."""
    if isinstance(value, Integral if whole else Real) and not isinstance(value, bool):
        return
    if not (value is None or isinstance(value, str)) or value not in also:
        words = " or ".join(
            ["a whole number" if whole else "a number", *(repr(word) for word in also)]
        )
        raise InputError(f"{name} must be {words}, got {value!r}.")


def classify(
    support: ArrayLike,
    labels: ArrayLike,
    query: ArrayLike,
    *,
    method: str | Method = "map",
    mean: ArrayLike | None = None,
    **settings: Any,
) -> NDArray[Any]:
    """Arrays in, labels out: the labels of `query` in the words of `labels`.

    Args:
        support: Labelled vectors, (S, D).
        labels: Their labels, (S,), of any kind; classes may have different numbers of rows.
        query: Unlabelled vectors, (Q, D).
        method: One of ncm-raw, ncm, kmeans, soft-kmeans, map, map-auto; or what `configure` gave, whose settings then hold.
        mean: What a `center(mean)` step subtracts, (D,).
        **settings: beta, pipeline, lam, alpha, n_steps, proportions, as in `configure`.

    >>> classify([[9.0, 1], [1, 9]], ["cat", "dog"], [[8.0, 1], [2, 9], [7, 2], [1, 6]]).tolist()
    ['cat', 'dog', 'cat', 'dog']
    """
    words = np.asarray(labels)
    if any(label is None or label != label for label in words.reshape(-1).tolist()):
        raise InputError(
            "labels must name a class for every support row, got None or NaN. Put unlabelled rows into query."
        )
    names, numbers = np.unique(words, return_inverse=True)
    shots = np.bincount(numbers.reshape(-1))
    x, q = as_matrix(support, "support"), as_matrix(query, "query")
    if len(x) != numbers.size:
        raise InputError(
            f"labels must hold one label per support row, {len(x)}, got {numbers.size}."
        )
    if x.shape[1] != q.shape[1]:
        raise InputError(
            f"support and query must have the same number of features, got {x.shape[1]} and {q.shape[1]}."
        )
    if isinstance(method, Method) and settings:
        raise InputError(
            f"settings must be given to configure where method is a Method, got {', '.join(settings)}."
        )
    chosen = (
        method
        if isinstance(method, Method)
        else configure(method, n_shot=int(shots.min()), **settings)
    )
    given = None if mean is None else torch.as_tensor(np.asarray(mean)).to(x)
    chosen = chosen.decide(torch.cat([x, q]))
    x, q = chosen.pipeline(x, q, mean=given)
    assignment = chosen.assign(
        x[None], torch.as_tensor(numbers.reshape(1, -1)), q[None], n_way=len(names)
    )
    return np.asarray(names[assignment.labels[0].numpy()])


def as_matrix(x: ArrayLike, name: str) -> Tensor:
    """A (rows, features) tensor of float32 or float64 from anything array-like, refused in words if it is none."""
    try:
        array = np.asarray(x)
    except ValueError:
        raise InputError(f"{name} must be a matrix, got rows of different lengths.") from None
    if array.dtype == object or not (np.issubdtype(array.dtype, np.number) or array.dtype == bool):
        raise InputError(
            f"{name} must hold numbers in rows of equal length, got dtype {array.dtype}."
        )
    if array.ndim != 2 or 0 in array.shape:
        raise InputError(
            f"{name} must be a non-empty matrix (rows, features), got shape {array.shape}."
        )
    array = array if array.dtype == np.float64 else array.astype(np.float32)
    bad = ~np.isfinite(array).all(axis=1)
    if bad.any():
        raise InputError(
            f"{name} must be finite, got NaN or infinity in {name_rows(np.flatnonzero(bad))}."
        )
    return torch.tensor(array)
