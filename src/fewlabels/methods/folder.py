"""Folder: three models of the classes, weighted by hidden labels, for whole folders.

MAP models a class by its mean alone. From about five labels per class on, or with thousands of
unlabelled rows, the rows also tell in which directions classes differ. Three known models share the
work; each is the best one somewhere:

1. *Logistic regression* on neighborhood features (`preprocess.smoothing`: within-class whitening,
   neighbor means appended), fitted on the labelled rows: log p1. Best with many labels.
2. *Gaussian classes with one shared covariance*, fitted to all rows by expectation maximisation
   (semi-supervised linear discriminant analysis) beside p1 and the graph of nearest neighbors W
   (label spreading, Zhou et al. 2004): log p2, a product of three experts (Hinton 2002).

       mu_j = sum_i P_ij z_i / n_j            n_j = sum_i P_ij, labelled rows fixed
       S    = (1 - s) S_within + s tr(S_within) / D I            (shrinkage, Friedman 1989)
       P_ij ~ p1_ij exp(b (mu_j' S^-1 z_i - mu_j' S^-1 mu_j / 2) + g (W P)_ij)

   It starts from p1 and stays near it, as far as the rows agree. Best with few labels and many
   rows.
3. *MAP* with estimated class sizes (`methods.map`): log p3. Best with few labels and few rows, or
   uneven classes.

Before that, the rows are reduced to principal components. A covariance of more columns needs more
rows, so a large folder keeps more components.

They err in different ways. Their log probabilities are added with weights,

    log p = w1 log p1 + w2 log p2 + w3 log p3 + constant,

which maximise the likelihood of hidden labels: each label is hidden once, a fifth of them at a
time, and predicted from the others (stacking, Wolpert 1992; Breiman 1996). A Gaussian prior keeps
the weights near those of validation folders, where labels are few; with one label per class they
are these. The weights also calibrate the probabilities.

Labels are about as many in every class, rows are not. So the sizes pi_j of the classes are
estimated once more, from all rows, the labelled ones included,

    q_ij = p_ij pi_j / sum_l p_il pi_l          pi_j = W mean_i q_ij

and both answers are averaged, p <- r q + (1 - r) p (Bayesian model averaging, Hoeting et al. 1999).
r is the part of the variance of the sizes that hidden labels do not explain: 0 with one label per
class, near 1 where few hidden labels are predicted wrong.

Later rows, which have no neighbors, are decided by linear discriminant functions of the classes
that were found, as sharply as the rows of the folder were on average.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from fewlabels.errors import InputError
from fewlabels.methods.assignment import (
    Assignment,
    make_assignment,
    one_hot,
    prepare_episode,
)
from fewlabels.methods.base import Method, Reference, register, typical_shots
from fewlabels.methods.logistic import LAM, fit_regression, learn_regression
from fewlabels.methods.map import assign_map, paper_alpha, paper_n_steps
from fewlabels.methods.parts import linear_rules
from fewlabels.preprocess.components import principal_components
from fewlabels.preprocess.duplicates import NEAR_CENTERED, near_groups
from fewlabels.preprocess.pipeline import Pipeline
from fewlabels.preprocess.smoothing import SMOOTHING, find_neighborhood
from fewlabels.preprocess.steps import AUTO
from fewlabels.transport.prior import Estimated


@dataclass(frozen=True)
class FolderConstants:
    """Numbers of the method, chosen on validation folders.

    `benchmarks/sensitivity.py folder` measures what each is worth.
    """

    # Principal components of the rows that are kept: at least, at most, and rows for one of them.
    n_components: int = 256
    most_components: int = 512  # also time
    rows_per_component: float = 4.0
    whitening_variance: float = 3.0  # mean variance of the whitening, next to the 1; of many rows
    shrinkage: float = 0.3  # s, of the shared covariance towards a multiple of the identity
    least_variance: float = 1e-3  # of a class, as a fraction of the mean variance of all rows
    n_rounds: int = 4  # of expectation maximisation
    gaussian_weight: float = 0.2  # b
    graph_weight: float = 4.0  # g
    n_groups: int = 5  # of labels that are hidden at a time, and of rows for the later rule
    # Of labelled to other rows with a labelled near-duplicate: on the groceries at most 1.4 for
    # random labels, 2 to 20 per class, and at least 1.6 for labels in bursts of 2 to 5.
    burst_ratio: float = 1.5
    map_rows: int = 1000  # unlabelled rows beside which MAP predicts hidden labels; time
    # Weights of log p1, log p2 and log p3 that suit validation folders at 1 to 20 labels per class,
    # and the standard deviation of their prior, as a fraction of each weight.
    weights: tuple[float, ...] = (0.5, 0.1, 0.08)
    weight_spread: float = 0.3
    n_size_rounds: int = 10  # of the class sizes, after the models are joined
    newton_steps: int = 30  # most, to find the weights
    weight_tolerance: float = 1e-6  # change of a weight at which they are found
    smallest_log: float = -30.0  # log probabilities below it count as this
    # Entries of the largest table of rows and classes; memory, about 25 bytes each.
    most_entries: int = 100_000_000


CONSTANTS = FolderConstants()


class FolderRows(NamedTuple):
    """What is computed of rows alone, before any label: (N, d) each, and the graph (N, N)."""

    components: Tensor  # of norm 1
    whitened: Tensor
    joined: Tensor  # whitened beside the neighbor means
    graph: Tensor  # sparse
    alike: Tensor | None = None  # (N,), group of near-duplicates: their labels are hidden together

    @property
    def typicality(self) -> Tensor:
        """Mean cosine of each row to its neighbors, (N,): high in dense regions."""
        total = torch.sparse.mm(self.graph, torch.ones(len(self.graph), 1).to(self.whitened))
        means = torch.sparse.mm(self.graph, self.whitened) / total.clamp_min(1e-9)
        cosines: Tensor = (means * self.whitened).sum(dim=1)
        return cosines

    def take(self, rows: Tensor) -> "FolderRows":
        """Some rows, in their order, as they were among all."""
        place = torch.full((len(self.whitened),), -1, device=rows.device)
        place[rows] = torch.arange(len(rows), device=rows.device)
        graph = self.graph.coalesce()
        indices = place[graph.indices()]
        kept = (indices >= 0).all(dim=0)
        size = (len(rows), len(rows))
        part = torch.sparse_coo_tensor(
            indices[:, kept], graph.values()[kept], size, check_invariants=False
        )
        return FolderRows(
            self.components[rows],
            self.whitened[rows],
            self.joined[rows],
            part.coalesce(),
            None if self.alike is None else self.alike[rows],
        )

    def split(self, known: Tensor, *, n_way: int) -> "FolderRows":  # noqa: ARG002 - of other methods
        """The same with the labelled rows first."""
        return self.take(torch.cat([known.nonzero()[:, 0], (~known).nonzero()[:, 0]]))


def prepare_rows(x: Tensor) -> FolderRows:
    """Principal components, whitening, neighbor means and graph of all rows, (N, D)."""
    n_components = round(len(x) / CONSTANTS.rows_per_component)
    n_components = min(max(n_components, CONSTANTS.n_components), CONSTANTS.most_components)
    z = principal_components(x.float(), n_components)
    # Few rows do not tell a covariance of many columns: they are whitened less.
    columns = min(CONSTANTS.n_components, x.shape[1])
    reliability = len(x) ** 2 / (len(x) ** 2 + columns**2)
    found = find_neighborhood(
        z[None],
        whitening_variance=reliability * CONSTANTS.whitening_variance,
        # In a small folder, fewer than the smallest class may have.
        n_neighbors=min(SMOOTHING.neighbor_limit, max(2, round(sqrt(len(z))))),
    )
    assert found.graph is not None
    unit = torch.nn.functional.normalize(z, dim=1)
    edges = found.graph.coalesce().indices().cpu().numpy()
    alike = near_groups(unit.cpu().numpy(), edges, near=NEAR_CENTERED)
    joined = found.join(weight=1.0)[0]
    return FolderRows(
        unit, found.whitened[0], joined, found.graph, torch.as_tensor(alike, device=x.device)
    )


def assign_folder(
    support: Tensor,
    support_labels: Tensor,
    query: Tensor,
    *,
    n_way: int,
    neighborhood: FolderRows | None = None,
) -> Assignment:
    """Labels by the weighted models, (E, S, D), (E, S) and (E, Q, D) -> Assignment.

    Args:
        support: Preprocessed labelled vectors.
        support_labels: Class numbers.
        query: Preprocessed unlabelled vectors.
        n_way: Number of classes.
        neighborhood: `prepare_rows` of the support followed by the queries, where it is known.
    """
    n_rows = support.shape[1] + query.shape[1]
    if n_rows * n_way > CONSTANTS.most_entries:
        raise InputError(
            f"rows times classes must be at most {CONSTANTS.most_entries:,} for this method, "
            f"got {n_rows:,} rows and {n_way:,} classes. Use the method ncm, or label in parts."
        )
    support, query, shift = prepare_episode(support, support_labels, query, n_way)
    found = []
    for episode in range(len(support)):
        x = torch.cat([support[episode], query[episode]]) + shift[episode]
        rows = neighborhood if neighborhood is not None and len(support) == 1 else None
        found.append(_assign(x.float(), support_labels[episode].long(), n_way, rows))
    plan, prototypes, biases, held_out = (
        torch.stack(parts).to(query) for parts in zip(*found, strict=True)
    )
    return make_assignment(plan, prototypes, biases=biases, lam=LAM, held_out=held_out)


def _assign(
    x: Tensor, labels: Tensor, n_way: int, rows: FolderRows | None
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Plan (Q, W), prototypes (W, D), biases (W,) and held-out probabilities (S, W)."""
    n_support = len(labels)
    held_out = torch.full((n_support, n_way), torch.nan, device=x.device)
    if n_way == 1:
        plan = torch.ones(len(x) - n_support, 1, device=x.device)
        return plan, x.mean(dim=0, keepdim=True), x.new_zeros(1), held_out
    rows = prepare_rows(x) if rows is None else rows
    shown, unlabelled = torch.arange(len(x), device=x.device).tensor_split([n_support])
    products = rows.whitened.T @ rows.whitened
    logs = _log_probabilities(rows, products, shown, labels, n_way, unlabelled)
    hidden_logs = torch.full((len(logs), n_support, n_way), torch.nan, device=x.device)
    beside = unlabelled[:: max(1, len(unlabelled) // CONSTANTS.map_rows)]
    alike = labelled_alike(rows.alike, torch.arange(len(x), device=x.device) < n_support)
    for group in hidden_groups(labels, n_way, alike=alike):
        rest = torch.ones(n_support, dtype=torch.bool, device=x.device)
        rest[group] = False
        wanted = torch.cat([group, beside])
        predicted = _log_probabilities(rows, products, shown[rest], labels[rest], n_way, wanted)
        hidden_logs[:, group] = predicted[:, group]
    members = one_hot(labels, n_way, x.dtype)
    weights = fit_weights(
        hidden_logs, members, prior=CONSTANTS.weights, spread=CONSTANTS.weight_spread
    )
    plan, held_out = _weigh(logs[:, n_support:], weights), _weigh(hidden_logs, weights)
    if len(plan):
        trust, sizes = trust_in_sizes(plan, held_out, members), find_sizes(plan, members)
        plan, held_out = (
            trust * with_sizes(each, sizes) + (1 - trust) * each for each in (plan, held_out)
        )
    return plan, *_later(x, torch.cat([members, plan])), held_out


def _weigh(logs: Tensor, weights: Tensor) -> Tensor:
    """Probabilities by weighted log probabilities, (C, N, W) and (C,) -> (N, W)."""
    return torch.einsum("c,cnw->nw", weights, logs).softmax(dim=-1)


def _log_probabilities(
    rows: FolderRows, products: Tensor, shown: Tensor, labels: Tensor, n_way: int, wanted: Tensor
) -> Tensor:
    """Log p1, log p2 and log p3 of all rows, (3, N, W), from the labels of some of them.

    Args:
        rows: Of the folder.
        products: z' z of the whitened rows z.
        shown: Rows that have a label.
        labels: Their labels.
        n_way: Number of classes.
        wanted: Unlabelled rows that MAP labels; the others are NaN there.
    """
    members = one_hot(labels, n_way, rows.joined.dtype)
    slopes, offsets = fit_regression(rows.joined[shown], labels, n_way)
    first = (rows.joined @ slopes + offsets).log_softmax(dim=-1)
    second = _log_gaussian(rows, products, shown, members, first)
    third = torch.full_like(first, torch.nan)
    third[wanted] = _log_map(rows, shown, labels, n_way, wanted)
    return torch.stack([first, second, third]).clamp_min(CONSTANTS.smallest_log)


def _log_map(rows: FolderRows, shown: Tensor, labels: Tensor, n_way: int, wanted: Tensor) -> Tensor:
    """Log probabilities of MAP with estimated class sizes, (n, W)."""
    shots = typical_shots(labels)
    found = assign_map(
        rows.components[shown][None],
        labels[None],
        rows.components[wanted][None],
        n_way=n_way,
        lam=AUTO,
        alpha=paper_alpha(shots),
        n_steps=paper_n_steps(shots),
        prior=Estimated(),
        neighborhood=(rows.joined[shown][None], rows.joined[wanted][None]),
    )
    return found.plan[0].to(rows.joined).log()


def _log_gaussian(
    rows: FolderRows, products: Tensor, shown: Tensor, members: Tensor, start: Tensor
) -> Tensor:
    """Log probabilities of Gaussian classes beside those of the start and of neighbors, (N, W)."""
    z, log = rows.whitened, start
    for _ in range(CONSTANTS.n_rounds):
        plan = log.exp()
        plan[shown] = members
        slopes, offsets = _discriminants(z, plan, products)
        near = CONSTANTS.graph_weight * torch.sparse.mm(rows.graph, plan)
        gaussian = CONSTANTS.gaussian_weight * (z @ slopes + offsets)
        log = (start + gaussian + near).log_softmax(dim=-1)
    return log


def _discriminants(z: Tensor, plan: Tensor, products: Tensor) -> tuple[Tensor, Tensor]:
    """Linear discriminant functions of classes of one size and covariance, (D, W) and (W,).

    Args:
        z: Rows, (N, D).
        plan: Class memberships of the rows, (N, W).
        products: z' z, (D, D).
    """
    tiny = torch.finfo(z.dtype).tiny
    sizes = plan.sum(dim=0)
    means = (plan.T @ z) / sizes[:, None].clamp_min(tiny)
    within = (products - (means.T * sizes) @ means) / len(z)
    # Classes of identical rows have no covariance: a small part of that of all rows stands for it.
    least = CONSTANTS.least_variance * products.diagonal().mean() / len(z)
    scale = torch.maximum(within.diagonal().mean(), least).clamp_min(tiny**0.5)
    shrunk = (1 - CONSTANTS.shrinkage) * within
    shrunk.diagonal().add_(CONSTANTS.shrinkage * scale)
    slopes = torch.linalg.solve(shrunk, means.T)
    return slopes, -(means.T * slopes).sum(dim=0) / 2


def labelled_alike(alike: Tensor | None, known: Tensor) -> Tensor | None:
    """Near-duplicates among the labelled rows, where labels come in bursts, (N,), (N,) -> (S,).

    That is, where labelled rows have a labelled near-duplicate much more often than other rows have
    one (`burst_ratio`). Otherwise hidden labels are as near to the others as the rows to be
    labelled are, and to hide near-duplicates together would make the estimate too low: by 2 points
    for 5 random labels per class of the groceries.

    Args:
        alike: Group of near-duplicates of each row.
        known: Which rows have a label.
    """
    if alike is None or known.all():
        return alike
    labelled = alike[known]
    n_shown = torch.bincount(labelled, minlength=int(alike.max()) + 1)
    in_burst = (n_shown[labelled] > 1).float().mean()
    near_label = (n_shown[alike[~known]] > 0).float().mean()
    return labelled if in_burst > CONSTANTS.burst_ratio * near_label else None


def hidden_groups(
    labels: Tensor,
    n_way: int,
    n_groups: int | None = None,
    *,
    alike: Tensor | None = None,
) -> list[Tensor]:
    """Labelled rows in groups to hide, without those whose class has no other label.

    A group takes about as many labels from every class: were a class to lose more labels than the
    others, its rows would be predicted worse than they are. Near-duplicates of one class are hidden
    together: with one of them shown, the label of the other would be no test.

    Args:
        labels: Class numbers of the labelled rows, (S,).
        n_way: Number of classes.
        n_groups: How many groups; the method's own number if left out.
        alike: Group of near-duplicates of each of these rows, (S,).
    """
    n_groups = n_groups or CONSTANTS.n_groups
    if alike is not None:
        keys = (labels * (int(alike.max()) + 1) + alike.to(labels)).cpu().numpy()
        _, first, unit = np.unique(keys, return_index=True, return_inverse=True)
        # Units in the order of their first rows, so that without near-duplicates nothing changes.
        place = first.argsort().argsort()[unit]
        of_unit = labels[torch.as_tensor(np.sort(first), device=labels.device)]
        inner = [group.cpu().numpy() for group in hidden_groups(of_unit, n_way, n_groups)]
        found = [np.flatnonzero(np.isin(place, group)) for group in inner]
        return [torch.as_tensor(rows, device=labels.device) for rows in found]
    n_labels = torch.bincount(labels, minlength=n_way)
    order = labels.argsort(stable=True)
    begin = (n_labels.cumsum(dim=0) - n_labels)[labels[order]]  # place of a class's first label
    rank = torch.empty_like(labels)  # of a label within its class
    rank[order] = torch.arange(len(labels), device=labels.device) - begin
    hidden = n_labels[labels] > 1
    groups = [((rank % n_groups == group) & hidden).nonzero()[:, 0] for group in range(n_groups)]
    return [group for group in groups if len(group)]


def fit_weights(logs: Tensor, targets: Tensor, *, prior: Sequence[float], spread: float) -> Tensor:
    """Weights of log probabilities that fit the targets best, (C, n, W), (n, W) -> (C,).

    They maximise sum_nw t_nw log softmax(sum_c w_c logs_c)_nw - sum_c (w_c / prior_c - 1)^2 /
    (2 spread^2): a convex problem, solved by Newton's method, with a shorter step where the whole
    one goes too far. Rows with NaN are not used, and weights are not negative.
    """
    expected = torch.tensor(prior, dtype=torch.float64)
    precision = (spread * expected) ** -2
    used = ~logs.isnan().any(dim=-1).any(dim=0)
    z, t = logs[:, used].double().cpu(), targets[used].double().cpu()
    true = (t * z).sum(dim=-1)  # (C, n)
    weights = expected

    def loss(weights: Tensor) -> Tensor:
        log = torch.einsum("c,cnw->nw", weights, z).log_softmax(dim=-1)
        return (precision * (weights - expected).square()).sum() / 2 - (t * log).sum()

    for _ in range(CONSTANTS.newton_steps):
        p = torch.einsum("c,cnw->nw", weights, z).softmax(dim=-1)
        mean = (p * z).sum(dim=-1)  # (C, n)
        gradient = (mean - true).sum(dim=-1) + precision * (weights - expected)
        hessian = torch.einsum("nw,cnw,dnw->cd", p, z, z) - mean @ mean.T
        hessian += torch.diag(precision)
        moved = (weights - torch.linalg.solve(hessian, gradient)).clamp_min(0.0)
        before = loss(weights)
        while (moved - weights).abs().max() >= CONSTANTS.weight_tolerance and loss(moved) > before:
            moved = (moved + weights) / 2
        if (moved - weights).abs().max() < CONSTANTS.weight_tolerance:
            break
        weights = moved
    return weights.to(logs)


def trust_in_sizes(plan: Tensor, held_out: Tensor, members: Tensor) -> Tensor:
    """How much of the differences between class sizes is real, from 0 to 1.

    The sizes of the classes as the plan has them differ from each other for two reasons: the
    classes do, and some of them attract rows of others. Hidden labels show the second alone, where
    every class counts alike. Its part of the variance, with the standard error of what was
    measured, is taken away (reliability of a measurement, Spearman 1904).

    Args:
        plan: Probabilities of the unlabelled rows, (Q, W).
        held_out: Probabilities of the labelled rows with their labels hidden, (S, W); NaN where
            a label was not hidden.
        members: Classes of the labelled rows, one-hot, (S, W).
    """
    used = ~held_out.isnan().any(dim=-1)
    p, t = held_out[used], members[used]
    n = t.sum(dim=0)  # 0, or at least 2
    apart = (_relative_sizes(plan, members) - 1).square().mean()
    part = len(plan) / (len(plan) + len(members))  # of the rows that may go to a wrong class
    means = (t.T @ p) / n.clamp_min(1)[:, None]
    errors = (p - t @ means).square() / (t @ (n * (n - 1)).clamp_min(1))[:, None]
    bias = part**2 * ((means.sum(dim=0) - 1).square() + errors.sum(dim=0))
    real = 1 - torch.where(n > 0, bias, apart) / apart.clamp_min(torch.finfo(p.dtype).tiny)
    return real.mean().clamp(0, 1)


def find_sizes(plan: Tensor, members: Tensor) -> Tensor:
    """Sizes of the classes relative to their mean, (Q, W) and (S, W) -> (W,).

    The plan is that of classes of one size. Expectation maximisation (Saerens et al. 2002).
    Labelled rows count: a class whose rows are all labelled is no small one.
    """
    sizes = plan.new_ones(plan.shape[1])
    for _ in range(CONSTANTS.n_size_rounds):
        sizes = _relative_sizes(with_sizes(plan, sizes), members)
    return sizes


def _relative_sizes(plan: Tensor, members: Tensor) -> Tensor:
    """Rows per class, labelled ones included, relative to their mean, (W,)."""
    rows = members.sum(dim=0) + plan.sum(dim=0)
    return rows / rows.mean()


def with_sizes(plan: Tensor, sizes: Tensor) -> Tensor:
    """The plan of classes of other sizes, (n, W) and (W,) -> (n, W)."""
    weighted = plan * sizes
    return weighted / weighted.sum(dim=-1, keepdim=True)


def _later(x: Tensor, plan: Tensor) -> tuple[Tensor, Tensor]:
    """The rule for later rows, as prototypes (W, D) and biases (W,).

    Discriminant functions of the classes found, as sharp as brings their probabilities closest to
    the plan (distillation, Hinton et al. 2015). For that, each group of rows is decided by the
    functions of the other groups, as later rows are by those of all.
    """
    group = torch.arange(len(x), device=x.device) % CONSTANTS.n_groups
    groups = [group == number for number in range(CONSTANTS.n_groups)]
    products = [x[each].T @ x[each] for each in groups]
    whole = torch.stack(products).sum(dim=0)
    log_sizes = (plan.sum(dim=0) + 1).log()
    scores = torch.empty_like(plan)
    for each, inner in zip(groups, products, strict=True):
        slopes, offsets = _discriminants(x[~each], plan[~each], whole - inner)
        scores[each] = x[each] @ slopes + offsets + log_sizes
    some = slice(None, None, max(1, len(x) // CONSTANTS.map_rows))
    # No floor as in `_log_probabilities`: rules that are fitted with one are too sure without it.
    logs = scores[None, some].log_softmax(dim=-1)
    sharpness = fit_weights(logs, plan[some], prior=(1.0,), spread=1.0)
    slopes, offsets = _discriminants(x, plan, whole)
    return linear_rules(sharpness * slopes.T, sharpness * (offsets + log_sizes), LAM)


register(
    Method(
        "folder",
        "Folder",
        Reference(
            "Wolpert",
            1992,
            "Stacked generalization",
            "https://doi.org/10.1016/S0893-6080(05)80023-1",
        ),
        Pipeline.parse("power(auto) | unit | center(joint) | unit"),
        assign_folder,
        prepare_rows=prepare_rows,
        calibrated=True,
        hides_labels=True,
        learn=learn_regression,
    )
)
