import numpy as np
import pytest
import torch
from sklearn.cluster import KMeans

from fewlabels.methods.kmeans import assign_kmeans
from fewlabels.methods.nearest import assign_nearest


def lloyd(
    support: np.ndarray, labels: np.ndarray, query: np.ndarray, n_way: int
) -> tuple[np.ndarray, np.ndarray, int]:
    """Labels, centers and the number of center updates until no query changes its class."""
    centers = np.stack([support[labels == way].mean(axis=0) for way in range(n_way)])
    chosen, before, n_updates = (
        np.linalg.norm(query[:, None] - centers, axis=-1).argmin(axis=-1),
        None,
        0,
    )
    while before is None or (before != chosen).any():
        centers = np.stack(
            [
                np.concatenate([support[labels == way], query[chosen == way]]).mean(axis=0)
                for way in range(n_way)
            ]
        )
        before, chosen = chosen, np.linalg.norm(query[:, None] - centers, axis=-1).argmin(axis=-1)
        n_updates += 1
    return chosen, centers, n_updates


@pytest.mark.parametrize("n_shot", [(1, 1, 1), (3, 1, 5), (1, 1)])
@pytest.mark.parametrize("spread", [0.3, 1.0, 3.0])
@pytest.mark.parametrize("seed", [0, 1])
def test_answers_are_those_of_lloyd_with_fixed_support(draw_episodes, n_shot, spread, seed):
    n_way = len(n_shot)
    episodes = draw_episodes(
        n_episodes=4, n_shot=n_shot, n_query=[15] * n_way, spread=spread, seed=seed
    )
    got = assign_kmeans(*episodes.inputs, n_way=n_way)
    assert got.converged.all()
    for episode in range(4):
        labels, centers, n_steps = lloyd(*episodes.numpy(episode), n_way)
        np.testing.assert_array_equal(got.labels[episode].numpy(), labels)
        np.testing.assert_allclose(got.prototypes[episode].numpy(), centers, atol=1e-12)
        assert got.n_iterations[episode] == n_steps


@pytest.mark.parametrize("seed", range(3))
def test_answers_are_those_of_scikit_learn_where_the_support_weighs_little(draw_episodes, seed):
    episodes = draw_episodes(n_shot=(1, 1, 1), n_query=(200, 200, 200), spread=0.5, seed=seed)
    got = assign_kmeans(*episodes.inputs, n_way=3)
    for episode in range(3):
        support, labels, query = episodes.numpy(episode)
        oracle = KMeans(3, init=support[np.argsort(labels)], n_init=1, tol=0).fit(query)
        assert (got.labels[episode].numpy() == oracle.labels_).mean() > 0.99


@pytest.mark.parametrize("max_iterations", [1, 2, 3])
def test_lloyd_cut_short_says_so(draw_episodes, max_iterations):
    episodes = draw_episodes(n_episodes=6, n_shot=(1, 1, 1), n_query=(40, 40, 40), spread=2.0)
    got = assign_kmeans(*episodes.inputs, n_way=3, max_iterations=max_iterations)
    expected = [lloyd(*episodes.numpy(episode), 3)[2] for episode in range(6)]
    assert max(expected) > 3
    assert got.converged.tolist() == [n <= max_iterations for n in expected]
    assert got.n_iterations.tolist() == [min(n, max_iterations) for n in expected]


def test_a_class_that_no_query_chooses_keeps_its_support_mean(draw_episodes):
    episodes = draw_episodes(n_shot=(2, 2, 2), n_query=(9, 9, 0), spread=0.1)
    got = assign_kmeans(*episodes.inputs, n_way=3)
    assert torch.equal(got.labels, episodes.query_labels)
    torch.testing.assert_close(
        got.prototypes[:, 2], assign_nearest(*episodes.inputs, n_way=3).prototypes[:, 2]
    )


def test_queries_move_the_answer_away_from_nearest_means(draw_episodes):
    episodes = draw_episodes(n_episodes=20, n_shot=(1,) * 5, n_query=(15,) * 5, spread=0.9, dim=16)
    accuracy = {
        classify: float(
            (classify(*episodes.inputs, n_way=5).labels == episodes.query_labels).double().mean()
        )
        for classify in (assign_kmeans, assign_nearest)
    }
    assert accuracy[assign_kmeans] > accuracy[assign_nearest] + 0.03
