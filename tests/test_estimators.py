"""The estimators: scikit-learn's own contract, the authors' answers, and what users write in y."""

import pickle
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import GridSearchCV
from sklearn.neighbors import NearestCentroid
from sklearn.pipeline import Pipeline as SklearnPipeline
from sklearn.utils.estimator_checks import parametrize_with_checks

from fewlabels import (
    PTMAP,
    AtLeast,
    FewLabelsClassifier,
    NearestClassMean,
    PowerTransform,
    SeededKMeans,
    classify,
    load_embedded,
    method_names,
)
from fewlabels.errors import InputError
from fewlabels.methods.base import methods_with_mean
from fewlabels.methods.map import assign_map
from fewlabels.preprocess import PAPER, Pipeline

GOLDEN = Path(__file__).parent / "reference" / "golden_small.npz"
CLASSIFIERS = [NearestClassMean(), SeededKMeans(), PTMAP()]
CALIBRATED = PTMAP(beta="auto", lam="auto", prior="estimate", calibrate=True, none_of_these=True)
EVERY_CLASSIFIER = pytest.mark.parametrize("estimator", CLASSIFIERS, ids=lambda e: type(e).__name__)
NAMES = np.array(["wolf", "ant", "Owl", "elk", "bee"])


def expected_failures(estimator):
    return (
        {}
        if isinstance(estimator, PowerTransform)
        else {"check_classifiers_classes": "needs -1 as a class"}
    )


@cache
def embedded():
    return load_embedded()


def real_episode(n_shot=1, n_query=10, n_way=5, seed=0):
    """Rows of the embedded features, labelled rows first: X, true labels, their number."""
    features, rng = embedded(), np.random.default_rng(seed)
    rows = np.stack(
        [
            rng.permutation(features.class_rows[c])[: n_shot + n_query]
            for c in rng.permutation(20)[:n_way]
        ]
    )
    rows = np.concatenate([rows[:, :n_shot].ravel(), rows[:, n_shot:].ravel()])
    truth = np.concatenate(
        [np.repeat(np.arange(n_way), n_shot), np.repeat(np.arange(n_way), n_query)]
    )
    return features.features[rows].astype(np.float64), truth, n_way * n_shot


@pytest.fixture(scope="module")
def episode():
    """50 real queries of 5 classes, one label each, in a shuffled order: X, y with -1, truth."""
    x, truth, n_support = real_episode()
    y = np.where(np.arange(len(truth)) < n_support, truth, -1)
    order = np.random.default_rng(1).permutation(len(truth))
    return x[order], y[order], truth[order]


# scikit-learn's contract


@pytest.mark.filterwarnings("ignore:X has only zeros")
@parametrize_with_checks(
    [PowerTransform(), *CLASSIFIERS, CALIBRATED, FewLabelsClassifier()],
    expected_failed_checks=expected_failures,
)
def test_scikit_learn_contract(estimator, check):
    check(estimator)


@EVERY_CLASSIFIER
def test_minus_one_is_no_class(estimator):
    """Why the one check cannot pass."""
    model = clone(estimator).fit([[1.0, 2], [2, 1], [3, 1], [1, 4]], [-1, 1, 1, 0])
    assert model.classes_.tolist() == [0, 1]


@EVERY_CLASSIFIER
def test_clone_and_set_params_keep_what_was_asked(estimator):
    changed = clone(estimator).set_params(beta=0.3, lam=7.0)
    again = clone(changed)
    assert again.get_params() == {**estimator.get_params(), "beta": 0.3, "lam": 7.0}
    assert not hasattr(again, "classes_")


def test_clone_keeps_lower_bounds_and_dictionaries():
    for prior in (AtLeast([3, 4]), {"ant": 3, "bee": 4}, [0.5, 0.5]):
        assert clone(PTMAP(prior=prior)).prior == prior


@EVERY_CLASSIFIER
def test_pickled_model_predicts_the_same(estimator, episode):
    x, y, _ = episode
    model = clone(estimator).fit(x, y)
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_allclose(again.predict_proba(x), model.predict_proba(x), rtol=0, atol=1e-9)
    np.testing.assert_array_equal(again.transduction_, model.transduction_)


@EVERY_CLASSIFIER
def test_fit_leaves_its_input_alone_and_repeats(estimator, episode):
    x, y, _ = episode
    x_before, y_before = x.copy(), y.copy()
    model = clone(estimator)
    first = model.fit(x, y).label_distributions_
    second = model.fit(x, y).label_distributions_
    np.testing.assert_array_equal(first, second)
    np.testing.assert_array_equal(x, x_before)
    np.testing.assert_array_equal(y, y_before)


def test_pipeline_with_power_transform_equals_the_built_in_power(episode):
    x, y, _ = episode
    piped = SklearnPipeline([("power", PowerTransform(beta=0.4)), ("map", PTMAP(beta=None))]).fit(
        x, y
    )
    whole = PTMAP(beta=0.4).fit(x, y)
    np.testing.assert_array_equal(piped[-1].transduction_, whole.transduction_)
    np.testing.assert_allclose(
        piped[-1].label_distributions_, whole.label_distributions_, atol=1e-9
    )
    np.testing.assert_allclose(piped.predict_proba(x), whole.predict_proba(x), atol=1e-9)


def test_grid_search_over_beta_and_lam():
    x, truth, _ = real_episode(n_shot=4, n_query=4)
    search = GridSearchCV(
        PTMAP(), {"beta": [0.5, 1], "lam": [5.0, 10.0]}, cv=2, error_score="raise"
    ).fit(x, NAMES[truth])
    assert len(search.cv_results_["params"]) == 4
    assert search.best_score_ > 0.5  # five classes: chance is 0.2
    assert set(search.predict(x)) <= set(NAMES)


# Oracles from outside


@pytest.mark.parametrize("beta", [0.5, 1.0, 2.0, 0, -0.5])
def test_power_transform_is_equation_1(beta):
    x = np.random.default_rng(0).gamma(1.0, size=(7, 5))
    raised = np.log(x + 1e-6) if beta == 0 else (x + 1e-6) ** beta
    np.testing.assert_allclose(
        PowerTransform(beta, unit=False).fit_transform(x), raised, rtol=1e-10
    )
    np.testing.assert_allclose(
        PowerTransform(beta).fit_transform(x),
        raised / np.linalg.norm(raised, axis=1, keepdims=True),
        rtol=1e-10,
    )


# scikit-learn's, about features that are always zero
@pytest.mark.filterwarnings("ignore:self.within_class_std_dev_")
def test_raw_nearest_class_mean_is_nearest_centroid():
    x, truth, n_support = real_episode(n_shot=3)
    y = np.where(np.arange(len(x)) < n_support, truth, -1)
    oracle = NearestCentroid().fit(x[:n_support], truth[:n_support])
    model = NearestClassMean(beta=None, unit=False).fit(x, y)
    np.testing.assert_array_equal(model.transduction_[n_support:], oracle.predict(x)[n_support:])
    np.testing.assert_array_equal(model.predict(x), oracle.predict(x))


@pytest.mark.parametrize(
    ("key", "n_shot", "settings"),
    [("s1_a0.3", 1, {"alpha": 0.3}), ("s1_a0.4", 1, {}), ("s5_a0.2", 5, {})],
)
def test_ptmap_answers_as_the_authors_script(key, n_shot, settings):
    with np.load(GOLDEN) as golden:
        features, rows, answers = (
            golden["features"].astype(np.float64),
            golden["rows"].astype(np.int64),
            golden[f"{key}_pred"],
        )
    # rows are (ways, images): query j belongs to way j % 5
    for task, answer in zip(rows[:4], answers, strict=False):
        support, query = task[:, :n_shot].T.ravel(), task[:, n_shot : n_shot + 15].T.ravel()
        y = np.concatenate([np.tile(np.arange(5), n_shot), np.full(75, -1)])
        model = PTMAP(**settings).fit(features[np.concatenate([support, query])], y)
        np.testing.assert_array_equal(model.transduction_[y < 0], answer)


@pytest.mark.parametrize("n_shot", [1, 3])
def test_ptmap_is_assign_map_behind_the_papers_pipeline_and_is_classify(n_shot):
    x, truth, n_support = real_episode(n_shot=n_shot)
    y = np.where(np.arange(len(x)) < n_support, truth, -1)
    model = PTMAP().fit(x, y)
    support, query = Pipeline.parse(PAPER)(torch.tensor(x[:n_support]), torch.tensor(x[n_support:]))
    paper = {"alpha": 0.4, "n_steps": 30} if n_shot == 1 else {"alpha": 0.2, "n_steps": 20}
    found = assign_map(
        support[None], torch.tensor(y[None, :n_support]), query[None], n_way=5, lam=10.0, **paper
    )
    np.testing.assert_allclose(
        model.label_distributions_[n_support:], found.plan[0].numpy(), atol=1e-12
    )
    np.testing.assert_array_equal(model.transduction_[n_support:], found.labels[0].numpy())
    np.testing.assert_array_equal(
        model.transduction_[n_support:], classify(x[:n_support], y[:n_support], x[n_support:])
    )


# What a fitted model holds


@EVERY_CLASSIFIER
def test_fitted_attributes(estimator, episode):
    x, y, _ = episode
    names = np.where(y < 0, "", NAMES[y])
    model = clone(estimator).fit(x, names)
    known = y >= 0
    assert model.classes_.tolist() == sorted(NAMES)
    assert model.classes_.dtype.kind == "U"
    assert model.label_distributions_.shape == (len(x), 5)
    np.testing.assert_allclose(model.label_distributions_.sum(axis=1), 1, rtol=1e-9)
    np.testing.assert_array_equal(
        model.label_distributions_[known], names[known, None] == model.classes_
    )
    np.testing.assert_array_equal(model.transduction_[known], names[known])
    np.testing.assert_array_equal(
        model.transduction_, model.classes_[model.label_distributions_.argmax(axis=1)]
    )
    np.testing.assert_allclose(
        model.proportions_, model.label_distributions_[~known].mean(axis=0), rtol=1e-9
    )
    assert isinstance(model.n_iter_, int)
    assert model.n_iter_ >= 1


def test_ptmap_finds_most_labels(episode):
    x, y, truth = episode
    assert (PTMAP().fit(x, y).transduction_ == truth)[y < 0].mean() > 0.7
    np.testing.assert_allclose(PTMAP().fit(x, y).proportions_, 0.2, atol=1e-8)


MARKERS = {
    "-1 among numbers": lambda y: y,
    "-1 among floats": lambda y: y.astype(float),
    "nan among floats": lambda y: np.where(y < 0, np.nan, y),
    "none among numbers": lambda y: np.array(
        [None if label < 0 else label for label in y.tolist()], dtype=object
    ),
    "nan among objects": lambda y: np.array(
        [np.nan if label < 0 else label for label in y.tolist()], dtype=object
    ),
    "list with none": lambda y: [None if label < 0 else label for label in y.tolist()],
}
WORD_MARKERS = {
    "empty string": lambda names: names,
    "objects with none": lambda names: np.array(
        [name or None for name in names.tolist()], dtype=object
    ),
    "objects with nan": lambda names: np.array(
        [name or np.nan for name in names.tolist()], dtype=object
    ),
    "objects with -1": lambda names: np.array(
        [name or -1 for name in names.tolist()], dtype=object
    ),
    "objects with empty": lambda names: names.astype(object),
    "list with empty": lambda names: names.tolist(),
    "list with none": lambda names: [name or None for name in names.tolist()],
    "list with nan": lambda names: [name or float("nan") for name in names.tolist()],
    "list with -1": lambda names: [name or -1 for name in names.tolist()],
}


@EVERY_CLASSIFIER
@pytest.mark.parametrize("mark", MARKERS.values(), ids=MARKERS)
def test_every_unlabelled_marker_among_numbers_means_the_same(estimator, mark, episode):
    x, y, _ = episode
    expected = clone(estimator).fit(x, y)
    model = clone(estimator).fit(x, mark(y))
    np.testing.assert_array_equal(model.classes_, np.arange(5))
    np.testing.assert_array_equal(model.label_distributions_, expected.label_distributions_)


@pytest.mark.parametrize("mark", WORD_MARKERS.values(), ids=WORD_MARKERS)
def test_every_unlabelled_marker_among_words_means_the_same(mark, episode):
    x, y, _ = episode
    names = np.where(y < 0, "", NAMES[y])
    model = PTMAP().fit(x, mark(names))
    assert model.classes_.tolist() == sorted(NAMES)
    np.testing.assert_array_equal(model.transduction_, PTMAP().fit(x, names).transduction_)


@EVERY_CLASSIFIER
@pytest.mark.parametrize("blank", [-1, float("nan"), None])
def test_a_blank_that_became_text_is_refused_and_not_a_class(estimator, blank):
    """np.array(["cat", -1]) is an array of strings; scikit-learn's own estimators refuse it too."""
    x = [[9.0, 1], [8, 1], [1, 9], [2, 9]]
    with pytest.raises(
        InputError, match=rf"y must be an array of dtype=object .* '{blank}' in rows 1, 3"
    ):
        clone(estimator).fit(x, np.array(["cat", str(blank), "dog", str(blank)]))
    fitted = clone(estimator).fit(x, np.array(["cat", blank, "dog", blank], dtype=object))
    assert fitted.transduction_.tolist() == ["cat", "cat", "dog", "dog"]


@pytest.mark.parametrize("dtype", ["string", "object", "category"])
def test_pandas_blanks_are_unlabelled(dtype):
    pandas = pytest.importorskip("pandas")
    y = pandas.Series(["cat", pandas.NA, "dog", pandas.NA], dtype=dtype)
    assert PTMAP().fit([[9.0, 1], [8, 1], [1, 9], [2, 9]], y).transduction_.tolist() == [
        "cat",
        "cat",
        "dog",
        "dog",
    ]


def test_names_and_their_order_change_nothing_but_the_names(episode):
    x, y, _ = episode
    for seed in range(3):
        names = np.random.default_rng(seed).permutation(NAMES)
        model = PTMAP().fit(x, np.where(y < 0, "", names[y]))
        np.testing.assert_array_equal(model.transduction_, names[PTMAP().fit(x, y).transduction_])


# Later points


@EVERY_CLASSIFIER
def test_predict_repeats_what_fit_said_of_the_same_rows(estimator, episode):
    x, y, _ = episode
    model = clone(estimator).fit(x, y)
    np.testing.assert_array_equal(model.predict(x[y < 0]), model.transduction_[y < 0])
    if isinstance(estimator, PTMAP):
        np.testing.assert_allclose(
            model.predict_proba(x[y < 0]), model.label_distributions_[y < 0], atol=1e-9
        )


@EVERY_CLASSIFIER
def test_a_later_point_is_decided_alone(estimator, episode):
    x, y, _ = episode
    later = real_episode(seed=0, n_query=14)[0][5:]
    model = clone(estimator).fit(x, y)
    together = model.predict_proba(later)
    np.testing.assert_allclose(together.sum(axis=1), 1, rtol=1e-9)
    for row in (0, 17, 40):
        np.testing.assert_allclose(model.predict_proba(later[[row]])[0], together[row], rtol=1e-9)
        assert model.predict(later[[row]])[0] == model.classes_[together[row].argmax()]


@EVERY_CLASSIFIER
def test_without_queries_it_is_a_nearest_class_mean(estimator):
    x, truth, n_support = real_episode(n_shot=5)
    model = clone(estimator).fit(x[:n_support], NAMES[truth[:n_support]])
    np.testing.assert_array_equal(model.transduction_, NAMES[truth[:n_support]])
    np.testing.assert_allclose(model.proportions_, 0.2)
    roots = np.sqrt(x + 1e-6) / np.linalg.norm(np.sqrt(x + 1e-6), axis=1, keepdims=True)
    if not isinstance(estimator, NearestClassMean):
        roots = roots - roots[:n_support].mean(axis=0)
        roots /= np.linalg.norm(roots, axis=1, keepdims=True)
    oracle = NearestCentroid().fit(roots[:n_support], NAMES[truth[:n_support]])
    np.testing.assert_array_equal(model.predict(x), oracle.predict(roots))


@EVERY_CLASSIFIER
@pytest.mark.parametrize("way", range(5))
def test_one_query_goes_to_its_class(estimator, way):
    noise = np.random.default_rng(0).uniform(0, 0.2, size=(11, 5))
    x = noise + np.eye(5)[[0, 1, 2, 3, 4, 0, 1, 2, 3, 4, way]]
    model = clone(estimator).fit(x, [*NAMES, *NAMES, ""])
    assert model.transduction_[-1] == NAMES[way]


@EVERY_CLASSIFIER
def test_unequal_shots_and_one_class(estimator, episode):
    x, _, truth = episode
    y = np.where(np.arange(len(x)) % 3 == 0, truth, -1)
    assert (clone(estimator).fit(x, y).transduction_ == truth).mean() > 0.6
    alone = clone(estimator).fit(x, np.where(truth == 2, "owl", ""))
    assert set(alone.transduction_) == {"owl"}
    np.testing.assert_array_equal(alone.predict_proba(x), np.ones((len(x), 1)))


@EVERY_CLASSIFIER
def test_float32_stays_float32(estimator, episode):
    x, y, _ = episode
    model = clone(estimator).fit(x.astype(np.float32), y)
    assert {
        a.dtype for a in (model.label_distributions_, model.prototypes_, model.proportions_)
    } == {np.dtype(np.float32)}
    assert model.predict_proba(x.astype(np.float32)).dtype == np.float32
    np.testing.assert_allclose(
        model.label_distributions_, clone(estimator).fit(x, y).label_distributions_, atol=1e-3
    )


def test_center_may_be_a_given_mean(episode):
    x, y, _ = episode
    roots = PowerTransform().fit_transform(x)
    mean = roots.mean(axis=0) + 0.01
    model = PTMAP(center=mean).fit(x, y)
    by_hand = PTMAP(beta=None, center="none").fit(roots - mean, y)
    np.testing.assert_allclose(model.label_distributions_, by_hand.label_distributions_, atol=1e-8)
    with pytest.raises(InputError, match="center must be a mean of 640 features"):
        PTMAP(center=mean[:5]).fit(x, y)
    with pytest.raises(
        InputError,
        match="center must be one of separate, joint, support, none, a mean, got 'median'",
    ):
        PTMAP(center="median").fit(x, y)


# Class sizes


@pytest.fixture(scope="module")
def unbalanced():
    """20, 10 and 5 unlabelled rows of three classes, two labels each: X, names with "", counts."""
    x, truth, n_support = real_episode(n_shot=2, n_query=20, n_way=3)
    keep = np.concatenate(
        [
            np.arange(n_support),
            *(n_support + 20 * way + np.arange(n) for way, n in enumerate((20, 10, 5))),
        ]
    )
    names = NAMES[truth[keep]]
    return (
        x[keep],
        np.where(np.arange(len(keep)) < n_support, names, ""),
        {"wolf": 20, "ant": 10, "Owl": 5},
    )


def test_given_sizes_are_met_in_every_form(unbalanced):
    x, names, counts = unbalanced
    in_order = [counts[name] for name in sorted(counts)]
    backwards = dict(reversed(counts.items()))
    fractions = np.array(in_order) / 35
    models = [
        PTMAP(prior=p).fit(x, names)
        for p in (in_order, counts, backwards, fractions, torch.tensor(fractions))
    ]
    for model in models:
        np.testing.assert_allclose(model.proportions_, fractions, atol=1e-6)
        np.testing.assert_allclose(
            model.label_distributions_, models[0].label_distributions_, atol=1e-6
        )
    uniform = PTMAP().fit(x, names)
    np.testing.assert_allclose(uniform.proportions_, 1 / 3, atol=1e-8)


def test_lower_bounds_hold_and_free_imposes_nothing(unbalanced):
    x, names, _ = unbalanced
    free = PTMAP(prior="free").fit(x, names)
    np.testing.assert_array_equal(free.biases_, 0)
    np.testing.assert_allclose(
        PTMAP(prior=AtLeast([0, 0, 0])).fit(x, names).proportions_,
        free.proportions_,
        atol=1e-8,
    )
    rarest = int(free.proportions_.argmin())
    bounded = PTMAP(prior=AtLeast((np.arange(3) == rarest) * 20.0)).fit(x, names)
    assert free.proportions_[rarest] < 12 / 35
    np.testing.assert_allclose(bounded.proportions_[rarest], 20 / 35, atol=1e-6)


def test_a_class_of_size_zero_gets_nothing(unbalanced):
    x, names, _ = unbalanced
    model = PTMAP(prior={"Owl": 0, "ant": 10, "wolf": 25}).fit(x, names)
    assert set(model.transduction_[names == ""]) == {"ant", "wolf"}
    assert np.isfinite(model.predict_proba(x)).all()
    np.testing.assert_array_equal(model.predict_proba(x)[:, 0], 0)


@pytest.mark.parametrize(
    ("prior", "message"),
    [
        (
            {"wolf": 20, "ant": 10, "bee": 5},
            r"name the classes \['Owl', 'ant', 'wolf'\], got \['wolf', 'ant', 'bee'\]",
        ),
        ({"wolf": 20, "ant": 15}, "name the classes"),
        ([20, 10], "one number for each of the 3 classes"),
        ([20, 10, 6], "prior must sum to 35, as counts .* or to 1, as fractions, got 36"),
        ({"wolf": 0.5, "ant": 0.3, "Owl": 0.3}, "or to 1, as fractions, got 1.1"),
        ([20, 20, -5], "prior must not be negative"),
        (AtLeast([30, 10, 0]), "at most 35, got 40"),
        ("equal", "prior must be one of uniform, estimate, free"),
    ],
)
def test_sizes_that_do_not_fit(unbalanced, prior, message):
    x, names, _ = unbalanced
    with pytest.raises(InputError, match=message):
        PTMAP(prior=prior).fit(x, names)


# Bad input


@EVERY_CLASSIFIER
@pytest.mark.parametrize(
    ("x", "y", "message"),
    [
        (
            [[1.0, -2], [2, 1], [-1, 3]],
            [0, 1, -1],
            r"Negative values in data passed to \w+ \(rows 0, 2\).*beta=None",
        ),
        ([[1.0, np.nan], [2, 1]], [0, 1], "NaN"),
        ([[1.0, np.inf], [2, 1]], [0, 1], "infinity"),
        ([[1.0, 2], [2]], [0, 1], "inhomogeneous|sequence"),
        ([], [], "2D array|0 sample"),
        (np.empty((0, 3)), [], "0 sample"),
        ([[1.0, 2], [2, 1]], [-1, -1], "at least one label, got only unlabelled rows"),
        ([[1.0, 2], [2, 1]], ["", ""], "at least one label"),
        ([[1.0, 2], [2, 1]], [0], "inconsistent numbers of samples"),
        ([[1.0, 2], [2, 1]], None, "requires y"),
    ],
)
def test_bad_input_is_refused_in_words(estimator, x, y, message):
    with pytest.raises(ValueError, match=message):
        clone(estimator).fit(x, y)


@EVERY_CLASSIFIER
def test_signed_features_work_without_a_power(estimator):
    x = np.concatenate([np.eye(3), np.eye(3) + 0.1, np.eye(3) - 0.1]) - 0.3
    model = clone(estimator).set_params(beta=None).fit(x, [0, 1, 2] + [-1] * 6)
    assert model.transduction_.tolist() == [0, 1, 2] * 3
    np.testing.assert_array_equal(
        clone(estimator).set_params(beta=1).fit(x, [0, 1, 2] + [-1] * 6).transduction_,
        model.transduction_,
    )


@EVERY_CLASSIFIER
def test_classes_named_minus_one_and_one_are_warned_about(estimator):
    x = np.concatenate([np.eye(3), np.eye(3) + 0.1])
    with pytest.warns(UserWarning, match="y has the class 1 alone: -1 marks rows without a label"):
        clone(estimator).fit(x, [1, -1, 1, -1, 1, 1])


def test_zero_rows_are_warned_about(episode):
    x, y, _ = episode
    x = x.copy()
    x[[3, 8]] = 0
    with pytest.warns(UserWarning, match="only zeros in rows 3, 8"):
        PTMAP().fit(x, y)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"alpha": 0.0}, "alpha must be a number above 0 and up to 1, got 0.0"),
        ({"alpha": 1.5}, "alpha must be a number above 0 and up to 1, got 1.5"),
        ({"lam": -1.0}, "lam must be a number above 0, got -1.0"),
        ({"lam": float("nan")}, "lam must be a number above 0, got nan"),
        ({"n_steps": -1}, "n_steps must be a whole number of at least 0, got -1"),
        ({"n_steps": 2.5}, "n_steps must be a whole number, got 2.5"),
        ({"alpha": "0.2"}, "alpha must be a number, got '0.2'"),
        ({"lam": "abc"}, "lam must be a number or 'auto', got 'abc'"),
        ({"lam": None}, "lam must be a number or 'auto', got None"),
        ({"lam": [10.0]}, "lam must be a number or 'auto'"),
        ({"beta": 11}, "beta must be a number from -10 to 10"),
        ({"beta": float("nan")}, "beta must be a number"),
    ],
)
def test_settings_out_of_range(settings, message, episode):
    with pytest.raises(InputError, match=message):
        PTMAP(**settings).fit(*episode[:2])


@pytest.mark.parametrize(
    ("estimator", "message"),
    [
        (NearestClassMean(lam="auto"), "lam must be a number, got 'auto'"),
        (SeededKMeans(lam=None), "lam must be a number, got None"),
        (SeededKMeans(max_iter=1.5), "max_iter must be a whole number, got 1.5"),
        (SeededKMeans(max_iter=0), "max_iter must be a whole number of at least 1, got 0"),
        (NearestClassMean(lam=0), "lam must be a number above 0, got 0"),
    ],
)
def test_settings_that_are_no_numbers(estimator, message, episode):
    with pytest.raises(InputError, match=message):
        estimator.fit(*episode[:2])


def test_ptmap_estimates_power_lam_and_class_sizes():
    rng = np.random.default_rng(0)
    centers = rng.gamma(0.5, size=(3, 32))
    truth = np.repeat([0, 1, 2], [43, 11, 6])
    X = np.abs(centers[truth] + 0.3 * rng.normal(size=(60, 32)))
    shown = np.concatenate([np.flatnonzero(truth == way)[:2] for way in range(3)])
    y = np.full(60, -1)
    y[shown] = truth[shown]
    fitted = PTMAP(beta="auto", lam="auto", prior="estimate").fit(X, y)
    hidden = y == -1
    assert (fitted.transduction_[hidden] == truth[hidden]).mean() > 0.9
    np.testing.assert_allclose(
        fitted.proportions_, np.bincount(truth[hidden]) / hidden.sum(), atol=0.1
    )
    assert fitted.certainty_ > 0.5
    assert fitted.imbalance_ == pytest.approx(np.abs(fitted.proportions_ - 1 / 3).sum() / 2)
    assert fitted.lam_ > 1
    assert fitted.pipeline_ == "power(0.5) | unit | center(support) | unit"
    assert (fitted.predict(X[hidden]) == truth[hidden]).mean() > 0.9


# Calibrated confidence


@pytest.fixture(scope="module")
def calibrated():
    """Twelve real episodes with three labels per class, with and without calibration."""
    found = []
    for seed in range(12):
        x, truth, n_support = real_episode(n_shot=3, n_query=15, seed=seed)
        y = np.where(np.arange(len(x)) < n_support, truth, -1)
        models = [
            PTMAP(lam="auto", prior="estimate", calibrate=calibrate).fit(x, y)
            for calibrate in (False, True)
        ]
        found.append((*models, x, truth, y == -1))
    return found


def test_calibration_flattens_probabilities_and_changes_no_label(calibrated):
    for plain, model, x, _, hidden in calibrated:
        assert plain.temperature_ == 1
        assert model.temperature_ != 1
        np.testing.assert_array_equal(model.transduction_, plain.transduction_)
        np.testing.assert_array_equal(model.predict(x), plain.predict(x))
        np.testing.assert_array_equal(
            model.label_distributions_[~hidden], plain.label_distributions_[~hidden]
        )
        flattened = plain.label_distributions_[hidden] ** (1 / model.temperature_)
        np.testing.assert_allclose(
            model.label_distributions_[hidden],
            flattened / flattened.sum(axis=1, keepdims=True),
            rtol=1e-6,
            atol=1e-12,
        )
        flattened = plain.predict_proba(x) ** (1 / model.temperature_)
        np.testing.assert_allclose(
            model.predict_proba(x),
            flattened / flattened.sum(axis=1, keepdims=True),
            rtol=1e-6,
            atol=1e-12,
        )


def test_calibrated_confidence_is_near_the_accuracy(calibrated):
    right = np.concatenate(
        [(model.transduction_ == truth)[hidden] for _, model, _, truth, hidden in calibrated]
    )
    said = np.concatenate(
        [model.label_distributions_[hidden].max(axis=1) for _, model, _, _, hidden in calibrated]
    )
    # 900 queries: their standard error is about 0.01
    assert abs(said.mean() - right.mean()) < 0.04


def test_an_abstain_threshold_keeps_its_promise(calibrated):
    kept, right = [], []
    for _, model, _, truth, hidden in calibrated:
        threshold, coverage = model.abstain_threshold(0.95)
        said = model.label_distributions_[hidden].max(axis=1)
        assert (said >= threshold).mean() == pytest.approx(coverage)
        if coverage:
            assert said[said >= threshold].mean() >= 0.95 - 1e-9
        kept.append(said >= threshold)
        right.append((model.transduction_ == truth)[hidden])
        assert model.abstain_threshold(0.9).coverage >= coverage
    kept, right = np.concatenate(kept), np.concatenate(right)
    assert right[kept].mean() > right.mean()


def test_an_abstain_threshold_needs_calibrated_probabilities_of_unlabelled_rows(episode):
    x, y, truth = episode
    with pytest.raises(InputError, match="calibrate is False"):
        PTMAP().fit(x, y).abstain_threshold()
    with pytest.raises(InputError, match="no unlabelled rows"):
        PTMAP(calibrate=True).fit(x, truth).abstain_threshold()
    with pytest.raises(InputError, match="0 < accuracy <= 1, got 95"):
        PTMAP(calibrate=True).fit(x, y).abstain_threshold(95)


def test_calibration_works_with_a_class_without_queries(unbalanced):
    x, names, _ = unbalanced
    model = PTMAP(prior={"Owl": 0, "ant": 10, "wolf": 25}, calibrate=True).fit(x, names)
    assert model.temperature_ < 3
    assert np.isfinite(model.label_distributions_).all()
    assert np.isfinite(model.predict_proba(x)).all()


# None of these


@pytest.fixture(scope="module")
def with_outliers():
    """Five labels and 15 queries of four classes, 15 of a fifth without labels: X, y, truth."""
    x, truth, n_support = real_episode(n_shot=5, n_query=15)
    kept = (np.arange(len(x)) >= n_support) | (truth < 4)
    return x[kept], np.where(np.arange(len(x)) < n_support, truth, -1)[kept], truth[kept]


def test_none_of_these_finds_the_class_without_labels_and_changes_no_label(with_outliers):
    x, y, truth = with_outliers
    plain, model = (
        PTMAP(prior="estimate", none_of_these=asked).fit(x, y) for asked in (False, True)
    )
    assert plain.none_of_these_ is None
    found, hidden, outlier = model.none_of_these_, y == -1, truth == 4
    assert found.shape == (len(x),)
    np.testing.assert_array_equal(found[~hidden], 0)
    assert ((found >= 0) & (found <= 1)).all()
    assert roc_auc_score(outlier[hidden], found[hidden]) > 0.8
    np.testing.assert_array_equal(model.transduction_, plain.transduction_)
    np.testing.assert_array_equal(model.label_distributions_, plain.label_distributions_)
    np.testing.assert_array_equal(model.predict_proba(x), plain.predict_proba(x))
    assert model.predict_proba(x).shape == (len(x), 4)


def test_none_of_these_follows_the_rows_and_their_dtype(with_outliers):
    x, y, _ = with_outliers
    order = np.random.default_rng(0).permutation(len(x))
    one, other = (
        PTMAP(none_of_these=True).fit(x, y),
        PTMAP(none_of_these=True).fit(x[order], y[order]),
    )
    np.testing.assert_allclose(one.none_of_these_[order], other.none_of_these_, atol=1e-6)
    assert PTMAP(none_of_these=True).fit(x.astype(np.float32), y).none_of_these_.dtype == np.float32


def test_where_all_rows_have_labels_none_is_an_outlier(with_outliers):
    x, _, truth = with_outliers
    np.testing.assert_array_equal(
        PTMAP(none_of_these=True).fit(x, truth).none_of_these_, np.zeros(len(x))
    )


# Any method


@pytest.mark.parametrize(
    ("method", "settings", "other"),
    [
        ("map", None, PTMAP()),
        ("map", {"lam": 5.0, "prior": "free"}, PTMAP(lam=5.0, prior="free")),
        ("map", {"beta": "auto", "prior": "estimate"}, PTMAP(beta="auto", prior="estimate")),
        ("kmeans", {"max_iterations": 1}, SeededKMeans(max_iter=1)),
        ("ncm", {"beta": 0.3}, NearestClassMean(beta=0.3)),
        ("ncm-raw", None, NearestClassMean(beta=None, unit=False)),
    ],
)
def test_a_method_by_name_is_what_its_estimator_is(episode, method, settings, other):
    x, y, _ = episode
    model, expected = FewLabelsClassifier(method, settings=settings).fit(x, y), other.fit(x, y)
    for name in ("label_distributions_", "transduction_", "prototypes_", "biases_", "proportions_"):
        np.testing.assert_array_equal(getattr(model, name), getattr(expected, name), err_msg=name)
    assert (model.pipeline_, model.n_iter_) == (expected.pipeline_, expected.n_iter_)
    np.testing.assert_array_equal(model.predict_proba(x), expected.predict_proba(x))


@pytest.mark.parametrize(
    "method",
    [name for name in method_names() if name not in ("map-truth", *methods_with_mean())],
)
def test_every_method_is_cloned_and_pickled_and_finds_labels(episode, method):
    x, y, truth = episode
    model = clone(FewLabelsClassifier(method, calibrate=True, none_of_these=True)).fit(x, y)
    assert (model.transduction_ == truth)[y < 0].mean() > 0.45  # five classes: chance is 0.2
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict_proba(x), model.predict_proba(x))
    assert model.none_of_these_.shape == (len(x),)
    assert model.get_params()["method"] == method


def test_class_sizes_of_a_method_may_be_given_by_label(unbalanced):
    x, names, counts = unbalanced
    by_label = FewLabelsClassifier("map", settings={"prior": counts}).fit(x, names)
    np.testing.assert_allclose(by_label.proportions_, [5 / 35, 10 / 35, 20 / 35], atol=1e-6)
    with pytest.raises(InputError, match="prior must name the classes"):
        FewLabelsClassifier("map", settings={"prior": {"wolf": 35}}).fit(x, names)


def test_methods_can_be_searched():
    x, truth, _ = real_episode(n_shot=4, n_query=4)
    grid = {"method": ["ncm", "map"], "settings": [None, {"beta": 1}]}
    search = GridSearchCV(FewLabelsClassifier(), grid, cv=2, error_score="raise").fit(x, truth)
    assert len(search.cv_results_["params"]) == 4
    assert search.best_score_ > 0.5


@pytest.mark.parametrize(
    ("method", "settings", "message"),
    [
        ("knn", None, "method must be one of ncm-raw, ncm, .*folder, got 'knn'"),
        ("map", {"lamda": 3}, "a knob of method 'map' must be one of beta, lam,.*got 'lamda'"),
        ("ncm", {"lam": 3}, "a knob of method 'ncm' must be one of beta, got 'lam'"),
        ("map", {"alpha": 2}, "alpha must be a number above 0 and up to 1, got 2"),
        ("map", {"pipeline": "whiten"}, "a step must be one of"),
        ("map-truth", None, "prior 'truth' is for evaluations"),
    ],
)
def test_unknown_methods_and_knobs_are_refused_with_the_choices(episode, method, settings, message):
    with pytest.raises(InputError, match=message):
        FewLabelsClassifier(method, settings=settings).fit(*episode[:2])
