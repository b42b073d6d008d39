"""DSN: distance to the subspace that the support rows of a class span.

    m_j = mean of the support rows of class j;  B_j = orthonormal basis of the rows less m_j
    label of a query x = argmin_j |(I - B_j B_j') (x - m_j)|^2

The rule of Simon et al. (2020) on frozen features, without their training and its regulariser. B_j
holds the principal axes of class j, one less than the smallest class has rows, at most max_dims: a
subspace of more dimensions would be nearer to every query. With one shot there is none, and the
rule is the nearest class mean. Later rows are decided by the nearest class mean.

Published, CIFAR-FS, ResNet12, trained for it (DSN-MR): 78.00 / 87.30 at 1 / 5 shots.
"""

import torch
from torch import Tensor

from fewlabels.methods.assignment import (
    Assignment,
    class_means,
    make_assignment,
    one_hot,
    prepare_episode,
)
from fewlabels.methods.base import Knob, Method, Reference, register
from fewlabels.methods.parts import principal_axes
from fewlabels.preprocess.pipeline import PAPER_INDUCTIVE

MAX_DIMS = 4  # of 5 shots


def assign_dsn(
    support: Tensor,
    support_labels: Tensor,
    query: Tensor,
    *,
    n_way: int,
    max_dims: int = MAX_DIMS,
) -> Assignment:
    """Nearest class subspace, (E, S, D), (E, S) and (E, Q, D) -> Assignment."""
    support, query, shift = prepare_episode(support, support_labels, query, n_way)
    members = one_hot(support_labels, n_way, support.dtype)
    prototypes = class_means(support, support_labels, n_way)
    n_dims = (members.sum(dim=-2).amin(dim=-1) - 1).clamp_max(max_dims)  # (E,)
    most = int(n_dims.max())
    used = torch.arange(most, device=query.device) < n_dims[:, None, None]
    costs = []
    for way in range(n_way):
        center = prototypes[:, way : way + 1]
        apart = query - center
        distance = (apart * apart).sum(dim=-1)
        if most > 0:
            own = (support - center) * members[..., way : way + 1]
            along = (apart @ principal_axes(own, most, like=support)) ** 2  # (E, Q, d)
            distance = distance - (along * used[..., : along.shape[-1]]).sum(dim=-1)
        costs.append(distance)
    labels = torch.stack(costs, dim=-1).argmin(dim=-1)
    return make_assignment(one_hot(labels, n_way, query.dtype), prototypes + shift, labels=labels)


register(
    Method(
        "dsn",
        "PT+DSN",
        Reference(
            "Simon, Koniusz, Nock, Harandi",
            2020,
            "Adaptive Subspaces for Few-Shot Learning",
            "https://openaccess.thecvf.com/content_CVPR_2020/html/Simon_Adaptive_Subspaces_for_Few-Shot_Learning_CVPR_2020_paper.html",
        ),
        PAPER_INDUCTIVE,
        assign_dsn,
        knobs=(
            Knob(
                "max_dims",
                "most dimensions of the subspace of a class",
                default=MAX_DIMS,
                low=0,
                whole=True,
            ),
        ),
    )
)
