"""Which power the features themselves ask for."""

import numpy as np
import pytest
import torch
from scipy import stats

from fewlabels.errors import InputError
from fewlabels.preprocess import Pipeline, Step, signed_power, suggest_power
from fewlabels.preprocess.power_rule import excess_kurtosis, skewness


def drawn(draw, *, seed=0):
    return torch.tensor(draw(np.random.default_rng(seed), (400, 50)))


def test_moments_are_those_of_scipy():
    x = drawn(lambda rng, shape: rng.gamma(0.7, size=shape))
    assert skewness(x) == pytest.approx(stats.skew(x.numpy().ravel()))
    assert excess_kurtosis(x) == pytest.approx(stats.kurtosis(x.numpy().ravel()))


@pytest.mark.parametrize(
    ("draw", "step"),
    [
        (lambda rng, shape: rng.exponential(size=shape), "power(0.5)"),
        (lambda rng, shape: np.maximum(rng.normal(size=shape), 0), "power(0.5)"),
        (lambda rng, shape: np.exp(2 * rng.normal(size=shape)), "power(0.3)"),
        (lambda rng, shape: rng.normal(size=shape), "power(1)"),
        (lambda rng, shape: rng.standard_t(3, size=shape), "signed_power(0.5)"),
        (lambda _, shape: np.ones(shape), "power(0.5)"),
        (lambda _, shape: np.zeros(shape), "power(0.5)"),
    ],
    ids=["exponential", "relu", "heavy", "gaussian", "heavy signed", "constant", "zero"],
)
def test_the_rule(draw, step):
    assert suggest_power(drawn(draw)) == Step.parse(step)


def test_an_undecided_pipeline_is_decided_by_features_and_refuses_to_guess():
    line = Pipeline.parse("power(auto) | unit | center(support) | unit")
    x = drawn(lambda rng, shape: rng.exponential(size=shape))
    assert str(line) == "power(auto) | unit | center(support) | unit"
    assert line.undecided
    assert str(line.decide(x)) == "power(0.5) | unit | center(support) | unit"
    with pytest.raises(InputError, match="decide"):
        line(x[:5], x[5:])


@pytest.mark.parametrize("beta", [0.25, 0.5, 1, 2])
def test_signed_power_is_odd_and_monotone(beta):
    x = drawn(lambda rng, shape: rng.normal(size=shape))
    y = signed_power(x, beta=beta)
    np.testing.assert_allclose(
        y.numpy(), np.sign(x.numpy()) * np.abs(x.numpy()) ** beta, rtol=1e-12
    )
    assert torch.equal(signed_power(-x, beta=beta), -y)
    assert signed_power(torch.zeros(3), beta=beta).abs().max() == 0


@pytest.mark.parametrize("beta", [0, -1, float("nan"), 11])
def test_signed_power_refuses_what_has_no_meaning_at_zero(beta):
    with pytest.raises(InputError, match="signed_power: beta must be"):
        signed_power(torch.ones(2), beta=beta)


def test_center_support_takes_the_support_mean_from_both_sides():
    rng = np.random.default_rng(0)
    support, query = (
        torch.tensor(rng.normal(size=(2, 4, 3))),
        torch.tensor(rng.normal(size=(2, 7, 3))),
    )
    a, b = Pipeline.parse("center(support)")(support, query)
    np.testing.assert_allclose(a.numpy(), (support - support.mean(dim=1, keepdim=True)).numpy())
    np.testing.assert_allclose(b.numpy(), (query - support.mean(dim=1, keepdim=True)).numpy())
    one, _ = Pipeline.parse("center(support)")(support[:, :1], query)
    assert one.abs().sum() > 0  # a single support row is not its own mean
