"""Preprocessing: features to better-shaped features."""

from fewlabels.preprocess.pipeline import PAPER, PAPER_INDUCTIVE, Pipeline
from fewlabels.preprocess.power_rule import suggest_power
from fewlabels.preprocess.steps import POWER_EPS, Step, power, signed_power, unit

__all__ = [
    "PAPER",
    "PAPER_INDUCTIVE",
    "POWER_EPS",
    "Pipeline",
    "Step",
    "power",
    "signed_power",
    "suggest_power",
    "unit",
]
