import numpy as np
import ot
import pytest
import torch
from scipy.optimize import linear_sum_assignment, minimize
from scipy.special import log_softmax, logsumexp, xlogy

from fewlabels.errors import InputError
from fewlabels.transport.solver import solve_transport


def draw_cost(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.tensor(np.random.default_rng(seed).uniform(0, 2, size=shape))


def draw_mass(*shape: int, total: float, seed: int = 0) -> torch.Tensor:
    mass = np.random.default_rng(seed).uniform(0.5, 2, size=shape)
    return torch.tensor(mass / mass.sum(axis=-1, keepdims=True) * total)


def plan_of_pot(
    cost: torch.Tensor, lam: float, rows: torch.Tensor, columns: torch.Tensor
) -> np.ndarray:
    total = float(rows.sum())
    a, b = rows.numpy() / total, columns.numpy() / total
    plan = ot.sinkhorn(
        a,
        b,
        cost.numpy(),
        1 / lam,
        method="sinkhorn_log",
        stopThr=1e-13,
        numItermax=20_000,
        warn=False,
    )
    np.testing.assert_allclose(
        plan.sum(axis=0), b, atol=1e-10, err_msg="the oracle itself did not converge"
    )
    return plan * total


def plan_of_dual_with_bounds(cost: np.ndarray, lam: float, minimum: np.ndarray) -> np.ndarray:
    """Minimise sum_i logsumexp_j(s_ij + g_j) - q . g over g >= 0."""
    scores = -lam * cost

    def dual(g: np.ndarray) -> tuple[float, np.ndarray]:
        return logsumexp(scores + g, axis=1).sum() - minimum @ g, np.exp(
            log_softmax(scores + g, axis=1)
        ).sum(axis=0) - minimum

    best = minimize(
        dual,
        np.zeros(len(minimum)),
        jac=True,
        bounds=[(0, None)] * len(minimum),
        method="L-BFGS-B",
        options={"ftol": 1e-16, "gtol": 1e-11},
    )
    return np.exp(log_softmax(scores + best.x, axis=1))


def plan_of_primal_with_bounds(cost: np.ndarray, lam: float, minimum: np.ndarray) -> np.ndarray:
    """Minimise <M, L> - H(M) / lam itself, over M."""
    shape = cost.shape

    def objective(m: np.ndarray) -> tuple[float, np.ndarray]:
        m = np.maximum(m, 1e-12)
        return float(m @ cost.ravel() + xlogy(m, m).sum() / lam), cost.ravel() + (
            1 + np.log(m)
        ) / lam

    constraints = [
        {"type": "eq", "fun": lambda m: m.reshape(shape).sum(axis=1) - 1},
        {"type": "ineq", "fun": lambda m: m.reshape(shape).sum(axis=0) - minimum},
    ]
    start = np.full(cost.size, 1 / shape[1])
    options = {"ftol": 1e-13, "maxiter": 1000}
    best = minimize(
        objective,
        start,
        jac=True,
        bounds=[(0, 1)] * cost.size,
        constraints=constraints,
        method="SLSQP",
        options=options,
    )
    assert best.success
    return best.x.reshape(shape)


# Equality: against POT.


@pytest.mark.parametrize("method", ["newton", "sinkhorn"])
@pytest.mark.parametrize("lam", [0.1, 1.0, 10.0])
@pytest.mark.parametrize("masses", ["equal", "given", "per row", "per episode"])
def test_plan_is_that_of_pot(method, lam, masses):
    cost = draw_cost(3, 14, 4)
    rows = (
        draw_mass(3, 14, total=14, seed=1)
        if masses in ("per row", "per episode")
        else torch.ones(3, 14).double()
    )
    columns = {
        "equal": torch.full((4,), 14 / 4).double(),
        "given": torch.tensor([1.0, 2.0, 3.0, 8.0]).double(),
        "per row": torch.tensor([5.0, 5.0, 3.5, 0.5]).double(),
        "per episode": draw_mass(3, 4, total=14, seed=2),
    }[masses]
    given = {} if masses == "equal" else {"row_mass": rows, "column_mass": columns}
    solved = solve_transport(cost, lam=lam, method=method, max_iterations=20_000, **given)
    assert solved.converged.all()
    for episode in range(3):
        expected = plan_of_pot(cost[episode], lam, rows[episode], columns.expand(3, 4)[episode])
        np.testing.assert_allclose(solved.plan[episode].numpy(), expected, atol=1e-6)


def test_masses_of_any_total_are_respected():
    cost, rows = draw_cost(1, 9, 3), draw_mass(9, total=0.02)
    solved = solve_transport(cost, lam=5.0, row_mass=rows)
    np.testing.assert_allclose(solved.plan.sum(dim=-1)[0].numpy(), rows.numpy(), rtol=1e-8)
    np.testing.assert_allclose(solved.plan.sum(dim=-2)[0].numpy(), np.full(3, 0.02 / 3), rtol=1e-8)


def test_adding_a_constant_to_a_row_or_a_column_of_the_cost_changes_nothing():
    cost = draw_cost(2, 10, 3)
    moved = cost + draw_cost(2, 10, 1, seed=1) * 100 + draw_cost(2, 1, 3, seed=2) * 10
    torch.testing.assert_close(
        solve_transport(cost, lam=10.0).plan,
        solve_transport(moved, lam=10.0).plan,
        atol=1e-8,
        rtol=0,
    )


# The limit of large lam: against the assignment problem.


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("per_class", [1, 3])
@pytest.mark.parametrize("lam", [500.0, 20_000.0])
def test_a_sharp_plan_costs_no_more_than_the_best_assignment_but_for_its_entropy(
    seed, per_class, lam
):
    n_way = 5
    cost = draw_cost(1, n_way * per_class, n_way, seed=seed)
    replicated = np.repeat(cost[0].numpy(), per_class, axis=1)
    rows, columns = linear_sum_assignment(replicated)
    solved = solve_transport(cost, lam=lam)
    assert solved.converged.all()
    excess = float((solved.plan * cost).sum()) - replicated[rows, columns].sum()
    assert -1e-6 <= excess <= len(rows) * np.log(n_way) / lam


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("per_class", [1, 3])
def test_a_sharp_plan_decides_as_the_best_assignment(seed, per_class):
    n_way = 5
    rng = np.random.default_rng(seed)
    cost = torch.tensor(
        rng.integers(0, 40, size=(1, n_way * per_class, n_way))
        + rng.uniform(0, 0.01, size=(1, n_way * per_class, n_way))
    )
    _, columns = linear_sum_assignment(np.repeat(cost[0].numpy(), per_class, axis=1))
    runner_up = cost_of_second_best(cost[0].numpy(), columns // per_class, per_class)
    best = cost[0].numpy()[np.arange(len(columns)), columns // per_class].sum()
    lam = 500.0 if runner_up - best > 0.1 else 50_000.0  # near-ties need a sharper plan
    solved = solve_transport(cost, lam=lam)
    assert solved.converged.all()
    np.testing.assert_array_equal(solved.plan[0].argmax(dim=-1).numpy(), columns // per_class)


def cost_of_second_best(cost: np.ndarray, best: np.ndarray, per_class: int) -> float:
    """Cost of the second-best assignment: the best of those that forbid one pair of the best."""
    costs = []
    for row, way in enumerate(best):
        forbidden = cost.copy()
        forbidden[row, way] = 1e6
        rows, columns = linear_sum_assignment(np.repeat(forbidden, per_class, axis=1))
        costs.append(forbidden[rows, columns // per_class].sum())
    return min(costs)


# Lower bounds: against two optimisers of scipy, one on either side of the duality.


@pytest.mark.parametrize("method", ["newton", "sinkhorn"])
@pytest.mark.parametrize(
    "minimum", [(6, 2, 1), (9, 0, 0), (0, 0, 0), (4, 4, 4), (1, 8, 3), (10, 1.5, 0.5)]
)
@pytest.mark.parametrize("lam", [1.0, 8.0])
def test_lower_bounds_solve_the_dual(method, minimum, lam):
    cost = draw_cost(4, 12, 3)
    minimum = torch.tensor(minimum, dtype=torch.float64)
    solved = solve_transport(
        cost, lam=lam, column_minimum=minimum, method=method, max_iterations=20_000
    )
    assert solved.converged.all()
    for episode in range(4):
        expected = plan_of_dual_with_bounds(cost[episode].numpy(), lam, minimum.numpy())
        np.testing.assert_allclose(solved.plan[episode].numpy(), expected, atol=1e-5)


@pytest.mark.parametrize("minimum", [(4, 2, 0), (0, 0, 6), (1, 1, 1)])
def test_lower_bounds_solve_the_primal(minimum):
    cost = draw_cost(1, 7, 3, seed=4)
    solved = solve_transport(
        cost, lam=3.0, column_minimum=torch.tensor(minimum, dtype=torch.float64)
    )
    expected = plan_of_primal_with_bounds(cost[0].numpy(), 3.0, np.array(minimum, dtype=np.float64))
    np.testing.assert_allclose(solved.plan[0].numpy(), expected, atol=1e-4)


@pytest.mark.parametrize("seed", range(4))
def test_lower_bounds_meet_the_kkt_conditions(seed):
    minimum = draw_mass(5, 4, total=15, seed=seed)
    solved = solve_transport(draw_cost(5, 20, 4, seed=seed), lam=10.0, column_minimum=minimum)
    surplus = solved.plan.sum(dim=-2) - minimum
    assert solved.converged.all()
    assert (solved.biases >= 0).all()
    assert surplus.min() > -1e-7
    assert (solved.biases * surplus).abs().max() < 1e-5
    np.testing.assert_allclose(solved.plan.sum(dim=-1).numpy(), 1, atol=1e-12)


def test_the_papers_30_and_30_of_100_raise_only_the_smaller_class():
    cost = draw_cost(2, 100, 2)
    cost[0, :, 1] += 0.8  # few of episode 0 like class 1, about half of episode 1
    free = torch.softmax(-10 * cost, dim=-1)
    assert free[0, :, 1].sum() < 30 < free[1].sum(dim=0).min()
    solved = solve_transport(cost, lam=10.0, column_minimum=torch.tensor([30.0, 30.0]))
    np.testing.assert_allclose(solved.plan[0].sum(dim=0).numpy(), [70, 30], atol=1e-6)
    torch.testing.assert_close(solved.plan[1], free[1], atol=1e-12, rtol=0)


def test_bounds_that_do_not_bind_leave_the_softmax_as_it_is():
    cost = draw_cost(3, 30, 4)
    solved = solve_transport(cost, lam=5.0, column_minimum=torch.tensor([1.0, 0.0, 2.0, 0.5]))
    np.testing.assert_allclose(
        solved.plan.numpy(), np.exp(log_softmax(-5 * cost.numpy(), axis=-1)), atol=1e-14
    )
    assert torch.equal(solved.biases, torch.zeros(3, 4).double())


def test_bounds_that_take_all_mass_are_the_equality():
    cost, mass = draw_cost(3, 12, 3), torch.tensor([2.0, 3.0, 7.0])
    least = solve_transport(cost, lam=8.0, column_minimum=mass)
    assert least.converged.all()
    torch.testing.assert_close(
        least.plan, solve_transport(cost, lam=8.0, column_mass=mass).plan, atol=1e-6, rtol=0
    )


# Edges.


@pytest.mark.parametrize("method", ["newton", "sinkhorn"])
@pytest.mark.parametrize("mass", [(0, 3, 5), (4, 0, 4), (0, 8, 0)])
def test_a_class_without_mass_gets_exactly_nothing(method, mass):
    cost = draw_cost(2, 8, 3)
    columns = torch.tensor(mass, dtype=torch.float64)
    solved = solve_transport(cost, lam=10.0, column_mass=columns, method=method)
    assert solved.converged.all()
    assert (solved.plan[..., columns == 0] == 0).all()
    assert (solved.biases[:, columns == 0] == -torch.inf).all()
    np.testing.assert_allclose(solved.plan.sum(dim=-2).numpy(), np.tile(mass, (2, 1)), atol=1e-7)


@pytest.mark.parametrize("method", ["newton", "sinkhorn"])
@pytest.mark.parametrize("shape", [(1, 1, 1), (2, 5, 1), (2, 1, 4)])
def test_one_sample_or_one_class_leaves_one_plan(method, shape):
    solved = solve_transport(draw_cost(*shape), lam=10.0, method=method)
    np.testing.assert_allclose(solved.plan.numpy(), np.full(shape, 1 / shape[-1]), atol=1e-9)


def test_newton_and_sinkhorn_agree_and_newton_is_shorter():
    cost = draw_cost(4, 40, 5)
    newton = solve_transport(cost, lam=20.0)
    sinkhorn = solve_transport(cost, lam=20.0, method="sinkhorn", max_iterations=20_000)
    assert sinkhorn.converged.all()
    torch.testing.assert_close(newton.plan, sinkhorn.plan, atol=1e-6, rtol=0)
    assert (newton.n_iterations < sinkhorn.n_iterations).all()


@pytest.mark.parametrize("gap", [0.5, 1.0, 1.5, 1.8, 2.0, 3.0])
def test_newton_stays_short_where_classes_are_well_apart_and_sizes_are_whole(gap):
    """The second derivative of the dual then nears 0 together with its gradient."""
    cost = torch.tensor(
        [[[0.0, gap], [0.0, gap + 0.2], [gap - 0.2, 0.0], [gap - 0.1, 0.0]]]
    ).double()
    solved = solve_transport(cost, lam=10.0)
    assert solved.converged.all()
    assert solved.n_iterations.max() <= 20


@pytest.mark.parametrize("method", ["newton", "sinkhorn"])
def test_float32_is_close_to_float64(method):
    cost = draw_cost(4, 40, 5)
    single = solve_transport(cost.float(), lam=10.0, method=method)
    assert single.plan.dtype == torch.float32
    assert single.converged.all()
    np.testing.assert_allclose(
        single.plan.numpy(), solve_transport(cost, lam=10.0).plan.numpy(), atol=2e-3
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("lam", [1e-6, 1e3, 1e6])
def test_extreme_lam_gives_a_finite_plan_with_its_marginals(dtype, lam):
    solved = solve_transport(draw_cost(3, 20, 4).to(dtype), lam=lam)
    assert solved.plan.isfinite().all()
    np.testing.assert_allclose(solved.plan.sum(dim=-1).numpy(), 1, atol=1e-5)
    assert (solved.error[solved.converged] <= 1e-5).all()


# Each episode on its own, and what is said about it.


@pytest.mark.parametrize("method", ["newton", "sinkhorn"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("bound", ["column_mass", "column_minimum"])
def test_an_episode_does_not_know_its_neighbours(method, dtype, bound):
    cost = (draw_cost(5, 11, 5) * torch.tensor([0.01, 0.3, 1, 5, 50]).double()[:, None, None]).to(
        dtype
    )  # easy to hard
    mass = draw_mass(5, 5, total=11 if bound == "column_mass" else 8).to(dtype)
    together = solve_transport(cost, lam=10.0, method=method, max_iterations=150, **{bound: mass})
    assert together.n_iterations.unique().numel() > 2, (
        "episodes must differ in difficulty for this test to mean anything"
    )
    for episode in range(5):
        alone = solve_transport(
            cost[episode : episode + 1],
            lam=10.0,
            method=method,
            max_iterations=150,
            **{bound: mass[episode]},
        )
        tolerance = 1e-3 if dtype == torch.float32 else 1e-6
        torch.testing.assert_close(alone.plan[0], together.plan[episode], rtol=0, atol=tolerance)
        assert alone.converged[0] == together.converged[episode]


@pytest.mark.parametrize("method", ["newton", "sinkhorn"])
def test_a_solver_cut_short_says_so(method):
    cost = torch.cat([draw_cost(1, 30, 5) * 20, torch.zeros(1, 30, 5).double()])  # hard, trivial
    cost[0, :, 0] -= 30
    solved = solve_transport(cost, lam=10.0, method=method, max_iterations=1)
    assert solved.converged.tolist() == [False, True]
    assert solved.n_iterations.tolist() == [1, 0]
    assert solved.error[0] > 1e-5


@pytest.mark.parametrize("bound", ["column_mass", "column_minimum"])
@pytest.mark.parametrize("max_iterations", [1, 3, 500])
def test_the_error_is_the_misplaced_share_of_the_mass(bound, max_iterations):
    cost = draw_cost(3, 30, 4)
    cost[..., 0] -= 1
    mass = torch.tensor([3.0, 6.0, 9.0, 12.0]).double() * (1 if bound == "column_mass" else 0.8)
    solved = solve_transport(
        cost, lam=4.0, max_iterations=max_iterations, method="sinkhorn", **{bound: mass}
    )
    missing = (mass - solved.plan.sum(dim=-2)).clamp_min(0).sum(
        dim=-1
    ) / 30  # what some lack others have too much
    if bound == "column_mass":
        torch.testing.assert_close(solved.error, missing, atol=1e-12, rtol=1e-6)
    else:
        assert (missing <= 2 * solved.error + 1e-12).all()
    assert torch.equal(solved.converged, solved.error <= 1e-10)


def test_a_looser_tolerance_stops_earlier():
    cost = draw_cost(3, 30, 4)
    loose, tight = (
        solve_transport(cost, lam=10.0, method="sinkhorn", tol=tol) for tol in (1e-2, 1e-8)
    )
    assert (loose.n_iterations < tight.n_iterations).all()
    assert (loose.error <= 1e-2).all()
    assert (tight.error <= 1e-8).all()


def test_inputs_are_left_alone():
    cost, rows, columns = draw_cost(2, 6, 3), draw_mass(2, 6, total=6), draw_mass(2, 3, total=6)
    before = [x.clone() for x in (cost, rows, columns)]
    first = solve_transport(cost, lam=10.0, row_mass=rows, column_mass=columns)
    second = solve_transport(cost, lam=10.0, row_mass=rows, column_mass=columns)
    assert all(torch.equal(x, y) for x, y in zip((cost, rows, columns), before, strict=True))
    assert torch.equal(first.plan, second.plan)


# Errors.


@pytest.mark.parametrize("lam", [0, -1.0, float("nan"), float("inf")])
def test_lam_must_be_positive_and_finite(lam):
    with pytest.raises(InputError, match=f"lam must be a positive, finite number, got {lam}"):
        solve_transport(draw_cost(1, 4, 2), lam=lam)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("episode", [0, 2])
def test_a_cost_that_is_not_finite_is_named_by_episode(bad, episode):
    cost = draw_cost(3, 4, 2)
    cost[episode, 1, 0] = bad
    with pytest.raises(
        InputError, match=f"cost must be finite, got NaN or infinity in episode {episode}"
    ):
        solve_transport(cost, lam=1.0)


@pytest.mark.parametrize("shape", [(4, 2), (0, 4, 2), (1, 0, 2), (1, 4, 0), (1, 1, 4, 2)])
def test_a_cost_of_another_shape_is_refused(shape):
    with pytest.raises(InputError, match="cost must have shape"):
        solve_transport(torch.zeros(shape), lam=1.0)


@pytest.mark.parametrize(
    ("masses", "words"),
    [
        ({"column_mass": [1.0, 2.0]}, "must sum to 4, the mass of the samples, got 3"),
        ({"column_mass": [2.5, 2.5]}, "must sum to 4"),
        ({"column_mass": [-1.0, 5.0]}, "not negative"),
        ({"column_mass": [float("nan"), 2.0]}, "finite"),
        ({"column_minimum": [3.0, 2.0]}, "must sum to at most 4, got 5"),
        ({"column_minimum": [-1.0, 2.0]}, "not negative"),
        ({"column_minimum": [float("inf"), 2.0]}, "finite"),
        ({"row_mass": [1.0, 1.0, 0.0, 1.0]}, "row_mass must be positive"),
        ({"row_mass": [1.0, 1.0, -2.0, 1.0]}, "row_mass must be positive"),
        ({"row_mass": [1.0, 1.0, float("nan"), 1.0]}, "row_mass must be positive"),
        (
            {"column_mass": [2.0, 2.0], "column_minimum": [1.0, 1.0]},
            "column_mass or column_minimum, not both",
        ),
    ],
)
def test_masses_that_make_no_sense_are_refused(masses, words):
    with pytest.raises(InputError, match=words):
        solve_transport(
            draw_cost(3, 4, 2),
            lam=1.0,
            **{name: torch.tensor(mass) for name, mass in masses.items()},
        )


@pytest.mark.parametrize("name", ["row_mass", "column_mass", "column_minimum"])
def test_masses_of_another_length_are_refused(name):
    with pytest.raises(InputError, match=f"{name}|masses"):
        solve_transport(draw_cost(1, 4, 2), lam=1.0, **{name: torch.full((3,), 4 / 3)})


def test_an_unknown_method_is_named_beside_the_choices():
    with pytest.raises(InputError, match="method must be one of newton, sinkhorn, got 'greedy'"):
        solve_transport(draw_cost(1, 4, 2), lam=1.0, method="greedy")
