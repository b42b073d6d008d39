"""The CUDA engine against float64, where there is a GPU."""

import pytest
import torch

from fewlabels.evaluation import sample_episodes
from fewlabels.evaluation.engines import TorchEngine, make_engine
from fewlabels.features import load_embedded
from fewlabels.methods.base import METHODS, configure

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("proportions", ["uniform", "truth"])
@pytest.mark.parametrize(
    ("n_way", "n_shot", "queries"),
    [(5, 1, "15"), (2, 5, "3"), (20, 5, "15"), (6, 2, "dirichlet:2:70"), (5, 1, "120")],
)
def test_labels_are_those_of_float64(name, proportions, n_way, n_shot, queries):
    features = load_embedded()
    method = configure(name, n_shot=n_shot, proportions=proportions)
    episodes = sample_episodes(
        features, n_episodes=100, n_way=n_way, n_shot=n_shot, queries=queries
    )
    expected = TorchEngine(features, device="cuda", dtype="float64").predict(method, episodes)
    engine = make_engine(features, engine="triton", device="cuda")
    assert (engine.predict(method, episodes) == expected).all()
