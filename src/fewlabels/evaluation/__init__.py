"""Evaluation: many episodes to results."""

from fewlabels.evaluation.episodes import Episodes
from fewlabels.evaluation.results import EvaluationResult
from fewlabels.evaluation.run import evaluate
from fewlabels.evaluation.sampling import draw_as_authors, sample_episodes

__all__ = ["Episodes", "EvaluationResult", "draw_as_authors", "evaluate", "sample_episodes"]
