"""BPA as a step: a literal loop, before any method, and what it cannot do."""

import numpy as np
import pytest
import torch

from fewlabels import configure, evaluate, fit, load_embedded, sample_episodes
from fewlabels.errors import InputError
from fewlabels.fitting import answer
from fewlabels.preprocess import Pipeline, bpa

LINE = "power(0.5) | unit | center | unit | bpa"


def literal(rows):
    """Affinities of rows, (N, D) -> (N, N), entry by entry."""
    norms = np.linalg.norm(rows, axis=1)
    kernel = np.exp((rows @ rows.T / np.outer(norms, norms) - 1) / 0.2)
    np.fill_diagonal(kernel, 0)
    for _ in range(10):
        kernel /= kernel.sum(axis=1, keepdims=True)
        kernel /= kernel.sum(axis=0, keepdims=True)
    kernel /= kernel.max()
    np.fill_diagonal(kernel, 1)
    return kernel


@pytest.fixture(scope="module")
def episodes():
    features = load_embedded()
    drawn = sample_episodes(features, n_episodes=4, n_way=5, n_shot=2, queries=6, seed=1)
    x = torch.tensor(features.features).double()
    return x[drawn.support], torch.tensor(drawn.support_labels), x[drawn.query]


def test_rows_are_those_of_a_literal_loop(episodes):
    support, _, query = episodes
    ready = Pipeline.parse("power(0.5) | unit | center | unit")(support, query)
    found = Pipeline.parse(LINE)(support, query)
    for episode in range(len(support)):
        rows = np.concatenate([each[episode].numpy() for each in ready])
        expected = literal(rows)
        np.testing.assert_allclose(found[0][episode], expected[:10], atol=1e-12)
        np.testing.assert_allclose(found[1][episode], expected[10:], atol=1e-12)


@pytest.mark.parametrize("name", ["ncm", "kmeans", "map", "laplacianshot", "bms"])
def test_it_goes_before_any_method(episodes, name):
    support, labels, query = episodes
    method = configure(name, n_shot=2, pipeline=LINE)
    found = answer(method, support, labels, query, n_way=5).assignment
    for episode in range(len(support)):
        part = slice(episode, episode + 1)
        rows = fit(name, support[episode], labels[episode], query[episode], pipeline=LINE)
        alone = answer(method, support[part], labels[part], query[part], n_way=5).assignment
        assert found.labels[episode].tolist() == alone.labels[0].tolist() == rows.numbers.tolist()


@pytest.mark.parametrize("engine", ["torch", "numba"])
def test_it_is_evaluated_by_every_engine(engine):
    methods = [configure("map", n_shot=1, pipeline=line) for line in (LINE, "unit")]
    with_it, without = evaluate(methods, n_episodes=20, engine=engine, device="cpu")
    assert with_it.pipeline == LINE
    assert with_it.accuracy > without.accuracy


def test_later_rows_are_refused_with_a_way_out(episodes):
    support, labels, query = episodes
    found = fit("map", support[0], labels[0], query[0], pipeline=LINE)
    with pytest.raises(InputError, match=r"a later row has no affinities.*leave out the step"):
        found.predict(query[0])


def test_another_centering_leaves_the_step_alone():
    changed = Pipeline.parse("unit | center | bpa | center").with_centering("joint")
    assert str(changed) == "unit | center(joint) | bpa | center(joint)"


def test_one_row_and_no_row_are_an_answer():
    one, none = torch.ones(1, 3), torch.ones(0, 3)
    assert [each.tolist() for each in bpa.pairwise_affinities(one, none)] == [[[1.0]], []]
    assert bpa.pairwise_affinities(none, none)[0].shape == (0, 0)


def test_too_many_rows_are_refused(monkeypatch):
    monkeypatch.setattr(bpa, "MOST_ROWS", 3)
    with pytest.raises(InputError, match=r"step 'bpa' .* up to 3 rows, got 4"):
        bpa.pairwise_affinities(torch.eye(4)[:1], torch.eye(4)[1:])
