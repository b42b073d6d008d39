"""Stage 5: support and query sets to an assignment of queries to classes."""

from ptmap.classifiers.assignment import Assignment
from ptmap.classifiers.kmeans import assign_kmeans
from ptmap.classifiers.map import assign_map, assign_soft_kmeans
from ptmap.classifiers.nearest import assign_nearest
from ptmap.classifiers.proportions import AtLeast, Proportions
from ptmap.classifiers.transport import Plan, solve_transport

__all__ = [
    "Assignment",
    "AtLeast",
    "Plan",
    "Proportions",
    "assign_kmeans",
    "assign_map",
    "assign_nearest",
    "assign_soft_kmeans",
    "solve_transport",
]
