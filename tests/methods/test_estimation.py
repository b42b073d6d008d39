"""Estimated class sizes: equal classes keep PT-MAP's answer, unequal ones are found."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from fewlabels.errors import InputError
from fewlabels.methods.estimation import estimate_lam, free_plan
from fewlabels.methods.map import assign_map
from fewlabels.preprocess import Pipeline, smoothing
from fewlabels.preprocess.smoothing import (
    SMOOTHING,
    Smoothing,
    append_neighbor_means,
    find_neighborhood,
    plan_smoothing,
)


def centered(episodes):
    support, query = Pipeline.parse("unit | center(support) | unit")(
        episodes.support, episodes.query
    )
    return support, episodes.support_labels, query


def accuracy(assignment, episodes):
    return float((assignment.labels == episodes.query_labels).double().mean())


def test_uneven_classes_are_found(draw_episodes):
    counts = (40, 8, 2)
    episodes = draw_episodes(n_episodes=20, n_shot=(3, 3, 3), n_query=counts, spread=0.9, dim=16)
    found = assign_map(*centered(episodes), n_way=3, lam="auto", prior="estimate")
    equal = assign_map(*centered(episodes), n_way=3)
    assert accuracy(found, episodes) > accuracy(equal, episodes) + 0.2
    np.testing.assert_allclose(
        found.proportions.mean(dim=0).numpy(), np.array(counts) / 50, atol=0.06
    )
    assert (found.certainty > 0.9).double().mean() > 0.9
    truth = np.abs(np.array(counts) / 50 - 1 / 3).sum() / 2
    np.testing.assert_allclose(found.imbalance.mean().item(), truth, atol=0.08)


def test_even_classes_keep_the_answer_of_equal_sizes(draw_episodes):
    episodes = draw_episodes(
        n_episodes=20, n_shot=(3, 3, 3), n_query=(15, 15, 15), spread=0.9, dim=16
    )
    found = assign_map(*centered(episodes), n_way=3, prior="estimate")
    equal = assign_map(*centered(episodes), n_way=3)
    assert (found.certainty < 0.1).double().mean() > 0.9
    assert (found.labels == equal.labels).double().mean() > 0.99


def test_absent_classes_get_almost_nothing(draw_episodes):
    episodes = draw_episodes(
        n_episodes=20, n_shot=(5, 5, 5, 5), n_query=(20, 20, 0, 0), spread=0.8, dim=16
    )
    found = assign_map(*centered(episodes), n_way=4, lam="auto", prior="estimate")
    assert accuracy(found, episodes) > 0.95
    assert found.proportions[:, 2:].sum(dim=-1).mean() < 0.06


def test_rows_of_the_plan_are_shares(draw_episodes):
    found = assign_map(*centered(draw_episodes()), n_way=3, lam="auto", prior="estimate")
    assert (found.plan >= 0).all()
    np.testing.assert_allclose(found.plan.sum(dim=-1).numpy(), 1, rtol=1e-9)
    assert ((found.certainty >= 0) & (found.certainty <= 1)).all()
    assert (found.plan.argmax(dim=-1) == found.labels).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("lam", [10.0, "auto"])
def test_an_episode_is_answered_in_a_batch_as_alone(draw_episodes, dtype, lam):
    inputs = centered(draw_episodes(n_episodes=4, n_shot=(1, 2, 3), n_query=(9, 4, 1), dtype=dtype))
    together = assign_map(*inputs, n_way=3, lam=lam, prior="estimate")
    for episode in range(4):
        alone = assign_map(
            *(x[episode : episode + 1] for x in inputs), n_way=3, lam=lam, prior="estimate"
        )
        top = together.plan[episode].topk(2).values
        clear = top[:, 0] - top[:, 1] > 1e-4
        assert torch.equal(alone.labels[0][clear], together.labels[episode][clear])
        np.testing.assert_allclose(
            alone.plan[0].numpy(),
            together.plan[episode].numpy(),
            atol=1e-4 if dtype == torch.float32 else 1e-9,
        )


def test_the_order_of_classes_and_queries_changes_nothing(draw_episodes):
    support, labels, query = centered(draw_episodes(n_shot=(2, 2, 2), n_query=(12, 5, 1)))
    found = assign_map(support, labels, query, n_way=3, lam="auto", prior="estimate")
    turned = assign_map(
        support, (labels + 1) % 3, query.flip(1), n_way=3, lam="auto", prior="estimate"
    )
    assert torch.equal((found.labels + 1) % 3, turned.labels.flip(1))
    np.testing.assert_allclose(found.certainty.numpy(), turned.certainty.numpy(), atol=1e-9)


def test_with_fewer_queries_than_classes_no_sizes_are_imposed(draw_episodes):
    inputs = centered(draw_episodes(n_query=(1, 1, 0)))
    found = assign_map(*inputs, n_way=3, prior="estimate")
    free = assign_map(*inputs, n_way=3, prior="free")
    np.testing.assert_allclose(found.plan.numpy(), free.plan.numpy(), atol=1e-9)
    assert not found.certainty.any()


@pytest.mark.parametrize("value", [0.0, 1.0])
@pytest.mark.parametrize("lam", [10.0, "auto"])
def test_constant_features_give_shares_and_no_nan(value, lam):
    support, query, labels = (
        torch.full((1, 6, 4), value),
        torch.full((1, 9, 4), value),
        torch.tensor([[0, 0, 1, 1, 2, 2]]),
    )
    support, query = Pipeline.parse("center(support) | unit").apply(support, query)
    found = assign_map(support, labels, query, n_way=3, lam=lam, prior="estimate")
    for part in (found.plan, found.prototypes, found.lam, found.certainty):
        assert part.isfinite().all()


def test_identical_queries_go_to_one_class(draw_episodes):
    support, labels, query = centered(
        draw_episodes(n_shot=(3, 3, 3), n_query=(10, 0, 0), spread=0.2)
    )
    found = assign_map(
        support,
        labels,
        query[:, :1].expand(-1, 10, -1),
        n_way=3,
        lam="auto",
        prior="estimate",
    )
    assert (found.labels == found.labels[:, :1]).all()
    assert found.plan.isfinite().all()


def test_two_ways_and_one_shot(draw_episodes):
    episodes = draw_episodes(n_episodes=10, n_shot=(1, 1), n_query=(28, 4), spread=0.5)
    found = assign_map(*centered(episodes), n_way=2, lam="auto", prior="estimate")
    assert accuracy(found, episodes) > 0.9


def test_lam_grows_with_the_separation_of_the_classes(draw_episodes):
    sharp, blurred = (
        estimate_lam(
            *centered(
                draw_episodes(n_episodes=10, n_shot=(5, 5, 5), n_query=(20, 20, 20), spread=s)
            ),
            n_way=3,
            alpha=0.2,
        )
        for s in (0.4, 1.2)
    )
    assert sharp.median() > 1.5 * blurred.median()
    assert ((sharp > 1) & (sharp < 100)).all()


@pytest.mark.parametrize("prior", ["uniform", "free", [10, 5, 3]])
def test_lam_may_be_estimated_for_any_class_sizes(draw_episodes, prior):
    inputs = centered(draw_episodes(n_query=(6, 6, 6)))
    found = assign_map(*inputs, n_way=3, lam="auto", prior=prior)
    for episode in range(3):
        told = assign_map(
            *(x[episode : episode + 1] for x in inputs),
            n_way=3,
            lam=float(found.lam[episode]),
            prior=prior,
        )
        assert torch.equal(told.labels[0], found.labels[episode])


def test_an_unknown_word_for_lam_is_refused(draw_episodes):
    with pytest.raises(InputError, match="lam must be a number or 'auto', got 'warm'"):
        assign_map(*draw_episodes().inputs, n_way=3, lam="warm")


@pytest.mark.parametrize(
    ("prior", "said"),
    [
        ([10, 5, 4], "must sum to 18.*or to 1.*got 19"),
        ([10, 5, 1], "must sum to 18.*got 16"),
        ([0.5, 0.7, -0.2], "not be negative"),
        ([0.5, float("nan"), 0.5], "not be negative nor infinite"),
    ],
)
def test_sizes_that_cannot_be_are_refused_in_numbers(draw_episodes, prior, said):
    with pytest.raises(InputError, match=said):
        assign_map(*draw_episodes(n_query=(6, 6, 6)).inputs, n_way=3, prior=prior)


def test_smoothing_keeps_norms_and_brings_classes_together(draw_episodes):
    support, _, query = centered(
        draw_episodes(n_shot=(1, 1, 1), n_query=(12, 12, 12), spread=1.0, dim=32)
    )
    _wide_support, wide_query = append_neighbor_means(support, query, n_way=3)
    np.testing.assert_allclose(wide_query.norm(dim=-1).numpy(), 1, rtol=1e-9)
    spread, wide_spread = (float((1 - x @ x.mT).mean()) for x in (query, wide_query))
    assert wide_spread < spread


def test_who_is_smoothed_and_how():
    assert plan_smoothing(2, 1, 2) is None
    assert plan_smoothing(400, SMOOTHING.dense_rows, 400) == Smoothing(20, 1.0)
    assert plan_smoothing(25, 75, 5) == Smoothing(20, pytest.approx(0.2))
    assert plan_smoothing(5, 75, 5).neighbors == 16


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-9), (torch.float32, 2e-5)])
def test_large_episodes_are_smoothed_like_small_ones(draw_episodes, monkeypatch, dtype, tolerance):
    support, _, query = centered(
        draw_episodes(n_episodes=2, n_shot=(2, 2, 2), n_query=(80, 50, 30), spread=1.0, dim=12)
    )
    exact = torch.cat(append_neighbor_means(support, query, n_way=3), dim=1)
    # The sample is all rows, as they are fewer than its size.
    monkeypatch.setattr(smoothing, "SMOOTHING", replace(SMOOTHING, dense_rows=100))
    sparse = torch.cat(append_neighbor_means(support.to(dtype), query.to(dtype), n_way=3), dim=1)
    assert sparse.dtype == dtype
    np.testing.assert_allclose(
        (sparse @ sparse.mT).numpy(), (exact @ exact.mT).numpy(), atol=tolerance
    )


def test_a_sample_of_the_rows_shows_nearly_the_same_differences(draw_episodes, monkeypatch):
    support, _, query = centered(
        draw_episodes(n_shot=(2, 2), n_query=(600, 300), spread=1.0, dim=12)
    )
    exact = torch.cat(append_neighbor_means(support, query, n_way=2), dim=1)
    fewer = replace(SMOOTHING, dense_rows=100, sampled_rows=300)
    monkeypatch.setattr(smoothing, "SMOOTHING", fewer)
    sampled = torch.cat(append_neighbor_means(support, query, n_way=2), dim=1)
    assert (sampled @ sampled.mT - exact @ exact.mT).abs().mean() < 0.02


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-9), (torch.float32, 2e-5)])
def test_the_order_of_the_rows_of_a_large_episode_does_not_matter(
    draw_episodes, monkeypatch, dtype, tolerance
):
    monkeypatch.setattr(smoothing, "SMOOTHING", replace(SMOOTHING, sampled_rows=40))
    episodes = draw_episodes(n_episodes=2, n_shot=(1, 1), n_query=(90, 50), spread=1.0, dim=12)
    x = torch.nn.functional.normalize(episodes.query, dim=-1).to(dtype)
    generator = torch.Generator().manual_seed(0)
    order = torch.stack([torch.randperm(140, generator=generator) for _ in range(2)])[..., None]
    straight = find_neighborhood(x).join(weight=0.5)
    turned = find_neighborhood(x.take_along_dim(order, dim=1)).join(weight=0.5)
    expected = straight.take_along_dim(order, dim=1)
    np.testing.assert_allclose(turned.numpy(), expected.numpy(), atol=tolerance)


def test_uneven_classes_of_a_large_episode_are_found(draw_episodes):
    episodes = draw_episodes(n_shot=(1, 1, 1), n_query=(900, 150, 60), spread=1.1, dim=16)
    found = assign_map(*centered(episodes), n_way=3, lam="auto", prior="estimate")
    alone = assign_map(
        *centered(episodes),
        n_way=3,
        lam="auto",
        prior="estimate",
        neighborhood=centered(episodes)[::2],
    )
    assert accuracy(found, episodes) > accuracy(alone, episodes)


def test_what_varies_within_classes_counts_less():
    # Classes differ in the first feature alone; nearest rows differ more, in the third.
    rng = np.random.default_rng(0)
    labels = torch.arange(60) % 2
    rows = torch.zeros(1, 60, 3, dtype=torch.float64)
    rows[0, :, 0] = 0.3 * (2 * labels - 1)
    rows[0, :, 1] = 1
    rows[0, :, 2] = torch.as_tensor(rng.uniform(-1, 1, 60))
    rows = rows / rows.norm(dim=-1, keepdim=True)
    support, query = append_neighbor_means(rows[:, :2], rows[:, 2:], n_way=2)
    wide = torch.cat([support, query], dim=1)[0]
    of_one_class = labels[:, None] == labels

    def separation(x):
        cosines = x @ x.T
        return float(
            (cosines[of_one_class].mean() - cosines[~of_one_class].mean())
            / (1 - cosines[of_one_class].mean())
        )

    assert separation(wide) > 1.5 * separation(rows[0])


def test_a_label_of_an_absent_class_draws_no_neighbours():
    rng = np.random.default_rng(1)
    near = torch.as_tensor(rng.normal(size=(1, 40, 20)))
    near[..., 0] += 8
    lone = torch.as_tensor(rng.normal(size=(1, 1, 20)))
    rows = torch.cat([near[:, :1], lone, near[:, 1:]], dim=1)
    rows = rows / rows.norm(dim=-1, keepdim=True)
    support, query = append_neighbor_means(rows[:, :2], rows[:, 2:], n_way=2)
    assert float((support[0, 1] @ query[0].T).max()) < 0.7
    assert (
        float((support[0, 1] @ query[0].T).mean()) < 0.3
    )  # 0.13; 0.50 where its differences count like any other's
    assert float((support[0, 0] @ query[0].T).min()) > 0.8


@pytest.mark.parametrize("kind", ["one point", "zeros", "few features"])
def test_smoothing_is_finite_on_degenerate_rows(kind):
    rows = {
        "one point": torch.full((2, 30, 40), 40**-0.5, dtype=torch.float64),
        "zeros": torch.zeros(2, 30, 40, dtype=torch.float64),
        "few features": torch.nn.functional.normalize(
            torch.arange(120.0).reshape(2, 30, 2).double() - 55, dim=-1
        ),
    }[kind]
    for exact in (True, False):
        wide = torch.cat(
            append_neighbor_means(
                *(x if exact else x.float() for x in (rows[:, :4], rows[:, 4:])), n_way=2
            ),
            dim=1,
        )
        assert wide.isfinite().all()
        assert wide.dtype == (torch.float64 if exact else torch.float32)


def test_free_plan_leave_a_query_out_of_its_own_prototype():
    # One query, one class each: with its own share left in, a query would pull its class to itself.
    support = torch.tensor([[[1.0, 0.0], [-1.0, 0.0]]], dtype=torch.float64)
    query = torch.tensor([[[0.0, 1.0], [0.0, 1.0]]], dtype=torch.float64)
    shares = free_plan(
        support,
        torch.eye(2, dtype=torch.float64)[None],
        query,
        lam=torch.tensor([10.0]).double(),
        alpha=0.4,
    )
    np.testing.assert_allclose(shares.numpy(), 0.5, atol=1e-9)
