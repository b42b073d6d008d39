"""Codes of the steps and classifiers, and the numbers that only the kernels need.

Numbers of the models are imported from the readable code; no number is typed twice.
"""

from dataclasses import dataclass

# Episodic steps of a pipeline. CENTER_WITH_OUTSIDE is given rows less the mean from outside.
UNIT, CENTER, CENTER_JOINTLY, CENTER_BY_SUPPORT = 0, 1, 2, 3
CENTER_WITH_OUTSIDE, CENTER_SHRUNK = 4, 5
NEAREST, KMEANS = 0, 1  # classifiers that give a query to one class
FREE = 2  # soft K-Means
MASS, MINIMUM, ESTIMATE = 3, 4, 5  # MAP with class masses, with lower bounds, with estimated masses


@dataclass(frozen=True)
class KernelConstants:
    """Hand-set numbers of the kernels."""

    newton_iterations: int = 60  # limit per solve; the readable solver does the episodes above it
    float32_tolerance: float = 1e-6  # fraction of the mass; below the solver's, for sure decisions
    squared_norm_floor: float = 1e-30  # squared norm; a vector below it is taken for zero
    mass_floor: float = 1e-30  # queries; the divisor where a class is empty
    empty_score: float = -1e30  # log odds of a class that must stay empty
    float32_pivot: float = 1e-6  # squared norm; below it a row depends on those before it
    float64_pivot: float = 1e-12  # likewise
    # Difference of two cosines below which float32 may choose another neighbor: more than three
    # times the largest error measured, before and after whitening.
    neighbor_gap: float = 1.5e-6
    whitened_neighbor_gap: float = 4e-6
    float64_gap: float = 1e-6  # part of both gaps; below it float64 may choose another neighbor


KERNELS = KernelConstants()
