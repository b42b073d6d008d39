"""Methods: support and query rows to an assignment of queries to classes; one file per method."""

from fewlabels.methods.assignment import Assignment, make_assignment
from fewlabels.methods.base import (
    ConfiguredMethod,
    Knob,
    Method,
    Reference,
    configure,
    find_method,
    method_names,
    register,
)

# One line per method: importing its file registers it. In the order of lists and tables.
# isort: off
from fewlabels.methods import nearest  # noqa: F401
from fewlabels.methods import kmeans  # noqa: F401
from fewlabels.methods import map  # noqa: A004, F401
from fewlabels.methods import auto  # noqa: F401
from fewlabels.methods import simpleshot  # noqa: F401
from fewlabels.methods import matching  # noqa: F401
from fewlabels.methods import cosine_head  # noqa: F401
from fewlabels.methods import svm  # noqa: F401
from fewlabels.methods import bdcspn  # noqa: F401
from fewlabels.methods import mct  # noqa: F401
from fewlabels.methods import laplacianshot  # noqa: F401
from fewlabels.methods import tim  # noqa: F401
from fewlabels.methods import paddle  # noqa: F401
from fewlabels.methods import unem  # noqa: F401
from fewlabels.methods import anchored  # noqa: F401
from fewlabels.methods import bavardage  # noqa: F401
from fewlabels.methods import tafssl  # noqa: F401
from fewlabels.methods import bms  # noqa: F401
from fewlabels.methods import protolp  # noqa: F401
from fewlabels.methods import ilpc  # noqa: F401
from fewlabels.methods import manifold  # noqa: F401
from fewlabels.methods import label_spreading  # noqa: F401
from fewlabels.methods import dsn  # noqa: F401
from fewlabels.methods import logistic  # noqa: F401
from fewlabels.methods import sgc  # noqa: F401
from fewlabels.methods import folder  # noqa: F401
# isort: on

__all__ = [
    "Assignment",
    "ConfiguredMethod",
    "Knob",
    "Method",
    "Reference",
    "configure",
    "find_method",
    "make_assignment",
    "method_names",
    "register",
]
