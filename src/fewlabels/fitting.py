"""`fit`: labelled and unlabelled rows in, a `Fitted` out. Every door of the package calls it.

`answer` joins a pipeline and a method, for one problem or for a batch of them: it is the only place
that does so. `Rows` prepares the rows of one collection once, for many fits while labels change.
`fit` and `classify` are for arrays; `Fitted` labels later rows and can be kept in a file.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from fewlabels.confidence.calibration import calibrate as calibrate_plan
from fewlabels.confidence.calibration import leave_one_out_temperature
from fewlabels.confidence.outliers import outlier_probabilities
from fewlabels.errors import FileFormatError, InputError
from fewlabels.io.container import Container
from fewlabels.io.words import name_rows
from fewlabels.methods import Assignment, ConfiguredMethod, Method, find_method
from fewlabels.methods.assignment import class_means, similarities
from fewlabels.methods.base import typical_shots
from fewlabels.methods.map import LAM
from fewlabels.preprocess import Pipeline

DEFAULT_METHOD = "map"  # of arrays
FOLDER_METHOD = "folder"  # of a folder that a person labels
OLD_MODEL_METHOD = "map-folder"  # of model files from before methods had names
if hasattr(os, "register_at_fork"):
    # Threads do not survive a fork, and the child would wait for them for ever.
    os.register_at_fork(after_in_child=partial(torch.set_num_threads, 1))
MODEL = Container(
    key="ptmap_model",
    version=1,
    holds="a model of fewlabels",
    way_out="Make one: fewlabels label PHOTOS --model FILE.safetensors",
)


class Answered(NamedTuple):
    """Preprocessed vectors and what the method answered, for E problems at once."""

    support: Tensor  # (E, S, D)
    query: Tensor  # (E, Q, D)
    means: tuple[Tensor, ...]  # that the pipeline subtracted from the queries
    assignment: Assignment


def answer(
    method: ConfiguredMethod,
    support: Tensor,
    support_labels: Tensor,
    query: Tensor,
    *,
    n_way: int,
    pipeline: Pipeline | None = None,
    mean: Tensor | None = None,
    neighborhood: Any = None,
) -> Answered:
    """Preprocess and label: (E, S, D), (E, S) and (E, Q, D) -> Answered.

    Args:
        pipeline: The steps that are still to be done, where some were done before.
        mean: From outside, for steps such as `center(mean)`, (D,).
        neighborhood: Of the preprocessed rows, where it was computed before.
    """
    steps = method.pipeline if pipeline is None else pipeline
    support, query, means = steps.apply_and_record(support, query, mean=mean)
    found = method.assign(support, support_labels, query, n_way=n_way, neighborhood=neighborhood)
    return Answered(support, query, means, found)


@dataclass(frozen=True, eq=False)
class Fitted:
    """What was learned from labelled and unlabelled rows.

    `numbers`, `probabilities` and `labels` are of the unlabelled rows, in their order.

    >>> found = fit("ncm", [[9.0, 1], [1, 9]], ["cat", "dog"], [[8.0, 1], [2, 9]])
    >>> found.class_names, found.labels.tolist(), found.predict([[1.0, 5]]).tolist()
    (('cat', 'dog'), ['cat', 'dog'], ['dog'])
    """

    method: ConfiguredMethod  # with its pipeline decided
    class_names: tuple[Any, ...]  # sorted
    means: tuple[Tensor, ...]  # (1, D) each, that the pipeline centers and scales by
    prototypes: Tensor  # (W, D)
    biases: Tensor  # (W,)
    lam: float  # how sharply later rows are decided
    temperature: float = 1.0  # what log probabilities are divided by
    probabilities: Tensor = field(default_factory=lambda: torch.empty(0, 0))  # (Q, W), calibrated
    numbers: Tensor = field(default_factory=lambda: torch.empty(0).long())  # (Q,)
    assignment: Assignment | None = None  # the evidence; None where there was nothing to label

    @property
    def labels(self) -> NDArray[Any]:
        """The class names of the unlabelled rows, (Q,)."""
        return np.asarray(np.asarray(self.class_names)[self.numbers.numpy()])

    def renamed(self, class_names: Sequence[Any]) -> Self:
        """The same under other names of the classes, in the same order."""
        return replace(self, class_names=tuple(class_names))

    @property
    def n_features(self) -> int:
        """Width of the rows that it takes."""
        return self.prototypes.shape[1] - self.method.pipeline.n_added

    @property
    def proportions(self) -> Tensor:
        """Part of the unlabelled rows that each class received, (W,), before calibration."""
        if self.assignment is None:
            return torch.zeros(len(self.class_names))
        return self.assignment.proportions[0]

    def scores(self, x: Tensor) -> Tensor:
        """Log probabilities of later rows, up to a constant per row, (N, D) -> (N, W)."""
        self.method.pipeline.check_later_rows()
        if x.ndim != 2 or x.shape[1] != self.n_features:
            raise InputError(
                f"features must have shape (N, {self.n_features}) for this model, "
                f"got {tuple(x.shape)}."
            )
        x = self.method.pipeline.replay(x, tuple(mean.to(x) for mean in self.means))
        similar = similarities(x[None], self.prototypes.to(x)[None])[0]
        return (self.lam * similar + self.biases.to(x)) / self.temperature

    def predict_proba(self, x: ArrayLike) -> NDArray[Any]:
        """Probability of each class for later rows, each decided alone, (N, D) -> (N, W)."""
        return np.asarray(self.scores(self._checked(x)).softmax(dim=1).numpy())

    def predict(self, x: ArrayLike) -> NDArray[Any]:
        """Labels of later rows, each decided alone, (N, D) -> (N,)."""
        numbers = self.scores(self._checked(x)).argmax(dim=1).numpy()
        return np.asarray(np.asarray(self.class_names)[numbers])

    def _checked(self, x: ArrayLike) -> Tensor:
        matrix = as_matrix(x, "features")
        self.method.pipeline.check(matrix, "features")
        return matrix

    def save(self, path: Path, *, about: Mapping[str, Any] | None = None) -> None:
        """Write what `predict` needs to a .safetensors file, with words about where it is from."""
        arrays = {"prototypes": self.prototypes.numpy(), "biases": self.biases.numpy()}
        arrays |= {f"mean_{i}": each.reshape(1, -1).numpy() for i, each in enumerate(self.means)}
        numbers = {"lam": self.lam, "temperature": self.temperature}
        method = {"method": self.method.name, "pipeline": str(self.method.pipeline)}
        known = {"class_names": self.class_names, **method, **numbers}
        MODEL.write(path, arrays, {**known, **(about or {})})

    @classmethod
    def load(cls, path: Path) -> tuple[Self, dict[str, Any]]:
        """Read back what `save` wrote: the model, and all that its header says."""
        header, arrays = MODEL.read(path)
        tensors = {name: torch.tensor(each) for name, each in arrays.items()}
        try:
            name = header.get("method", OLD_MODEL_METHOD)
            configured = find_method(name).configure(n_shot=1, pipeline=header["pipeline"])
            means = tuple(tensors[f"mean_{number}"] for number in range(len(tensors) - 2))
            learned = (means, tensors["prototypes"], tensors["biases"], float(header["lam"]))
            # files from before calibration have no temperature
            temperature = float(header.get("temperature", 1.0))
            fitted = cls(configured, tuple(header["class_names"]), *learned, temperature)
        except (KeyError, TypeError, ValueError) as error:
            raise FileFormatError(f"{path} is a damaged model ({error}). Make it anew.") from error
        return fitted, header


@dataclass(frozen=True, eq=False)
class Rows:
    """The rows of one collection, prepared once for many fits with different labels.

    Where the pipeline does not depend on the labels, the vectors and, in large collections, their
    neighbourhoods are computed once. Made by `prepare`.
    """

    method: Method
    settings: Mapping[str, Any]  # given values of the method's knobs, but for the pipeline's
    pipeline: Pipeline  # decided for these rows
    rowwise: Tensor  # (N, D) after the row-wise steps
    x: Tensor  # (N, D) after all steps, as if no row had a label
    means: tuple[Tensor, ...]  # subtracted on the way to x
    prepared: Any = None  # `Method.prepare_rows` of x, where it is kept
    mean: Tensor | None = None  # from outside, for steps such as center(mean), (D,)

    @classmethod
    def prepare(
        cls,
        features: Tensor,
        method: str | Method = DEFAULT_METHOD,
        *,
        mean: Tensor | None = None,
        keep_neighbors: bool = False,
        **settings: Any,
    ) -> Self:
        """Preprocess rows, (N, D), for a method.

        Args:
            mean: From outside, for steps such as `center(mean)`, (D,).
            keep_neighbors: Whether to compute neighbourhoods now, for many fits.
        """
        chosen = find_method(method)
        pipeline = chosen.configure(n_shot=1, **settings).decide(features).pipeline
        rowwise, _, _ = pipeline.rowwise.apply_and_record(features, features[:0], mean=mean)
        _, x, means = pipeline.apply_and_record(features[:0], features, mean=mean)
        keep = keep_neighbors and chosen.prepare_rows is not None and not pipeline.needs_labels
        near = chosen.prepare_rows(x) if keep and chosen.prepare_rows is not None else None
        given = {name: each for name, each in settings.items() if name not in ("beta", "pipeline")}
        return cls(chosen, given, pipeline, rowwise, x, means, near, mean)

    def __len__(self) -> int:
        return len(self.x)

    def subset(self, items: NDArray[np.int64]) -> Self:
        """Some of the rows, as they were preprocessed among all."""
        kept = None if self.prepared is None else self.prepared.take(torch.as_tensor(items))
        return replace(self, rowwise=self.rowwise[items], x=self.x[items], prepared=kept)

    def fit(
        self,
        numbers: Tensor,
        *,
        class_names: Sequence[Any] | None = None,
        n_shot: int | None = None,
        calibrate: bool = False,
    ) -> Fitted:
        """Label the rows that have no label.

        Args:
            numbers: Class number of each row, (N,), -1 where it has no label; every class has one.
            class_names: Of the classes, in the order of their numbers; the numbers by default.
            n_shot: What defaults of the method are chosen by; the median of the labels per class.
            calibrate: Whether probabilities are calibrated by hidden labels.
        """
        known = numbers >= 0
        shown = numbers[known]
        n_way = int(shown.max()) + 1 if class_names is None else len(class_names)
        names = tuple(range(n_way)) if class_names is None else tuple(class_names)
        settings = {**self.settings, "n_shot": n_shot or typical_shots(shown)}
        method = replace(self.method.configure(**settings), pipeline=self.pipeline)
        if known.all():
            return self._fit_labelled(method, shown, names)
        near = None if self.prepared is None else self.prepared.split(known, n_way=n_way)
        support, query, steps = self._split(known)
        how: Any = {"n_way": n_way, "pipeline": steps, "mean": self.mean}
        found = answer(method, support, shown[None], query, **how, neighborhood=near)
        assignment = found.assignment
        if calibrate and not assignment.lam.any():  # hard labels have no probabilities of their own
            lam = assignment.lam + _sharpness(method)
            scores = lam[:, None, None] * similarities(found.query, assignment.prototypes)
            plan = _favor(scores.softmax(dim=-1), assignment.labels)
            assignment = assignment._replace(plan=plan, lam=lam)
        temperature = 1.0
        probabilities = assignment.plan[0]
        if calibrate and not self.method.calibrated:
            fitted = leave_one_out_temperature(found.support, shown[None], found.query, assignment)
            if assignment.calibrated.all():  # only the rule for later rows is too sharp
                lam, biases = assignment.lam / fitted, assignment.biases / fitted[:, None]
                assignment = assignment._replace(lam=lam, biases=biases)
            else:
                temperature = float(fitted[0])
                probabilities = calibrate_plan(assignment, fitted)[0]
        early = self.means[: len(self.means) - len(found.means)]
        return Fitted(
            method,
            names,
            early + tuple(mean.reshape(1, -1) for mean in found.means),
            assignment.prototypes[0],
            assignment.biases[0],
            float(assignment.lam[0]) or _sharpness(method),
            temperature,
            probabilities,
            assignment.labels[0],
            assignment,
        )

    def outlier_probabilities(
        self, numbers: Tensor, found: Tensor, *, on_step: Callable[[], None] = lambda: None
    ) -> Tensor:
        """Probability that an unlabelled row belongs to none of the classes, (Q,)."""
        known = numbers >= 0
        support, query, steps = self._split(known)
        support, query = steps.apply(support, query, mean=self.mean)
        shown = numbers[known][None]
        return outlier_probabilities(support, shown, query, found[None], on_step=on_step)[0]

    def _split(self, known: Tensor) -> tuple[Tensor, Tensor, Pipeline]:
        """Support, (1, S, D), and query, (1, Q, D), and the steps that are still to be done."""
        late = self.pipeline.needs_labels
        vectors = self.rowwise if late else self.x
        steps = self.pipeline.episodic if late else Pipeline(())
        return vectors[known][None], vectors[~known][None], steps

    def _fit_labelled(
        self, method: ConfiguredMethod, shown: Tensor, names: tuple[Any, ...]
    ) -> Fitted:
        """What later rows are decided by, where every row has a label."""
        x, means = self.x, self.means
        if self.pipeline.needs_labels:
            steps, nothing = self.pipeline.episodic, self.rowwise[:0]
            x, _, later = steps.apply_and_record(self.rowwise, nothing, mean=self.mean)
            means = means[: len(means) - len(later)] + later
        if self.method.learn is not None and len(names) > 1:
            prototypes, biases = self.method.learn(x, shown, len(names))
        else:
            prototypes = class_means(x[None], shown[None], len(names))[0]
            biases = x.new_zeros(len(names))
        return Fitted(method, names, means, prototypes, biases, _sharpness(method))


def _favor(plan: Tensor, labels: Tensor) -> Tensor:
    """Make the label of each row its most probable class, (E, Q, W) and (E, Q) -> (E, Q, W).

    Where another class is more probable, because the method does not decide by distance to the
    prototypes, the two exchange their probabilities.
    """
    best, own = plan.argmax(dim=-1, keepdim=True), labels[..., None]
    high, low = plan.gather(-1, best), plan.gather(-1, own)
    return plan.scatter(-1, best, low).scatter(-1, own, high)


def _sharpness(method: ConfiguredMethod) -> float:
    """How sharply later rows are decided where the method estimated nothing."""
    lam = method.settings.get("lam")
    return float(lam) if isinstance(lam, int | float) else LAM


def fit(
    method: str | Method,
    labelled: ArrayLike,
    labels: ArrayLike,
    unlabelled: ArrayLike,
    *,
    mean: ArrayLike | None = None,
    calibrate: bool = False,
    **settings: Any,
) -> Fitted:
    """Learn from labelled rows and label the others.

    Args:
        method: A method or its name, see `fewlabels.method_names()`.
        labelled: Labelled vectors, (S, D).
        labels: Their labels, (S,), of any kind; classes may have different numbers of rows.
        unlabelled: Unlabelled vectors, (Q, D).
        mean: From outside, for steps such as `center(mean)`, (D,).
        calibrate: Whether probabilities are calibrated by hidden labels.
        **settings: Values of the method's knobs, such as beta, lam or prior; and `pipeline`.

    >>> found = fit("map", [[9.0, 1], [1, 9]], ["cat", "dog"], [[8.0, 1], [2, 9], [7, 2], [1, 6]])
    >>> found.labels.tolist(), found.predict([[1.0, 5]]).tolist()
    (['cat', 'dog', 'cat', 'dog'], ['dog'])
    """
    words = np.asarray(labels)
    if any(label is None or label != label for label in words.reshape(-1).tolist()):
        raise InputError(
            "labels must name a class for every labelled row, got None or NaN. "
            "Put rows without a label into unlabelled."
        )
    names, numbers = np.unique(words, return_inverse=True)
    x, q = as_matrix(labelled, "labelled"), as_matrix(unlabelled, "unlabelled")
    if len(x) != numbers.size:
        raise InputError(
            f"labels must hold one label per labelled row, {len(x)}, got {numbers.size}."
        )
    if x.shape[1] != q.shape[1]:
        raise InputError(
            "labelled and unlabelled rows must have the same number of features, "
            f"got {x.shape[1]} and {q.shape[1]}."
        )
    both = torch.cat([x, q]) if x.dtype == q.dtype else torch.cat([x.double(), q.double()])
    given = None if mean is None else torch.as_tensor(np.asarray(mean)).to(both)
    rows = Rows.prepare(both, method, mean=given, **settings)
    rows.pipeline.check(x, "labelled")
    rows.pipeline.check(q, "unlabelled")
    known = torch.full((len(both),), -1)
    known[: len(x)] = torch.as_tensor(numbers.reshape(-1))
    return rows.fit(known, class_names=names.tolist(), calibrate=calibrate)


def classify(
    labelled: ArrayLike,
    labels: ArrayLike,
    unlabelled: ArrayLike,
    *,
    method: str | Method = DEFAULT_METHOD,
    **options: Any,
) -> NDArray[Any]:
    """Arrays in, labels out: the labels of `unlabelled` in the words of `labels`; see `fit`.

    >>> classify([[9.0, 1], [1, 9]], ["cat", "dog"], [[8.0, 1], [2, 9], [7, 2], [1, 6]]).tolist()
    ['cat', 'dog', 'cat', 'dog']
    """
    found = fit(method, labelled, labels, unlabelled, **options)
    return np.asarray(np.unique(np.asarray(labels))[found.numbers.numpy()])


def as_matrix(x: ArrayLike, name: str) -> Tensor:
    """A (rows, features) tensor of float32 or float64 from anything array-like, or an error."""
    try:
        array = np.asarray(x.detach().cpu() if isinstance(x, Tensor) else x)
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
