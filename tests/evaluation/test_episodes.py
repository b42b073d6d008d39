"""The fingerprint of episodes, and taking some of them."""

from dataclasses import replace

import numpy as np
import pytest

from fewlabels.evaluation import sample_episodes
from fewlabels.evaluation.episodes import EpisodeDigest


@pytest.fixture(scope="module")
def draw(make_features):
    features = make_features([20] * 6)

    def sample(**changed):
        return sample_episodes(
            features,
            **{"n_episodes": 12, "n_way": 3, "n_shot": 2, "queries": 5, "seed": 0, **changed},
        )

    return sample


def test_equal_episodes_have_equal_hashes(draw):
    assert draw().hash == draw().hash == draw(n_episodes=20).take(slice(12)).hash
    assert len(draw().hash) == 16


def test_other_episodes_have_other_hashes(draw):
    base = draw()
    others = [
        draw(seed=1),
        draw(n_episodes=11),
        draw(n_way=4),
        draw(n_shot=1),
        draw(queries=6),
        base.take(np.arange(12)[::-1]),
    ]
    for name in ("classes", "support", "support_labels", "query", "query_labels"):
        changed = getattr(base, name).copy()
        changed[7, 1] += 1
        others.append(replace(base, **{name: changed}))
    assert len({base.hash, *(other.hash for other in others)}) == 1 + len(others)


@pytest.mark.parametrize("size", [1, 5, 12])
def test_where_chunks_were_cut_does_not_matter(draw, size):
    episodes, digest = draw(), EpisodeDigest()
    for first in range(0, 12, size):
        digest = digest.after(episodes.take(slice(first, first + size)))
    assert digest.hexdigest() == episodes.hash


def test_take_picks_whole_episodes(draw):
    episodes = draw()
    some = episodes.take(np.array([4, 1]))
    assert len(some) == 2
    assert some.n_way == 3
    np.testing.assert_array_equal(some.query, episodes.query[[4, 1]])
    np.testing.assert_array_equal(some.query_counts, [[5, 5, 5]] * 2)
