"""`fit` and `classify`: arrays in, labels out; and `Fitted`, for later rows and in a file."""

import json

import numpy as np
import pytest
import safetensors.numpy
import torch
from sklearn.datasets import load_breast_cancer, load_iris, load_wine
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import NearestCentroid
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from fewlabels import AtLeast, Fitted, classify, configure, fit, load_embedded, method_names
from fewlabels.errors import FileFormatError, InputError
from fewlabels.fitting import Rows
from fewlabels.methods import find_method
from fewlabels.methods.base import methods_with_mean

NAMES = np.array(["rook", "ibis", "crow"])
# which need the true labels, or a mean of base classes
UNFIT = ("map-truth", *methods_with_mean())
METHODS = [name for name in method_names() if name not in UNFIT]
NOT_LINEAR = (
    *("laplacianshot", "tafssl", "tafssl-ica", "tafssl-shift", "label-spreading"),
    *("dsn", "sgc", "matching", "ilpc", "am", "alpha-am"),
)
EVERY_METHOD = pytest.mark.parametrize("method", METHODS)


def clusters(counts, seed=0):
    """Vectors that are far apart and not negative, counts[j] near corner j: (N, 6) and (N,)."""
    labels = np.repeat(np.arange(len(counts)), counts)
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(labels))
    return (3 * np.eye(6)[labels] + rng.uniform(0, 1, size=(len(labels), 6)))[order], labels[order]


@pytest.fixture(scope="module")
def real():
    """Real vectors: five labelled rows per class of three, their names, fifteen unlabelled."""
    features = load_embedded()
    rows = [members[:20] for members in features.class_rows[:3]]
    labelled, unlabelled = (
        np.concatenate([each[part] for each in rows]) for part in (slice(5), slice(5, None))
    )
    names = np.array(features.class_names)[features.labels[labelled]]
    return features.features[labelled], names, features.features[unlabelled]


# classify


@EVERY_METHOD
@pytest.mark.parametrize(
    "names",
    [NAMES, np.array([7, 30, 2]), np.array([2.5, 0.5, 1.5])],
    ids=["words", "numbers", "floats"],
)
def test_labels_come_back_in_the_words_they_were_given_in(method, names):
    labelled, labels = clusters([3, 3, 3])
    unlabelled, truth = clusters([6, 6, 6], seed=1)
    found = classify(labelled, names[labels], unlabelled, method=method)
    np.testing.assert_array_equal(found, names[truth])
    assert found.dtype == names.dtype


@EVERY_METHOD
@pytest.mark.parametrize(
    "convert",
    [np.ndarray.tolist, lambda x: x.astype(np.float32), lambda x: (x * 100).astype(int)],
    ids=["lists", "float32", "whole numbers"],
)
def test_any_kind_of_number_will_do(method, convert):
    labelled, labels = clusters([2, 2, 2])
    unlabelled, truth = clusters([4, 4, 4], seed=1)
    found = classify(convert(labelled), NAMES[labels].tolist(), convert(unlabelled), method=method)
    assert found.tolist() == NAMES[truth].tolist()


@EVERY_METHOD
def test_classes_may_have_different_numbers_of_rows(method):
    labelled, labels = clusters([1, 5, 3])
    unlabelled, truth = clusters([4, 4, 4], seed=1)
    found = classify(labelled, NAMES[labels], unlabelled, method=method)
    np.testing.assert_array_equal(found, NAMES[truth])


@EVERY_METHOD
@pytest.mark.parametrize("way", range(3))
def test_one_row_is_labelled(method, way):
    labelled, labels = clusters([2, 2, 2])
    unlabelled, _ = clusters([int(j == way) for j in range(3)], seed=1)
    assert classify(labelled, NAMES[labels], unlabelled, method=method).tolist() == [NAMES[way]]


@pytest.mark.parametrize("method", ["map", "map-auto", "map-folder"])
def test_fewer_rows_than_classes_impose_no_sizes_and_warn_of_nothing(method):
    labelled, labels = clusters([2, 2, 2])
    unlabelled, truth = clusters([2, 0, 0], seed=1)
    options = {"prior": "estimate"} if method == "map" else {}
    found = fit(method, labelled, labels, unlabelled, **options)
    assert found.labels.tolist() == truth.tolist()
    assert (found.biases == 0).all()


def test_the_truth_is_not_known_outside_of_an_evaluation():
    labelled, labels = clusters([2, 2, 2])
    with pytest.raises(InputError, match="prior 'truth' is for evaluations"):
        classify(labelled, labels, clusters([4, 4, 4])[0], method="map-truth")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_map_converges_on_an_easy_problem(dtype):
    labelled, labels = clusters([3, 3, 3])
    unlabelled, truth = clusters([4, 4, 4], seed=1)
    method = configure("map", n_shot=3)
    sides = (torch.tensor(each, dtype=dtype) for each in (labelled, unlabelled))
    x, q = method.pipeline(*sides)
    found = method.assign(x[None], torch.tensor(labels[None]), q[None], n_way=3)
    np.testing.assert_array_equal(found.labels[0], truth)
    assert found.converged.all()
    # the solves of 20 steps and the last; a Newton solve from the biases before takes a few
    assert found.n_iterations.max() <= 10 * 21


@pytest.mark.parametrize(
    ("labels", "alpha", "n_steps"),
    [
        ([0, 1, 2, 2, 2, 2, 2], 0.4, 30),  # 1, 1 and 5 labels
        ([0, 1, 1, 1, 2, 2, 2], 0.2, 20),  # 1, 3 and 3
        ([0, 0, 1, 1, 2, 2, 2], 0.2, 20),
    ],
)
def test_the_median_number_of_labels_per_class_decides_the_papers_settings(labels, alpha, n_steps):
    rng = np.random.default_rng(3)
    labelled, unlabelled = rng.uniform(size=(7, 20)), rng.uniform(size=(60, 20))
    found = fit("map", labelled, labels, unlabelled)
    settings = found.method.settings
    assert (settings["alpha"], settings["n_steps"]) == (alpha, n_steps)
    again = fit("map", labelled, labels, unlabelled, alpha=alpha, n_steps=n_steps)
    assert torch.equal(found.probabilities, again.probabilities)


def test_raw_nearest_class_mean_is_nearest_centroid():
    rng = np.random.default_rng(5)
    labelled, unlabelled = rng.normal(size=(12, 8)), rng.normal(size=(40, 8))
    labels = NAMES[np.arange(12) % 3]
    oracle = NearestCentroid().fit(labelled, labels)
    found = classify(labelled, labels, unlabelled, method="ncm-raw")
    np.testing.assert_array_equal(found, oracle.predict(unlabelled))


def test_given_class_sizes_are_met():
    rng = np.random.default_rng(2)
    labelled, unlabelled = rng.uniform(size=(3, 8)), rng.uniform(size=(30, 8))
    # at a large lam the plan holds almost only zeros and ones; sizes are of crow, ibis, rook
    found = classify(labelled, NAMES, unlabelled, prior=[5, 25, 0], lam=200.0)
    assert [int((found == name).sum()) for name in ("crow", "ibis", "rook")] == [5, 25, 0]
    bounded = classify(labelled, NAMES, unlabelled, prior=AtLeast([0, 0, 20]), lam=200.0)
    assert (bounded == "rook").sum() >= 20


def test_a_given_mean_is_subtracted():
    labelled, labels = clusters([3, 3, 3])
    unlabelled, truth = clusters([6, 6, 6], seed=1)
    shift = np.full(6, 50.0)
    options = {"method": "ncm", "pipeline": "center(mean) | unit"}
    found = classify(labelled + shift, labels, unlabelled + shift, mean=shift, **options)
    np.testing.assert_array_equal(found, truth)
    with pytest.raises(InputError, match="needs a mean"):
        classify(labelled, labels, unlabelled, **options)


@pytest.mark.parametrize("line", ["unit | center(mean) | center", "center | center(mean) | unit"])
def test_a_given_mean_is_subtracted_before_and_after_a_centering(line):
    rng = np.random.default_rng(1)
    labelled, unlabelled, mean = (rng.uniform(size=size) for size in ((6, 4), (30, 4), 4))
    labels = [0, 0, 1, 1, 2, 2]
    method = configure("ncm", n_shot=2, pipeline=line)
    sides = (torch.tensor(each) for each in (labelled, unlabelled))
    x, q = method.pipeline(*sides, mean=torch.tensor(mean))
    by_hand = method.assign(x[None], torch.tensor([labels]), q[None], n_way=3)
    found = fit("ncm", labelled, labels, unlabelled, pipeline=line, mean=mean)
    assert torch.equal(found.numbers, by_hand.labels[0])
    np.testing.assert_array_equal(found.predict(unlabelled), found.labels)


@pytest.mark.parametrize(
    ("labelled", "labels", "unlabelled", "message"),
    [
        ([[1.0, 2], [2, 1]], ["a"], [[1.0, 1]], "one label per labelled row, 2, got 1"),
        ([[1.0, 2], [2, 1]], ["a", "b"], [[1.0, 1, 1]], "same number of features, got 2 and 3"),
        ([[1.0, 2], [2]], ["a", "b"], [[1.0, 1]], "labelled must .* rows of different lengths"),
        ([[1.0, 2], [2, 1]], ["a", "b"], [], "unlabelled must be a non-empty matrix"),
        ([[1.0, 2], [2, 1]], ["a", "b"], np.empty((0, 2)), "unlabelled must be a non-empty matrix"),
        ([], [], [[1.0, 1]], "^labelled must be a non-empty matrix"),
        ([1.0, 2], ["a", "b"], [[1.0, 1]], "^labelled must be a non-empty matrix"),
        ([["x", "y"], ["z", "w"]], ["a", "b"], [[1.0, 1]], "^labelled must hold numbers"),
        (
            [[1.0, np.nan], [2, 1]],
            ["a", "b"],
            [[1.0, 1]],
            "^labelled must be finite, got NaN or infinity in row 0",
        ),
        (
            [[1.0, 2], [2, 1]],
            ["a", "b"],
            [[1.0, 1], [1, np.inf], [np.nan, 1]],
            "unlabelled must be finite, got NaN or infinity in rows 1, 2",
        ),
        (
            [[1.0, -2], [2, 1]],
            ["a", "b"],
            [[1.0, 1]],
            r"must not be negative for beta = 0.5.*unit \| center \| unit",
        ),
        (
            [[1.0, 2], [0, 0]],
            ["a", "b"],
            [[1.0, 1]],
            "^labelled: every vector must have a direction, got only zeros in row 1",
        ),
        (
            [[1.0, 2], [2, 1]],
            ["a", "b"],
            [[0.0, 0]],
            "unlabelled: every vector must have a direction, got only zeros in row 0",
        ),
        ([[1.0, 2], [2, 1]], [None, "b"], [[1.0, 1]], "labels must name a class for every"),
        ([[1.0, 2], [2, 1]], [np.nan, 1.0], [[1.0, 1]], "labels must name a class for every"),
    ],
)
def test_bad_arrays_are_refused_in_words(labelled, labels, unlabelled, message):
    with pytest.raises(InputError, match=message):
        classify(labelled, np.array(labels, dtype=object), unlabelled)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"method": "knn"}, "method must be one of ncm-raw, ncm,.*got 'knn'"),
        ({"lam": 0.0}, "lam must be a number above 0, got 0.0. The paper uses 10."),
        ({"alpha": 2.0}, "alpha must be a number above 0 and up to 1, got 2.0. The paper uses 0.2"),
        ({"n_steps": -3}, "n_steps must be a whole number of at least 0, got -3"),
        ({"lam": "sharp"}, "lam must be a number or 'auto', got 'sharp'"),
        ({"alpha": "0.2"}, "alpha must be a number, got '0.2'"),
        ({"n_steps": 2.5}, "n_steps must be a whole number, got 2.5"),
        ({"beta": 20.0}, "beta must be a number of at least -10 and up to 10, got 20.0"),
        ({"pipeline": "power(x)"}, "power must hold a number"),
        ({"pipeline": "whiten"}, "a step must be one of"),
        ({"prior": [9, 9, 9]}, "prior must sum to 6"),
        ({"proportions": "free"}, "must be one of beta, lam, alpha, n_steps, prior"),
        ({"method": "ncm", "lam": 3.0}, "a knob of method 'ncm' must be one of beta, got 'lam'"),
    ],
)
def test_settings_out_of_range(settings, message):
    labelled, labels = clusters([1, 1, 1])
    with pytest.raises(InputError, match=message):
        classify(labelled, labels, clusters([2, 2, 2])[0], **settings)


def test_signed_features_are_labelled_by_map_auto():
    rng = np.random.default_rng(0)
    centers = 2 * rng.normal(size=(3, 16))
    truth = np.repeat([0, 1, 2], [20, 5, 2])
    labelled = centers + rng.normal(size=(3, 16))
    unlabelled = centers[truth] + rng.normal(size=(27, 16))
    assert (classify(labelled, [0, 1, 2], unlabelled, method="map-auto") == truth).mean() > 0.9


# fit


@EVERY_METHOD
def test_fit_gives_the_evidence_for_what_classify_says(real, method):
    labelled, labels, unlabelled = real
    found = fit(method, labelled, labels, unlabelled)
    assert found.labels.tolist() == classify(labelled, labels, unlabelled, method=method).tolist()
    assert found.class_names == tuple(sorted(set(labels.tolist())))
    assert found.method.name == method
    assert not found.method.pipeline.undecided
    assert found.probabilities.shape == (45, 3)
    np.testing.assert_allclose(found.probabilities.sum(dim=1).numpy(), 1, rtol=1e-5)
    np.testing.assert_allclose(found.proportions, found.probabilities.mean(dim=0), rtol=1e-5)
    assert found.assignment.converged.all()
    assert found.temperature == 1


def test_a_method_may_be_given_itself_and_inputs_stay_as_they_were(real):
    before = [each.copy() for each in real]
    by_name, itself = (fit(each, *real) for each in ("map", find_method("map")))
    assert torch.equal(by_name.probabilities, itself.probabilities)
    for each, kept in zip(real, before, strict=True):
        np.testing.assert_array_equal(each, kept)


def test_calibration_changes_probabilities_and_no_label(real):
    plain, calibrated = (fit("map", *real, calibrate=each) for each in (False, True))
    assert calibrated.temperature not in (1.0, plain.temperature)
    assert calibrated.labels.tolist() == plain.labels.tolist()
    flattened = plain.probabilities ** (1 / calibrated.temperature)
    np.testing.assert_allclose(
        calibrated.probabilities,
        flattened / flattened.sum(dim=1, keepdim=True),
        rtol=1e-4,
        atol=1e-7,
    )
    np.testing.assert_allclose(calibrated.proportions, plain.proportions)


def test_probabilities_that_are_calibrated_stay_and_only_later_rows_become_less_sure(real):
    plain, calibrated = (fit("map-auto", *real, calibrate=each) for each in (False, True))
    assert torch.equal(calibrated.probabilities, plain.probabilities)
    assert calibrated.temperature == 1
    assert calibrated.lam < plain.lam
    assert calibrated.predict(real[2]).tolist() == plain.predict(real[2]).tolist()


@EVERY_METHOD
def test_the_most_probable_class_is_the_label_with_and_without_calibration(real, method):
    for calibrate in (False, True):
        found = fit(method, *real, calibrate=calibrate)
        probable = np.array(found.class_names)[found.probabilities.argmax(dim=1)]
        np.testing.assert_array_equal(probable, found.labels)
        np.testing.assert_allclose(found.probabilities.sum(dim=1), 1, rtol=1e-5)


# Later rows


@EVERY_METHOD
def test_predict_repeats_what_fit_said_of_the_same_rows(real, method):
    found = fit(method, *real)
    same = found.predict(real[2]) == found.labels
    lam = found.method.settings.get("lam")
    # where sizes are estimated, fit looks at the neighbours of a row too, which a later row has not
    # likewise on a graph; and no linear rule expresses distances to subspaces
    estimated = method in ("folder", "map-auto") or lam == "auto"
    least = 0.7 if method in NOT_LINEAR else 0.9 if estimated else 1
    assert same.mean() >= least
    together = found.predict_proba(real[2])
    np.testing.assert_allclose(together.sum(axis=1), 1, rtol=1e-5)
    for row in (0, 20, 44):  # each is decided alone
        np.testing.assert_allclose(found.predict_proba(real[2][[row]])[0], together[row], rtol=1e-4)


@pytest.mark.parametrize(
    ("x", "message"),
    [
        ([[1.0, 2.0]], r"features must have shape \(N, 640\) for this model, got \(1, 2\)"),
        (np.zeros((2, 640)), "features: every vector must have a direction"),
        (np.full((2, 640), np.nan), "features must be finite, got NaN or infinity in rows 0, 1"),
        ([], "features must be a non-empty matrix"),
    ],
)
def test_later_rows_that_cannot_be_compared_are_refused(real, x, message):
    with pytest.raises(InputError, match=message):
        fit("map", *real).predict(x)


@EVERY_METHOD
@pytest.mark.parametrize("calibrate", [False, True])
def test_a_model_comes_back_from_its_file(real, tmp_path, method, calibrate):
    path = tmp_path / "model.safetensors"
    found = fit(method, *real, calibrate=calibrate)
    found.save(path, about={"backbone": "wrn28-10"})
    again, header = Fitted.load(path)
    np.testing.assert_array_equal(again.predict(real[2]), found.predict(real[2]))
    np.testing.assert_array_equal(again.predict_proba(real[2]), found.predict_proba(real[2]))
    assert again.method.name == method
    assert again.method.pipeline == found.method.pipeline
    assert again.class_names == found.class_names
    assert (header["backbone"], header["version"]) == ("wrn28-10", 1)


def test_a_model_from_before_methods_had_names_predicts_as_it_did(real, tmp_path):
    """Such a file has neither "method" nor, from before calibration, "temperature"."""
    found = fit("map-folder", *real)
    arrays = {"prototypes": found.prototypes.numpy(), "biases": found.biases.numpy()}
    arrays["mean_0"] = found.means[0].numpy()
    header = {
        "version": 1,
        "class_names": found.class_names,
        "pipeline": str(found.method.pipeline),
        "lam": found.lam,
        "backbone": "",
        "provenance": {},
    }
    content = safetensors.numpy.save(arrays, metadata={"ptmap_model": json.dumps(header)})
    path = tmp_path / "model.safetensors"
    path.write_bytes(content)
    again, _ = Fitted.load(path)
    np.testing.assert_array_equal(again.predict_proba(real[2]), found.predict_proba(real[2]))
    assert (again.method.name, again.temperature) == ("map-folder", 1.0)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"method": "knn"}, "damaged model .*method must be one of ncm-raw"),
        ({"pipeline": "whiten"}, "damaged model .*a step must be one of"),
        ({"lam": None}, "damaged model"),
        ({"lam": "sharp"}, "damaged model"),
        ({"class_names": None}, "damaged model"),
        ({"version": 2}, "format version 2, this fewlabels reads up to 1"),
    ],
)
def test_a_model_that_says_nonsense_is_refused(real, tmp_path, changed, message):
    path = tmp_path / "model.safetensors"
    fit("ncm", *real).save(path, about=changed)
    with pytest.raises(FileFormatError, match=message):
        Fitted.load(path)


def test_a_file_that_is_no_model_is_refused(tmp_path):
    with pytest.raises(FileFormatError, match="does not exist"):
        Fitted.load(tmp_path / "nowhere.safetensors")
    load_embedded().subset([0, 1]).save(tmp_path / "features.safetensors")
    with pytest.raises(FileFormatError, match=r"does not hold a model of fewlabels\. Make one"):
        Fitted.load(tmp_path / "features.safetensors")
    (tmp_path / "cut.safetensors").write_bytes(b"\x10")
    with pytest.raises(FileFormatError, match="cannot be read"):
        Fitted.load(tmp_path / "cut.safetensors")


# Rows that are prepared once


@EVERY_METHOD
def test_prepared_rows_are_fitted_as_arrays_are(real, method):
    labelled, labels, unlabelled = real
    names, numbers = np.unique(labels, return_inverse=True)
    rows = Rows.prepare(torch.tensor(np.concatenate([labelled, unlabelled])), method)
    known = torch.tensor([*numbers, *[-1] * len(unlabelled)])
    found = rows.fit(known, class_names=names.tolist())
    expected = fit(method, *real)
    assert torch.equal(found.probabilities, expected.probabilities)
    assert torch.equal(found.biases, expected.biases)
    assert found.labels.tolist() == expected.labels.tolist()


# scikit-learn's, about features that are always zero
@pytest.mark.filterwarnings("ignore:self.within_class_std_dev_")
@EVERY_METHOD
@pytest.mark.parametrize("calibrate", [False, True])
def test_without_unlabelled_rows_the_labelled_ones_decide_later_rows(real, method, calibrate):
    labelled, labels, unlabelled = real
    names, numbers = np.unique(labels, return_inverse=True)
    rows = Rows.prepare(torch.tensor(labelled), method)
    found = rows.fit(torch.tensor(numbers), class_names=names.tolist(), calibrate=calibrate)
    assert found.assignment is None
    assert found.labels.shape == (0,)
    assert found.proportions.tolist() == [0, 0, 0]
    pipeline = found.method.pipeline
    x = pipeline.apply(torch.tensor(labelled), torch.tensor(labelled)[:0])[0].numpy()
    regression = find_method(method).learn is not None
    model = LogisticRegression(C=30, class_weight="balanced") if regression else NearestCentroid()
    oracle = model.fit(x, labels)
    later = pipeline.replay(torch.tensor(unlabelled), found.means).numpy()
    np.testing.assert_array_equal(found.predict(unlabelled), oracle.predict(later))


@pytest.mark.parametrize("keep_neighbors", [False, True])
def test_some_of_the_rows_keep_what_they_were_among_all(keep_neighbors):
    features = load_embedded()
    n_rows = 1020  # neighbours of more than 1,000 rows are computed once
    x = torch.tensor(features.features[:: len(features) // n_rows][:n_rows])
    rows = Rows.prepare(x, "map-folder", keep_neighbors=keep_neighbors)
    items = np.array([5, 3, 900, 77])
    some = rows.subset(items)
    assert (len(rows), len(some)) == (n_rows, 4)
    assert torch.equal(some.x, rows.x[items])
    assert torch.equal(some.rowwise, rows.rowwise[items])
    assert some.means is rows.means
    assert (some.prepared is not None) == keep_neighbors
    if keep_neighbors:
        for part, whole in zip(some.prepared[:2], rows.prepared[:2], strict=True):
            assert torch.equal(part, whole[:, items])


def test_the_number_of_shots_may_be_said(real):
    labelled, labels, unlabelled = real
    rows = Rows.prepare(torch.tensor(np.concatenate([labelled, unlabelled])), "map")
    numbers = torch.tensor([*np.unique(labels, return_inverse=True)[1], *[-1] * len(unlabelled)])
    assert rows.fit(numbers).method.settings["alpha"] == 0.2
    assert rows.fit(numbers, n_shot=1).method.settings["alpha"] == 0.4
    assert rows.fit(numbers).class_names == (0, 1, 2)


def test_outliers_of_prepared_rows_are_those_that_nobody_named(real):
    labelled, labels, unlabelled = real
    others = load_embedded()
    strange = others.features[others.class_rows[7][:15]]
    x = torch.tensor(np.concatenate([labelled, unlabelled, strange]))
    rows = Rows.prepare(x, "map-folder")
    numbers = torch.full((len(x),), -1)
    numbers[:15] = torch.tensor(np.unique(labels, return_inverse=True)[1])
    found = rows.outlier_probabilities(numbers, rows.fit(numbers).numbers)
    assert found.shape == (60,)
    assert ((found >= 0) & (found <= 1)).all()
    assert found[45:].mean() > found[:45].mean() + 0.2


@pytest.mark.parametrize("load", [load_iris, load_wine, load_breast_cancer])
def test_tables_of_measurements_are_labelled_as_well_as_by_logistic_regression(load, tmp_path):
    """With columns in units of their own: flower petals, wines, cells. Two labels per class."""
    x, y = load(return_X_y=True)
    ours, theirs = [], []
    for seed in range(5):
        order = np.random.default_rng(seed).permutation(len(y))
        known = np.concatenate([order[y[order] == way][:2] for way in range(y.max() + 1)])
        rest = np.setdiff1d(order, known)
        found = fit("folder", x[known], y[known], x[rest])
        ours.append((found.labels == y[rest]).mean())
        scaled = make_pipeline(StandardScaler().fit(x), LogisticRegression(max_iter=500))
        theirs.append(scaled.fit(x[known], y[known]).score(x[rest], y[rest]))
    assert np.mean(ours) >= np.mean(theirs)
    found.save(tmp_path / "model.safetensors")
    again, _ = Fitted.load(tmp_path / "model.safetensors")
    assert again.n_features == x.shape[1]
    np.testing.assert_array_equal(again.predict(x), found.predict(x))
    assert (again.predict(x[rest]) == y[rest]).mean() > ours[-1] - 0.05  # each row alone
    with pytest.raises(InputError, match=rf"shape \(N, {x.shape[1]}\) for this model"):
        again.predict(x[:, :2])
