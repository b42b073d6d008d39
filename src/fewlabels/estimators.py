"""scikit-learn's door into fewlabels: fit(X, y) with -1, None or NaN for what has no label yet.

All classifiers here are semi-supervised in the way of `sklearn.semi_supervised`: `fit` labels the
unlabelled rows (`transduction_`), `predict` labels later points one by one.
"""

import warnings
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, OneToOneFeatureMixin, TransformerMixin
from sklearn.utils import check_consistent_length, column_or_1d
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor

from fewlabels.blanks import find_blanks
from fewlabels.confidence.calibration import (
    accuracy_at_coverage,
    calibrate,
    leave_one_out_temperature,
)
from fewlabels.confidence.outliers import outsider_shares
from fewlabels.errors import InputError, name_rows, unknown_choice
from fewlabels.methods.assignment import Assignment, class_means, one_hot, similarities
from fewlabels.methods.base import check_number, paper_settings
from fewlabels.methods.kmeans import assign_kmeans
from fewlabels.methods.map import LAM, assign_map
from fewlabels.methods.nearest import assign_nearest
from fewlabels.preprocess import Pipeline
from fewlabels.transport.prior import Proportions

CENTERS = {
    "separate": "center",
    "joint": "center(joint)",
    "none": None,
    "support": "center(support)",
}


class Abstention(NamedTuple):
    """Where to say "I don't know": answers of at least `threshold` confidence are kept, `coverage` of all."""

    threshold: float
    coverage: float


class PowerTransform(OneToOneFeatureMixin, TransformerMixin, BaseEstimator):
    """Eq. (1) of the paper as a transformer: (x + 1e-6)^beta, then unit norm.

    Args:
        beta: Power; 0 takes the log, 1 leaves the shape alone. Negative features need beta = 1.
        unit: Whether each row is then scaled to norm 1.

    >>> PowerTransform(beta=0.5).fit_transform([[16.0, 9.0]]).round(3).tolist()
    [[0.8, 0.6]]
    """

    def __init__(self, beta: float = 0.5, *, unit: bool = True) -> None:
        self.beta = beta
        self.unit = unit

    def fit(self, X: ArrayLike, y: object = None) -> Self:  # noqa: ARG002, N803 - scikit-learn's signature
        """Check the features; there is nothing to learn."""
        _validate(self, X, self._pipeline, reset=True)
        return self

    def transform(self, X: ArrayLike) -> NDArray[Any]:  # noqa: N803
        """Transformed features, (N, D) -> (N, D)."""
        check_is_fitted(self)
        x = _validate(self, X, self._pipeline, reset=False)
        return np.asarray(self._pipeline.replay(x, ()).numpy())

    @property
    def _pipeline(self) -> Pipeline:
        return Pipeline.parse(f"power({self.beta})" + (" | unit" if self.unit else ""))

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "n_features_in_")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.positive_only = self.beta != 1
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


class _FewShotClassifier(ClassifierMixin, BaseEstimator):
    """What the three classifiers share: telling labelled from unlabelled rows, and predicting later points.

    A subclass gives `_begin`, `_pipeline`, `_sharpness` and `_assign`.
    """

    beta: float | str | None

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:  # noqa: N803
        """Learn from the labelled rows and label the others.

        Args:
            X: All vectors, (N, D).
            y: Their labels, (N,), of any kind; -1, None, NaN or "" where unknown. Names with any of these but "" among them
                need an array of dtype=object, or a list.
        """
        if y is None:
            raise InputError(
                f"This {type(self).__name__} estimator requires y to be passed, but the target y is None."
            )
        self._begin()
        pipeline = self._pipeline()
        x = _validate(self, X, pipeline, reset=True)
        pipeline = pipeline.decide(x)
        self.pipeline_ = str(pipeline)
        labels = column_or_1d(y if hasattr(y, "dtype") else np.array(y, dtype=object), warn=True)
        check_consistent_length(x, labels)
        unknown = find_blanks(labels, "y")
        if unknown.all():
            raise InputError(
                f"y must hold at least one label, got only unlabelled rows ({len(labels)} of -1, None or NaN)."
            )
        known = _plain(labels[~unknown])
        if known.dtype.kind == "f" and np.isinf(known).any():
            raise InputError(
                "Input y contains infinity or a value too large for a label. Write -1, None or NaN where a label is unknown."
            )
        check_classification_targets(known)
        self.classes_, codes = np.unique(known, return_inverse=True)
        n_way = len(self.classes_)
        rows, numbers = x[torch.as_tensor(~unknown)], torch.as_tensor(codes)
        support, query, means = pipeline.apply_and_record(
            rows, x[torch.as_tensor(unknown)], mean=self._given_mean(x)
        )
        members = one_hot(numbers, n_way, x.dtype)
        distributions = np.empty((len(x), n_way), dtype=x.numpy().dtype)
        distributions[~unknown] = members.numpy()
        if unknown.any():
            found = self._assign(support[None], numbers[None], query[None], n_way)
            prototypes, biases = found.prototypes[0], found.biases[0]
            distributions[unknown] = self._shares(support[None], numbers[None], query[None], found)[
                0
            ].numpy()
            self.proportions_ = found.proportions[0].numpy()
            self.n_iter_ = max(1, int(found.n_iterations[0]))
            self._keep_evidence(found)
            self._keep_outsiders(support[None], numbers[None], query[None], found, unknown)
        else:
            prototypes, biases = (
                class_means(support[None], numbers[None], n_way)[0],
                x.new_zeros(n_way),
            )
            self.proportions_ = members.mean(dim=0).numpy()
            self.n_iter_ = 1
        self.prototypes_, self.biases_ = prototypes.numpy(), biases.numpy()
        self.centering_means_ = tuple(mean.reshape(1, -1).numpy() for mean in means)
        self.label_distributions_ = distributions
        self.transduction_ = self.classes_[distributions.argmax(axis=1)]
        if unknown.any():
            self.transduction_[unknown] = self.classes_[found.labels[0].numpy()]
        return self

    def predict(self, X: ArrayLike) -> NDArray[Any]:  # noqa: N803
        """Labels of later points, (N, D) -> (N,); each is decided alone."""
        numbers = self._scores(X).argmax(dim=1).numpy()
        return np.asarray(self.classes_[numbers])

    def predict_proba(self, X: ArrayLike) -> NDArray[Any]:  # noqa: N803
        """Share of each class in later points, (N, D) -> (N, W)."""
        return np.asarray(self._scores(X).softmax(dim=1).numpy())

    def _scores(self, X: ArrayLike) -> Tensor:  # noqa: N803
        check_is_fitted(self)
        pipeline = Pipeline.parse(self.pipeline_)
        x = _validate(self, X, pipeline, reset=False)
        x = pipeline.replay(x, tuple(torch.as_tensor(mean).to(x) for mean in self.centering_means_))
        similar = similarities(x[None], torch.as_tensor(self.prototypes_).to(x)[None])[0]
        return self._sharpness() * similar + torch.as_tensor(self.biases_).to(x)

    def _begin(self) -> None:
        """Refuse settings that are no numbers, and forget what an earlier fit found."""
        raise NotImplementedError

    def _pipeline(self) -> Pipeline:
        raise NotImplementedError

    def _sharpness(self) -> float:
        raise NotImplementedError

    def _assign(self, support: Tensor, labels: Tensor, query: Tensor, n_way: int) -> Assignment:
        raise NotImplementedError

    def _shares(self, support: Tensor, labels: Tensor, query: Tensor, found: Assignment) -> Tensor:  # noqa: ARG002 - PTMAP's calibration asks
        """Shares of the classes in the unlabelled rows, (1, Q, W)."""
        return found.plan

    def _keep_evidence(self, found: Assignment) -> None:
        """What an estimate says about itself, kept where there is one."""

    def _keep_outsiders(
        self,
        support: Tensor,
        labels: Tensor,
        query: Tensor,
        found: Assignment,
        unknown: NDArray[np.bool_],
    ) -> None:
        """Which of the unlabelled rows seem to belong to no class, kept where it is asked for."""

    def _given_mean(self, x: Tensor) -> Tensor | None:
        center = getattr(self, "center", "none")
        if center is None or isinstance(center, str):
            return None
        mean = torch.as_tensor(np.asarray(center)).to(x)
        if mean.shape != x.shape[1:]:
            raise InputError(
                f"center must be a mean of {x.shape[1]} features, got shape {tuple(mean.shape)}."
            )
        return mean

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.positive_only = self.beta not in (None, 1, "auto")
        tags.classifier_tags.poor_score = (
            True  # unit norm leaves nothing of the two features of scikit-learn's check
        )
        return tags


class NearestClassMean(_FewShotClassifier):
    """Nearest class mean: PT+NCM of the paper, or plain NCM with `beta=None, unit=False`.

    Args:
        beta: Power of the transform; None for none.
        unit: Whether each vector is scaled to norm 1.
        lam: How sharply `predict_proba` tells near from far; it decides no label.

    >>> X, y = [[9.0, 1], [1, 9], [8, 1], [2, 9]], ["cat", "dog", None, None]
    >>> NearestClassMean().fit(X, y).transduction_.tolist()
    ['cat', 'dog', 'cat', 'dog']
    """

    def __init__(self, beta: float | None = 0.5, *, unit: bool = True, lam: float = 10.0) -> None:
        self.beta = beta
        self.unit = unit
        self.lam = lam

    def _begin(self) -> None:
        check_number("lam", self.lam)

    def _pipeline(self) -> Pipeline:
        return _build_pipeline(self.beta, "none", unit=self.unit)

    def _sharpness(self) -> float:
        return self.lam

    def _assign(self, support: Tensor, labels: Tensor, query: Tensor, n_way: int) -> Assignment:
        return assign_nearest(support, labels, query, n_way=n_way)


class SeededKMeans(_FewShotClassifier):
    """K-Means started from the labelled rows, which never leave their class: PT+K-Means of the paper.

    Args:
        beta: Power of the transform; None for none.
        center: "separate" (labelled and unlabelled rows by their own means), "joint", "none", or a mean (D,).
        lam: How sharply `predict_proba` tells near from far; it decides no label.
        max_iter: Most iterations of Lloyd's algorithm.
    """

    def __init__(
        self,
        beta: float | None = 0.5,
        *,
        center: str | ArrayLike = "separate",
        lam: float = 10.0,
        max_iter: int = 100,
    ) -> None:
        self.beta = beta
        self.center = center
        self.lam = lam
        self.max_iter = max_iter

    def _begin(self) -> None:
        check_number("lam", self.lam)
        check_number("max_iter", self.max_iter, whole=True)

    def _pipeline(self) -> Pipeline:
        return _build_pipeline(self.beta, self.center)

    def _sharpness(self) -> float:
        return self.lam

    def _assign(self, support: Tensor, labels: Tensor, query: Tensor, n_way: int) -> Assignment:
        return assign_kmeans(support, labels, query, n_way=n_way, max_iterations=self.max_iter)


class PTMAP(_FewShotClassifier):
    """Power transform and Sinkhorn-MAP (Algorithm 1 of the paper): a few labels in, all labels out.

    Args:
        beta: Power of the transform; None for none (features of any sign); "auto" for one that suits the features,
            signed ones included (`pipeline_` says which).
        lam: Inverse temperature: how sharply distance decides. "auto" reads it from the features (`lam_`).
        alpha: How far the class centers move in a step; None for the paper's 0.4 with one label in
            the rarest class and 0.2 with more.
        n_steps: Steps of the algorithm; None for the paper's 30 with one label and 20 with more.
        center: "separate" (labelled and unlabelled rows by their own means), "joint", "support" (all rows by the mean
            of the labelled), "none", or a mean (D,). None stands for "support" where proportions are estimated,
            else for "separate".
        proportions: Class sizes among the unlabelled rows: "uniform", "free", one fraction or count per
            class (in the order of the sorted labels, or as a dict by label), `AtLeast` with lower bounds, or
            "estimate" where nobody knows them: `proportions_` then holds what was found, `imbalance_` how far
            it is from equal classes (share of the rows in the wrong place if classes were equal) and
            `certainty_` how sure it is that they are not equal (0 to 1).
        calibrate: Whether shares are flattened so that they mean what they say: of the rows with a share of 0.8, 80 %
            belong to the class. Each labelled row is left out in turn and tells by how much (`temperature_`, 1 where
            nothing is calibrated); no label changes. See `abstain_threshold`.
        none_of_these: Whether `none_of_these_` (n_samples,) is to say how probable it is that a row belongs to none of the
            classes (0 for labelled rows; None where it is not asked for). Labels and shares stay those of the classes.

    >>> X, y = [[9.0, 1], [1, 9], [8, 1], [2, 9], [7, 2], [1, 6]], ["cat", "dog", None, None, None, None]
    >>> PTMAP().fit(X, y).transduction_.tolist()
    ['cat', 'dog', 'cat', 'dog', 'cat', 'dog']

    Two cats and two dogs with a label, as many without, and four of something else:

    >>> X = [[9.0, 1, 1], [9, 2, 1], [1, 9, 1], [1, 9, 2], [8, 1, 1], [9, 1, 2], [2, 9, 1], [1, 8, 1]]
    >>> X += [[1, 1, 9], [2, 1, 9], [1, 2, 9], [1, 1, 8]]
    >>> y = ["cat", "cat", "dog", "dog"] + [None] * 8
    >>> (PTMAP(center="joint", none_of_these=True).fit(X, y).none_of_these_ > 0.5).astype(int).tolist()
    [0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1]
    """

    def __init__(
        self,
        beta: float | str | None = 0.5,
        *,
        lam: float | str = 10.0,
        alpha: float | None = None,
        n_steps: int | None = None,
        center: str | ArrayLike | None = None,
        proportions: Proportions | dict[Any, float] = "uniform",
        calibrate: bool = False,
        none_of_these: bool = False,
    ) -> None:
        self.beta = beta
        self.lam = lam
        self.alpha = alpha
        self.n_steps = n_steps
        self.center = center
        self.proportions = proportions
        self.calibrate = calibrate
        self.none_of_these = none_of_these

    def _begin(self) -> None:
        check_number("lam", self.lam, also=("auto",))
        check_number("alpha", self.alpha, also=(None,))
        check_number("n_steps", self.n_steps, whole=True, also=(None,))
        self.lam_ = (
            LAM if self.lam == "auto" else float(self.lam)
        )  # of a fit without unlabelled rows
        self.imbalance_, self.certainty_, self.temperature_ = 0.0, 0.0, 1.0
        self._unlabelled_shares: Tensor | None = None
        self.none_of_these_: NDArray[Any] | None = None

    def _pipeline(self) -> Pipeline:
        estimating = isinstance(self.proportions, str) and self.proportions == "estimate"
        return _build_pipeline(
            self.beta,
            ("support" if estimating else "separate") if self.center is None else self.center,
        )

    def _sharpness(self) -> float:
        return self.lam_

    def _assign(self, support: Tensor, labels: Tensor, query: Tensor, n_way: int) -> Assignment:
        defaults = paper_settings(int(torch.bincount(labels[0]).min()))
        return assign_map(
            support,
            labels,
            query,
            n_way=n_way,
            lam=self.lam,
            alpha=defaults["alpha"] if self.alpha is None else self.alpha,
            n_steps=defaults["n_steps"] if self.n_steps is None else self.n_steps,
            proportions=self._ordered_proportions(),
        )

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:  # noqa: N803
        """Learn from the labelled rows and label the others; see `_FewShotClassifier.fit`."""
        super().fit(X, y)
        if self.none_of_these and self.none_of_these_ is None:  # all rows have labels
            self.none_of_these_ = np.zeros(
                len(self.transduction_), dtype=self.label_distributions_.dtype
            )
        return self

    def predict_proba(self, X: ArrayLike) -> NDArray[Any]:  # noqa: N803
        """Share of each class in later points, (N, D) -> (N, W), calibrated where asked."""
        return np.asarray((self._scores(X) / self.temperature_).softmax(dim=1).numpy())

    def abstain_threshold(self, accuracy: float = 0.95) -> Abstention:
        """The confidence from which on the labels of the unlabelled rows are expected to be right in `accuracy` of the cases.

        Args:
            accuracy: Wanted, 0 to 1.

        Where even the surest label is expected to be worse, the threshold is infinite and the coverage 0.
        """
        check_is_fitted(self)
        if not 0 < accuracy <= 1:
            raise InputError(f"accuracy must satisfy 0 < accuracy <= 1, got {accuracy}.")
        if self._unlabelled_shares is None:
            why = (
                "the fit had no unlabelled rows"
                if self.calibrate
                else "calibrate is False, and shares are then too sure"
            )
            raise InputError(
                f"abstain_threshold needs a fit of unlabelled rows with calibrate=True, but {why}."
            )
        return Abstention(*accuracy_at_coverage(self._unlabelled_shares, wanted=accuracy))

    def _shares(self, support: Tensor, labels: Tensor, query: Tensor, found: Assignment) -> Tensor:
        if not self.calibrate:
            return found.plan
        temperature = leave_one_out_temperature(support, labels, query, found)
        self.temperature_ = float(temperature[0])
        self._unlabelled_shares = calibrate(found, temperature)
        return self._unlabelled_shares

    def _keep_evidence(self, found: Assignment) -> None:
        self.lam_ = (
            float(found.lam[0]) or self.lam_
        )  # 0 where too few rows left it to nearest class mean
        self.certainty_ = float(found.certainty[0])
        self.imbalance_ = float(found.imbalance[0])

    def _keep_outsiders(
        self,
        support: Tensor,
        labels: Tensor,
        query: Tensor,
        found: Assignment,
        unknown: NDArray[np.bool_],
    ) -> None:
        if self.none_of_these:
            self.none_of_these_ = np.zeros(len(unknown), dtype=query.numpy().dtype)
            self.none_of_these_[unknown] = outsider_shares(support, labels, query, found.labels)[
                0
            ].numpy()

    def _ordered_proportions(self) -> Proportions:
        if not isinstance(self.proportions, dict):
            return self.proportions
        if set(self.proportions) != set(self.classes_.tolist()):
            raise InputError(
                f"proportions must name the classes {self.classes_.tolist()}, got {list(self.proportions)}."
            )
        return [self.proportions[name] for name in self.classes_.tolist()]


def _build_pipeline(
    beta: float | str | None, center: str | ArrayLike, *, unit: bool = True
) -> Pipeline:
    steps = [] if beta is None else [f"power({beta})"]
    steps += ["unit"] if unit else []
    if not isinstance(center, str):
        steps += ["center(mean)", "unit"]
    elif center not in CENTERS:
        raise unknown_choice("center", center, (*CENTERS, "a mean"))
    elif CENTERS[center]:
        steps += [CENTERS[center] or "", "unit"]
    return Pipeline.parse(" | ".join(steps))


def _validate(estimator: BaseEstimator, X: ArrayLike, pipeline: Pipeline, *, reset: bool) -> Tensor:  # noqa: N803
    """X as a float tensor, checked as scikit-learn checks it and as the pipeline needs it."""
    at_least = (
        2 if reset and "unit" in pipeline.steps else 1
    )  # the direction of a vector of one feature says nothing
    x = validate_data(
        estimator,
        X,
        dtype=(np.float64, np.float32),
        reset=reset,
        ensure_min_features=at_least,
        order="C",
    )
    if pipeline.positive_only and (x < 0).any():
        rows = name_rows(np.flatnonzero((x < 0).any(axis=1)))
        raise InputError(
            f"Negative values in data passed to {type(estimator).__name__} ({rows}): a fractional power needs features "
            "that are not negative. Take them after a ReLU, or set beta=None; PTMAP also takes beta='auto', which keeps signs."
        )
    zero = (x == 0).all(axis=1)
    if (
        "unit" in pipeline.steps and zero.any()
    ):  # a warning, because scikit-learn's own checks pass such rows
        warnings.warn(
            f"X has only zeros in {name_rows(np.flatnonzero(zero))}; their labels mean nothing.",
            stacklevel=3,
        )
    return torch.tensor(x)


def _plain(labels: NDArray[Any]) -> NDArray[Any]:
    """Labels out of an object array in their own dtype: strings sort as strings, numbers as numbers."""
    return np.asarray(labels.tolist()) if labels.dtype == object else labels
