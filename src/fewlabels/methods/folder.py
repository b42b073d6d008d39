"""Folder: two models of the classes, weighted by hidden labels, for whole folders.

MAP models a class by its mean alone. From about five labels per class on, or with thousands of
unlabelled rows, the rows also tell in which directions classes differ. Two known models use this:

1. *Logistic regression* on neighborhood features (`preprocess.smoothing`: within-class whitening,
   neighbor means appended), fitted on the labelled rows: log p1.
2. *Gaussian classes with one shared covariance*, fitted to all rows by expectation maximisation
   (semi-supervised linear discriminant analysis), started from p1:

       mu_j = sum_i P_ij z_i / n_j            n_j = sum_i P_ij, labelled rows fixed
       S    = (1 - s) S_within + s tr(S_within) / D I            (shrinkage, Friedman 1989)
       P_ij ~ exp((mu_j' S^-1 z_i - mu_j' S^-1 mu_j / 2 + g (W P)_ij) / T) (n_j + 1)

   with W the graph of nearest neighbors (label spreading, Zhou et al. 2004) and class sizes n_j
   estimated on the way (Saerens et al. 2002): log p2.

They err in different ways. Their log probabilities are added with two weights,

    log p = w1 log p1 + w2 log p2 + constant,

which maximise the likelihood of hidden labels: each label is hidden once, a fifth of them at a
time, and predicted from the others (stacking, Wolpert 1992; Breiman 1996). A Gaussian prior keeps
the weights near those of validation folders, where labels are few; with one label per class they
are these. The weights also calibrate the probabilities, so that nothing more is done to them.

Later rows, which have no neighbors, are decided by the discriminant functions of the classes that
were found.
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from fewlabels.methods.assignment import (
    Assignment,
    make_assignment,
    one_hot,
    prepare_episode,
)
from fewlabels.methods.base import Method, Reference, register
from fewlabels.preprocess.components import principal_components
from fewlabels.preprocess.pipeline import Pipeline
from fewlabels.preprocess.smoothing import find_neighborhood


@dataclass(frozen=True)
class FolderConstants:
    """Numbers of the method, chosen on validation folders.

    `benchmarks/folder_methods.py --choose` measures what each is worth.
    """

    n_components: int = 256  # principal components of the rows that are kept
    whitening_variance: float = 3.0  # mean variance of the whitening, next to the 1
    inverse_penalty: float = 30.0  # C of the logistic regression, for vectors of norm 1
    n_iterations: int = 60  # most, of the solver of the logistic regression (L-BFGS)
    gradient_tolerance: float = 1e-4  # at which it stops
    shrinkage: float = 0.3  # s, of the shared covariance towards a multiple of the identity
    n_rounds: int = 4  # of expectation maximisation
    graph_weight: float = 5.0  # g
    temperature: float = 2.0  # T
    n_groups: int = 5  # of labels that are hidden at a time
    # Weights of log p1 and log p2 that suit validation folders at 1 to 20 labels per class, and
    # the precision of the prior: how many nats it costs to move a weight by 1, twice.
    weights: tuple[float, float] = (0.9, 0.08)
    weight_precision: float = 30.0
    smallest_log: float = -30.0  # log probabilities below it count as this


CONSTANTS = FolderConstants()
LAM = 10.0  # scale of the prototypes that later rows are compared with; any positive number does


class FolderRows(NamedTuple):
    """What is computed of rows alone, before any label: (N, d) each, and the graph (N, N)."""

    whitened: Tensor
    joined: Tensor  # whitened beside the neighbor means
    graph: Tensor  # sparse

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
        return FolderRows(self.whitened[rows], self.joined[rows], part.coalesce())

    def split(self, known: Tensor, *, n_way: int) -> "FolderRows":  # noqa: ARG002 - of other methods
        """The same with the labelled rows first."""
        return self.take(torch.cat([known.nonzero()[:, 0], (~known).nonzero()[:, 0]]))


def prepare_rows(x: Tensor) -> FolderRows:
    """Principal components, whitening, neighbor means and graph of all rows, (N, D)."""
    z = principal_components(x.float(), CONSTANTS.n_components)
    found = find_neighborhood(z[None], whitening_variance=CONSTANTS.whitening_variance)
    graph = found.graph if found.graph is not None else torch.eye(len(z)).to_sparse()
    return FolderRows(found.whitened[0], found.join(weight=1.0)[0], graph)


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
    members = one_hot(labels, n_way, x.dtype)
    n_support = len(labels)
    held_out = torch.full((n_support, n_way), torch.nan, device=x.device)
    if n_way == 1:
        plan = torch.ones(len(x) - n_support, 1, device=x.device)
        return plan, x.mean(dim=0, keepdim=True), x.new_zeros(1), held_out
    rows = prepare_rows(x) if rows is None else rows
    shown = torch.arange(n_support, device=x.device)
    logs = _log_probabilities(rows, shown, labels, n_way)
    hidden_logs = torch.full((2, n_support, n_way), torch.nan, device=x.device)
    for group in hidden_groups(labels, n_way, CONSTANTS.n_groups):
        rest = torch.ones(n_support, dtype=torch.bool, device=x.device)
        rest[group] = False
        predicted = _log_probabilities(rows, shown[rest], labels[rest], n_way)
        hidden_logs[:, group] = predicted[:, group]
    weights = fit_weights(hidden_logs, labels)
    probabilities = (weights[:, None, None] * logs).sum(dim=0).softmax(dim=-1)
    held_out = (weights[:, None, None] * hidden_logs).sum(dim=0).softmax(dim=-1)
    plan = probabilities[n_support:]
    prototypes, biases = _discriminants(x, torch.cat([members, plan]))
    return plan, prototypes, biases, held_out


def _log_probabilities(rows: FolderRows, shown: Tensor, labels: Tensor, n_way: int) -> Tensor:
    """Log p1 and log p2 of all rows, (2, N, W), from the labels of some of them."""
    first = _log_regression(rows.joined, shown, labels, n_way)
    second = _log_gaussian(rows, shown, one_hot(labels, n_way, first.dtype), first)
    return torch.stack([first, second]).clamp_min(CONSTANTS.smallest_log)


def _log_regression(z: Tensor, shown: Tensor, labels: Tensor, n_way: int) -> Tensor:
    """Log probabilities of multinomial logistic regression, (N, D) -> (N, W).

    Every class counts alike, however many labels it has: labels are no sample of the classes.
    """
    members = one_hot(labels, n_way, z.dtype)
    counts = members.sum(dim=0)
    row_weights = (len(labels) / n_way / counts)[labels]
    rows = z[shown]
    parameters = torch.zeros(z.shape[1] + 1, n_way, dtype=z.dtype, device=z.device)
    parameters.requires_grad_()
    solver = torch.optim.LBFGS(
        [parameters],
        max_iter=CONSTANTS.n_iterations,
        history_size=10,
        tolerance_grad=CONSTANTS.gradient_tolerance,
        line_search_fn="strong_wolfe",
    )

    def loss() -> Tensor:
        solver.zero_grad()
        log = (rows @ parameters[:-1] + parameters[-1]).log_softmax(dim=-1)
        fit = -(row_weights * (members * log).sum(dim=-1)).sum()
        value = fit + (parameters[:-1] ** 2).sum() / (2 * CONSTANTS.inverse_penalty)
        value.backward()  # type: ignore[no-untyped-call]
        return value

    with torch.enable_grad():
        solver.step(loss)  # type: ignore[no-untyped-call]
    found = parameters.detach()
    return (z @ found[:-1] + found[-1]).log_softmax(dim=-1)


def _log_gaussian(rows: FolderRows, shown: Tensor, members: Tensor, start: Tensor) -> Tensor:
    """Log probabilities of Gaussian classes with one covariance, (N, W)."""
    z, log = rows.whitened, start
    eye = torch.eye(z.shape[1], dtype=z.dtype, device=z.device)
    total = z.T @ z
    for _ in range(CONSTANTS.n_rounds):
        plan = log.exp()
        plan[shown] = members
        sizes = plan.sum(dim=0)
        means = (plan.T @ z) / sizes[:, None]
        within = (total - (means.T * sizes) @ means) / len(z)
        scale = within.diagonal().mean().clamp_min(torch.finfo(z.dtype).tiny)
        shrunk = (1 - CONSTANTS.shrinkage) * within + CONSTANTS.shrinkage * scale * eye
        slopes = torch.linalg.solve(shrunk, means.T)  # (D, W)
        scores = z @ slopes - (means.T * slopes).sum(dim=0) / 2
        scores = scores + CONSTANTS.graph_weight * torch.sparse.mm(rows.graph, plan)
        log = (scores / CONSTANTS.temperature + (sizes + 1).log()).log_softmax(dim=-1)
    return log


def hidden_groups(labels: Tensor, n_way: int, n_groups: int) -> list[Tensor]:
    """Labelled rows in groups to hide, without those whose class has no other label.

    A group takes about as many labels from every class: were a class to lose more labels than the
    others, its rows would be predicted worse than they are.
    """
    members = one_hot(labels, n_way, torch.long)
    rank = (members.cumsum(dim=0) * members).sum(dim=1) - 1  # of a label within its class
    hidden = members.sum(dim=0)[labels] > 1
    groups = [((rank % n_groups == group) & hidden).nonzero()[:, 0] for group in range(n_groups)]
    return [group for group in groups if len(group)]


def fit_weights(logs: Tensor, labels: Tensor) -> Tensor:
    """Weights of log probabilities that make hidden labels most likely, (C, S, W), (S,) -> (C,).

    A convex problem, solved by Newton's method. Rows that were not hidden are NaN and not used.
    Weights are not negative.
    """
    prior = torch.tensor(CONSTANTS.weights, dtype=torch.float64)
    used = ~logs.isnan().any(dim=-1).any(dim=0)
    if not used.any():
        return prior.to(logs)
    z = logs[:, used].double().cpu()
    true = z[:, torch.arange(z.shape[1]), labels[used].cpu()]  # (C, n)
    weights = prior
    for _ in range(30):
        p = torch.einsum("c,cnw->nw", weights, z).softmax(dim=-1)
        mean = (p * z).sum(dim=-1)  # (C, n)
        gradient = (mean - true).sum(dim=-1) + CONSTANTS.weight_precision * (weights - prior)
        hessian = torch.einsum("nw,cnw,dnw->cd", p, z, z) - mean @ mean.T
        hessian += CONSTANTS.weight_precision * torch.eye(len(weights), dtype=torch.float64)
        moved = (weights - torch.linalg.solve(hessian, gradient)).clamp_min(0.0)
        if (moved - weights).abs().max() < 1e-6:
            break
        weights = moved
    return weights.to(logs)


def _discriminants(x: Tensor, plan: Tensor) -> tuple[Tensor, Tensor]:
    """Linear discriminant functions of the classes found, as prototypes (W, D) and biases (W,).

    A later row is decided by LAM (2 <x, c> - |c|^2) + bias, which is any linear function of x.
    """
    sizes = plan.sum(dim=0)
    means = (plan.T @ x) / sizes[:, None].clamp_min(torch.finfo(x.dtype).tiny)
    within = (x.T @ x - (means.T * sizes) @ means) / len(x)
    scale = within.diagonal().mean().clamp_min(torch.finfo(x.dtype).tiny)
    eye = torch.eye(x.shape[1], dtype=x.dtype, device=x.device)
    shrunk = (1 - CONSTANTS.shrinkage) * within + CONSTANTS.shrinkage * scale * eye
    slopes = torch.linalg.solve(shrunk, means.T).T / CONSTANTS.temperature  # (W, D)
    offsets = -(means * slopes).sum(dim=1) / 2 + (sizes + 1).log()
    prototypes = slopes / (2 * LAM)
    return prototypes, offsets + LAM * (prototypes * prototypes).sum(dim=1)


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
    )
)
