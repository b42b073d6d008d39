"""Which power suits these features? Read from the features where no validation classes tell.

The power transform makes skewed features look more like a Gaussian. The paper's 0.5 does so for
its backbones; features with a heavier tail need a smaller power. The rule:

- not negative: 0.5, unless that leaves them more skewed than an exponential distribution
  (skewness 2); then the power that brings them to it, but no less than 0.3.
- signed: 1 (no power), unless their tails are heavy (excess kurtosis above that of a Laplace
  distribution, 3); then 0.5 with the sign kept.

On real features: WRN-28-10 on CIFAR-FS gets 0.3 (validation says 0.3 to 0.4), EfficientNet-Lite0 on
birds and groceries 0.5 (validation says 0.5 to 0.7, all within 0.5 points).

Measurements, with columns in units of their own, need no power but standardized columns
(`are_measurements`).
"""

from torch import Tensor

from fewlabels.preprocess.steps import MOST_MEASUREMENTS, Step, power

PAPER_POWER = 0.5  # Section 4.2
LEAST_POWER = 0.3  # the smallest that validation classes asked for
EXPONENTIAL_SKEWNESS = 2.0  # of the exponential distribution
LAPLACE_KURTOSIS = 3.0  # of the Laplace distribution, in excess of a Gaussian's
# Of the variance in one column: features of networks have at most 0.03, their 64 first principal
# components at most 0.29 (seven folders); pixels in random units 0.40 (benchmarks/tables.py).
LARGEST_SHARE = 1 / 3
MOST_VALUES = 1_000_000  # feature values that the moments are computed of
LARGEST_VALUE = 1e70  # whose fourth power a float64 still holds
POWER_STEP = 0.05  # between the powers that are tried; closer ones cannot be told apart


def skewness(x: Tensor) -> float:
    """Third standardised moment of all values, 0 where they are all the same.

    >>> import torch
    >>> round(skewness(torch.tensor([0.0, 0.0, 0.0, 1.0])), 4)
    1.1547
    """
    centered = _center(x)
    variance = float((centered**2).mean())
    return float((centered**3).mean()) / variance**1.5 if variance > 0 else 0.0


def excess_kurtosis(x: Tensor) -> float:
    """Fourth standardised moment of all values less a Gaussian's 3, 0 where all are the same."""
    centered = _center(x)
    variance = float((centered**2).mean())
    return float((centered**4).mean()) / variance**2 - 3 if variance > 0 else 0.0


def _center(x: Tensor) -> Tensor:
    """All values less their mean, (n,); scaled to 1 where their powers would overflow."""
    centered = x.double().reshape(-1) - x.double().mean()
    largest = float(centered.abs().max())
    return centered / largest if largest > LARGEST_VALUE else centered


def suggest_power(features: Tensor) -> Step:
    """The power step for these features, (N, D).

    >>> import torch
    >>> str(suggest_power(torch.tensor([[1.0, 2.0], [3.0, 4.0]])))
    'power(0.5)'
    """
    sample = some_rows(features)
    if sample.numel() and float(sample.min()) < 0:
        heavy = excess_kurtosis(sample) > LAPLACE_KURTOSIS
        return Step("signed_power", PAPER_POWER) if heavy else Step("power", 1.0)
    beta = PAPER_POWER
    while (
        beta > LEAST_POWER + POWER_STEP / 2
        and skewness(power(sample, beta=beta)) > EXPONENTIAL_SKEWNESS
    ):
        beta = round(beta - POWER_STEP, 2)
    return Step("power", beta)


def some_rows(features: Tensor) -> Tensor:
    """Evenly spaced rows with about `MOST_VALUES` values, (N, D) -> (n, D)."""
    rows = max(1, MOST_VALUES // features.shape[-1])
    return features[:: max(1, len(features) // rows)]


def are_measurements(features: Tensor) -> bool:
    """Whether columns seem to be measurements rather than features of a network, (N, D).

    They are few, or one of them has so much of the variance that their units must differ.

    >>> import torch
    >>> are_measurements(torch.rand(99, 64)), are_measurements(torch.rand(99, 4))
    (False, True)
    """
    if features.shape[-1] <= MOST_MEASUREMENTS:
        return True
    variances = some_rows(features).double().var(dim=0, correction=0)
    return bool(variances.max() > LARGEST_SHARE * variances.sum())
