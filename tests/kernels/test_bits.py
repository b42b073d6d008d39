"""An episode has the same bits in a batch as alone, wherever its rows lie in memory."""

import numpy as np
import pytest

from fewlabels.kernels.codes import CENTER, ESTIMATE, FREE, KMEANS, MASS, MINIMUM, NEAREST, UNIT


def moved(x):
    """A copy whose first number lies one number beyond a boundary of 64 bytes."""
    room = np.empty(x.size + 64, x.dtype)
    first = -(room.ctypes.data // x.itemsize) % (64 // x.itemsize) + 1
    copy = room[first : first + x.size].reshape(x.shape)
    copy[:] = x
    assert copy.ctypes.data % 64 == x.itemsize
    return copy


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("in_gram_space", [True, False])
@pytest.mark.parametrize("classifier", [NEAREST, KMEANS, FREE, MASS, MINIMUM, ESTIMATE])
def test_an_episode_has_the_same_bits_in_a_batch_as_alone(
    draw, classify, classifier, in_gram_space, dtype
):
    if classifier == ESTIMATE and not in_gram_space:
        return  # estimates work on inner products only
    x, *episodes = draw(dtype, n_episodes=7, dim=37)
    setting = {
        "classifier": classifier,
        "in_gram_space": in_gram_space,
        "steps": (CENTER, UNIT),
        "n_steps": 0 if classifier == NEAREST else 20,
    }
    labels, margins = classify(x, *episodes, **setting)
    assert len(np.unique(margins)) == 7
    turned = [part[::-1].copy() for part in episodes]
    for place in range(7):
        one = [part[place : place + 1] for part in episodes]
        for rows in (x, moved(x)):
            alone = classify(rows, *one, **setting)
            np.testing.assert_array_equal(alone[0][0], labels[place])
            assert alone[1][0] == margins[place]
    found = classify(x, *turned, **setting)
    np.testing.assert_array_equal(found[0][::-1], labels)
    np.testing.assert_array_equal(found[1][::-1], margins)
