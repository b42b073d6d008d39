"""Matching Networks' rule: every support row votes for its class, by its cosine to the query.

    p_j(x) = sum over support rows s of class j of a(x, s)
    a(x, s) = softmax over all support rows of sharpness cos(x, s)                    (Eq. 1 and 2)

Where classes have different numbers of labels, the votes of a class are averaged, so that no class
wins by its number. The rule alone; the published system also trains the backbone for it, with an
attention over the whole support set. The sharpness changes no label at one shot. Later rows go to
the nearest class mean. The numbers of the equations were not checked against the paper.

Vinyals et al. (2016); published, miniImageNet, WRN: 64.03 / 76.32 at 1 / 5 shots (trained for it).
"""

from dataclasses import replace

from torch import Tensor

from fewlabels.methods.assignment import (
    Assignment,
    class_means,
    make_assignment,
    one_hot,
    weighted_sums,
)
from fewlabels.methods.base import Method, Reference, register
from fewlabels.methods.parts import SHARPNESS, check_rows, cosines
from fewlabels.preprocess.pipeline import PAPER_INDUCTIVE

SHARP = 10.0  # 1 is nearly a mean of cosines; chosen on validation classes of CIFAR-FS


def assign_matching(
    support: Tensor,
    support_labels: Tensor,
    query: Tensor,
    *,
    n_way: int,
    sharpness: float = SHARP,
) -> Assignment:
    """Votes of the support rows, (E, S, D), (E, S) and (E, Q, D) -> Assignment."""
    support, query = check_rows(support, support_labels, query, n_way)
    votes = (sharpness * cosines(query, support)).softmax(dim=-1)  # (E, Q, S)
    members = one_hot(support_labels, n_way, votes.dtype)
    plan = weighted_sums(votes.mT, members) / members.sum(dim=-2)[:, None]
    plan = plan / plan.sum(dim=-1, keepdim=True)
    prototypes = class_means(support, support_labels, n_way)
    return make_assignment(plan, prototypes, lam=sharpness / 2)


register(
    Method(
        "matching",
        "PT+Matching",
        Reference(
            "Vinyals, Blundell, Lillicrap, Kavukcuoglu, Wierstra",
            2016,
            "Matching Networks for One Shot Learning",
            "https://arxiv.org/abs/1606.04080",
        ),
        PAPER_INDUCTIVE,
        assign_matching,
        knobs=(replace(SHARPNESS, default=SHARP, grid=(1, 5, 10, 20, 40)),),
    )
)
