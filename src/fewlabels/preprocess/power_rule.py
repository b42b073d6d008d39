"""Which power suits these features? Read from the features themselves where no validation classes say it.

The power transform is there to make skewed features look more like a Gaussian. The paper's 0.5 does so for
its backbones; features with a heavier tail want less. The rule:

- not negative: 0.5, unless that leaves them more skewed than an exponential distribution (skewness 2); then
  the power that brings them to it, but no less than 0.3.
- signed: 1 (no power), unless their tails are heavy (excess kurtosis above that of a Laplace distribution, 3);
  then 0.5 with the sign kept.

On real features: WRN-28-10 on CIFAR-FS gets 0.3 (validation says 0.3 to 0.4), EfficientNet-Lite0 on birds and
groceries 0.5 (validation says 0.5 to 0.7, all within 0.5 points).
"""

from torch import Tensor

from fewlabels.preprocess.steps import power

PAPER_POWER, LEAST_POWER = 0.5, 0.3
EXPONENTIAL_SKEWNESS = 2.0
LAPLACE_KURTOSIS = 3.0  # in excess of a Gaussian's
LOOKED_AT = 1_000_000  # values are enough to tell a skewness by
STEP = 0.05  # powers are tried this far apart; closer ones cannot be told from one another


def skewness(x: Tensor) -> float:
    """Third standardised moment of all values, 0 where they are all the same.

    >>> import torch
    >>> round(skewness(torch.tensor([0.0, 0.0, 0.0, 1.0])), 4)
    1.1547
    """
    centered = x.double().reshape(-1) - x.double().mean()
    spread = float((centered**2).mean())
    return float((centered**3).mean()) / spread**1.5 if spread > 0 else 0.0


def excess_kurtosis(x: Tensor) -> float:
    """Fourth standardised moment of all values less a Gaussian's 3, 0 where they are all the same."""
    centered = x.double().reshape(-1) - x.double().mean()
    spread = float((centered**2).mean())
    return float((centered**4).mean()) / spread**2 - 3 if spread > 0 else 0.0


def suggest_power(features: Tensor) -> str:
    """The power step for these features, (N, D) -> "power(0.5)", "signed_power(0.5)" or "power(1)".

    >>> import torch
    >>> suggest_power(torch.tensor([[1.0, 2.0], [3.0, 4.0]]))
    'power(0.5)'
    """
    rows = max(1, LOOKED_AT // features.shape[-1])
    looked_at = features[:: max(1, len(features) // rows)]
    if looked_at.numel() and float(looked_at.min()) < 0:
        return (
            f"signed_power({PAPER_POWER})"
            if excess_kurtosis(looked_at) > LAPLACE_KURTOSIS
            else "power(1)"
        )
    beta = PAPER_POWER
    while (
        beta > LEAST_POWER + STEP / 2
        and skewness(power(looked_at, beta=beta)) > EXPONENTIAL_SKEWNESS
    ):
        beta = round(beta - STEP, 2)
    return f"power({beta:g})"
