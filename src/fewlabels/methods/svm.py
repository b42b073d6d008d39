"""A linear support vector machine on the support, one class against the others.

    minimise  |w_j|^2 / 2 + C sum_i v_i max(0, 1 - t_ij w_j' x_i)^2,    t_ij = 1 if y_i = j, else -1

per class j, over rows with a 1 appended, so that the offset is penalized too (scikit-learn's
LinearSVC). With weights v_i every class counts alike, however many labels it has. The label of a
query is the class of the largest w_j' x. Solved exactly in the rows' inner products K by Newton's
method: rows with t f < 1 are active, f = K b, and b solves (K + diag(1 / 2Cv)) b = t among the
active rows, until the active rows stay the same.

Cortes and Vapnik (1995); Newton's method: Chapelle (2007). No published figures on these episodes.
"""

import torch
from torch import Tensor

from fewlabels.methods.assignment import Assignment, make_assignment, one_hot
from fewlabels.methods.base import Knob, Method, Reference, register
from fewlabels.methods.parts import check_rows, linear_rules
from fewlabels.preprocess.pipeline import PAPER_INDUCTIVE

PENALTY = 1.0  # C, scikit-learn's default
MOST_ITERATIONS = 50  # a handful are needed
LAM = 10.0  # scale of the prototypes that stand for linear functions; any positive number does


def assign_svm(
    support: Tensor,
    support_labels: Tensor,
    query: Tensor,
    *,
    n_way: int,
    penalty: float = PENALTY,
) -> Assignment:
    """Largest of the linear functions, (E, S, D), (E, S) and (E, Q, D) -> Assignment.

    The plan is their softmax, which is no calibrated probability.
    """
    support, query = check_rows(support, support_labels, query, n_way)
    x = support.double()
    products = (x @ x.mT + 1)[:, None]  # (E, 1, S, S)
    members = one_hot(support_labels, n_way, x.dtype)
    truth = 2 * members.mT - 1  # (E, W, S)
    shots = (members @ members.sum(dim=-2)[..., None])[..., 0]  # (E, S) of the class of each row
    ridge = torch.diag_embed(shots * n_way / x.shape[1] / (2 * penalty))[:, None]
    active = torch.ones_like(truth)
    done = torch.zeros(len(x), dtype=torch.bool, device=x.device)
    weights = torch.zeros_like(truth)
    count = torch.zeros(len(x), dtype=torch.long, device=x.device)
    for _ in range(MOST_ITERATIONS):
        masked = active[..., None] * products * active[..., None, :]
        solved = active * torch.linalg.solve(masked + ridge, active * truth)
        weights = torch.where(done[:, None, None], weights, solved)
        found = (truth * (products @ weights[..., None])[..., 0] < 1).to(x.dtype)
        count = count + ~done
        done = done | (found == active).all(dim=-1).all(dim=-1)
        if done.all():
            break
        active = torch.where(done[:, None, None], active, found)
    slopes, offsets = weights @ x, weights.sum(dim=-1)
    scores = query.double() @ slopes.mT + offsets[:, None, :]
    prototypes, biases = linear_rules(slopes.to(query), offsets.to(query), LAM)
    return make_assignment(
        scores.softmax(dim=-1).to(query),
        prototypes,
        labels=scores.argmax(dim=-1),
        biases=biases,
        n_iterations=count,
        converged=done,
        lam=LAM,
    )


register(
    Method(
        "svm",
        "PT+Linear SVM",
        Reference(
            "Cortes, Vapnik",
            1995,
            "Support-Vector Networks",
            "https://doi.org/10.1007/BF00994018",
        ),
        PAPER_INDUCTIVE,
        assign_svm,
        knobs=(
            Knob(
                "penalty",
                "weight of rows on the wrong side of the margin",
                default=PENALTY,
                low=0,
                above_low=True,
                grid=(0.1, 0.3, 1, 3, 10),
                symbol="penalty C",
            ),
        ),
    )
)
