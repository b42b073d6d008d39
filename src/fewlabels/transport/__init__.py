"""Class sizes and entropic transport between samples and classes."""

from fewlabels.transport.prior import (
    AtLeast,
    Estimated,
    Free,
    Prior,
    Sizes,
    Truth,
    Uniform,
    as_prior,
)
from fewlabels.transport.solver import solve_transport

__all__ = [
    "AtLeast",
    "Estimated",
    "Free",
    "Prior",
    "Sizes",
    "Truth",
    "Uniform",
    "as_prior",
    "solve_transport",
]
