"""Outliers: probabilities for any input, and on real features an order better than simple ones."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score

from fewlabels.confidence import outliers
from fewlabels.confidence.outliers import outlier_probabilities
from fewlabels.methods.assignment import class_means, similarities
from fewlabels.methods.map import assign_map
from fewlabels.methods.nearest import assign_nearest
from fewlabels.preprocess import Pipeline

SHARED = (
    Path(__file__).resolve().parents[2].parent
    / "shared"
    / "features"
    / "cifar-fs-wrn28-10"
    / "val.npy"
)
CLASS_ROWS = 600  # rows per class in that file, one class after another
ODD_INPUTS = {
    "constant": lambda x: torch.ones_like(x),
    "zero": lambda x: torch.zeros_like(x),
    "opposite": lambda x: torch.cat([x[:, ::2].abs(), -x[:, 1::2].abs()], dim=1),
    "identical": lambda x: x[:, :1].expand_as(x).contiguous(),
    "tiny": lambda x: x * 1e-18,
    "identical but one": lambda x: torch.cat([x[:, :1], torch.ones_like(x[:, 1:])], dim=1),
}


def random_episode(seed, n_way, n_shot, n_query, *, n_episodes=1, dim=6):
    """Support, its labels, and queries of the classes and of as many others, in float64."""
    rng = np.random.default_rng(seed)
    centers = rng.normal(size=(n_episodes, 2 * n_way, dim))
    labels = np.tile(np.repeat(np.arange(n_way), n_shot), (n_episodes, 1))
    others = rng.integers(0, 2 * n_way, size=(n_episodes, n_query))
    support, query = (
        np.take_along_axis(centers, each[..., None], axis=1)
        + 0.4 * rng.normal(size=(*each.shape, dim))
        for each in (labels, others)
    )
    return torch.tensor(support), torch.tensor(labels), torch.tensor(query)


def auroc(probabilities, outside):
    """Mean over the episodes, (E, Q) and (Q,) or (E, Q)."""
    truth = np.broadcast_to(outside, probabilities.shape)
    return np.mean(
        [roc_auc_score(true, each) for true, each in zip(truth, probabilities.numpy(), strict=True)]
    )


def probabilities_of(support, labels, query):
    return outlier_probabilities(
        support,
        labels,
        query,
        assign_nearest(support, labels, query, n_way=int(labels.max()) + 1).labels,
    )


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 4), st.integers(1, 4), st.integers(1, 30))
def test_results_are_probabilities_and_do_not_depend_on_the_order_of_the_queries(
    seed, n_way, n_shot, n_query
):
    support, labels, query = random_episode(seed, n_way, n_shot, n_query)
    probabilities = probabilities_of(support, labels, query)
    assert probabilities.shape == (1, n_query)
    assert ((probabilities >= 0) & (probabilities <= 1)).all()
    order = np.random.default_rng(seed).permutation(n_query)
    np.testing.assert_allclose(
        probabilities_of(support, labels, query[:, order]).numpy(),
        probabilities[:, order].numpy(),
        atol=1e-8,
    )


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 10**6))
def test_an_episode_does_not_know_its_neighbours(seed):
    support, labels, query = random_episode(seed, 3, 2, 12, n_episodes=3)
    together = probabilities_of(support, labels, query)
    for episode in range(3):
        one = slice(episode, episode + 1)
        np.testing.assert_allclose(
            probabilities_of(support[one], labels[one], query[one]).numpy(),
            together[one].numpy(),
            atol=1e-9,
        )


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
@pytest.mark.parametrize("change", ODD_INPUTS.values(), ids=ODD_INPUTS)
def test_odd_input_gives_finite_probabilities(change, dtype):
    support, labels, query = random_episode(0, 3, 2, 20)
    probabilities = probabilities_of(change(support).to(dtype), labels, change(query).to(dtype))
    assert probabilities.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    assert ((probabilities >= 0) & (probabilities <= 1)).all()


def test_one_class_has_no_outliers():
    support, labels, query = random_episode(0, 1, 3, 9)
    np.testing.assert_array_equal(probabilities_of(support, labels, query).numpy(), 0)


@pytest.mark.parametrize("n_shot", [1, 2, 5])
def test_a_cluster_apart_is_found(draw_episodes, n_shot):
    episodes = draw_episodes(
        n_episodes=10,
        n_shot=(n_shot, n_shot, n_shot, 1),
        n_query=(12, 12, 12, 12),
        dim=32,
        spread=0.6,
    )
    inliers = episodes.support_labels < 3
    support, labels = (
        episodes.support[inliers].reshape(10, -1, 32),
        episodes.support_labels[inliers].reshape(10, -1),
    )
    probabilities = outlier_probabilities(
        support, labels, episodes.query, assign_map(support, labels, episodes.query, n_way=3).labels
    )
    outside = episodes.query_labels == 3
    assert auroc(probabilities, outside.numpy()) > 0.95
    if n_shot > 1:  # with one label per class only the order is right
        assert probabilities[outside].mean() > 0.9
        assert (probabilities[~outside] > 0.5).double().mean() < 0.02


@pytest.mark.parametrize("seed", range(3))
def test_dense_classes_with_many_labels_make_no_outliers_of_wide_ones_with_one(seed):
    generator = torch.Generator().manual_seed(seed)
    centers = torch.nn.functional.normalize(torch.randn(6, 32, generator=generator), dim=1)
    support, labels, query, found = [], [], [], []
    for way, (n_rows, spread, n_shot) in enumerate([(60, 0.05, 20)] * 2 + [(200, 0.2, 1)] * 4):
        x = centers[way] + spread * torch.randn(n_rows, 32, generator=generator)
        support.append(x[:n_shot])
        query.append(x[n_shot:])
        labels += [way] * n_shot
        found += [way] * (n_rows - n_shot)
    probabilities = outlier_probabilities(
        torch.cat(support)[None],
        torch.tensor([labels]),
        torch.cat(query)[None],
        torch.tensor([found]),
    )
    assert (probabilities > 0.5).float().mean() <= 0.05  # 0.8 where such classes are not counted


@pytest.mark.parametrize("n_shot", [1, 5])
@pytest.mark.parametrize("spread", [0.05, 0.3, 0.8])
def test_classes_that_lie_far_apart_make_no_outliers(draw_episodes, n_shot, spread):
    """Nothing reaches another class, so the mass of a left-out class has no spread."""
    episodes = draw_episodes(
        n_episodes=10, n_shot=(n_shot,) * 6, n_query=(60,) * 6, dim=64, spread=spread
    )
    probabilities = outlier_probabilities(
        episodes.support, episodes.support_labels, episodes.query, episodes.query_labels
    )
    # With one label per class, 0.10 to 0.13 if that spread limits the distance of the outliers.
    assert (probabilities > 0.5).double().mean() < 0.02


@pytest.mark.parametrize("n_shot", [3, 10])
def test_large_classes_are_not_called_outliers(real, n_shot):
    """Classes of 20 to 200 rows, none of them missing: as few alarms as where they are equal."""
    rng = np.random.default_rng(0)
    sizes = np.array([20, 20, 30, 50, 80, 120, 160, 200])
    drawn = [way * CLASS_ROWS + rng.permutation(CLASS_ROWS)[:n] for way, n in enumerate(sizes)]
    shown = np.concatenate([np.arange(n) < n_shot for n in sizes])
    true = torch.tensor(np.repeat(np.arange(len(sizes)), sizes))
    x = torch.tensor(real[np.concatenate(drawn)].astype(np.float32))
    support, query = Pipeline.parse("power(0.5) | unit | center(support) | unit")(
        x[shown][None], x[~shown][None]
    )
    found = outlier_probabilities(support, true[shown][None], query, true[~shown][None])
    assert (found >= 0.5).double().mean() < 0.1  # 0.4 and 0.9 if all were taken for equally large


def test_products_in_parts_are_products_in_one(monkeypatch):
    support, labels, query = random_episode(0, 3, 2, 40)
    whole = probabilities_of(support, labels, query)
    monkeypatch.setattr("fewlabels.preprocess.neighbors.BLOCK_ROWS", 7)
    np.testing.assert_allclose(
        probabilities_of(support, labels, query).numpy(), whole.numpy(), atol=1e-9
    )


def test_a_part_of_many_labels_tells_nearly_the_same(monkeypatch):
    support, labels, query = random_episode(0, 3, 20, 40)
    whole = probabilities_of(support, labels, query)
    monkeypatch.setattr(outliers, "OUTLIERS", replace(outliers.OUTLIERS, left_out_rows=30))
    assert (probabilities_of(support, labels, query) - whole).abs().mean() < 0.1


class GaveUpError(Exception):
    pass


@pytest.mark.parametrize("patience", [0, 1, 20])  # in the graph, and in the propagation
def test_who_gives_up_ends_the_work(patience):
    support, labels, query = random_episode(0, 3, 2, 40)
    steps = []

    def give_up():
        steps.append(None)
        if len(steps) > patience:
            raise GaveUpError

    found = assign_nearest(support, labels, query, n_way=3).labels
    with pytest.raises(GaveUpError):
        outlier_probabilities(support, labels, query, found, on_step=give_up)
    assert len(steps) == patience + 1


# Real features of validation classes


@pytest.fixture(scope="module")
def real():
    if not SHARED.exists():
        pytest.skip("needs the features of CIFAR-FS beside the repository")
    return np.load(SHARED, mmap_mode="r")


def draw_real(real, *, n_shot, n_outside, n_episodes=30):
    """Episodes of five classes with 15 queries each and of outliers, and the answer of PT-MAP."""
    rng = np.random.default_rng(0)
    rows, n_classes = [], len(real) // CLASS_ROWS
    for _ in range(n_episodes):
        classes = rng.permutation(n_classes)
        inside = classes[:5, None] * CLASS_ROWS + np.stack(
            [rng.permutation(CLASS_ROWS)[: n_shot + 15] for _ in range(5)]
        )
        outside = rng.choice(classes[5:], n_outside) * CLASS_ROWS + rng.integers(
            0, CLASS_ROWS, n_outside
        )
        rows.append(
            np.concatenate([inside[:, :n_shot].ravel(), inside[:, n_shot:].ravel(), outside])
        )
    x = torch.tensor(real[np.stack(rows)].astype(np.float32))
    labels = torch.arange(5).repeat_interleave(n_shot).expand(n_episodes, -1)
    support, query = Pipeline.parse("power(0.5) | unit | center(support) | unit")(
        x[:, : 5 * n_shot], x[:, 5 * n_shot :]
    )
    found = assign_map(support, labels, query, n_way=5, lam="auto", prior="estimate")
    return support, labels, query, found, np.arange(75 + n_outside) >= 75


@pytest.mark.parametrize(("n_shot", "floor"), [(1, 0.68), (5, 0.76)])
def test_a_few_real_outliers_come_first(real, n_shot, floor):
    support, labels, query, found, outside = draw_real(real, n_shot=n_shot, n_outside=15)
    assert auroc(outlier_probabilities(support, labels, query, found.labels), outside) > floor


@pytest.mark.parametrize(("n_shot", "floor"), [(1, 0.71), (5, 0.79)])
def test_many_real_outliers_come_first(real, n_shot, floor):
    support, labels, query, found, outside = draw_real(real, n_shot=n_shot, n_outside=75)
    ours = auroc(outlier_probabilities(support, labels, query, found.labels), outside)
    assert ours > floor
    assert ours > auroc(1 - found.plan.amax(dim=-1), outside)
    distances = (query * query).sum(dim=-1) - similarities(
        query, class_means(support, labels, 5)
    ).amax(dim=-1)
    assert ours > auroc(distances, outside)


@pytest.mark.parametrize(("n_shot", "most"), [(1, 0.09), (5, 0.04)])
def test_where_all_queries_are_of_known_classes_few_alarms_are_raised(real, n_shot, most):
    support, labels, query, found, _ = draw_real(real, n_shot=n_shot, n_outside=0)
    assert (
        outlier_probabilities(support, labels, query, found.labels) >= 0.5
    ).double().mean() < most


@pytest.mark.parametrize("many", [15, 20])
def test_a_class_with_many_labels_makes_no_outliers_of_the_others(real, many):
    """All rows of one class are labelled, five of each other: few alarms, as with five of each."""
    rows = np.arange(8)[:, None] * CLASS_ROWS + np.arange(20)
    x = torch.tensor(real[rows].astype(np.float32))
    shown = torch.zeros(8, 20, dtype=torch.bool)
    shown[:, :5] = True
    shown[0, :many] = True
    labels = torch.arange(8)[:, None].expand(-1, 20)
    support, query = Pipeline.parse("power(0.5) | unit | center(support) | unit")(
        x[shown][None], x[~shown][None]
    )
    found = assign_map(
        support, labels[shown][None], query, n_way=8, lam="auto", prior="estimate"
    ).labels
    flagged = outlier_probabilities(support, labels[shown][None], query, found) >= 0.5
    assert flagged.double().mean() <= 0.05
