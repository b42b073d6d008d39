import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from fewlabels.training.recipe import Optimizer
from fewlabels.training.schedule import epoch_order, learning_rate, shard_streams


def rates(settings, n_steps=100, steps_per_epoch=10):
    return [
        learning_rate(settings, step=step, n_steps=n_steps, steps_per_epoch=steps_per_epoch)
        for step in range(n_steps)
    ]


def test_cosine_is_torchs_after_the_warm_up():
    weight = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([weight], lr=0.3)
    torchs = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=100)
    want = []
    for _ in range(100):
        want.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        torchs.step()
    np.testing.assert_allclose(rates(Optimizer(lr=0.3, warmup_epochs=0)), want, rtol=1e-6)


@given(warmup=st.floats(0, 9), schedule=st.sampled_from(["cosine", "constant", "steps"]))
def test_rates_rise_then_never_rise_again_and_stay_positive(warmup, schedule):
    found = rates(Optimizer(lr=0.2, warmup_epochs=warmup, schedule=schedule, milestones=(0.95,)))
    top = int(np.argmax(found))
    assert all(np.diff(found[: top + 1]) > 0)
    assert all(np.diff(found[top:]) <= 1e-12)
    assert min(found) > 0
    assert max(found) <= 0.2 + 1e-12


def test_cosine_ends_where_it_should():
    found = rates(Optimizer(lr=1.0, lowest_lr=0.25, warmup_epochs=0))
    assert found[0] == 1.0
    assert 0.25 < found[-1] < 0.2502


def test_steps_fall_to_a_tenth():
    found = rates(Optimizer(lr=1.0, schedule="steps", milestones=(0.5, 0.75), warmup_epochs=0))
    np.testing.assert_allclose(found, [1.0] * 50 + [0.1] * 25 + [0.01] * 25)


def test_each_epoch_visits_every_image_in_an_order_of_its_own():
    first, second = epoch_order(0, 0, 50), epoch_order(0, 1, 50)
    assert sorted(first) == sorted(second) == list(range(50))
    assert not np.array_equal(first, second)
    assert np.array_equal(first, epoch_order(0, 0, 50))


def test_streams_differ_between_steps_and_shards():
    device = torch.device("cpu")
    drawn = {
        (step, shard): torch.rand(1, generator=shard_streams(0, step, shard, device)[1]).item()
        for step in range(3)
        for shard in range(3)
    }
    assert len(set(drawn.values())) == 9
    assert torch.rand(1, generator=shard_streams(0, 2, 1, device)[1]).item() == drawn[2, 1]
