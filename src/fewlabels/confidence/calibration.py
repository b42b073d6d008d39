"""Calibrated probabilities: of the queries with confidence 0.8, about 80 % have the right label.

A plan is overconfident, because its queries took part in the prototypes that they are compared
with. The labelled rows measure by how much: each is left out of its prototype and scored like a
query, and one temperature T per episode is fitted to the probability of their true classes
(temperature scaling, Guo et al., 2017), with a log-normal prior. The calibrated probabilities are
plan^(1 / T), normalized. No label changes.

Guo, Pleiss, Sun, Weinberger: On calibration of modern neural networks. ICML 2017.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from fewlabels.methods.assignment import Assignment, one_hot
from fewlabels.methods.estimation import plan_means


@dataclass(frozen=True)
class CalibrationConstants:
    """Hand-set numbers of the calibration; the prior is that of validation episodes."""

    temperature_minimum: float = 0.5  # lowest temperature tried
    temperature_ratio: float = 1.05  # of two temperatures tried; the precision of the result
    temperature_count: int = 43  # temperatures tried: 0.5 to 3.9
    balanced_temperature: float = 1.7  # median of the prior where classes are equally large
    free_temperature: float = 2.3  # median of the prior where class sizes were fitted too
    log_spread: float = 0.4  # standard deviation of the log; five labels per class say little
    mass_floor: float = (
        1e-6  # class proportion times classes; keeps the log of an empty class finite
    )
    empty_bias: float = -1e4  # log odds that replace -infinity for a class that must stay empty

    def temperatures(self) -> tuple[float, ...]:
        """The temperatures tried, ascending."""
        return tuple(
            self.temperature_minimum * self.temperature_ratio**step
            for step in range(self.temperature_count)
        )


CALIBRATION = CalibrationConstants()


def leave_one_out_temperature(
    support: Tensor, support_labels: Tensor, query: Tensor, found: Assignment
) -> Tensor:
    """Temperature of each episode from its labelled rows, (E, S, D), (E, S), (E, Q, D) -> (E,).

    A class with one label is not used: without it the class has no label.

    Args:
        support: As the classifier had it.
        support_labels: Class numbers.
        query: As the classifier had it.
        found: The answer of the classifier.
    """
    n_way = found.plan.shape[-1]
    members = one_hot(support_labels, n_way, support.dtype)
    shots = members.sum(dim=-2)
    total = shots + found.plan.sum(dim=-2)
    prototypes = plan_means(support, members, query, found.plan)
    inner = support @ prototypes.mT  # (E, S, W)
    squared = (support * support).sum(dim=-1, keepdim=True)
    norms = (prototypes * prototypes).sum(dim=-1)[:, None, :]
    own = members / total[:, None, :]  # weight of the row in its prototype c
    rest = 1 - own  # the prototype without the row x is c' = (c - own x) / rest
    inner_without = (inner - own * squared) / rest
    norms_without = (norms - 2 * own * inner + own**2 * squared) / rest**2
    # The labels are balanced, so the part of the biases that favors large classes is removed.
    proportions = (found.plan.mean(dim=-2) * n_way).clamp_min(CALIBRATION.mass_floor)
    biases = (found.biases - proportions.log()).nan_to_num(neginf=CALIBRATION.empty_bias)
    scores = found.lam[:, None, None] * (2 * inner_without - norms_without) + biases[:, None, :]
    # A class that received no queries is not used: no temperature makes its labels probable.
    usable = (shots >= 2) & found.biases.isfinite()
    used = (members * usable[:, None, :].to(members)).sum(dim=-1)  # (E, S)
    ratio = CALIBRATION.free_temperature / CALIBRATION.balanced_temperature
    median = CALIBRATION.balanced_temperature * ratio**found.certainty  # (E,)
    best = median.to(support)
    highest = support.new_full((len(support),), -torch.inf)
    for temperature in CALIBRATION.temperatures():
        log_likelihood = ((scores / temperature).log_softmax(dim=-1) * members).sum(dim=-1)
        log_prior = -(((temperature / median).log() / CALIBRATION.log_spread) ** 2) / 2
        value = log_likelihood.where(used > 0, 0.0).sum(dim=-1) + log_prior
        best = torch.where(value > highest, temperature, best)
        highest = torch.maximum(value, highest)
    return best


def calibrate(found: Assignment, temperature: Tensor) -> Tensor:
    """Calibrated probabilities, (E, Q, W), from the plan and temperatures (E,)."""
    tiny = torch.finfo(found.plan.dtype).tiny
    logits = found.plan.clamp_min(tiny).log() / temperature[:, None, None]
    probabilities: Tensor = logits.softmax(dim=-1)
    return probabilities


def expected_calibration_error(
    probabilities: Tensor, labels: Tensor, truth: Tensor, *, n_bins: int = 15
) -> float:
    """Mean of |confidence - accuracy| over bins, (E, Q, W), (E, Q) and (E, Q) -> 0 to 1.

    >>> import torch
    >>> probabilities, labels = torch.tensor([[[0.9, 0.1]] * 4]), torch.zeros(1, 4).long()
    >>> truth = torch.tensor([[0, 0, 0, 1]])
    >>> round(expected_calibration_error(probabilities, labels, truth), 6)
    0.15
    """
    confidence = probabilities.amax(dim=-1).reshape(-1)
    fraction, said, right = calibration_bins(
        confidence, (labels == truth).reshape(-1), n_bins=n_bins
    )
    return float((fraction * (said - right).abs()).sum())


def calibration_bins(
    confidence: Tensor, right: Tensor, *, n_bins: int = 15
) -> tuple[Tensor, Tensor, Tensor]:
    """Fraction, mean confidence and accuracy per bin of confidence, (N,) and (N,) -> (B,) each.

    Bins have equal width; an empty bin has zeros.
    """
    confidence, right = confidence.double(), right.double()
    bins = (confidence * n_bins).ceil().clamp(1, n_bins).long() - 1
    counts = torch.bincount(bins, minlength=n_bins)
    said, correct = (
        torch.bincount(bins, weights=each, minlength=n_bins) / counts.clamp_min(1)
        for each in (confidence, right)
    )
    return counts / len(confidence), said, correct


def coverage_at_accuracy(probabilities: Tensor, *, wanted: float) -> tuple[float, float]:
    """Smallest confidence to keep for an expected accuracy of `wanted`, and the fraction kept.

    The expected accuracy of labels with calibrated probabilities is their mean confidence, so no
    true label is needed. If no label reaches `wanted`, the result is (infinity, 0).
    """
    confidence = probabilities.amax(dim=-1).double().reshape(-1).sort(descending=True).values
    expected = confidence.cumsum(0) / torch.arange(1, len(confidence) + 1, device=confidence.device)
    kept = int((expected >= wanted).sum())
    return (float(confidence[kept - 1]), kept / len(confidence)) if kept else (float("inf"), 0.0)
