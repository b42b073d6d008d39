"""Shares that mean what they say: of the queries given to a class with a share of 0.8, 80 % belong to it.

A plan is overconfident, because its queries took part in the prototypes they are compared with. Labelled
rows show by how much: each is left out of the prototypes and scored as a query would be, and the temperature
is the one at which its true class is most probable. `lam` and the prototypes stay as they are; only the
shares are flattened, plan^(1 / T), so that no label changes.
"""

import torch
from torch import Tensor

from fewlabels.methods.assignment import Assignment, one_hot
from fewlabels.methods.estimation import plan_means

TEMPERATURES = tuple(0.5 * 1.05**step for step in range(43))  # 0.5 to 3.9
USUAL, USUAL_FREE, USUAL_SPREAD = (
    1.7,
    2.8,
    0.25,
)  # log-normal, of validation episodes: five labels a class say little by themselves


def leave_one_out_temperature(
    support: Tensor, support_labels: Tensor, query: Tensor, found: Assignment
) -> Tensor:
    """Temperature of each episode, (E,), from its labelled rows; classes of one label cannot be left out and are not asked.

    Args:
        support: (E, S, D) as the classifier had it.
        support_labels: (E, S).
        query: (E, Q, D).
        found: What the classifier answered.
    """
    n_way = found.plan.shape[-1]
    members = one_hot(support_labels, n_way, support.dtype)
    shots = members.sum(dim=-2)
    total = shots + found.plan.sum(dim=-2)
    prototypes = plan_means(support, members, query, found.plan)
    inner = support @ prototypes.mT  # (E, S, W)
    squared = (support * support).sum(dim=-1, keepdim=True)
    lengths = (prototypes * prototypes).sum(dim=-1)[:, None, :]
    own = (
        members / total[:, None, :]
    )  # the row's part of its class's prototype; without it c' = (c - own x) / (1 - own)
    rest = 1 - own
    inner_without = (inner - own * squared) / rest
    lengths_without = (lengths - 2 * own * inner + own**2 * squared) / rest**2
    # The labels hold every class alike: what the biases add for large classes does not hold for them.
    even = found.biases - (found.plan.mean(dim=-2) * n_way).clamp_min(1e-6).log()
    scores = (
        found.lam[:, None, None] * (2 * inner_without - lengths_without)
        + even.nan_to_num(neginf=-1e4)[:, None, :]
    )
    # Nor are the labels of a class that was given no queries at all: no temperature makes them probable.
    askable = (shots >= 2) & found.biases.isfinite()
    asked = (members * askable[:, None, :].to(members)).sum(dim=-1)  # (E, S)
    usual = (
        USUAL * (USUAL_FREE / USUAL) ** found.certainty
    )  # (E,) class sizes that were fitted too make shares bolder still
    best = usual.to(support)
    highest = support.new_full((len(support),), -torch.inf)
    for temperature in TEMPERATURES:
        likelihood = ((scores / temperature).log_softmax(dim=-1) * members).sum(dim=-1)
        prior = -(((temperature / usual).log() / USUAL_SPREAD) ** 2) / 2
        value = (likelihood * asked).sum(dim=-1) + prior
        best = torch.where(value > highest, temperature, best)
        highest = torch.maximum(value, highest)
    return best


def calibrate(found: Assignment, temperature: Tensor) -> Tensor:
    """Calibrated shares, (E, Q, W): the plan, flattened; no label changes."""
    tiny = torch.finfo(found.plan.dtype).tiny
    shares: Tensor = (found.plan.clamp_min(tiny).log() / temperature[:, None, None]).softmax(dim=-1)
    return shares


def expected_calibration_error(
    shares: Tensor, labels: Tensor, truth: Tensor, *, n_bins: int = 15
) -> float:
    """Mean distance between confidence and accuracy over equal bins of confidence, (E, Q, W), (E, Q) and (E, Q) -> 0 to 1.

    >>> import torch
    >>> shares, labels, truth = torch.tensor([[[0.9, 0.1]] * 4]), torch.zeros(1, 4).long(), torch.tensor([[0, 0, 0, 1]])
    >>> round(expected_calibration_error(shares, labels, truth), 6)
    0.15
    """
    share, said, right = calibration_bins(
        shares.amax(dim=-1).reshape(-1), (labels == truth).reshape(-1), n_bins=n_bins
    )
    return float((share * (said - right).abs()).sum())


def calibration_bins(
    confidence: Tensor, right: Tensor, *, n_bins: int = 15
) -> tuple[Tensor, Tensor, Tensor]:
    """Share of the answers, mean confidence and accuracy in equal bins of confidence, (N,) and (N,) -> (B,); 0 in empty bins."""
    confidence, right = confidence.double(), right.double()
    bins = (confidence * n_bins).ceil().clamp(1, n_bins).long() - 1
    counts = torch.bincount(bins, minlength=n_bins)
    said, correct = (
        torch.bincount(bins, weights=each, minlength=n_bins) / counts.clamp_min(1)
        for each in (confidence, right)
    )
    return counts / len(confidence), said, correct


def accuracy_at_coverage(shares: Tensor, *, wanted: float) -> tuple[float, float]:
    """Least confidence at which the answers that remain are expected to be right in `wanted` of the cases, and their share.

    With calibrated shares the expected accuracy of a set of answers is their mean confidence: no label is needed.
    Where even the surest answer is expected to be worse, the threshold is above 1 and nothing remains.
    """
    confidence = shares.amax(dim=-1).double().reshape(-1).sort(descending=True).values
    expected = confidence.cumsum(0) / torch.arange(1, len(confidence) + 1, device=confidence.device)
    kept = int((expected >= wanted).sum())
    return (float(confidence[kept - 1]), kept / len(confidence)) if kept else (float("inf"), 0.0)
