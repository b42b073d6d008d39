"""scikit-learn's interface: fit(X, y) with -1, None or NaN for what has no label yet.

All classifiers here are semi-supervised in the way of `sklearn.semi_supervised`: `fit` labels the
unlabelled rows (`transduction_`), `predict` labels later rows one by one. They only turn parameters
into a call of `fewlabels.fit` and its answer into attributes.
"""

import warnings
from collections.abc import Mapping
from dataclasses import replace
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
from fewlabels.confidence.calibration import coverage_at_accuracy
from fewlabels.errors import InputError, unknown_choice
from fewlabels.fitting import FOLDER_METHOD, Fitted, Rows
from fewlabels.io.words import name_rows
from fewlabels.methods import Knob, find_method
from fewlabels.methods.map import LAM_KNOB
from fewlabels.preprocess import Pipeline, Step
from fewlabels.preprocess.steps import UNIT
from fewlabels.transport import Prior, as_prior

SHARPNESS = Knob("lam", "how sharply predict_proba tells near from far", low=0, above_low=True)
MAX_ITER = Knob("max_iter", "most iterations of Lloyd's algorithm", low=1, whole=True)
CENTERINGS = {"separate": None, "joint": "joint", "support": "support"}


class Abstention(NamedTuple):
    """Labels of at least `threshold` confidence are kept: `coverage` of all, as a fraction."""

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
        return Pipeline((Step("power", self.beta), *((UNIT,) if self.unit else ())))

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "n_features_in_")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.positive_only = self.beta != 1
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


class FewLabelsClassifier(ClassifierMixin, BaseEstimator):
    """Any registered method as a scikit-learn classifier.

    Args:
        method: Its name, one of `fewlabels.method_names()`.
        settings: Values of its knobs by name, and `pipeline`; the method's own for the rest.
        calibrate: Whether probabilities are calibrated: of the rows with a probability of 0.8,
            80 % belong to the class. Each labelled row is left out in turn and tells the
            temperature (`temperature_`, 1 where nothing is calibrated; temperature scaling, Guo et
            al. 2017); no label changes. See `abstain_threshold`. Probabilities of `map-auto` and
            `folder` are calibrated as they are; of `map-auto`, `lam_` and `biases_` are divided by
            the temperature, for later rows.
        none_of_these: Whether `none_of_these_` (n_samples,) gives the probability that a row
            belongs to none of the classes (0 for labelled rows; None where it is not asked for).
            Labels and probabilities stay those of the classes.

    Attributes after `fit`: `classes_`, `transduction_` (a label for every row),
    `label_distributions_`, `proportions_` (class sizes found among the unlabelled rows),
    `imbalance_`, `certainty_`, `lam_`, `temperature_`, `pipeline_`, `prototypes_`, `biases_`,
    `n_iter_`, `none_of_these_`.

    >>> X, y = [[9.0, 1], [1, 9], [8, 1], [2, 9], [7, 2]], ["cat", "dog", None, None, None]
    >>> FewLabelsClassifier("kmeans").fit(X, y).transduction_.tolist()
    ['cat', 'dog', 'cat', 'dog', 'cat']
    """

    def __init__(
        self,
        method: str = FOLDER_METHOD,
        *,
        settings: Mapping[str, Any] | None = None,
        calibrate: bool = False,
        none_of_these: bool = False,
    ) -> None:
        self.method = method
        self.settings = settings
        self.calibrate = calibrate
        self.none_of_these = none_of_these

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:  # noqa: N803
        """Learn from the labelled rows and label the others.

        Args:
            X: All vectors, (N, D).
            y: Their labels, (N,), of any kind; -1, None, NaN or "" where unknown. Names with any
                of these but "" among them need an array of dtype=object, or a list.
        """
        if y is None:
            raise InputError(
                f"This {type(self).__name__} estimator requires y to be passed, "
                "but the target y is None."
            )
        x = _validate(self, X, self._pipeline, reset=True)
        labels = column_or_1d(y if hasattr(y, "dtype") else np.array(y, dtype=object), warn=True)
        check_consistent_length(x, labels)
        unknown = find_blanks(labels, "y")
        if unknown.all():
            raise InputError(
                f"y must hold at least one label, got only unlabelled rows ({len(labels)} of -1, "
                "None or NaN)."
            )
        known = _plain(labels[~unknown])
        if known.dtype.kind == "f" and np.isinf(known).any():
            raise InputError(
                "Input y contains infinity or a value too large for a label. "
                "Write -1, None or NaN where a label is unknown."
            )
        check_classification_targets(known)
        self.classes_, codes = np.unique(known, return_inverse=True)
        if unknown.any() and self.classes_.tolist() == [1]:
            warnings.warn(
                "y has the class 1 alone: -1 marks rows without a label. If -1 is a class too, "
                "give the classes other numbers, such as 0 and 1.",
                stacklevel=2,
            )
        numbers = torch.full((len(x),), -1)
        numbers[torch.as_tensor(~unknown)] = torch.as_tensor(codes)
        name, settings = self._configuration()
        if isinstance(settings.get("prior"), Mapping):
            settings["prior"] = self._ordered(settings["prior"])
        rows = Rows.prepare(x, name, mean=self._given_mean(x), **settings)
        names, calibrate = self.classes_.tolist(), getattr(self, "calibrate", False)
        found = rows.fit(numbers, class_names=names, calibrate=calibrate)
        self._keep(found if self._lam is None else replace(found, lam=self._lam), numbers)
        self.none_of_these_: NDArray[Any] | None = None
        if getattr(self, "none_of_these", False):
            self.none_of_these_ = np.zeros(len(x), dtype=self.prototypes_.dtype)
            if unknown.any():
                found_outliers = rows.outlier_probabilities(numbers, found.numbers)
                self.none_of_these_[unknown] = found_outliers.numpy()
        return self

    def _keep(self, found: Fitted, numbers: Tensor) -> None:
        """Turn what was fitted into attributes."""
        unknown = (numbers < 0).numpy()
        n_way = len(self.classes_)
        self._fitted = found
        self.pipeline_ = str(found.method.pipeline)
        self.prototypes_, self.biases_ = found.prototypes.numpy(), found.biases.numpy()
        self.lam_, self.temperature_ = found.lam, found.temperature
        self.certainty_, self.imbalance_, self.n_iter_ = 0.0, 0.0, 1
        distributions = np.zeros((len(unknown), n_way), dtype=self.prototypes_.dtype)
        distributions[~unknown] = np.eye(n_way)[numbers[numbers >= 0].numpy()]
        self.proportions_ = distributions.mean(axis=0)
        if (assigned := found.assignment) is not None:
            distributions[unknown] = found.probabilities.numpy()
            self.proportions_ = found.proportions.numpy()
            self.n_iter_ = max(1, int(assigned.n_iterations[0]))
            self.certainty_ = float(assigned.certainty[0])
            self.imbalance_ = float(assigned.imbalance[0])
        self.label_distributions_ = distributions
        self.transduction_ = self.classes_[distributions.argmax(axis=1)]
        self.transduction_[unknown] = self.classes_[found.numbers.numpy()]

    def predict(self, X: ArrayLike) -> NDArray[Any]:  # noqa: N803
        """Labels of later rows, (N, D) -> (N,); each is decided alone."""
        numbers = self._scores(X).argmax(dim=1).numpy()
        return np.asarray(self.classes_[numbers])

    def predict_proba(self, X: ArrayLike) -> NDArray[Any]:  # noqa: N803
        """Probability of each class for later rows, (N, D) -> (N, W), calibrated where asked."""
        return np.asarray(self._scores(X).softmax(dim=1).numpy())

    def _scores(self, X: ArrayLike) -> Tensor:  # noqa: N803
        check_is_fitted(self)
        return self._fitted.scores(_validate(self, X, self._fitted.method.pipeline, reset=False))

    def abstain_threshold(self, accuracy: float = 0.95) -> Abstention:
        """The confidence from which on labels of unlabelled rows are right in `accuracy` of cases.

        Args:
            accuracy: Wanted, 0 to 1.

        Where even the surest label is expected to be worse, the threshold is infinite and the
        coverage 0.
        """
        check_is_fitted(self)
        if not 0 < accuracy <= 1:
            raise InputError(f"accuracy must satisfy 0 < accuracy <= 1, got {accuracy}.")
        calibrated = getattr(self, "calibrate", False)
        if self._fitted.assignment is None or not calibrated:
            why = "calibrate is False, and probabilities are then too sure"
            why = "the fit had no unlabelled rows" if calibrated else why
            raise InputError(
                f"abstain_threshold needs a fit of unlabelled rows with calibrate=True, but {why}."
            )
        return Abstention(*coverage_at_accuracy(self._fitted.probabilities, wanted=accuracy))

    def _configuration(self) -> tuple[str, dict[str, Any]]:
        """The name of the method and its settings."""
        return self.method, dict(self.settings or {})

    @property
    def _pipeline(self) -> Pipeline:
        """The preprocessing, before a power is decided."""
        name, settings = self._configuration()
        if isinstance(settings.get("prior"), Mapping):
            del settings["prior"]  # the classes that it names are not known yet
        return find_method(name).configure(n_shot=1, **settings).pipeline

    @property
    def _lam(self) -> float | None:
        """How sharply later rows are decided, where it is a parameter but no knob."""
        return None

    def _ordered(self, sizes: Mapping[Any, float]) -> list[float]:
        """Class sizes by label, in the order of the classes."""
        if set(sizes) != set(self.classes_.tolist()):
            raise InputError(
                f"prior must name the classes {self.classes_.tolist()}, got {list(sizes)}."
            )
        return [sizes[name] for name in self.classes_.tolist()]

    def _given_mean(self, x: Tensor) -> Tensor | None:
        center = getattr(self, "center", None)
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
        tags.input_tags.positive_only = self._pipeline.positive_only
        # unit norm leaves nothing of the two features of scikit-learn's check
        tags.classifier_tags.poor_score = True
        return tags


class NearestClassMean(FewLabelsClassifier):
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

    def _configuration(self) -> tuple[str, dict[str, Any]]:
        return "ncm", {"pipeline": _build_pipeline(self.beta, "none", unit=self.unit)}

    @property
    def _lam(self) -> float:
        return float(SHARPNESS.check(self.lam))


class SeededKMeans(FewLabelsClassifier):
    """K-Means started from the labelled rows, which keep their class: PT+K-Means of the paper.

    Args:
        beta: Power of the transform; None for none.
        center: "separate" (labelled and unlabelled rows by their own means), "joint", "none", or a
            mean (D,).
        lam: How sharply `predict_proba` tells near from far; it decides no label.
        max_iter: Most iterations of Lloyd's algorithm.

    >>> X, y = [[9.0, 1], [1, 9], [8, 1], [2, 9]], ["cat", "dog", None, None]
    >>> SeededKMeans().fit(X, y).transduction_.tolist()
    ['cat', 'dog', 'cat', 'dog']
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

    def _configuration(self) -> tuple[str, dict[str, Any]]:
        pipeline = _build_pipeline(self.beta, self.center)
        return "kmeans", {"pipeline": pipeline, "max_iterations": MAX_ITER.check(self.max_iter)}

    @property
    def _lam(self) -> float:
        return float(SHARPNESS.check(self.lam))


class PTMAP(FewLabelsClassifier):
    """Power transform and Sinkhorn-MAP (Algorithm 1 of the paper): few labels in, all labels out.

    Args:
        beta: Power of the transform; None for none (features of any sign); "auto" for one that
            suits the features, signed ones included (`pipeline_` says which).
        lam: Inverse temperature: how sharply distance decides. "auto" reads it from the features
            (`lam_`).
        alpha: How far the class centers move in a step; None for the paper's: 0.4 where the median
            class has one label, else 0.2.
        n_steps: Steps of the algorithm; None for the paper's: 30 with one label, else 20.
        center: "separate" (labelled and unlabelled rows by their own means), "joint", "support"
            (all rows by the mean of the labelled), "none", or a mean (D,). None stands for
            "support" where class sizes are estimated, else for "separate".
        prior: What is known about class sizes among the unlabelled rows: "uniform", "free", one
            fraction or count per class (in the order of the sorted labels, or as a dict by label),
            `AtLeast` with lower bounds, or "estimate" where nobody knows them: `proportions_` then
            holds what was found, `imbalance_` how far it is from equal classes (part of the rows
            that would have to change class) and `certainty_` the weight of the hypothesis that
            they are not equal (0 to 1).
        calibrate: As in `FewLabelsClassifier`.
        none_of_these: As in `FewLabelsClassifier`.

    >>> X = [[9.0, 1], [1, 9], [8, 1], [2, 9], [7, 2], [1, 6]]
    >>> y = ["cat", "dog", None, None, None, None]
    >>> PTMAP().fit(X, y).transduction_.tolist()
    ['cat', 'dog', 'cat', 'dog', 'cat', 'dog']

    Two cats and two dogs with a label, as many without, and four of something else:

    >>> X = [[9.0, 1, 1], [9, 2, 1], [1, 9, 1], [1, 9, 2], [8, 1, 1], [9, 1, 2], [2, 9, 1]]
    >>> X += [[1, 8, 1], [1, 1, 9], [2, 1, 9], [1, 2, 9], [1, 1, 8]]
    >>> y = ["cat", "cat", "dog", "dog"] + [None] * 8
    >>> model = PTMAP(center="joint", none_of_these=True).fit(X, y)
    >>> (model.none_of_these_ > 0.5).astype(int).tolist()
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
        prior: Prior | str | ArrayLike | Mapping[Any, float] = "uniform",
        calibrate: bool = False,
        none_of_these: bool = False,
    ) -> None:
        self.beta = beta
        self.lam = lam
        self.alpha = alpha
        self.n_steps = n_steps
        self.center = center
        self.prior = prior
        self.calibrate = calibrate
        self.none_of_these = none_of_these

    def _configuration(self) -> tuple[str, dict[str, Any]]:
        by_label = isinstance(self.prior, Mapping)
        estimated = not by_label and as_prior(self.prior).estimated
        default = "support" if estimated else "separate"
        return "map", {
            "pipeline": _build_pipeline(self.beta, default if self.center is None else self.center),
            "lam": LAM_KNOB.check(self.lam),  # None is no default here
            "alpha": self.alpha,
            "n_steps": self.n_steps,
            "prior": self.prior,
        }


def _build_pipeline(
    beta: float | str | None, center: str | ArrayLike, *, unit: bool = True
) -> Pipeline:
    """The pipeline of an estimator's parameters."""
    steps = [] if beta is None else [Step("power", beta)]
    steps += [UNIT] if unit else []
    if not isinstance(center, str):
        steps += [Step("center", "mean"), UNIT]
    elif center in CENTERINGS:
        steps += [Step("center", CENTERINGS[center]), UNIT]
    elif center != "none":
        raise unknown_choice("center", center, (*CENTERINGS, "none", "a mean"))
    return Pipeline(tuple(steps))


def _validate(
    estimator: BaseEstimator,
    X: ArrayLike,  # noqa: N803
    pipeline: Pipeline,
    *,
    reset: bool,
) -> Tensor:
    """X as a float tensor, checked as scikit-learn checks it and as the pipeline needs it."""
    directed = UNIT in pipeline.steps
    least = 2 if reset and directed else 1  # features: one has no direction
    how = {"dtype": (np.float64, np.float32), "ensure_min_features": least, "order": "C"}
    X = X.detach().cpu().numpy() if isinstance(X, torch.Tensor) else X  # noqa: N806
    x = validate_data(estimator, X, reset=reset, **how)
    if pipeline.positive_only and (x < 0).any():
        rows = name_rows(np.flatnonzero((x < 0).any(axis=1)))
        raise InputError(
            f"Negative values in data passed to {type(estimator).__name__} ({rows}): a fractional "
            "power needs features that are not negative. Take them after a ReLU, or set beta=None; "
            "PTMAP also takes beta='auto', which keeps signs."
        )
    zero = (x == 0).all(axis=1)
    if directed and zero.any():  # a warning, because scikit-learn's own checks pass such rows
        rows = name_rows(np.flatnonzero(zero))
        warnings.warn(f"X has only zeros in {rows}; their labels mean nothing.", stacklevel=3)
    return torch.tensor(x)


def _plain(labels: NDArray[Any]) -> NDArray[Any]:
    """Labels out of an object array in their own dtype: strings sort as strings, numbers too."""
    return np.asarray(labels.tolist()) if labels.dtype == object else labels
