"""Label spreading over the graph of all rows: scikit-learn's LabelSpreading with its defaults.

    w_ik = exp(-gamma |x_i - x_k|^2), w_ii = 0;   s_ik = w_ik / sqrt(d_i d_k),   d_i = sum_k w_ik
    f <- spread S f + (1 - spread) y                  until nothing changes

with y the one-hot labels, 0 for queries. Rows of f are scaled to sum 1. The defaults are those of
scikit-learn: gamma 20, spread 0.2. A query that is so far from all rows that no label reaches it
goes to the nearest class mean; later rows go to the nearest mean of the labelled rows. All pairs of
rows are held in memory.

Zhou et al. (2004). An everyday yardstick, without published figures on these episodes.
"""

import torch
from torch import Tensor

from fewlabels.methods.assignment import (
    Assignment,
    class_means,
    make_assignment,
    one_hot,
    prepare_episode,
    similarities,
)
from fewlabels.methods.base import Knob, Method, Reference, register
from fewlabels.methods.estimation import plan_means
from fewlabels.methods.parts import check_pairs
from fewlabels.preprocess.pipeline import Pipeline

GAMMA = 20.0  # scikit-learn's default
SPREAD = 0.2  # likewise
PRECISION = 1e-12  # part of a label that may be missing when the iterations end


def assign_label_spreading(
    support: Tensor,
    support_labels: Tensor,
    query: Tensor,
    *,
    n_way: int,
    gamma: float = GAMMA,
    spread: float = SPREAD,
) -> Assignment:
    """Labels that spread from row to row, (E, S, D), (E, S) and (E, Q, D) -> Assignment."""
    support, query, shift = prepare_episode(support, support_labels, query, n_way)
    rows = torch.cat([support, query], dim=1).double()
    check_pairs(rows, "label-spreading")
    squares = (rows * rows).sum(dim=-1)
    weights = (squares[:, :, None] + squares[:, None, :] - 2 * rows @ rows.mT).clamp_min(0)
    weights = (-gamma * weights).exp()
    weights.diagonal(dim1=1, dim2=2).zero_()
    scale = weights.sum(dim=-1).rsqrt()
    scale = torch.where(scale.isfinite(), scale, 0.0)
    weights *= scale[:, :, None] * scale[:, None, :]
    known = torch.nn.functional.pad(
        one_hot(support_labels, n_way, rows.dtype), (0, 0, 0, query.shape[1])
    )
    found, part = known, 1.0
    while part > PRECISION:  # S has no eigenvalue above 1: an iteration shrinks the error by spread
        found, part = spread * weights @ found + (1 - spread) * known, spread * part
    reached = found[:, support.shape[1] :]
    totals = reached.sum(dim=-1, keepdim=True)
    prototypes = class_means(support, support_labels, n_way)
    nearest = one_hot(similarities(query, prototypes).argmax(dim=-1), n_way, rows.dtype)
    plan = torch.where(totals > 0, reached / totals, nearest)
    labels = torch.where(totals > 0, reached, nearest).argmax(dim=-1)
    members = one_hot(support_labels, n_way, support.dtype)
    means = plan_means(support, members, query, plan.to(query))
    return make_assignment(plan.to(query), means + shift, labels=labels)


register(
    Method(
        "label-spreading",
        "PT+Label spreading",
        Reference(
            "Zhou, Bousquet, Lal, Weston, Schoelkopf",
            2004,
            "Learning with Local and Global Consistency",
            "https://proceedings.neurips.cc/paper/2003/hash/87682805257e619d49b8e0dfdc14affa-Abstract.html",
        ),
        Pipeline.parse("power(0.5) | unit | center(support) | unit"),
        assign_label_spreading,
        knobs=(
            Knob(
                "gamma",
                "how fast the similarity of two rows falls with distance",
                default=GAMMA,
                low=0,
                above_low=True,
                grid=(1, 2, 5, 10, 20, 40),
                symbol="gamma",
            ),
            Knob(
                "spread",
                "part of a label that comes from other rows",
                default=SPREAD,
                low=0,
                high=0.99,
                grid=(0.1, 0.2, 0.5, 0.8, 0.9),
                symbol="spread",
            ),
        ),
    )
)
