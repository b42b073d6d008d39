"""Systems whose backbone or head is trained on episodes; one file per system."""

from fewlabels.training.systems import baseline, dsn, leo, maml, matching, mct, protonet
from fewlabels.training.systems.base import SYSTEMS, Shape, System

__all__ = [
    "SYSTEMS",
    "Shape",
    "System",
    "baseline",
    "dsn",
    "leo",
    "maml",
    "matching",
    "mct",
    "protonet",
]
