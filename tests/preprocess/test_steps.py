import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.preprocessing import normalize

from fewlabels.errors import InputError
from fewlabels.preprocess import POWER_EPS, Pipeline, Step, power, unit
from fewlabels.preprocess.steps import SHRUNK, WITH_OUTSIDE

center = Pipeline.parse("center").apply
center_jointly = Pipeline.parse("center(joint)").apply


def power_in_numpy(x: torch.Tensor, beta: float) -> np.ndarray:
    shifted = x.double().numpy() + 1e-6
    return np.log(shifted) if beta == 0 else shifted**beta


@pytest.mark.parametrize("beta", [-10, -2, -0.5, -1e-3, 0, 1e-3, 0.3, 0.5, 0.9, 1, 1.5, 2, 10])
@pytest.mark.parametrize(("dtype", "rtol"), [(torch.float64, 1e-11), (torch.float32, 2e-5)])
def test_power_is_the_formula_of_equation_1(draw_features, beta, dtype, rtol):
    x = draw_features(7, 19, dtype=dtype).clamp_min(1e-3)  # away from eps, which float32 rounds
    np.testing.assert_allclose(
        power(x, beta=beta).double().numpy(), power_in_numpy(x, beta), rtol=rtol, atol=rtol
    )


@pytest.mark.parametrize("beta", [-3, -1, 0, 0.25, 0.5, 1, 2])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_power_of_an_exact_zero_is_that_of_eps(beta, dtype):
    expected = math.log(1e-6) if beta == 0 else 1e-6**beta
    np.testing.assert_allclose(
        power(torch.zeros(3, dtype=dtype), beta=beta).double().numpy(),
        np.full(3, expected),
        rtol=1e-5,
    )


def test_power_eps_is_the_one_of_the_authors():
    assert POWER_EPS == 1e-6


@pytest.mark.parametrize("beta", [-1.0, 0.0, 0.3, 0.5, 1.0])
def test_power_keeps_shape_and_dtype_and_leaves_its_input_alone(draw_features, beta):
    x = draw_features(2, 3, 4, 5, dtype=torch.float32)
    before = x.clone()
    y = power(x, beta=beta)
    assert y.shape == x.shape
    assert y.dtype == torch.float32
    assert torch.equal(x, before)


@pytest.mark.parametrize("beta", [-1, 0, 0.5, 2])
def test_power_refuses_negative_features_and_names_a_way_out(beta):
    rule = rf"features must not be negative for beta = {beta:g}, got .*-0\.25"
    with pytest.raises(InputError, match=rf"{rule}.*unit \| center \| unit"):
        power(torch.tensor([[1.0, -0.25, 3.0]]), beta=beta)


def test_power_1_takes_signed_features():
    x = torch.tensor([[-2.0, 3.0]], dtype=torch.float64)
    np.testing.assert_allclose(power(x, beta=1).numpy(), [[-2 + 1e-6, 3 + 1e-6]], rtol=1e-14)


@pytest.mark.parametrize("beta", [math.nan, math.inf, -math.inf, 10.5, -11])
def test_power_refuses_a_beta_without_sense(beta):
    with pytest.raises(InputError, match=rf"beta must be a number from -10 to 10, got {beta}"):
        power(torch.ones(2), beta=beta)


@pytest.mark.parametrize(("dtype", "rtol"), [(torch.float64, 1e-14), (torch.float32, 1e-6)])
def test_unit_is_the_l2_normalisation_of_scikit_learn(draw_features, dtype, rtol):
    x = draw_features(11, 8, dtype=dtype) - 0.5
    np.testing.assert_allclose(unit(x).numpy(), normalize(x.double().numpy()), rtol=rtol, atol=rtol)


@pytest.mark.parametrize("scale", [1e-30, 1e-18, 1e18, 1e30])
def test_unit_gives_norm_1_at_any_scale_that_the_dtype_holds(scale):
    x = torch.tensor([[3.0, 4.0]]) * scale
    torch.testing.assert_close(unit(x), torch.tensor([[0.6, 0.8]]))


def test_unit_leaves_a_zero_vector_zero_and_its_input_alone():
    x = torch.tensor([[0.0, 0.0], [3.0, 4.0]])
    before = x.clone()
    assert torch.equal(unit(x)[0], torch.zeros(2))
    assert torch.equal(x, before)


def test_center_subtracts_from_each_side_its_own_mean(draw_features):
    support, query = draw_features(2, 5, 6), draw_features(2, 9, 6, seed=1)
    for side, centered in zip((support, query), center(support, query), strict=True):
        np.testing.assert_allclose(
            centered.numpy(), side.numpy() - side.numpy().mean(axis=1, keepdims=True), atol=1e-14
        )


def test_center_jointly_subtracts_the_mean_of_all_rows_from_both_sides(draw_features):
    support, query = draw_features(2, 5, 6), draw_features(2, 9, 6, seed=1)
    joint = np.concatenate([support.numpy(), query.numpy()], axis=1).mean(axis=1, keepdims=True)
    for side, centered in zip((support, query), center_jointly(support, query), strict=True):
        np.testing.assert_allclose(centered.numpy(), side.numpy() - joint, atol=1e-14)


@pytest.mark.parametrize(("n_support", "n_query"), [(1, 4), (4, 1), (1, 1)])
def test_center_measures_a_side_of_one_row_against_all_rows(draw_features, n_support, n_query):
    support, query = draw_features(n_support, 6), draw_features(n_query, 6, seed=1)
    joint = np.concatenate([support.numpy(), query.numpy()]).mean(axis=0)
    for side, centered in zip((support, query), center(support, query), strict=True):
        mean = joint if len(side) == 1 else side.numpy().mean(axis=0)
        np.testing.assert_allclose(centered.numpy(), side.numpy() - mean, atol=1e-14)
        assert centered.abs().max() > 0.01, "a side must not vanish"


@pytest.mark.parametrize("act", [center, center_jointly])
def test_centering_works_without_queries(draw_features, act):
    support = draw_features(3, 5, 6)
    centered, query = act(support, torch.zeros(3, 0, 6, dtype=torch.float64))
    np.testing.assert_allclose(
        centered.numpy(), support.numpy() - support.numpy().mean(axis=1, keepdims=True), atol=1e-14
    )
    assert query.shape == (3, 0, 6)


@pytest.mark.parametrize("act", [center, center_jointly])
def test_centering_leaves_its_inputs_alone(draw_features, act):
    support, query = draw_features(5, 6), draw_features(7, 6, seed=1)
    before = support.clone(), query.clone()
    act(support, query)
    assert torch.equal(support, before[0])
    assert torch.equal(query, before[1])


# Step: a name and a value


POWERS = st.floats(-10, 10).map(lambda beta: float(f"{beta:.12g}"))
STEPS = st.one_of(
    st.sampled_from([Step("unit"), Step("power", "auto")]),
    st.builds(Step, st.just("center"), st.sampled_from(Step.CENTERINGS)),
    st.builds(Step, st.just("power"), POWERS),
    st.builds(Step, st.just("signed_power"), POWERS.filter(lambda beta: beta > 0)),
)


@given(STEPS)
def test_a_printed_step_reads_back_as_itself(step):
    assert Step.parse(str(step)) == step
    assert Step.parse(f"  {step} ") == step


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("whiten", None),
        ("unit", 2),
        ("unit", "2"),
        ("power", None),
        ("power", "half"),
        ("center", "median"),
        ("center", 0.5),
        ("signed_power", "auto"),
    ],
)
def test_a_step_that_there_is_not_is_refused_with_the_choices(name, value):
    with pytest.raises(InputError, match=r"a step must be one of power\(BETA\), .*, got '"):
        Step(name, value)


@pytest.mark.parametrize("name", ["power", "signed_power"])
@pytest.mark.parametrize("value", [11, math.nan, -math.inf])
def test_a_power_out_of_range_is_refused_when_the_step_is_made(name, value):
    with pytest.raises(InputError, match=f"{name}: beta must be a number"):
        Step(name, value)


@pytest.mark.parametrize(
    ("text", "is_power", "is_episodic"),
    [
        ("power(0.5)", True, False),
        ("power(auto)", True, False),
        ("signed_power(2)", True, False),
        ("unit", False, False),
        ("center", False, True),
        ("center(joint)", False, True),
        ("center(support)", False, True),
        ("center(mean)", False, False),
        ("center(support+mean)", False, True),
        ("center(shrunk)", False, True),
        ("center(row)", False, False),
    ],
)
def test_what_a_step_says_of_itself(text, is_power, is_episodic):
    step = Step.parse(text)
    assert (step.is_power, step.is_episodic) == (is_power, is_episodic)


def test_a_step_does_what_its_function_does(draw_features):
    x = draw_features(5, 6)
    assert torch.equal(Step("power", 0.3).apply(x), power(x, beta=0.3))
    assert torch.equal(Step("unit").apply(x), unit(x))
    with pytest.raises(InputError, match="must be decided first"):
        Step("power", "auto").apply(x)


def test_inner_products_of_centered_rows_are_pearson_correlations(draw_features):
    x = draw_features(6, 40)
    found = unit(Step.parse("center(row)").apply(x))
    np.testing.assert_allclose(found @ found.mT, np.corrcoef(x), atol=1e-12)


def test_short_rows_are_not_centered_by_themselves(draw_features):
    x = draw_features(6, 32)
    assert torch.equal(Step.parse("center(row)").apply(x), x)


def test_the_mean_of_the_support_is_shrunk_as_a_normal_posterior_mean(draw_features):
    support, query = draw_features(2, 4, 6) - 0.3, draw_features(2, 9, 6, seed=1) - 0.3
    found, same = SHRUNK.means(support, query, torch.zeros(()))
    assert torch.equal(found, same)
    rows = torch.cat([support, query], dim=1).numpy()
    for of_episode, x in zip(found, rows, strict=True):
        prior = float((x.mean(axis=0) ** 2).sum())  # variance of a mean around zero
        noise = float(((x - x.mean(axis=0)) ** 2).sum(axis=1).mean()) / 4
        expected = x[:4].mean(axis=0) * prior / (prior + noise)
        np.testing.assert_allclose(of_episode[0], expected, rtol=1e-12)


@pytest.mark.parametrize("n_support", [0, 1])
def test_the_mean_of_all_rows_that_stands_for_that_of_few_is_shrunk_as_one_of_all(
    draw_features, n_support
):
    x = draw_features(40, 6) - 0.3
    prior = float((x.numpy().mean(axis=0) ** 2).sum())
    noise = float(x.numpy().var(axis=0).sum()) / 40
    found, _ = SHRUNK.means(x[:n_support], x[n_support:], torch.zeros(()))
    np.testing.assert_allclose(found[0], x.numpy().mean(axis=0) * prior / (prior + noise))


@pytest.mark.parametrize("scale", [1e-30, 1e30])
def test_the_new_centerings_do_not_depend_on_the_scale(draw_features, scale):
    x = draw_features(9, 40).float()
    pipeline = Pipeline.parse("center(row) | center(shrunk) | unit")
    for found, expected in zip(
        pipeline.apply(scale * x[:4], scale * x[4:]), pipeline.apply(x[:4], x[4:]), strict=True
    ):
        torch.testing.assert_close(found, expected)


def test_the_mean_of_large_values_does_not_overflow():
    x = torch.full((40,), 3e38)
    x[0] = 2e38
    assert Step.parse("center(row)").apply(x).isfinite().all()


def test_rows_of_equal_values_have_no_direction_once_they_are_centered():
    x = torch.rand(3, 40, generator=torch.Generator().manual_seed(0))
    x[1] = 1.5
    centered = Pipeline.parse("center(row) | unit")
    with pytest.raises(InputError, match="only equal values in row 1"):
        centered.check(x, "features")
    centered.check(x[:, :32], "features")  # which are not centered
    Pipeline.parse("unit").check(x, "features")


def test_equal_rows_are_centered_by_all_of_their_mean_and_rows_around_zero_by_nothing():
    equal, around = torch.ones(3, 5), torch.tensor([[1.0, 0.0], [-1.0, 0.0]])
    (found, _), (nothing, _) = (SHRUNK.means(x, x, torch.zeros(())) for x in (equal, around))
    torch.testing.assert_close(found, equal[:1])
    assert not nothing.any()
    assert not SHRUNK.means(0 * equal, 0 * equal, torch.zeros(()))[0].any()


def test_parts_of_vectors_have_norm_1_each():
    x = torch.rand(4, 7, generator=torch.Generator().manual_seed(0))
    found = Step.parse("unit(3+4)").apply(x)
    for part, old in ((found[:, :3], x[:, :3]), (found[:, 3:], x[:, 3:])):
        np.testing.assert_allclose(part, normalize(old), rtol=1e-6)
    assert str(Step.parse("unit(3+4)")) == "unit(3+4)"


def test_a_part_of_zeros_stays_zero():
    assert Step("unit", "1+2").apply(torch.tensor([[0.0, 3.0, 4.0]])).tolist() == [
        pytest.approx([0, 0.6, 0.8])
    ]


@pytest.mark.parametrize("text", ["unit(3+)", "unit(3)", "unit(0+3)", "unit(a)", "unit()"])
def test_widths_that_are_none_are_refused(text):
    with pytest.raises(InputError, match="a step must be one of"):
        Step.parse(text)


def test_widths_of_other_features_are_refused():
    with pytest.raises(InputError, match="must sum to that of the features, 5, got 7"):
        Step.parse("unit(3+4)").apply(torch.ones(2, 5))


def test_a_mean_from_outside_counts_as_ten_labelled_rows(draw_features):
    support, query, outside = draw_features(4, 6), draw_features(9, 6), draw_features(1, 6)[0]
    expected = torch.cat([support, outside.expand(10, -1)]).mean(dim=0, keepdim=True)
    for mean in WITH_OUTSIDE.means(support, query, outside):
        torch.testing.assert_close(mean, expected)
    both = torch.cat([support[:1], query])
    (alone, _) = WITH_OUTSIDE.means(support[:1], query, outside)
    torch.testing.assert_close(alone[0], (both.mean(dim=0) + 10 * outside) / 11)
