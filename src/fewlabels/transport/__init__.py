"""Class sizes and entropic transport between samples and classes."""

from fewlabels.transport.prior import (
    AtLeast,
    ClassMass,
    Estimated,
    Free,
    Prior,
    Sizes,
    Truth,
    Uniform,
    as_prior,
)
from fewlabels.transport.solver import Plan, solve_transport

__all__ = [
    "AtLeast",
    "ClassMass",
    "Estimated",
    "Free",
    "Plan",
    "Prior",
    "Sizes",
    "Truth",
    "Uniform",
    "as_prior",
    "solve_transport",
]
