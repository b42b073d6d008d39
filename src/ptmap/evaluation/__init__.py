"""Stage 6: many episodes to results."""

from ptmap.evaluation.episodes import Episodes
from ptmap.evaluation.queries import QuerySpec
from ptmap.evaluation.results import EvaluationResult, mean_and_ci95
from ptmap.evaluation.run import evaluate
from ptmap.evaluation.sampling import draw_as_authors, sample_episodes

__all__ = ["Episodes", "EvaluationResult", "QuerySpec", "draw_as_authors", "evaluate", "mean_and_ci95", "sample_episodes"]
