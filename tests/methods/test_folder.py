"""The folder method: oracles for its parts, and what it promises as a whole."""

import dataclasses

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

from fewlabels import FewLabelsClassifier, InputError, fit, load_embedded
from fewlabels.fitting import Rows
from fewlabels.methods import folder
from fewlabels.methods.assignment import one_hot
from fewlabels.methods.folder import (
    assign_folder,
    find_sizes,
    fit_weights,
    hidden_groups,
    labelled_alike,
    prepare_rows,
    trust_in_sizes,
    with_sizes,
)


def blobs(n_way=4, size=40, dim=24, spread=1.0, seed=0):
    """Classes around random corners, non-negative: features (N, D), class numbers (N,)."""
    rng = np.random.default_rng(seed)
    labels = np.repeat(np.arange(n_way), size)
    x = rng.gamma(1.0, size=(n_way, dim))[labels] * 2 + spread * rng.normal(size=(len(labels), dim))
    return np.abs(x).astype(np.float32), labels


def few(labels, k, seed=0):
    """k labels per class, -1 elsewhere."""
    rng = np.random.default_rng(seed)
    shown = np.full(len(labels), -1)
    for way in np.unique(labels):
        rows = rng.permutation(np.flatnonzero(labels == way))[:k]
        shown[rows] = way
    return shown


def split(x, shown):
    known = shown >= 0
    return (
        torch.tensor(x[known])[None],
        torch.tensor(shown[known])[None],
        torch.tensor(x[~known])[None],
    )


def test_the_weights_are_the_most_likely_ones():
    rng = np.random.default_rng(0)
    labels = torch.tensor(rng.integers(0, 3, 60))
    logs = torch.tensor(rng.normal(size=(2, 60, 3))).log_softmax(dim=-1)
    logs[0, torch.arange(60), labels] += 1.0
    logs[1, 7] = torch.nan  # a label that was not hidden
    prior = np.array([0.9, 0.1])
    found = fit_weights(logs, one_hot(labels, 3, torch.float64), prior=prior, spread=0.5)
    used = np.arange(60) != 7

    def loss(weights):
        log = torch.einsum("c,cnw->nw", torch.tensor(weights), logs[:, used]).log_softmax(dim=-1)
        fit = -float(log[torch.arange(59), labels[used]].sum())
        return fit + 2.0 * float(((weights / prior - 1) ** 2).sum())

    oracle = minimize(loss, prior, bounds=[(0, None)] * 2, method="L-BFGS-B")
    np.testing.assert_allclose(found, oracle.x, atol=2e-3)


def test_without_hidden_labels_the_weights_are_those_of_validation_folders():
    logs = torch.full((2, 3, 3), torch.nan)
    found = fit_weights(logs, torch.eye(3), prior=(0.9, 0.1), spread=0.5)
    np.testing.assert_allclose(found, [0.9, 0.1])


def made_plan(sizes, n=4000, sharpness=4.0, seed=0):
    """Probabilities of rows of classes of these sizes, as if all had one size, and their classes.

    Scores are normal around `sharpness` for the true class and around 0 for the others, so that
    the probabilities of classes of one size are known: softmax(sharpness * score).
    """
    rng = np.random.default_rng(seed)
    y = rng.choice(len(sizes), size=n, p=np.array(sizes) / np.sum(sizes))
    scores = rng.normal(size=(n, len(sizes))) + sharpness * np.eye(len(sizes))[y]
    return torch.tensor(sharpness * scores).softmax(dim=-1), y


NO_LABELS = torch.zeros(0, 3, dtype=torch.float64)


def test_a_class_whose_rows_are_all_labelled_is_no_small_one():
    """Its labels would look wrong, each of them hidden."""
    x, y = blobs(n_way=3, size=20)
    shown = few(y, 2)
    shown[y == 0] = 0
    found = fit("folder", x[shown >= 0], shown[shown >= 0], x[shown < 0])
    held_out = found.assignment.held_out[0]
    assert (held_out.argmax(dim=-1).numpy() == shown[shown >= 0]).mean() > 0.9
    assert (found.labels == y[shown < 0]).mean() > 0.9


def test_sizes_are_the_most_likely_ones():
    plan, _ = made_plan([1, 2, 5], sharpness=2.0)

    def loss(logits):
        sizes = np.exp(logits) / np.exp(logits).sum()
        return -np.log(plan.numpy() @ sizes).sum()

    oracle = minimize(loss, np.zeros(3), method="BFGS").x
    expected = 3 * np.exp(oracle) / np.exp(oracle).sum()
    found = find_sizes(plan, NO_LABELS)
    np.testing.assert_allclose(found, expected, rtol=0.01)
    np.testing.assert_allclose(found, 3 * np.array([1, 2, 5]) / 8, rtol=0.1)


def test_sizes_are_trusted_as_far_as_hidden_labels_allow():
    plan, _ = made_plan([1, 2, 5])
    alike, y = made_plan([1, 1, 1], n=60, seed=1)
    members = one_hot(torch.tensor(y), 3, torch.float64)
    assert trust_in_sizes(plan, alike, members) > 0.95
    # Classes of one size differ by chance alone.
    assert trust_in_sizes(made_plan([1, 1, 1], seed=2)[0], alike, members) < 0.2
    # Predictions that prefer the last class would make it large wherever it is not.
    skewed = with_sizes(alike, torch.tensor([1.0, 1.0, 1e6]))
    assert trust_in_sizes(plan, skewed, members) < trust_in_sizes(plan, alike, members) - 0.1
    # Nothing was hidden, or only of one class.
    nothing = torch.full_like(alike, torch.nan)
    assert trust_in_sizes(plan, nothing, members) == 0
    one = torch.where(members[:, :1] > 0, alike, nothing)
    assert trust_in_sizes(plan, one, members) <= 1 / 3


def test_sizes_that_differ_make_the_answer_better():
    plan, y = made_plan([1, 2, 12], sharpness=1.5, seed=3)
    better = with_sizes(plan, find_sizes(plan, NO_LABELS))
    before, after = ((each.argmax(dim=-1).numpy() == y).mean() for each in (plan, better))
    assert after > before + 0.02


def test_groups_hide_every_label_once_and_take_alike_from_every_class():
    labels = torch.tensor([0] * 2 + [1] * 7 + [2] + [3] * 12)
    groups = hidden_groups(labels, 4, 5)
    together = torch.cat(groups)
    assert sorted(together.tolist()) == [row for row in range(22) if labels[row] != 2]
    for group in groups:
        counts = torch.bincount(labels[group], minlength=4)
        assert counts[0] <= 1
        assert 1 <= counts[1] <= 2
        assert 2 <= counts[3] <= 3


@pytest.mark.parametrize("k", [1, 2, 5])
def test_real_classes_are_told_apart_better_than_by_their_means(k):
    known = load_embedded()
    rows = np.flatnonzero(known.labels < 8)
    x, labels = known.features[rows], known.labels[rows]
    shown = few(labels, k)
    unknown = shown < 0
    right = {}
    for method in ("ncm", "folder"):
        found = Rows.prepare(torch.tensor(x), method).fit(torch.tensor(shown))
        right[method] = (found.numbers.numpy() == labels[unknown]).mean()
    assert right["folder"] > right["ncm"] + 0.02


def test_probabilities_are_calibrated_and_hidden_labels_are_predicted():
    known = load_embedded()
    shown = few(known.labels, 5)
    found = Rows.prepare(torch.tensor(known.features), "folder").fit(torch.tensor(shown))
    right = found.numbers.numpy() == known.labels[shown < 0]
    sure = found.probabilities.max(dim=1).values.numpy()
    assert abs(sure.mean() - right.mean()) < 0.08
    held_out = found.assignment.held_out[0].numpy()
    accuracy = (held_out.argmax(axis=1) == shown[shown >= 0]).mean()
    assert abs(accuracy - right.mean()) < 0.15


def test_later_rows_are_decided_as_the_unlabelled_ones():
    x, labels = blobs(n_way=3, size=60)
    shown = few(labels, 3)
    known = shown >= 0
    found = fit("folder", x[known], shown[known], x[~known])
    assert (found.predict(x[~known]) == found.labels).mean() > 0.97
    oracle = LinearDiscriminantAnalysis(solver="lsqr", shrinkage="auto").fit(x, labels)
    later, truth = blobs(n_way=3, size=60)
    assert (found.predict(later) == truth).mean() >= oracle.score(later, truth) - 0.05


def test_an_episode_is_answered_in_a_batch_as_alone():
    x, labels = blobs()
    one, other = (split(x, few(labels, 2, seed=seed)) for seed in (0, 1))
    together = assign_folder(*(torch.cat(pair) for pair in zip(one, other, strict=True)), n_way=4)
    for episode, alone in enumerate((one, other)):
        found = assign_folder(*alone, n_way=4)
        np.testing.assert_allclose(together.plan[episode], found.plan[0], atol=1e-3)


def test_rows_in_another_order_get_the_same_labels():
    x, labels = blobs(spread=2.0)
    shown = few(labels, 3)
    order = np.random.default_rng(1).permutation(len(x))
    straight = Rows.prepare(torch.tensor(x), "folder", keep_neighbors=True)
    turned = Rows.prepare(torch.tensor(x[order]), "folder", keep_neighbors=True)
    first = straight.fit(torch.tensor(shown)).probabilities.numpy()
    second = turned.fit(torch.tensor(shown[order])).probabilities.numpy()
    back = np.argsort(order[shown[order] < 0])
    np.testing.assert_allclose(second[back], first, atol=2e-2)


@pytest.mark.parametrize(
    ("x", "shown"),
    [
        (np.ones((9, 4)), [0, 1, 2, -1, -1, -1, -1, -1, -1]),  # constant rows
        (np.eye(4)[[0, 1, 0, 1]] + 1, [0, 1, -1, -1]),  # duplicates of labelled rows
        (np.eye(4)[:3] + 1, [0, 1, -1]),  # fewer queries than classes
        (np.eye(4)[[0, 1, 2, 3, 0]] + 1, [0, 1, 2, 3, -1]),
    ],
    ids=["constant", "duplicates", "few", "one query"],
)
def test_odd_folders_get_an_answer(x, shown):
    shown = np.array(shown)
    found = Rows.prepare(torch.tensor(x, dtype=torch.float32), "folder").fit(torch.tensor(shown))
    assert found.probabilities.isfinite().all()
    np.testing.assert_allclose(found.probabilities.sum(dim=1), 1, atol=1e-5)
    assert found.prototypes.isfinite().all()


def test_one_class_and_classes_of_very_different_numbers_of_labels():
    x, labels = blobs()
    shown = few(labels, 1)
    shown[labels == 0] = 0  # forty labels beside one each
    found = Rows.prepare(torch.tensor(x), "folder").fit(torch.tensor(shown))
    assert (found.numbers.numpy() == labels[shown < 0]).mean() > 0.9
    alone = FewLabelsClassifier("folder").fit(x, np.where(few(labels, 1) == 0, 0, -1))
    assert set(alone.transduction_) == {0}


def test_weights_are_found_from_a_start_that_is_far_away():
    """The whole step of Newton's method goes from side to side here."""
    draw = np.random.default_rng(0)
    true = torch.tensor(draw.integers(0, 3, 400))
    logs = 40 * (torch.nn.functional.one_hot(true, 3) + torch.tensor(draw.normal(size=(400, 3))))
    logs, targets = logs.log_softmax(dim=-1), torch.nn.functional.one_hot(true, 3).double()
    [found] = folder.fit_weights(logs[None], targets, prior=(1.0,), spread=1.0).tolist()

    def loss(weight):
        return (weight - 1) ** 2 / 2 - (targets * (weight * logs).log_softmax(dim=-1)).sum()

    best = min(loss(weight) for weight in np.geomspace(1e-3, 1, 2000))
    assert loss(found) <= best + 1e-6


def test_later_rows_are_no_surer_than_those_of_the_folder():
    known = load_embedded()
    later = np.arange(len(known.labels)) % 2 == 1
    x, labels = known.features[~later], known.labels[~later]
    rows = Rows.prepare(torch.tensor(x), "folder", keep_neighbors=True)
    for seed in range(4):
        found = rows.fit(torch.tensor(few(labels, 3, seed)))
        probabilities = found.predict_proba(known.features[later])
        right = probabilities.argmax(axis=1) == known.labels[later]
        assert probabilities.max(axis=1).mean() < right.mean() + 0.08


def test_later_rows_of_many_clear_classes_are_no_surer_than_they_are_right():
    rng, n_way, n_each = np.random.default_rng(0), 20, 34
    means = 0.8 * rng.normal(size=(n_way, 200))
    labels = np.repeat(np.arange(n_way), n_each)
    x = means[labels] + rng.normal(size=(len(labels), 200))
    odd = rng.random(len(labels)) < 0.15  # these lie between two classes
    x[odd] += (means[rng.integers(0, n_way, len(labels))] - means[labels])[odd] / 2
    place = np.tile(np.arange(n_each), n_way)
    shown, later = place < 5, place >= n_each // 2
    found = fit("folder", x[shown], labels[shown], x[~shown & ~later])
    probabilities = found.predict_proba(x[later])
    sure, right = probabilities.max(axis=1), probabilities.argmax(axis=1) == labels[later]
    assert right.mean() > 0.85
    assert abs(sure.mean() - right.mean()) < 0.05  # 0.06 with a floor


def test_more_rows_times_classes_than_memory_holds_are_refused(monkeypatch):
    x, labels = blobs()
    tight = dataclasses.replace(folder.CONSTANTS, most_entries=639)
    monkeypatch.setattr(folder, "CONSTANTS", tight)
    with pytest.raises(InputError, match=r"at most 639 .* got 160 rows and 4 classes.*ncm"):
        assign_folder(*split(x, few(labels, 1)), n_way=4)


def test_near_duplicates_are_hidden_together():
    labels = torch.tensor([0, 0, 0, 0, 1, 1, 1, 2, 2])
    alike = torch.tensor([5, 6, 5, 7, 8, 8, 9, 3, 3])
    groups = hidden_groups(labels, 3, 5, alike=alike)
    together = [set(group.tolist()) for group in groups]
    # The labels of class 2 are near-duplicates of each other: none can be hidden.
    assert sorted(row for group in together for row in group) == [0, 1, 2, 3, 4, 5, 6]
    assert any({0, 2} <= group for group in together)
    assert any({4, 5} <= group for group in together)
    assert not any({0, 1} <= group or {4, 6} <= group for group in together)
    unlike = torch.arange(9)
    for one, other in zip(
        hidden_groups(labels, 3, 5), hidden_groups(labels, 3, 5, alike=unlike), strict=True
    ):
        assert one.tolist() == other.tolist()


def test_copies_of_labelled_rows_do_not_raise_the_estimate():
    # Labels at random: nothing can be learned, but from the copies of labelled rows.
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 400))
    copies = np.stack([x, x + 0.02 * rng.normal(size=x.shape)], axis=1).reshape(120, 400)
    x = np.concatenate([copies, rng.normal(size=(20, 400))])
    x = torch.tensor(x, dtype=torch.float32)
    labels = torch.tensor(np.repeat(rng.permutation(60) % 2, 2))
    rows = prepare_rows(x)
    assert rows.alike is not None
    assert rows.alike[:120:2].tolist() == rows.alike[1:120:2].tolist()
    assert len(rows.alike.unique()) == 80

    def right(neighborhood):
        found = assign_folder(
            x[None, :120], labels[None], x[None, 120:], n_way=2, neighborhood=neighborhood
        )
        return float((found.held_out[0].argmax(dim=1) == labels).float().mean())

    honest, as_if_no_copies = right(rows), right(rows._replace(alike=None))
    assert honest < 0.75
    assert as_if_no_copies > honest + 0.15


def test_labels_that_do_not_come_in_bursts_are_hidden_one_by_one():
    alike = torch.arange(20) // 2
    even = torch.arange(20) % 2 == 0
    assert labelled_alike(alike, even) is None  # every other row has a labelled near-duplicate
    assert labelled_alike(alike, torch.arange(20) < 10).tolist() == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]
    assert labelled_alike(None, even) is None


@pytest.mark.parametrize(("n_rows", "expected"), [(600, 256), (1600, 400), (2400, 512)])
def test_many_rows_keep_more_principal_components(n_rows, expected):
    x = torch.tensor(np.random.default_rng(0).normal(size=(n_rows, 700)), dtype=torch.float32)
    assert prepare_rows(x).whitened.shape == (n_rows, expected)


def test_gaussian_classes_stay_near_the_regression(monkeypatch):
    """Without weight for Gaussian classes and neighbors nothing but the regression is left."""
    x, labels = blobs(spread=3.0)
    shown = few(labels, 3)
    support, given, query = (each[0] for each in split(x, shown))
    rows = prepare_rows(torch.cat([support, query]))
    first = torch.arange(len(given))
    start = torch.randn(len(x), 4, generator=torch.Generator().manual_seed(0)).log_softmax(dim=-1)
    products = rows.whitened.T @ rows.whitened

    def answer(**weights):
        changed = dataclasses.replace(folder.CONSTANTS, **weights)
        monkeypatch.setattr(folder, "CONSTANTS", changed)
        return folder._log_gaussian(rows, products, first, one_hot(given, 4, torch.float32), start)

    alone = answer(gaussian_weight=0.0, graph_weight=0.0)
    np.testing.assert_allclose(alone, start, atol=1e-5)
    apart = [
        float((answer(gaussian_weight=b, graph_weight=0.0) - start).abs().mean())
        for b in (0.05, 0.2, 0.8)
    ]
    assert apart == sorted(apart)


def test_few_rows_are_hardly_whitened():
    """Their covariance is mostly noise; that of many rows tells where classes differ."""

    def change(n_rows: int) -> float:
        rng = np.random.default_rng(0)
        spread = np.geomspace(3, 0.1, 300)  # columns of different variance, for the whitening
        x = torch.tensor(rng.normal(size=(n_rows, 300)) * spread, dtype=torch.float32)
        rows = prepare_rows(torch.nn.functional.normalize(x, dim=1))
        before, after = (z @ z.T for z in (rows.components, rows.whitened))
        return float((after - before).abs().mean())

    assert change(24) < 0.02  # seen: 0.002; 0.058 where few rows are whitened as many are
    assert change(2000) > 0.03  # seen: 0.040
