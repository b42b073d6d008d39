import threading
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fewlabels.features.parallel import AHEAD, cut, map_in_order


@given(items=st.lists(st.integers()), length=st.integers(1, 9))
def test_pieces_make_up_the_whole(items, length):
    pieces = list(cut(items, length))
    assert [item for piece in pieces for item in piece] == items
    assert all(len(piece) == length for piece in pieces[:-1])


@pytest.mark.parametrize("n_workers", [0, 1, 3])
def test_results_come_in_order_although_tasks_end_out_of_order(n_workers):
    def task(number):
        time.sleep(0.01 if number % 3 == 0 else 0)
        return number * number

    assert list(map_in_order(task, range(20), n_workers=n_workers)) == [
        number * number for number in range(20)
    ]


def test_nobody_runs_far_ahead():
    begun = []
    results = map_in_order(begun.append, range(100), n_workers=2)
    next(results)
    time.sleep(0.05)
    assert len(begun) <= 2 + AHEAD
    results.close()
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("fewlabels")]


@pytest.mark.parametrize("n_workers", [0, 2])
def test_an_error_comes_where_its_result_would_have_come(n_workers):
    results = map_in_order(lambda number: 1 // (3 - number), range(100), n_workers=n_workers)
    assert [next(results) for _ in range(3)] == [0, 0, 1]
    with pytest.raises(ZeroDivisionError):
        next(results)


def test_every_worker_is_set_up_and_the_caller_is_not():
    here = threading.local()
    list(
        map_in_order(
            lambda _: here.ready, range(8), n_workers=2, set_up=lambda: setattr(here, "ready", True)
        )
    )
    assert not hasattr(here, "ready")
