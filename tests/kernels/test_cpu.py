"""The fused CPU engine gives the labels of the readable classifiers in float64, one for one."""

from pathlib import Path

import numpy as np
import pytest
import torch

from fewlabels import AtLeast, FeatureSet, load_embedded, read_features, sample_episodes
from fewlabels.evaluation.engines import make_engine
from fewlabels.evaluation.fused import EstimatedPlans, refine
from fewlabels.kernels._smoothing import count_votes
from fewlabels.methods import configure, find_method, method_names
from fewlabels.methods.refinement import nearest_votes

CONV4 = Path(__file__).parents[2] / "artifacts" / "cifar-fs" / "conv4" / "novel.safetensors"
# A method without a kernel is left to the float64 classifier itself: one of them will do.
NAMES = [name for name in method_names() if find_method(name).kernel or name == "paddle"]
PAPER_METHODS = pytest.mark.parametrize("name", NAMES)
PIPELINES = (
    "power(0.5) | unit | center | unit",
    "power(0.5) | unit | center(joint) | unit",
    "unit | center",
    "unit | center(support+mean) | unit",
    "center(support+mean)",
    "unit | center | center(support+mean)",  # without a kernel
    "unit | center(shrunk) | unit",
    "center(shrunk)",
    "unit | center | center(shrunk)",  # without a kernel
    "center(joint)",
    "unit",
    "none",
)


def made_up(n_classes, *, size=24, dim=16, spread=1.0, scale=1.0, seed=0):
    """Overlapping classes of non-negative vectors of norm about 4 * scale."""
    rng = np.random.default_rng(seed)
    labels = np.repeat(np.arange(n_classes), size)
    x = np.abs(
        rng.gamma(1.0, size=(n_classes, dim))[labels] + spread * rng.normal(size=(len(labels), dim))
    )
    return FeatureSet.from_arrays((scale * x).astype(np.float32), labels)


@pytest.fixture(scope="module")
def random():
    return made_up(12)


@pytest.fixture(scope="module")
def real():
    return load_embedded()


def configured(name, *, n_shot, dataset=None, **settings):
    """The method with those of the settings that it takes."""
    knobs = find_method(name).knobs_for(settings.get("pipeline"))
    taken = {knob: settings[knob] for knob in settings if knob == "pipeline" or knob in knobs}
    return configure(name, n_shot=n_shot, dataset=dataset, **taken)


def assert_labels_agree(features, methods, **shape):
    episodes = sample_episodes(features, **{"n_episodes": 12, "seed": 1, **shape})
    how = {"device": "cpu", "mean_features": features}  # for methods that need a mean
    reference = make_engine(features, engine="torch", dtype="float64", **how)
    fused = make_engine(features, engine="numba", **how)
    for method in methods:
        method = method.decide(torch.as_tensor(features.features))
        expected = reference.predict(method, episodes)
        np.testing.assert_array_equal(
            fused.predict(method, episodes), expected, err_msg=str(method)
        )
    return expected


@PAPER_METHODS
@pytest.mark.parametrize("n_shot", [1, 5])
def test_real_episodes_of_every_method(real, name, n_shot):
    method = configure(name, n_shot=n_shot, dataset="cifar-fs")
    assert_labels_agree(real, [method], n_episodes=40, n_way=5, n_shot=n_shot, queries=15)


@PAPER_METHODS
@pytest.mark.parametrize(
    ("n_way", "n_shot", "queries"),
    [
        (2, 1, 1),
        (2, 3, 20),
        (3, 2, 7),
        (12, 1, 5),
        (12, 3, 20),
        (4, 1, "9,0,1,4"),
        (5, 1, "dirichlet:1:23"),
        (7, 2, "present:2:9"),
        (12, 2, "present:3:3"),  # fewer queries than ways
        (5, 1, "present:1:1"),  # one query in all
        (1, 1, 4),
        (1, 2, 1),
    ],
    ids=str,
)
def test_random_episodes_of_every_shape(random, name, n_way, n_shot, queries):
    assert_labels_agree(
        random, [configure(name, n_shot=n_shot)], n_way=n_way, n_shot=n_shot, queries=queries
    )


@pytest.mark.parametrize("pipeline", PIPELINES)
def test_every_pipeline(random, pipeline):
    methods = [configured(name, n_shot=2, pipeline=pipeline, n_steps=5) for name in NAMES]
    assert_labels_agree(random, methods, n_episodes=3, n_way=4, n_shot=2, queries=8)


@pytest.mark.parametrize("name", ["kmeans", "soft-kmeans", "map"])
def test_rows_far_from_the_origin(real, name):
    x = real.features + 30 * real.features.std()
    far = FeatureSet.from_arrays(x.astype(np.float32), real.labels)
    method = configured(name, n_shot=1, pipeline="unit | center(shrunk) | unit")
    assert_labels_agree(far, [method], n_episodes=60, n_way=5, n_shot=1, queries=15)


@pytest.mark.parametrize(
    "prior", ["uniform", "free", [0.5, 0.3, 0.2], [2, 8, 20], [0, 10, 20], [30, 0, 0]]
)
def test_given_class_sizes(random, prior):
    method = configure("map", n_shot=1, prior=prior)
    labels = assert_labels_agree(random, [method], n_way=3, n_shot=1, queries=10)
    if prior == [30, 0, 0]:
        assert (labels == 0).all()


@pytest.mark.parametrize("counts", [[0, 0, 0], [5, 5, 5], [20, 0, 0], [0, 30, 0], [10, 10, 10]])
def test_lower_bounds_on_class_sizes(random, counts):
    assert_labels_agree(
        random,
        [configure("map", n_shot=1, prior=AtLeast(counts))],
        n_way=3,
        n_shot=1,
        queries=10,
    )


def test_each_episode_may_have_class_sizes_of_its_own(random):
    sizes = torch.tensor(
        np.random.default_rng(0).multinomial(27, [1 / 3] * 3, size=150) + 1, dtype=torch.float64
    )
    assert_labels_agree(
        random,
        [configure("map", n_shot=1, prior=sizes)],
        n_episodes=150,
        n_way=3,
        n_shot=1,
        queries=10,
    )


@pytest.mark.parametrize(
    "settings",
    [
        {"n_steps": 0},
        {"n_steps": 1},
        {"alpha": 1.0},
        {"lam": 1.0},
        {"lam": 100.0, "n_steps": 9},
        {"alpha": 1.0, "lam": 50.0, "n_steps": 9},
    ],
    ids=str,
)
def test_settings_far_from_the_papers(random, settings):
    methods = [configure(name, n_shot=1, **settings) for name in ("map", "soft-kmeans")]
    assert_labels_agree(random, methods, n_episodes=4, n_way=4, n_shot=1, queries=6)


@pytest.mark.parametrize(
    ("name", "pipeline", "n_way"),
    [
        ("ncm", "none", 5),
        ("kmeans", "none", 5),
        ("soft-kmeans", "none", 5),
        ("ncm", "center | unit", 2),
        ("kmeans", "center | unit", 5),
    ],
)
@pytest.mark.parametrize("scale", [1e-3, 1.0])
@pytest.mark.parametrize("gap", [0.0, 1e3])
def test_raw_features_of_any_scale_and_in_groups_far_apart(name, pipeline, n_way, scale, gap):
    close = made_up(8, size=60)
    apart = close.features + np.float32(gap) * np.outer(close.labels % 2, np.eye(16)[0]).astype(
        np.float32
    )
    features = FeatureSet(np.float32(scale) * apart, close.labels, close.class_names, {})
    method = configure(name, n_shot=1, pipeline=pipeline)
    assert_labels_agree(
        features, [method], n_episodes=300, seed=0, n_way=n_way, n_shot=1, queries=15
    )


def test_map_of_features_that_were_not_normalised():
    method = configure("map", n_shot=1, pipeline="none", n_steps=3)
    assert_labels_agree(
        made_up(8, spread=2.0, scale=30.0), [method], n_episodes=1, n_way=3, n_shot=1, queries=8
    )


def test_classes_far_from_the_origin_are_told_apart():
    near = made_up(6, spread=2.0, size=60)
    far = FeatureSet(near.features + np.float32(300), near.labels, near.class_names, {})
    methods = [configure(name, n_shot=1, pipeline="none") for name in ("ncm", "kmeans")]
    assert_labels_agree(far, methods, n_episodes=200, n_way=5, n_shot=1, queries=15)


@PAPER_METHODS
def test_64_ways(name):
    features = made_up(64, dim=32, size=8)
    assert_labels_agree(
        features, [configure(name, n_shot=1)], n_episodes=2, n_way=64, n_shot=1, queries=4
    )


def test_an_episode_does_not_know_its_neighbours(real):
    episodes = sample_episodes(real, n_episodes=30, n_way=5, n_shot=1, queries=15, seed=2)
    engine = make_engine(real, engine="numba", device="cpu", mean_features=real)
    for name in NAMES:
        method = configure(name, n_shot=1).decide(torch.as_tensor(real.features))
        together = engine.predict(method, episodes)
        alone = np.concatenate(
            [engine.predict(method, episodes.take(slice(i, i + 1))) for i in range(0, 30, 7)]
        )
        np.testing.assert_array_equal(alone, together[::7])


def test_one_engine_serves_pipelines_in_turn(random):
    episodes = sample_episodes(random, n_episodes=10, n_way=4, n_shot=1, queries=6)
    engine = make_engine(random, engine="numba", device="cpu", mean_features=random)
    for line in (*PIPELINES, *reversed(PIPELINES)):
        method = configure("kmeans", n_shot=1, pipeline=line)
        fresh = make_engine(random, engine="numba", device="cpu", mean_features=random)
        np.testing.assert_array_equal(
            engine.predict(method, episodes), fresh.predict(method, episodes)
        )


@pytest.mark.parametrize(
    "settings",
    [{"prior": "estimate"}, {"prior": "estimate", "lam": "auto"}, {"lam": "auto"}],
    ids=str,
)
@pytest.mark.parametrize(
    ("n_shot", "queries"), [(1, "dirichlet:2:40"), (5, "15"), (3, "present:2:30")]
)
def test_estimates(real, settings, n_shot, queries):
    method = configure("map", n_shot=n_shot, **settings)
    assert_labels_agree(real, [method], n_way=5, n_shot=n_shot, queries=queries, n_episodes=6)


@pytest.mark.parametrize("name", ["map-auto", "map-auto-mean"])
@pytest.mark.parametrize(("n_shot", "queries"), [(1, "dirichlet:2:75"), (5, "present:2:75")])
def test_refined_plans(real, name, n_shot, queries):
    method = configure(name, n_shot=n_shot, dataset="cifar-fs")
    assert_labels_agree(real, [method], n_shot=n_shot, queries=queries, n_episodes=150)


@pytest.mark.parametrize("n_shot", [1, 5])
def test_refined_plans_of_faint_classes(real, n_shot):
    random = np.random.default_rng(0)
    x = np.abs(real.features + 1.5 * real.features.std() * random.normal(size=real.features.shape))
    faint = FeatureSet.from_arrays(x, real.labels, real.class_names, real.provenance)
    method = configure("map-auto", n_shot=n_shot, dataset="cifar-fs")
    assert_labels_agree(faint, [method], n_shot=n_shot, queries="dirichlet:2:75", n_episodes=50)


def test_refined_plans_where_rows_are_copies_of_others(real):
    x = real.features.copy()
    x[1::2] = x[::2]
    copies = FeatureSet.from_arrays(x, real.labels, real.class_names, real.provenance)
    method = configure("map-auto", n_shot=1, dataset="cifar-fs")
    assert_labels_agree(copies, [method], n_shot=1, queries="dirichlet:2:75", n_episodes=20)


@pytest.mark.parametrize("n_nearest", [1, 5, 30])
def test_votes_of_the_nearest_rows(n_nearest):
    x = np.random.default_rng(0).normal(size=(17, 6))
    x[11] = x[3]  # two that are equally near
    g = np.zeros((24, 24))
    g[:17, :17] = x @ x.T
    votes = np.empty((13, 17))
    count_votes(g, 4, 17, n_nearest, votes)
    expected = nearest_votes(torch.tensor(x @ x.T)[None], 4, n_nearest)[0]
    np.testing.assert_array_equal(votes > 0, expected.numpy() > 0)
    np.testing.assert_allclose(votes, expected)


def test_a_plan_that_is_not_a_number_is_not_an_answer():
    generator = torch.Generator().manual_seed(0)
    rows = torch.nn.functional.normalize(
        torch.randn(2, 12, 9, generator=generator, dtype=torch.float64), dim=-1
    )
    products = rows @ rows.mT
    votes = nearest_votes(products, 3, 5)
    plans = torch.rand(2, 3, 9, 3, generator=generator, dtype=torch.float64).softmax(dim=-1)
    found = EstimatedPlans(
        torch.stack([products, products], dim=1),
        torch.stack([votes, votes], dim=1),
        torch.arange(3).expand(2, 3),
        plans,
        torch.zeros(2, 3, dtype=torch.float64),
        torch.tensor([[10.0, 1.0, 0.5]] * 2, dtype=torch.float64),
    )
    _, margins = refine(found, torch.ones(2, dtype=torch.float64))
    assert (margins >= 0).all()
    found.products[1, 0, 4, 5] = torch.nan
    _, again = refine(found, torch.ones(2, dtype=torch.float64))
    assert again[1] == -1
    assert again[0] == pytest.approx(float(margins[0]))
    _, unsolved = refine(found, torch.tensor([-1.0, -1.0], dtype=torch.float64))
    assert (unsolved == -1).all()


def test_estimates_of_many_ways_and_two(random):
    method = configure("map-auto", n_shot=2).decide(torch.as_tensor(random.features))
    for n_way in (2, 11):
        assert_labels_agree(
            random,
            [method],
            n_way=n_way,
            n_shot=2,
            queries=f"dirichlet:1:{6 * n_way}",
            n_episodes=6,
        )


@pytest.mark.parametrize(
    ("n_shot", "hard"), [(1, [758, 1382, 1462, 2078, 2388]), (5, [21, 313, 2233, 2839])]
)
def test_estimates_where_features_are_fewer_than_rows(n_shot, hard):
    """Rows then depend on each other, and float32 chooses other neighbors in these episodes."""
    features = read_features(CONV4)
    episodes = sample_episodes(
        features, n_episodes=3000, n_way=5, n_shot=n_shot, queries="dirichlet:2:75"
    ).take(np.array(hard))
    method = configure("map", n_shot=n_shot, prior="estimate", lam="auto")
    reference = make_engine(features, engine="torch", device="cpu", dtype="float64")
    fused = make_engine(features, engine="numba", device="cpu")
    np.testing.assert_array_equal(
        fused.predict(method, episodes), reference.predict(method, episodes)
    )
