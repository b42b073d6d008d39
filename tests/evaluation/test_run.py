"""`evaluate`: repeatable, paired, the same in chunks of any size, and complete when interrupted."""

import json

import numpy as np
import pytest
import torch
from sklearn.neighbors import NearestCentroid

from fewlabels.errors import InputError
from fewlabels.evaluation import evaluate, sample_episodes
from fewlabels.evaluation.engines import TorchEngine, make_engine
from fewlabels.evaluation.fused import NumbaEngine
from fewlabels.methods import configure, method_names
from fewlabels.methods.base import methods_with_mean

NAMES = [name for name in method_names() if name not in methods_with_mean()]
FEWER = {name: {"n_updates": 3} for name in ("am", "alpha-am")}  # their default takes long
EVERY_METHOD = [configure(name, n_shot=2, **FEWER.get(name, {})) for name in NAMES]
ENGINES = pytest.mark.parametrize("engine", ["torch", "numba"])


@pytest.fixture(scope="module")
def features(make_features):
    return make_features([15, 20, 25, 30, 15], dim=6)


def accuracies(features, methods=EVERY_METHOD, **changed):
    settings = {
        "n_way": 3,
        "n_shot": 2,
        "queries": 6,
        "n_episodes": 20,
        "seed": 4,
        "engine": "torch",
        "device": "cpu",
        **changed,
    }
    return evaluate(methods, features, **settings)


def test_the_same_seed_gives_the_same_numbers(features):
    first, again, other = accuracies(features), accuracies(features), accuracies(features, seed=5)
    for a, b in zip(first, again, strict=True):
        np.testing.assert_array_equal(a.accuracies, b.accuracies)
        assert a.provenance["episode_hash"] == b.provenance["episode_hash"]
    assert other[0].provenance["episode_hash"] != first[0].provenance["episode_hash"]


@pytest.mark.parametrize("draws", ["own", "authors"])
def test_all_methods_see_the_same_episodes(features, draws):
    together = accuracies(features, draws=draws)
    assert [r.method for r in together] == NAMES
    assert len({r.provenance["episode_hash"] for r in together}) == 1
    for method, result in zip(EVERY_METHOD, together, strict=True):
        alone = accuracies(features, [method], draws=draws)[0]
        np.testing.assert_array_equal(alone.accuracies, result.accuracies)
        assert alone.provenance["episode_hash"] == result.provenance["episode_hash"]


def test_accuracies_are_those_of_a_nearest_centroid_on_the_same_rows(features):
    found = accuracies(features, [configure("ncm-raw", n_shot=2)])[0]
    episodes = sample_episodes(features, n_episodes=20, n_way=3, n_shot=2, queries=6, seed=4)
    assert found.provenance["episode_hash"] == episodes.hash
    for episode, accuracy in enumerate(found.accuracies):
        oracle = NearestCentroid().fit(
            features.features[episodes.support[episode]], episodes.support_labels[episode]
        )
        assert accuracy == oracle.score(
            features.features[episodes.query[episode]], episodes.query_labels[episode]
        )


@ENGINES
@pytest.mark.parametrize("size", [1, 7])
def test_the_size_of_chunks_has_no_effect(features, monkeypatch, engine, size):
    dtype = "float64" if engine == "torch" else None  # float32 may decide near ties either way
    whole = accuracies(features, engine=engine, dtype=dtype)
    for engine_class in (TorchEngine, NumbaEngine):
        monkeypatch.setattr(engine_class, "chunk_size", lambda *_: size)
    calls = []
    cut = accuracies(features, engine=engine, dtype=dtype, on_progress=calls.append)
    assert calls == [min(size, 20 - first) for first in range(0, 20, size) for _ in EVERY_METHOD]
    for a, b in zip(whole, cut, strict=True):
        np.testing.assert_array_equal(a.accuracies, b.accuracies)
        assert a.provenance["episode_hash"] == b.provenance["episode_hash"]


class StopsAfter:
    """A progress callback at which the user presses Ctrl-C."""

    def __init__(self, calls):
        self.left = calls

    def __call__(self, _):
        self.left -= 1
        if self.left < 0:
            raise KeyboardInterrupt


@pytest.mark.parametrize(("calls", "done"), [(2, 5), (3, 5), (4, 10), (7, 15)])
def test_an_interrupted_run_reports_the_episodes_that_all_methods_finished(
    features, monkeypatch, calls, done
):
    monkeypatch.setattr(TorchEngine, "chunk_size", lambda *_: 5)
    pair = EVERY_METHOD[:2]
    whole = accuracies(features, pair)
    part = accuracies(features, pair, on_progress=StopsAfter(calls))
    for a, b in zip(whole, part, strict=True):
        assert (a.interrupted, b.interrupted) == (False, True)
        assert b.n_episodes == done
        np.testing.assert_array_equal(b.accuracies, a.accuracies[:done])
        assert (
            b.provenance["episode_hash"]
            == accuracies(features, pair, n_episodes=done)[0].provenance["episode_hash"]
        )


def test_an_interruption_before_any_result_is_passed_on(features):
    with pytest.raises(KeyboardInterrupt):
        accuracies(features, on_progress=StopsAfter(0))


@ENGINES
def test_center_mean_takes_its_mean_from_other_features(features, make_features, engine):
    """SimpleShot's CL2N in plain numpy, on episodes drawn outside."""
    base = make_features([9, 9], dim=6, seed=8)
    method = configure("ncm", n_shot=2, pipeline="center(mean) | unit")
    found = accuracies(features, [method], mean_features=base, engine=engine)[0]
    x = features.features.astype(np.float64) - base.features.astype(np.float64).mean(axis=0)
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    episodes = sample_episodes(features, n_episodes=20, n_way=3, n_shot=2, queries=6, seed=4)
    for episode, accuracy in enumerate(found.accuracies):
        ways = episodes.support_labels[episode]
        means = np.stack(
            [x[episodes.support[episode]][ways == way].mean(axis=0) for way in range(3)]
        )
        nearest = ((x[episodes.query[episode]][:, None] - means) ** 2).sum(axis=-1).argmin(axis=1)
        assert accuracy == (nearest == episodes.query_labels[episode]).mean()


@ENGINES
def test_center_mean_without_a_mean_is_refused(features, engine):
    with pytest.raises(
        InputError, match=r"mean_features must be given for pipeline 'center\(mean\) \| unit'"
    ):
        accuracies(
            features, [configure("ncm", n_shot=2, pipeline="center(mean) | unit")], engine=engine
        )


@ENGINES
def test_an_engine_without_a_mean_refuses_methods_that_need_one(features, engine):
    episodes = sample_episodes(features, n_episodes=2, n_way=3, n_shot=2, queries=6)
    method = configure("map-auto-mean", n_shot=2).decide(torch.as_tensor(features.features))
    with pytest.raises(InputError, match=r"center\(support\+mean\) needs a mean, got none"):
        make_engine(features, engine=engine, device="cpu").predict(method, episodes)


@ENGINES
def test_a_mean_of_another_width_or_without_use_is_refused(features, make_features, engine):
    wants_mean = configure("ncm", n_shot=2, pipeline="unit | center(mean) | unit")
    with pytest.raises(
        InputError, match=r"mean_features must hold vectors of 6 numbers like the features, got 4"
    ):
        accuracies(
            features, [wants_mean], mean_features=make_features([9, 9], dim=4), engine=engine
        )
    with pytest.raises(
        InputError,
        match=r"mean_features has no effect on pipeline .* map-auto-mean, simpleshot-cl2n",
    ):
        accuracies(
            features,
            [configure("ncm", n_shot=2)],
            mean_features=make_features([9, 9], dim=6),
            engine=engine,
        )


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"engine": "torch"}, "float32"),
        ({"engine": "torch", "dtype": "float64"}, "float64"),
        ({"engine": "numba"}, "float32, float64 where a decision is close"),
    ],
)
def test_a_result_names_the_dtype_that_was_computed_in(features, settings, said):
    assert (
        accuracies(features, [configure("ncm", n_shot=2)], **settings)[0].provenance["dtype"]
        == said
    )


def test_a_result_holds_what_is_needed_to_repeat_it(features):
    results = accuracies(features, queries="dirichlet:2:18")
    [found] = [result.to_dict() for result in results if result.method == "map-truth"]
    assert found["features"]["fingerprint"] == features.fingerprint
    assert {
        "draws",
        "seed",
        "episode_hash",
        "engine",
        "device",
        "dtype",
        "versions",
    } <= found.keys()
    assert found["pipeline"] == "power(0.5) | unit | center | unit"
    assert (found["queries"], found["n_query"], found["n_episodes"]) == ("dirichlet:2:18", 18, 20)
    json.dumps(found, allow_nan=False)


@ENGINES
@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"lam": -1.0}, "lam must be a number above 0, got -1.0"),
        ({"lam": float("nan")}, "lam must be a number above 0, got nan"),
        ({"alpha": 0.0}, "alpha must be a number above 0 and up to 1, got 0.0"),
        ({"alpha": 1.5}, "alpha must be a number above 0 and up to 1, got 1.5"),
        ({"n_steps": -1}, "n_steps must be a whole number of at least 0, got -1"),
        ({"prior": [1, 2, 3]}, "must sum to 18"),
        ({"prior": "equal"}, "prior must be one of"),
    ],
)
def test_settings_out_of_range_are_refused_by_every_engine(features, engine, settings, message):
    with pytest.raises(InputError, match=message):
        accuracies(features, [configure("map", n_shot=2, **settings)], engine=engine)


@ENGINES
def test_features_that_a_pipeline_cannot_use_are_refused_by_every_engine(
    features, make_features, engine
):
    broken = make_features([15, 15, 15], dim=6)
    broken.features[7] = 0
    with pytest.raises(InputError, match="only zeros in row 7"):
        accuracies(broken, [configure("map", n_shot=2)], engine=engine)
    broken.features[7] = -1
    with pytest.raises(InputError, match="must not be negative"):
        accuracies(broken, [configure("map", n_shot=2)], engine=engine)


def test_an_array_in_place_of_features_names_the_way_out():
    with pytest.raises(InputError, match=r"got ndarray\. Make one by FeatureSet\.from_arrays"):
        evaluate("ncm", np.ones((9, 4)))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"n_episodes": 0}, "n_episodes must be at least 1, got 0"),
        ({"methods": []}, "at least one method"),
        ({"engine": "jax"}, "engine must be one of auto, torch, numba"),
        ({"device": "tpu"}, "device must be one of auto, cpu, cuda, mps"),
        ({"dtype": "float8"}, "dtype must be one of float32, float64"),
        ({"dtype": "float8", "engine": "numba"}, "dtype must be one of float32, float64"),
        (
            {"dtype": "float64", "engine": "numba"},
            "dtype has no effect on engine 'numba'.*use engine 'torch'",
        ),
        ({"draws": "mine"}, "draws must be one of own, authors"),
    ],
)
def test_impossible_runs_are_refused(features, settings, message):
    with pytest.raises(InputError, match=message):
        accuracies(features, **settings)
