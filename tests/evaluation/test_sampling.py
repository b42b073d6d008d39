"""Draws: promises of the own sampler, and the authors' draws by their loop and golden file."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from fewlabels.errors import InputError
from fewlabels.evaluation import Episodes, draw_as_authors, sample_episodes
from fewlabels.evaluation.sampling import make_draws
from fewlabels.features import FeatureSet

GOLDEN = (
    Path(__file__).resolve().parents[3] / "shared" / "features" / "cifar-fs-wrn28-10" / "golden.npz"
)
FIELDS = ("classes", "support", "support_labels", "query", "query_labels")


def assert_same(a: Episodes, b: Episodes) -> None:
    for name in FIELDS:
        np.testing.assert_array_equal(getattr(a, name), getattr(b, name))


def assert_sound(episodes: Episodes, features: FeatureSet, n_shot: int) -> None:
    """Rows are of the classes they stand for, none is used twice, and every way has its shots."""
    for name in ("support", "query"):
        rows, ways = getattr(episodes, name), getattr(episodes, f"{name}_labels")
        np.testing.assert_array_equal(
            features.labels[rows], np.take_along_axis(episodes.classes, ways, axis=1)
        )
    rows = np.sort(np.concatenate([episodes.support, episodes.query], axis=1), axis=1)
    assert (np.diff(rows, axis=1) > 0).all()
    assert (np.diff(np.sort(episodes.classes, axis=1), axis=1) > 0).all()
    assert (
        (episodes.support_labels[:, :, None] == np.arange(episodes.n_way)).sum(axis=1) == n_shot
    ).all()


@pytest.fixture(scope="module")
def unequal(make_features):
    """Seven classes of 20 to 80 rows and 30 rows without a label."""
    return make_features([20, 30, 40, 50, 60, 70, 80], n_unlabelled=30)


# The own sampler


@pytest.mark.parametrize(
    ("queries", "n_way", "n_shot"),
    [
        ("15", 5, 5),
        (1, 7, 1),
        ("3,0,7", 3, 2),
        ("dirichlet:2:75", 5, 1),
        ("dirichlet:0.1:60", 3, 5),
        ("present:2:35", 5, 2),
        ("4", 1, 1),
    ],
)
def test_own_episodes_are_sound(unequal, queries, n_way, n_shot):
    episodes = sample_episodes(
        unequal, n_episodes=60, n_way=n_way, n_shot=n_shot, queries=queries, seed=3
    )
    assert episodes.classes.shape == (60, n_way)
    assert_sound(episodes, unequal, n_shot)


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_own_episodes_of_any_sizes_are_sound(make_features, data):
    sizes = data.draw(st.lists(st.integers(3, 12), min_size=1, max_size=6))
    features = make_features(sizes, n_unlabelled=data.draw(st.integers(0, 3)))
    n_way = data.draw(st.integers(1, len(sizes)))
    n_shot = data.draw(st.integers(1, min(sizes) - 1))
    n_query = data.draw(st.integers(1, min(sizes) - n_shot))
    episodes = sample_episodes(
        features,
        n_episodes=5,
        n_way=n_way,
        n_shot=n_shot,
        queries=n_query,
        seed=data.draw(st.integers(0, 2**31)),
    )
    assert_sound(episodes, features, n_shot)
    assert (episodes.query_counts == n_query).all()


def test_query_counts_are_as_asked(unequal):
    def draw(word, n_way):
        return sample_episodes(
            unequal, n_episodes=40, n_way=n_way, n_shot=1, queries=word
        ).query_counts

    assert (draw("15", 5) == 15).all()
    assert (draw("3,0,7", 3) == [3, 0, 7]).all()
    present = draw("present:2:35", 5)
    assert (np.sort(present, axis=1) == [0, 0, 0, 17, 18]).all()
    assert (present > 0).any(axis=0).all()  # every way is present in some episode
    ranged = (draw("present:2-4:36", 5) > 0).sum(axis=1)
    assert set(ranged) == {2, 3, 4}
    varying = draw("dirichlet:2:75", 5)
    assert (varying.sum(axis=1) == 75).all()
    assert len(np.unique(varying, axis=0)) > 30


def test_dirichlet_counts_give_way_to_small_classes(make_features):
    features = make_features([8, 8, 8])
    counts = sample_episodes(
        features, n_episodes=200, n_way=3, n_shot=1, queries="dirichlet:0.2:21"
    ).query_counts
    assert (counts == 7).all()  # all there is
    counts = sample_episodes(
        features, n_episodes=200, n_way=3, n_shot=1, queries="dirichlet:0.2:12"
    ).query_counts
    assert (counts.sum(axis=1) == 12).all()
    assert counts.max() == 7
    assert counts.min() == 0


@pytest.mark.parametrize("concentration", [0.5, 2.0, 5.0])
def test_dirichlet_counts_have_the_mean_and_variance_of_a_dirichlet(make_features, concentration):
    features, n_way = make_features([300] * 4), 4
    counts = sample_episodes(
        features, n_episodes=5000, n_way=n_way, n_shot=1, queries=f"dirichlet:{concentration}:250"
    ).query_counts
    oracle = stats.dirichlet([concentration] * n_way)
    np.testing.assert_allclose(
        (counts / 250).mean(axis=0), oracle.mean(), atol=0.012
    )  # four standard errors at concentration 0.5
    np.testing.assert_allclose((counts / 250).var(axis=0), oracle.var(), rtol=0.1)
    of_one_way = stats.beta(
        concentration, concentration * (n_way - 1)
    )  # of one way; whole numbers of 250 blur it by 1/500
    assert (
        stats.kstest(
            (counts[:, 0] + np.random.default_rng(0).uniform(-0.5, 0.5, 5000)) / 250, of_one_way.cdf
        ).statistic
        < 0.04
    )


def test_classes_and_images_are_drawn_uniformly(make_features):
    features = make_features([12, 20, 12, 12])
    episodes = sample_episodes(features, n_episodes=8000, n_way=2, n_shot=1, queries=3, seed=7)
    for way in range(2):
        assert stats.chisquare(np.bincount(episodes.classes[:, way], minlength=4)).pvalue > 1e-3
    pairs = episodes.classes[:, 0] * 4 + episodes.classes[:, 1]
    assert (
        stats.chisquare(np.bincount(pairs, minlength=16)[~np.eye(4, dtype=bool).ravel()]).pvalue
        > 1e-3
    )
    for rows, ways in (
        (episodes.support, episodes.support_labels),
        (episodes.query, episodes.query_labels),
    ):
        for way in range(2):
            first = rows[
                np.arange(len(rows)), (ways == way).argmax(axis=1)
            ]  # one image an episode, so that counts are multinomial
            for members in features.class_rows:
                assert (
                    stats.chisquare(np.array([(first == row).sum() for row in members])).pvalue
                    > 1e-3
                )


def test_unequal_classes_are_used_in_full_and_unlabelled_rows_never(unequal):
    episodes = sample_episodes(unequal, n_episodes=400, n_way=5, n_shot=5, queries=15)
    used = np.unique(np.concatenate([episodes.support.ravel(), episodes.query.ravel()]))
    np.testing.assert_array_equal(used, np.flatnonzero(unequal.labels >= 0))


@pytest.mark.parametrize("draws", ["own", "authors"])
@pytest.mark.parametrize("chunk_size", [1, 7, 50, 1000])
def test_an_episode_depends_neither_on_chunks_nor_on_how_many_follow(unequal, draws, chunk_size):
    source = make_draws(unequal, draws=draws, n_way=3, n_shot=2, queries=4, seed=5)
    chunks = list(source.chunks(50, chunk_size))
    assert [len(chunk) for chunk in chunks[:-1]] == [chunk_size] * (len(chunks) - 1)
    joined = Episodes(
        *(np.concatenate([getattr(chunk, name) for chunk in chunks]) for name in FIELDS)
    )
    assert len(joined) == 50
    draw = sample_episodes if draws == "own" else draw_as_authors
    assert_same(
        joined.take(slice(20)), draw(unequal, n_episodes=20, n_way=3, n_shot=2, queries=4, seed=5)
    )
    assert_same(
        joined, Episodes(*(getattr(next(source.chunks(50, 50)), name) for name in FIELDS))
    )  # a source can be drawn from again


@pytest.mark.parametrize("draw", [sample_episodes, draw_as_authors])
def test_seeds_decide_the_episodes(unequal, draw):
    def support(seed):
        return draw(unequal, n_episodes=30, seed=seed, queries=5).support

    np.testing.assert_array_equal(support(1), support(1))
    assert len({support(seed).tobytes() for seed in range(20)}) == 20
    assert (
        (support(0)[1:] != support(1)[:-1]).any(axis=1).all()
    )  # not the same stream one episode later


# The authors' draws


def draw_by_the_letter(sizes, n_episodes, n_way, n_used, seed):
    """The authors' loop as notes/method.md states it: classes (E, W) and images (E, W, used)."""
    np.random.seed(seed)  # noqa: NPY002 - as their script
    classes, images = [], []
    for _ in range(n_episodes):
        classes.append(np.random.permutation(np.arange(len(sizes)))[:n_way])  # noqa: NPY002
        shuffled = np.arange(min(sizes))
        images.append([])
        for _ in range(n_way):
            shuffled = np.random.permutation(shuffled)  # noqa: NPY002
            images[-1].append(shuffled[:n_used])
    return np.array(classes), np.array(images)


def assert_as_authors(episodes, features, classes, images, n_shot):
    rows = np.array(
        [
            [features.class_rows[c][i] for c, i in zip(*way, strict=True)]
            for way in zip(classes, images, strict=True)
        ]
    )
    rows = rows.transpose(0, 2, 1)  # image-major, way-minor
    n_episodes, n_used, n_way = rows.shape
    np.testing.assert_array_equal(episodes.classes, classes)
    np.testing.assert_array_equal(episodes.support, rows[:, :n_shot].reshape(n_episodes, -1))
    np.testing.assert_array_equal(episodes.query, rows[:, n_shot:].reshape(n_episodes, -1))
    np.testing.assert_array_equal(
        episodes.support_labels, np.tile(np.arange(n_way), (n_episodes, n_shot))
    )
    np.testing.assert_array_equal(
        episodes.query_labels, np.tile(np.arange(n_way), (n_episodes, n_used - n_shot))
    )


@pytest.mark.parametrize(
    ("n_way", "n_shot", "n_query", "seed"),
    [(5, 1, 15, 0), (5, 5, 15, 0), (2, 3, 1, 0), (7, 1, 2, 42), (1, 1, 1, 0)],
)
def test_authors_draws_are_those_of_their_loop(unequal, n_way, n_shot, n_query, seed):
    episodes = draw_as_authors(
        unequal, n_episodes=25, n_way=n_way, n_shot=n_shot, queries=n_query, seed=seed
    )
    classes, images = draw_by_the_letter(unequal.class_sizes, 25, n_way, n_shot + n_query, seed)
    assert_as_authors(episodes, unequal, classes, images, n_shot)
    assert_sound(episodes, unequal, n_shot)


@pytest.mark.skipif(not GOLDEN.exists(), reason=f"needs {GOLDEN}")
@pytest.mark.parametrize("n_shot", [1, 5])
def test_authors_draws_are_the_golden_tasks(n_shot):
    features = FeatureSet.from_arrays(np.ones((12_000, 1), np.float32), np.arange(12_000) // 600)
    episodes = draw_as_authors(features, n_episodes=200, n_way=5, n_shot=n_shot, queries=15)
    with np.load(GOLDEN) as golden:
        assert_as_authors(
            episodes, features, golden["classes"], golden["images"][:, :, : n_shot + 15], n_shot
        )


def test_authors_draws_leave_the_global_generator_alone(unequal):
    np.random.seed(9)  # noqa: NPY002
    expected = np.random.RandomState(9).permutation(10)
    draw_as_authors(unequal, n_episodes=3)
    np.testing.assert_array_equal(np.random.permutation(10), expected)  # noqa: NPY002


# Errors


def test_features_without_labels_are_refused():
    features = FeatureSet.from_arrays(np.ones((9, 4), dtype=np.float32), [None] * 9)
    with pytest.raises(InputError, match="must have labels to draw episodes from, got none"):
        sample_episodes(features, n_episodes=1)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"n_way": 8}, "n_way must be at most 7, the classes of the features, got 8"),
        ({"n_way": 0}, "n_way must be at least 1, got 0"),
        ({"n_shot": 0}, "n_shot must be at least 1, got 0"),
        (
            {"n_shot": 6},
            r"class 'c0' must have at least 21 images, got 20\. "
            r"Lower n_shot or queries \('15'\), or drop 1 class\.",
        ),
        (
            {"n_shot": 900},
            r"must have at least 915 images, got 20; 7 of 7 classes have too few\. "
            r"Lower n_shot or queries \('15'\)\.",
        ),
        ({"queries": "1,2,20,1,1"}, "class 'c0' must have at least 21 images.*, got 20"),
        ({"queries": "present:1:20"}, "class 'c0' must have"),
        (
            {"queries": "dirichlet:2:500"},
            "no more than the 5 smallest classes together have.*got 500 in 'dirichlet:2:500'",
        ),
        ({"queries": "present:6:12"}, "at most 5 ways present, got 6"),
        ({"queries": "3,4"}, "one number for each of the 5 ways"),
        (
            {"draws": "authors", "queries": "dirichlet:2:75"},
            "authors' draws, got 'dirichlet:2:75'. Use draws 'own'",
        ),
        ({"draws": "authors", "queries": "1,2,3,4,5"}, "authors' draws"),
        ({"draws": "theirs"}, "draws must be one of own, authors, got 'theirs'"),
        ({"draws": "authors", "seed": -1}, "seed"),
        ({"draws": "authors", "seed": 2**40}, "seed"),
        ({"draws": "own", "seed": 2**80}, "seed"),
    ],
)
def test_what_cannot_be_drawn_is_refused_in_words(unequal, settings, message):
    with pytest.raises(InputError, match=message):
        next(make_draws(unequal, **settings).chunks(1, 1))


@pytest.mark.parametrize("draw", [sample_episodes, draw_as_authors])
def test_at_least_one_episode(unequal, draw):
    with pytest.raises(InputError, match="n_episodes must be at least 1, got 0"):
        draw(unequal, n_episodes=0)
