"""A method that only this file declares works everywhere, and no other method answers for it.

It gives each query the class whose mean is the `rank`-th nearest. At rank 1 it is nearest class
mean; at rank 2 it is nearly always wrong, so that an answer of another method would be noticed.
"""

import json
import tomllib
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.spatial.distance import cdist

from fewlabels import (
    FeatureSet,
    FewLabelsClassifier,
    Fitted,
    Knob,
    Method,
    Pipeline,
    Reference,
    classify,
    configure,
    evaluate,
    fit,
    label_folder,
    load_embedded,
    make_assignment,
    method_names,
    register,
    sample_episodes,
)
from fewlabels.errors import FewLabelsError, InputError
from fewlabels.evaluation.engines import ENGINES
from fewlabels.evaluation.fused import KERNELS
from fewlabels.methods.base import unregister

FEW = {"n_shot": 5, "n_episodes": 20, "queries": 10}
WORDS = ["--shots", 5, "--episodes", 20, "--queries", 10]
AVAILABLE = [name for name in ENGINES if name != "triton" or torch.cuda.is_available()]


def assign_ranked(support, support_labels, query, *, n_way, rank):
    """(E, S, D), (E, S) and (E, Q, D) -> Assignment."""
    members = torch.nn.functional.one_hot(support_labels, n_way).to(support)
    means = members.mT @ support / members.sum(dim=1)[..., None]
    labels = torch.cdist(query, means).argsort(dim=-1)[..., rank - 1]
    return make_assignment(torch.nn.functional.one_hot(labels, n_way).to(query), means)


RANKED = Method(
    "ranked",
    "Ranked class mean",
    Reference("Nobody", 2024, "A method of the tests", "https://example.org"),
    Pipeline.parse("power(0.5) | unit"),
    assign_ranked,
    knobs=(
        Knob(
            "rank",
            "which class mean decides, counted from the nearest",
            default=2,
            low=1,
            whole=True,
            grid=(1, 2, 3),
            symbol="rank r",
        ),
    ),
)


@pytest.fixture(autouse=True)
def registered():
    register(RANKED)
    yield
    if "ranked" in method_names():
        unregister("ranked")


@pytest.fixture(scope="module")
def problem():
    """Real rows of five classes: five labelled per class, their names, ten unlabelled per class."""
    features = load_embedded()
    rows = np.stack([members[:15] for members in features.class_rows[:5]])
    names = np.array(features.class_names)[features.labels]
    labelled, unlabelled = rows[:, :5].ravel(), rows[:, 5:].ravel()
    x = features.features
    return x[labelled], names[labelled], x[unlabelled]


def nearest_means(labelled, labels, unlabelled):
    """Classes by distance, nearest first, in plain numpy: (Q, W) names."""
    x, q = (np.sqrt(each.astype(np.float64) + 1e-6) for each in (labelled, unlabelled))
    x, q = (each / np.linalg.norm(each, axis=1, keepdims=True) for each in (x, q))
    names = np.unique(labels)
    means = np.stack([x[labels == name].mean(axis=0) for name in names])
    return names[cdist(q, means).argsort(axis=1)]


# Everywhere


@pytest.mark.parametrize("engine", AVAILABLE)
def test_every_engine_gives_its_answers(engine):
    features = load_embedded()
    device = "cuda" if engine == "triton" else "cpu"
    (result,) = evaluate("ranked", engine=engine, device=device, **FEW)
    episodes = sample_episodes(features, **FEW)
    assert result.provenance["episode_hash"] == episodes.hash
    for number, accuracy in enumerate(result.accuracies):
        order = nearest_means(
            features.features[episodes.support[number]],
            episodes.support_labels[number],
            features.features[episodes.query[number]],
        )
        assert accuracy == pytest.approx((order[:, 1] == episodes.query_labels[number]).mean())
    assert (result.title, result.settings) == ("Ranked class mean", {"rank": 2})


@pytest.mark.parametrize("engine", AVAILABLE)
def test_it_stands_beside_other_methods_and_at_rank_1_is_one_of_them(engine):
    device = "cuda" if engine == "triton" else "cpu"
    methods = ["ncm", configure("ranked", n_shot=5, rank=1), RANKED, "map"]
    ncm, first, second, best = evaluate(methods, engine=engine, device=device, **FEW)
    assert first.accuracies.tolist() == ncm.accuracies.tolist()
    assert second.accuracy < 30 < 60 < first.accuracy < best.accuracy
    assert [each.method for each in (first, second)] == ["ranked", "ranked"]


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_arrays_and_estimators_are_answered_alike(problem, rank, tmp_path):
    labelled, labels, unlabelled = problem
    expected = nearest_means(labelled, labels, unlabelled)[:, rank - 1]
    found = fit("ranked", labelled, labels, unlabelled, rank=rank)
    np.testing.assert_array_equal(found.labels, expected)
    np.testing.assert_array_equal(
        classify(labelled, labels, unlabelled, method=RANKED, rank=rank), expected
    )
    y = np.array([*labels, *[None] * len(unlabelled)], dtype=object)
    model = FewLabelsClassifier("ranked", settings={"rank": rank}, calibrate=True)
    model.fit(np.concatenate([labelled, unlabelled]), y)
    np.testing.assert_array_equal(model.transduction_[len(labels) :], expected)
    probable = model.classes_[model.label_distributions_.argmax(axis=1)]
    np.testing.assert_array_equal(probable, model.transduction_)
    found.save(tmp_path / "model.safetensors")
    again, _ = Fitted.load(tmp_path / "model.safetensors")
    assert again.method.method is RANKED
    np.testing.assert_array_equal(again.predict(unlabelled), found.predict(unlabelled))


@pytest.mark.parametrize("rank", [1, 2])
def test_a_folder_is_labelled_by_it(problem, here, rank, tmp_path):
    labelled, labels, unlabelled = problem
    expected = nearest_means(labelled, labels, unlabelled)[:, rank - 1]
    file = tmp_path / "features.safetensors"
    FeatureSet.from_arrays(
        np.concatenate([labelled, unlabelled]), [*labels, *[""] * len(unlabelled)]
    ).save(file)
    outcome = label_folder(file, method="ranked", settings={"rank": str(rank)})
    assert [row.label for row in outcome.rows] == [*labels, *expected]
    words = ["--method", "ranked", "--set", f"rank={rank}", "--output", tmp_path / "labels.csv"]
    done = here("label", file, *words)
    assert done.code == 0, done.stderr
    rows = (tmp_path / "labels.csv").read_text(encoding="utf-8").splitlines()[1:]
    assert [row.split(",")[1] for row in rows] == [row.label for row in outcome.rows]


def test_the_command_line_takes_it_and_its_knob(here):
    methods = ["--method", "ncm", "--method", "ranked"]
    ranks = ["--set", "rank=1", "--set", "rank=2"]
    done = here("evaluate", *methods, *ranks, "--baseline", "ncm", *WORDS, "--json")
    assert done.code == 0, done.stderr
    ncm, first, second = json.loads(done.stdout)["results"]
    assert first["accuracy"] == ncm["accuracy"]
    assert first["comparison"]["tie"] == 1
    assert second["comparison"]["difference"] < -40
    assert (second["settings"], second["pipeline"]) == ({"rank": 2}, "power(0.5) | unit")
    shown = here("evaluate", *methods, *ranks, *WORDS)
    header = next(line for line in shown.stdout.splitlines() if line.startswith("method")).split()
    assert header == ["method", "rank", "shots", "accuracy", "episodes", "seconds"]
    assert shown.stdout.count("Ranked class mean") == 2


def test_the_help_and_the_messages_know_it(here):
    text = " ".join(here("evaluate", "--help").stdout.split())
    assert " ranked Ranked class mean; knobs: beta, rank " in text
    assert " rank which class mean decides, counted from the nearest" in text
    for words, expected in (
        (["--method", "rank"], "folder, ranked, got 'rank'."),
        (["--method", "ranked", "--set", "rank=0"], "rank must be a whole number of at least 1"),
        (["--method", "ranked", "--set", "rank=1.5"], "rank must be a whole number, got 1.5."),
        (["--method", "ranked", "--lam", 3], "--lam has no effect on ranked."),
        (["--method", "map", "--set", "rank=1"], "or add a method that takes it: ranked."),
        (["--method", "ranked", "--set", "ranks=1"], ", rank, got 'ranks'."),
    ):
        done = here("evaluate", *words)
        assert (done.code, done.stdout) == (2, "")
        assert expected in done.stderr


def test_tuning_finds_the_rank_and_a_settings_file_keeps_it(here, tmp_path):
    out = tmp_path / "tuned"
    done = here("tune", "--method", "ranked", "--beta", 0.5, *WORDS, "--output", out)
    assert done.code == 0, done.stderr
    tuned = tomllib.loads((out / "settings.toml").read_text(encoding="utf-8"))
    assert tuned == {"ranked": {"5-shot": {"beta": 0.5, "rank": 1}}}
    assert "rank" in (out / "curves-5-shot.svg").read_text(encoding="utf-8")
    done = here("evaluate", "--settings", out / "settings.toml", *WORDS, "--json")
    (result,) = json.loads(done.stdout)["results"]
    assert (result["method"], result["settings"]) == ("ranked", {"rank": 1})
    assert result["accuracy"] > 60


# No other method answers for it


@pytest.mark.parametrize("engine", AVAILABLE)
def test_a_method_that_was_forgotten_is_refused_everywhere(problem, here, tmp_path, engine):
    labelled, labels, unlabelled = problem
    fit("ranked", labelled, labels, unlabelled).save(tmp_path / "model.safetensors")
    (tmp_path / "settings.toml").write_text("[ranked.5-shot]\nrank = 1\n")
    unregister("ranked")
    refused = r"method must be one of ncm-raw, ncm, .*folder, got 'ranked'"
    for attempt in (
        lambda: evaluate("ranked", engine=engine, device="cpu", **FEW),
        lambda: configure("ranked", n_shot=1),
        lambda: fit("ranked", labelled, labels, unlabelled),
        lambda: classify(labelled, labels, unlabelled, method="ranked"),
        lambda: FewLabelsClassifier("ranked").fit(labelled, labels),
        lambda: Fitted.load(tmp_path / "model.safetensors"),
        lambda: label_folder(tmp_path, method="ranked"),
    ):
        with pytest.raises(FewLabelsError, match=refused):
            attempt()
    for words in (
        ["evaluate", "--method", "ranked"],
        ["evaluate", "--settings", tmp_path / "settings.toml"],
        ["tune", "--method", "ranked", "--output", tmp_path / "tuned"],
        ["label", tmp_path, "--method", "ranked", "--output", tmp_path / "labels.csv"],
    ):
        done = here(*words)
        assert (done.code, done.stdout) == (2, "")
        assert "must be one of ncm-raw, ncm, kmeans" in done.stderr
    assert "ranked" not in here("evaluate", "--help").stdout


def test_a_kernel_that_no_engine_knows_is_refused_and_not_replaced():
    method = replace(RANKED, kernel="ranked")
    known = ", ".join(KERNELS)
    with pytest.raises(InputError, match=f"kernel of method 'ranked' must be one of {known} or"):
        evaluate(method, engine="numba", device="cpu", **FEW)
    (result,) = evaluate(method, engine="torch", device="cpu", **FEW)  # which needs no kernel
    assert result.accuracy < 30
