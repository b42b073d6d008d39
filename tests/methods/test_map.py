from functools import partial

import numpy as np
import ot
import pytest
import torch
from scipy.optimize import minimize
from scipy.special import log_softmax, logsumexp, softmax

from fewlabels.errors import InputError
from fewlabels.methods.map import assign_map, assign_soft_kmeans
from fewlabels.methods.nearest import assign_nearest
from fewlabels.transport.prior import AtLeast

SETTINGS = [
    {"lam": 10.0, "alpha": 0.4, "n_steps": 6},
    {"lam": 10.0, "alpha": 0.2, "n_steps": 8},
    {"lam": 3.0, "alpha": 1.0, "n_steps": 3},
]


def assert_same_decisions(labels: torch.Tensor, plan: np.ndarray, *, margin: float = 1e-4) -> None:
    """Labels are the plan's largest entries wherever the plan is not nearly tied."""
    top = np.sort(plan, axis=-1)
    clear = top[..., -1] - top[..., -2] > margin
    assert clear.mean() > 0.9
    np.testing.assert_array_equal(labels.numpy()[clear], plan.argmax(axis=-1)[clear])


# The oracles below are alternating scalings. They need very many iterations where classes are far
# apart and sizes are whole numbers, so sizes here are not whole; test_solver and the golden answers
# have whole ones.


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("n_shot", [(1, 1, 1), (1, 3, 2), (2, 1)])
@pytest.mark.parametrize("sizes", ["uniform", "counts", "fractions", "per episode"])
def test_answers_are_those_of_algorithm_1(
    draw_episodes, map_by_the_letter, sinkhorn, setting, n_shot, sizes
):
    n_way = len(n_shot)
    n_query = {3: (7, 6, 4), 2: (7, 4)}[n_way]
    counts = torch.tensor({3: [8.6, 5.7, 2.7], 2: [7.4, 3.6]}[n_way], dtype=torch.float64)
    prior = {
        "uniform": "uniform",
        "counts": counts.tolist(),
        "fractions": (counts / sum(n_query)).tolist(),
        "per episode": torch.stack([counts.roll(shift) for shift in range(3)]),
    }[sizes]
    mass = {
        "uniform": torch.full_like(counts, sum(n_query) / n_way),
        "per episode": prior,
    }.get(sizes, counts)
    episodes = draw_episodes(n_shot=n_shot, n_query=n_query, spread=1.2)
    got = assign_map(*episodes.inputs, n_way=n_way, prior=prior, **setting)
    assert got.converged.all()
    for episode, episode_mass in enumerate(np.broadcast_to(mass, (3, n_way))):
        solve = partial(sinkhorn, lam=setting["lam"], column_mass=episode_mass)
        expected = map_by_the_letter(*episodes.numpy(episode), n_way=n_way, solve=solve, **setting)
        np.testing.assert_allclose(got.plan[episode].numpy(), expected, atol=1e-6)
        assert_same_decisions(got.labels[episode], expected)


def test_answers_are_those_of_algorithm_1_with_the_sinkhorn_of_pot(
    draw_episodes, map_by_the_letter
):
    episodes = draw_episodes(n_episodes=1, n_shot=(1,) * 4, n_query=(5, 5, 4, 4), spread=1.5)
    setting = {"lam": 4.0, "alpha": 0.4, "n_steps": 3}

    def solve(cost: np.ndarray) -> np.ndarray:
        options = {"method": "sinkhorn_log", "stopThr": 1e-12, "numItermax": 5_000, "warn": False}
        return 18 * ot.sinkhorn(np.full(18, 1 / 18), np.full(4, 1 / 4), cost, 1 / 4, **options)

    expected = map_by_the_letter(*episodes.numpy(0), n_way=4, solve=solve, **setting)
    np.testing.assert_allclose(
        assign_map(*episodes.inputs, n_way=4, **setting).plan[0].numpy(), expected, atol=1e-6
    )


@pytest.mark.parametrize("setting", SETTINGS)
def test_free_sizes_are_algorithm_1_with_a_softmax(draw_episodes, map_by_the_letter, setting):
    episodes = draw_episodes(n_shot=(1, 3, 2), n_query=(10, 2, 6), spread=0.6)
    got = assign_map(*episodes.inputs, n_way=3, prior="free", **setting)
    for episode in range(3):
        expected = map_by_the_letter(
            *episodes.numpy(episode),
            n_way=3,
            solve=lambda cost: softmax(-setting["lam"] * cost, axis=1),
            **setting,
        )
        np.testing.assert_allclose(got.plan[episode].numpy(), expected, atol=1e-9)
    assert (got.biases == 0).all()


@pytest.mark.parametrize("least", [(9, 4, 1), (0, 0, 12), (6, 6, 6)])
def test_least_sizes_are_algorithm_1_with_bounds(draw_episodes, map_by_the_letter, least):
    episodes = draw_episodes(n_shot=(1, 3, 2), n_query=(10, 2, 6), spread=0.6)
    setting = {"lam": 5.0, "alpha": 0.4, "n_steps": 4}
    got = assign_map(*episodes.inputs, n_way=3, prior=AtLeast(least), **setting)
    assert got.converged.all()

    def solve(cost: np.ndarray) -> np.ndarray:
        scores, q = -5.0 * cost, np.array(least, dtype=np.float64)

        def dual(g: np.ndarray) -> tuple[float, np.ndarray]:
            return logsumexp(scores + g, axis=1).sum() - q @ g, np.exp(
                log_softmax(scores + g, axis=1)
            ).sum(axis=0) - q

        best = minimize(
            dual,
            np.zeros(3),
            jac=True,
            bounds=[(0, None)] * 3,
            method="L-BFGS-B",
            options={"ftol": 1e-16, "gtol": 1e-10},
        )
        return np.exp(log_softmax(scores + best.x, axis=1))

    for episode in range(3):
        expected = map_by_the_letter(*episodes.numpy(episode), n_way=3, solve=solve, **setting)
        np.testing.assert_allclose(got.plan[episode].numpy(), expected, atol=1e-5)


def test_soft_kmeans_is_map_with_free_sizes(draw_episodes):
    episodes = draw_episodes(spread=1.0)
    soft = assign_soft_kmeans(*episodes.inputs, n_way=3, lam=7.0, alpha=0.3, n_steps=5)
    free = assign_map(*episodes.inputs, n_way=3, lam=7.0, alpha=0.3, n_steps=5, prior="free")
    for field in free._fields[:-1]:  # no labels were hidden
        assert torch.equal(getattr(soft, field), getattr(free, field)), field


def test_no_steps_decide_from_the_support_means(draw_episodes, sinkhorn):
    episodes = draw_episodes(n_shot=(1, 3, 2), n_query=(6, 6, 5), spread=1.2)
    got = assign_map(*episodes.inputs, n_way=3, n_steps=0)
    torch.testing.assert_close(got.prototypes, assign_nearest(*episodes.inputs, n_way=3).prototypes)
    for episode in range(3):
        support, labels, query = episodes.numpy(episode)
        means = np.stack([support[labels == way].mean(axis=0) for way in range(3)])
        expected = sinkhorn(((query[:, None] - means) ** 2).sum(axis=-1), 10.0, np.full(3, 17 / 3))
        np.testing.assert_allclose(got.plan[episode].numpy(), expected, atol=1e-8)


def test_no_steps_and_free_sizes_decide_as_nearest_means(draw_episodes):
    episodes = draw_episodes(n_shot=(1, 3, 2), spread=2.0)
    got = assign_map(*episodes.inputs, n_way=3, n_steps=0, prior="free")
    assert torch.equal(got.labels, assign_nearest(*episodes.inputs, n_way=3).labels)


def test_true_counts_help_and_wrong_balance_hurts(draw_episodes):
    episodes = draw_episodes(
        n_episodes=20, n_shot=(1,) * 3, n_query=(40, 10, 4), spread=1.2, dim=16, dtype=torch.float32
    )

    def accuracy(prior) -> float:
        return float(
            (assign_map(*episodes.inputs, n_way=3, prior=prior).labels == episodes.query_labels)
            .double()
            .mean()
        )

    assert accuracy([40, 10, 4]) > accuracy("free") + 0.02
    assert accuracy("free") > accuracy("uniform") + 0.02


def test_balanced_queries_are_told_apart_better_than_by_nearest_means(draw_episodes):
    episodes = draw_episodes(
        n_episodes=20, n_shot=(1,) * 5, n_query=(15,) * 5, spread=1.0, dim=16, dtype=torch.float32
    )
    ours = (assign_map(*episodes.inputs, n_way=5).labels == episodes.query_labels).double().mean()
    nearest = (
        (assign_nearest(*episodes.inputs, n_way=5).labels == episodes.query_labels).double().mean()
    )
    assert ours > nearest + 0.05


def test_float32_is_close_to_float64(draw_episodes):
    double = draw_episodes(n_episodes=10, n_shot=(1,) * 5, n_query=(15,) * 5, spread=0.8)
    single = draw_episodes(
        n_episodes=10, n_shot=(1,) * 5, n_query=(15,) * 5, spread=0.8, dtype=torch.float32
    )
    expected, got = (assign_map(*episodes.inputs, n_way=5) for episodes in (double, single))
    assert got.plan.dtype == torch.float32
    assert got.converged.all()
    assert (got.plan - expected.plan).abs().max() < 5e-3
    assert_same_decisions(got.labels, expected.plan.numpy(), margin=1e-2)


def test_the_biases_explain_the_plan(draw_episodes):
    episodes = draw_episodes(spread=0.8)
    got = assign_map(*episodes.inputs, n_way=3, lam=8.0, prior=[9, 6, 3])
    scores = (
        -8 * ((episodes.query[:, :, None] - got.prototypes[:, None]) ** 2).sum(dim=-1)
        + got.biases[:, None]
    )
    np.testing.assert_allclose(got.plan.numpy(), softmax(scores.numpy(), axis=-1), atol=1e-10)


@pytest.mark.parametrize("prior", ["uniform", (9, 6, 3), (0.5, 0.25, 0.25), (18, 0, 0)])
def test_the_plan_has_its_marginals(draw_episodes, prior):
    episodes = draw_episodes(spread=0.8)
    got = assign_map(*episodes.inputs, n_way=3, prior=prior)
    fractions = np.full(3, 1 / 3) if prior == "uniform" else np.array(prior) / np.sum(prior)
    np.testing.assert_allclose(got.plan.sum(dim=-1).numpy(), 1, atol=1e-12)
    np.testing.assert_allclose(got.proportions.numpy(), np.tile(fractions, (3, 1)), atol=1e-9)


def test_one_class_takes_all_queries(draw_episodes):
    episodes = draw_episodes(n_shot=(3,), n_query=(7,))
    got = assign_map(*episodes.inputs, n_way=1)
    assert (got.labels == 0).all()
    np.testing.assert_allclose(got.plan.numpy(), 1)


# Errors.


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ({"alpha": 0.0}, r"alpha must be a number above 0 and up to 1, got 0\.0\. The paper uses"),
        ({"alpha": 1.5}, "alpha must be a number above 0 and up to 1, got 1.5"),
        ({"alpha": -0.1}, "alpha must be a number above 0 and up to 1"),
        ({"alpha": float("nan")}, "alpha must be a number above 0 and up to 1, got nan"),
        ({"n_steps": -1}, "n_steps must be a whole number of at least 0, got -1"),
        ({"lam": 0.0}, "lam must be a number above 0, got 0.0"),
        ({"lam": float("nan")}, "lam must be a number above 0, got nan"),
        ({"prior": "balanced"}, "prior must be one of uniform, .*got 'balanced'"),
        ({"prior": [1.0, 2.0]}, "one number for each of the 3 classes, got 2"),
        ({"prior": torch.full((4, 3), 6.0)}, "one row of sizes for all 3 episodes or for each of"),
        ({"prior": [6, 6, 7]}, "must sum to 18.*got 19"),
        ({"prior": [0.5, 0.25, 0.15]}, "must sum to 18"),
        ({"prior": [20, -2, 0]}, "must not be negative"),
        ({"prior": [float("nan"), 9, 9]}, "must not be negative nor infinite"),
        ({"prior": AtLeast([10, 10, 0])}, "must sum to at most 18, got 20"),
        ({"prior": AtLeast([1, 1])}, "one number for each of the 3 classes"),
        ({"prior": ["a", "b", "c"]}, "prior must hold one number per class"),
        ({"prior": None}, "prior must hold one number per class"),
    ],
)
def test_settings_that_make_no_sense_are_refused(draw_episodes, setting, words):
    with pytest.raises(InputError, match=words):
        assign_map(*draw_episodes().inputs, n_way=3, **setting)
