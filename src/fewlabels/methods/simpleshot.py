"""SimpleShot: nearest class mean after base-mean centering and unit norm.

    UN     x                                 the rule `ncm-raw`
    L2N    x / |x|                           simpleshot-l2n
    CL2N   (x - m) / |x - m|                 simpleshot-cl2n; m is the mean of the base classes
    label of a query x = argmin_j |x - c_j|^2, c_j the mean of the support rows of class j

Wang et al. (2019); published, miniImageNet, DenseNet, CL2N: 64.29 / 81.50 at 1 / 5 shots. With
class proportions from Dirichlet(2), ResNet18: 63.0 / 80.1 (Veilleux et al. 2021).
"""

from fewlabels.methods.base import Method, Reference, register
from fewlabels.methods.nearest import assign_nearest
from fewlabels.preprocess.pipeline import Pipeline

REFERENCE = Reference(
    "Wang, Chao, Weinberger, van der Maaten",
    2019,
    "SimpleShot: Revisiting Nearest-Neighbor Classification for Few-Shot Learning",
    "https://arxiv.org/abs/1911.04623",
)
register(
    Method(
        "simpleshot-l2n",
        "SimpleShot L2N",
        REFERENCE,
        Pipeline.parse("unit"),
        assign_nearest,
        kernel="nearest",
    ),
    Method(
        "simpleshot-cl2n",
        "SimpleShot CL2N",
        REFERENCE,
        Pipeline.parse("center(mean) | unit"),
        assign_nearest,
        kernel="nearest",
    ),
)
