"""The network of `map-learned`: what it starts from, and what its weights do."""

from importlib.resources import files

import pytest
import torch

from fewlabels import configure, load_embedded, sample_episodes
from fewlabels.errors import InputError
from fewlabels.fitting import answer
from fewlabels.methods import learned
from fewlabels.methods.learned import assign_learned, load_weights


def label(name, episodes, features, n_shot):
    rows = torch.as_tensor(features.features).float()
    method = configure(name, n_shot=n_shot, dataset="cifar-fs").decide(rows)
    x, q = (rows[torch.as_tensor(each)] for each in (episodes.support, episodes.query))
    y = torch.as_tensor(episodes.support_labels)
    return answer(method, x, y, q, n_way=5).assignment


@pytest.fixture(scope="module", params=[1, 5])
def uneven(request):
    features = load_embedded()
    queries = "dirichlet:2:75"
    drawn = sample_episodes(features, n_episodes=60, n_shot=request.param, queries=queries)
    return features, drawn, request.param


def test_without_weights_of_the_last_layer_it_is_map_auto(uneven, monkeypatch):
    weights = load_weights() | {"c": torch.zeros_like(load_weights()["c"])}
    monkeypatch.setattr(learned, "load_weights", lambda: weights)
    features, drawn, n_shot = uneven
    found, expected = (label(name, drawn, features, n_shot) for name in ("map-learned", "map-auto"))
    torch.testing.assert_close(found.plan, expected.plan, atol=2e-3, rtol=0)
    torch.testing.assert_close(found.lam, expected.lam, atol=1e-3, rtol=1e-3)
    torch.testing.assert_close(found.certainty, expected.certainty, atol=1e-3, rtol=0)


def test_later_rows_are_decided_in_the_proportions_that_were_found(uneven):
    features, drawn, n_shot = uneven
    found = label("map-learned", drawn, features, n_shot)
    torch.testing.assert_close(found.plan.sum(dim=-1), torch.ones(60, 75))
    assert found.converged.all()
    assert found.biases.isfinite().all()


def test_the_weights_are_small():
    assert len((files("fewlabels.methods") / learned.WEIGHTS).read_bytes()) < 50_000
    assert all(each.isfinite().all() for each in load_weights().values())


def test_fewer_queries_than_classes_are_left_to_map_auto():
    support, labels = torch.eye(3)[None], torch.arange(3)[None]
    found = assign_learned(support, labels, support[:, :2] + 0.1, n_way=3)
    assert found.labels.tolist() == [[0, 1]]


def test_many_rows_are_refused(monkeypatch):
    monkeypatch.setattr("fewlabels.methods.parts.MOST_ROWS", 5)
    support, labels = torch.eye(3)[None], torch.arange(3)[None]
    with pytest.raises(InputError, match="method 'map-learned' compares all pairs of rows"):
        assign_learned(support, labels, support + 0.1, n_way=3)
