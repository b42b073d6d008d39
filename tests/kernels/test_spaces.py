"""Gram space and feature space give one answer, and the choice between them counts products."""

import pytest
import torch

from fewlabels.evaluation import sample_episodes
from fewlabels.evaluation.engines import TorchEngine
from fewlabels.evaluation.fused import NumbaEngine
from fewlabels.features import load_embedded
from fewlabels.kernels import cpu
from fewlabels.kernels.codes import MASS, NEAREST
from fewlabels.methods import configure, find_method, method_names

# A method without a kernel is left to the float64 classifier itself: one of them will do.
NAMES = [name for name in method_names() if find_method(name).kernel or name == "paddle"]


@pytest.mark.parametrize("in_gram_space", [True, False])
@pytest.mark.parametrize(
    ("name", "settings"),
    [*((name, {}) for name in NAMES), ("map", {"prior": "truth"})],
)
def test_either_space_gives_the_labels_of_float64(name, settings, in_gram_space, monkeypatch):
    monkeypatch.setattr(cpu, "prefers_gram", lambda *_: in_gram_space)
    features = load_embedded()
    method = configure(name, n_shot=2, **settings).decide(torch.as_tensor(features.features))
    episodes = sample_episodes(
        features, n_episodes=40, n_way=6, n_shot=2, queries="dirichlet:2:70", seed=3
    )
    reference = TorchEngine(features, dtype="float64", mean_features=features)
    found = NumbaEngine(features, mean_features=features).predict(method, episodes)
    assert (found == reference.predict(method, episodes)).all()


def test_small_episodes_prefer_gram_space_and_large_ones_do_not():
    assert cpu.prefers_gram(80, 640, 5, MASS, 30)
    assert not cpu.prefers_gram(2000, 640, 5, MASS, 30)
    assert not cpu.prefers_gram(80, 640, 5, NEAREST, 0)
