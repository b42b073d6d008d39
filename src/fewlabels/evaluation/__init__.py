"""Evaluation: many episodes to results."""

from fewlabels.evaluation.episodes import Episodes
from fewlabels.evaluation.queries import QuerySpec
from fewlabels.evaluation.results import EvaluationResult, mean_and_ci95
from fewlabels.evaluation.run import evaluate
from fewlabels.evaluation.sampling import draw_as_authors, sample_episodes

__all__ = [
    "Episodes",
    "EvaluationResult",
    "QuerySpec",
    "draw_as_authors",
    "evaluate",
    "mean_and_ci95",
    "sample_episodes",
]
