import numpy as np
import pytest
import torch
from sklearn.neighbors import NearestCentroid

from fewlabels.methods.nearest import assign_nearest


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("n_shot", [(2, 1), (5, 5, 5), (1, 4, 2, 7)])
@pytest.mark.parametrize("spread", [0.3, 2.0])
def test_answers_are_those_of_scikit_learn(draw_episodes, dtype, n_shot, spread):
    episodes = draw_episodes(n_shot=n_shot, n_query=[10] * len(n_shot), spread=spread, dtype=dtype)
    got = assign_nearest(*episodes.inputs, n_way=len(n_shot))
    for episode in range(3):
        support, labels, query = episodes.numpy(episode)
        oracle = NearestCentroid().fit(support, labels)
        np.testing.assert_array_equal(got.labels[episode].numpy(), oracle.predict(query))
        np.testing.assert_allclose(got.prototypes[episode].numpy(), oracle.centroids_, atol=1e-6)


def test_each_query_is_decided_alone(draw_episodes):
    episodes = draw_episodes(spread=1.0)
    together = assign_nearest(*episodes.inputs, n_way=3)
    for row in range(episodes.query.shape[1]):
        alone = assign_nearest(
            episodes.support, episodes.support_labels, episodes.query[:, row : row + 1], n_way=3
        )
        assert torch.equal(alone.labels[:, 0], together.labels[:, row])


@pytest.mark.parametrize("offset", [1.0, 30.0, 1000.0])
def test_answers_follow_distance_when_all_features_lie_far_from_zero(draw_episodes, offset):
    """|x - c|^2 written as 2 <x, c> - |c|^2 loses its digits there in float32."""
    episodes = draw_episodes(n_query=(20, 20, 20), dim=64)
    support, labels, query = (
        (episodes.support + offset).float(),
        episodes.support_labels,
        (episodes.query + offset).float(),
    )
    got = assign_nearest(support, labels, query, n_way=3)
    expected = [
        NearestCentroid().fit(s, y).predict(q)
        for s, y, q in zip(support.double(), labels, query.double(), strict=True)
    ]
    assert (got.labels.numpy() == np.array(expected)).mean() > 0.99


def test_the_plan_says_the_labels_and_nothing_had_to_be_solved(draw_episodes):
    episodes = draw_episodes()
    got = assign_nearest(*episodes.inputs, n_way=3)
    np.testing.assert_array_equal(got.plan.numpy(), np.eye(3)[got.labels.numpy()])
    np.testing.assert_allclose(
        got.proportions.numpy(), [np.bincount(row, minlength=3) / 18 for row in got.labels.numpy()]
    )
    assert got.converged.all()
    assert (got.n_iterations == 0).all()
    assert (got.biases == 0).all()
