"""Work on several threads, with results in order and bounded memory."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

AHEAD = 2  # finished results that may wait: enough to keep every worker busy

T = TypeVar("T")
R = TypeVar("R")


def cut(items: Sequence[T], length: int) -> Iterator[Sequence[T]]:
    """Consecutive parts of a length; the last may be shorter.

    >>> list(cut("abcde", 2))
    ['ab', 'cd', 'e']
    """
    return (items[start : start + length] for start in range(0, len(items), length))


def map_in_order(
    task: Callable[[T], R],
    items: Iterable[T],
    *,
    n_workers: int,
    set_up: Callable[[], None] | None = None,
) -> Iterator[R]:
    """The results of a task, in the order of the items, at most `n_workers + AHEAD` items ahead.

    An error of a task is raised in the place of its result; waiting tasks are cancelled then.

    Args:
        task: Runs in one of the threads; with no workers, in the caller's thread.
        set_up: Called once in each thread, not in the caller's.

    >>> list(map_in_order(len, ["a", "", "bc"], n_workers=2))
    [1, 0, 2]
    """
    if n_workers == 0:
        yield from map(task, items)
        return
    with ThreadPoolExecutor(n_workers, thread_name_prefix="fewlabels", initializer=set_up) as pool:
        waiting: deque[Future[R]] = deque()
        try:
            for item in items:
                waiting.append(pool.submit(task, item))
                if len(waiting) >= n_workers + AHEAD:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()
