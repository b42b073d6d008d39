"""Every way to label rows gives the same labels for the same rows, labels and method name.

`fit`, `classify`, `FewLabelsClassifier`, prepared `Rows`, `label_folder`, `fewlabels label`, and
`evaluate` with the readable and with the fused engine, on real features. An evaluation of one
episode that uses every row is compared by its labels and by the accuracy that `evaluate` reports.
"""

import csv

import numpy as np
import pytest
import torch

from fewlabels import (
    Episodes,
    FeatureSet,
    FewLabelsClassifier,
    classify,
    configure,
    evaluate,
    fit,
    label_folder,
    load_embedded,
    method_names,
    sample_episodes,
)
from fewlabels.evaluation.engines import make_engine
from fewlabels.fitting import Rows
from fewlabels.methods.base import methods_with_mean

# which need the true labels, or a mean of base classes
UNFIT = ("map-truth", *methods_with_mean())
# which take seconds for a hundred rows: on few rows only
SLOW = ("am", "alpha-am")
METHODS = [name for name in method_names() if name not in (*UNFIT, *SLOW)]
EVERY_METHOD = pytest.mark.parametrize("method", METHODS)
PROBLEMS = {  # classes of the embedded set: rows per class, and labelled rows per class
    "equal, 1 shot": ((20, 20, 20, 20, 20), 1),
    "equal, 5 shots": ((30, 30, 30, 30, 30), 5),
    "unequal": ((120, 60, 25, 12), 3),
    "many classes": ((18,) * 20, 2),
}


class Problem:
    """One episode that uses every row of a feature set."""

    def __init__(self, sizes: tuple[int, ...], n_shot: int) -> None:
        whole = load_embedded()
        rows = [members[:size] for members, size in zip(whole.class_rows, sizes, strict=False)]
        numbers = np.concatenate(rows)
        names = np.array(whole.class_names)[whole.labels[numbers]]
        # without the name of the dataset, by which evaluate would choose alpha at one shot
        self.features = FeatureSet.from_arrays(whole.features[numbers], names)
        self.shape = {"n_way": len(sizes), "n_shot": n_shot, "seed": 3}
        # as many queries as there are rows left: the draw cannot but take them all
        self.queries = f"dirichlet:1:{len(numbers) - n_shot * len(sizes)}"
        self.episodes: Episodes = sample_episodes(
            self.features, n_episodes=1, queries=self.queries, **self.shape
        )
        used = np.concatenate([self.episodes.support[0], self.episodes.query[0]])
        assert sorted(used) == list(range(len(self.features)))
        x = self.features.features.astype(np.float64)
        known = np.array(self.features.class_names)[self.features.labels]
        self.labelled, self.unlabelled = x[self.episodes.support[0]], x[self.episodes.query[0]]
        self.labels, self.truth = known[self.episodes.support[0]], known[self.episodes.query[0]]

    def names_of(self, ways: np.ndarray) -> np.ndarray:
        """The class names of ways of the episode."""
        return np.array(self.features.class_names)[self.episodes.classes[0]][ways]


@pytest.fixture(scope="module", params=PROBLEMS.values(), ids=PROBLEMS)
def problem(request) -> Problem:
    return Problem(*request.param)


def by_estimator(method, labelled, labels, unlabelled):
    """Labels of the unlabelled rows by the estimator."""
    y = np.array([*labels, *[None] * len(unlabelled)], dtype=object)
    x = np.concatenate([labelled, unlabelled])
    return FewLabelsClassifier(method).fit(x, y).transduction_[len(labels) :]


@EVERY_METHOD
def test_arrays_estimators_and_prepared_rows_give_the_same_labels(problem, method):
    arrays = problem.labelled, problem.labels, problem.unlabelled
    found = fit(method, *arrays)
    least = 0.3 if method == "tafssl-ica" else 0.4  # independent components of few rows
    assert (found.labels == problem.truth).mean() > least
    np.testing.assert_array_equal(classify(*arrays, method=method), found.labels)
    np.testing.assert_array_equal(by_estimator(method, *arrays), found.labels)
    rows = Rows.prepare(
        torch.tensor(np.concatenate([problem.labelled, problem.unlabelled])),
        method,
        keep_neighbors=True,
    )
    numbers = torch.full((len(rows),), -1)
    names, codes = np.unique(problem.labels, return_inverse=True)
    numbers[: len(codes)] = torch.tensor(codes)
    again = rows.fit(numbers, class_names=names.tolist())
    np.testing.assert_array_equal(again.labels, found.labels)


@EVERY_METHOD
def test_a_folder_is_labelled_as_its_rows_are(problem, method, here, tmp_path):
    """`label_folder` and `fewlabels label`, with the rows in a file of features."""
    arrays = problem.labelled, problem.labels, problem.unlabelled
    labelled, unlabelled = (each.astype(np.float32) for each in (arrays[0], arrays[2]))
    expected = fit(method, labelled, arrays[1], unlabelled)
    names = [f"{number:04}.jpg" for number in range(len(labelled) + len(unlabelled))]
    FeatureSet.from_arrays(
        np.concatenate([labelled, unlabelled]),
        [*arrays[1], *[""] * len(unlabelled)],
        names=names,
    ).save(tmp_path / "features.safetensors")
    outcome = label_folder(tmp_path / "features.safetensors", method=method)
    found = {row.path: row.label for row in outcome.rows}
    assert [found[name] for name in names] == [*arrays[1], *expected.labels]
    words = ["--method", method, "--output", tmp_path / "labels.csv"]
    done = here("label", tmp_path / "features.safetensors", *words)
    assert done.code == 0, done.stderr
    with (tmp_path / "labels.csv").open(encoding="utf-8", newline="") as file:
        written = {row["path"]: row["label"] for row in csv.DictReader(file)}
    assert written == found


@EVERY_METHOD
@pytest.mark.parametrize(
    "options",
    [{"engine": "torch", "dtype": "float64"}, {"engine": "numba"}],
    ids=["torch", "numba"],
)
def test_an_evaluation_measures_what_fit_does(problem, method, options):
    found = fit(method, problem.labelled, problem.labels, problem.unlabelled)
    engine = make_engine(problem.features, device="cpu", **options)
    configured = configure(method, n_shot=problem.shape["n_shot"])
    configured = configured.decide(torch.tensor(problem.features.features))
    ways = engine.predict(configured, problem.episodes)[0]
    np.testing.assert_array_equal(problem.names_of(ways), found.labels)
    (result,) = evaluate(
        method,
        problem.features,
        queries=problem.queries,
        n_episodes=1,
        device="cpu",
        **options,
        **problem.shape,
    )
    assert result.provenance["episode_hash"] == problem.episodes.hash
    assert result.accuracies[0] == (found.labels == problem.truth).mean()
    assert result.pipeline == str(found.method.pipeline)
    assert result.settings == found.method.settings


@EVERY_METHOD
def test_float32_changes_only_labels_that_are_nearly_tied(problem, method):
    exact = fit(method, problem.labelled, problem.labels, problem.unlabelled)
    arrays = problem.labelled.astype(np.float32), problem.labels, problem.unlabelled
    engine = make_engine(problem.features, engine="torch", device="cpu")
    by_engine = problem.names_of(engine.predict(exact.method, problem.episodes)[0])
    by_fit = fit(method, arrays[0], arrays[1], arrays[2].astype(np.float32)).labels
    soft = (
        "lam" in exact.method.settings or method == "map-auto"
    )  # the others have probabilities of 0 and 1
    scores = exact.scores(torch.tensor(problem.unlabelled)).softmax(dim=1)
    top = (exact.probabilities if soft else scores).topk(2, dim=1).values
    clear = ((top[:, 0] - top[:, 1]) > 0.02).numpy()
    assert clear.mean() > 0.5
    np.testing.assert_array_equal(by_engine[clear], exact.labels[clear])
    np.testing.assert_array_equal(by_fit[clear], exact.labels[clear])


@EVERY_METHOD
def test_more_than_a_thousand_rows(method):
    problem = Problem((70,) * 15, 4)
    assert len(problem.features) > 1000  # from there on, neighbours are found row by row
    arrays = problem.labelled, problem.labels, problem.unlabelled
    found = fit(method, *arrays)
    np.testing.assert_array_equal(classify(*arrays, method=method), found.labels)
    np.testing.assert_array_equal(by_estimator(method, *arrays), found.labels)
    rows = Rows.prepare(
        torch.tensor(np.concatenate([arrays[0], arrays[2]])), method, keep_neighbors=True
    )
    assert (rows.prepared is not None) == (method in ("map-folder", "folder"))
    names, codes = np.unique(problem.labels, return_inverse=True)
    numbers = torch.full((len(rows),), -1)
    numbers[: len(codes)] = torch.tensor(codes)
    again = rows.fit(numbers, class_names=names.tolist())
    np.testing.assert_array_equal(again.labels, found.labels)


@pytest.mark.parametrize("method", SLOW)
def test_slow_methods_on_few_rows(method):
    few = Problem((10,) * 3, 1)
    test_arrays_estimators_and_prepared_rows_give_the_same_labels(few, method)
