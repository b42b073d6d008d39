"""Nearest class mean (NCM): the inductive baseline of the paper's Table 5.

    c_j = mean of the support rows of class j
    label of a query x = argmin_j |x - c_j|^2

PT+NCM of the paper is this rule after the power transform and unit norm, without centering. As a
rule on learned features it goes back to Mensink et al. (2013); Snell et al. (2017) train for it.
"""

from torch import Tensor

from fewlabels.methods.assignment import (
    Assignment,
    class_means,
    make_assignment,
    one_hot,
    prepare_episode,
    similarities,
)
from fewlabels.methods.base import Method, Reference, register
from fewlabels.preprocess.pipeline import PAPER_INDUCTIVE, Pipeline


def assign_nearest(
    support: Tensor, support_labels: Tensor, query: Tensor, *, n_way: int
) -> Assignment:
    """Give each query to the class whose mean support vector is nearest (Euclidean).

    (E, S, D), (E, S) and (E, Q, D) -> Assignment. Each query is decided alone; the plan holds ones
    and zeros.
    """
    support, query, shift = prepare_episode(support, support_labels, query, n_way)
    prototypes = class_means(support, support_labels, n_way)
    labels = similarities(query, prototypes).argmax(dim=-1)
    return make_assignment(one_hot(labels, n_way, query.dtype), prototypes + shift, labels=labels)


REFERENCE = Reference(
    "Mensink, Verbeek, Perronnin, Csurka",
    2013,
    "Distance-Based Image Classification: Generalizing to New Classes at Near-Zero Cost",
    "https://doi.org/10.1109/TPAMI.2013.83",
)
register(
    Method("ncm-raw", "NCM", REFERENCE, Pipeline(()), assign_nearest, kernel="nearest"),
    Method("ncm", "PT+NCM", REFERENCE, PAPER_INDUCTIVE, assign_nearest, kernel="nearest"),
)
