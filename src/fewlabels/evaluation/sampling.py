"""Draws of episodes: our own, and those of the authors' script.

The own sampler gives each episode a random stream of its own, keyed by (seed, episode number), so
that an episode does not depend on how many are drawn or in which chunks. Support and queries are
disjoint, and every image of every class can be drawn, also where class sizes differ.
"""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from fewlabels.errors import InputError, unknown_choice
from fewlabels.evaluation._draw import DIRICHLET, EACH, PRESENT, draw_episodes
from fewlabels.evaluation._shuffle import shuffle_episodes
from fewlabels.evaluation.episodes import Episodes, IntArray
from fewlabels.evaluation.queries import QuerySpec
from fewlabels.features import FeatureSet
from fewlabels.io.words import count

DRAWS = ("own", "authors")
AnyQueries = str | int | QuerySpec
THREAD_EPISODES = 500  # that a thread draws at a time
_KINDS = {"each": EACH, "counts": EACH, "dirichlet": DIRICHLET, "present": PRESENT}


class Draws(Protocol):
    """A source of episodes."""

    def chunks(self, n_episodes: int, chunk_size: int) -> Iterator[Episodes]:
        """The first `n_episodes` episodes in pieces of at most `chunk_size`."""
        ...


def make_draws(
    features: FeatureSet,
    *,
    draws: str = "own",
    n_way: int = 5,
    n_shot: int = 1,
    queries: str | int | QuerySpec = 15,
    seed: int = 0,
) -> Draws:
    """A source of episodes by name, "own" or "authors"."""
    if draws == "own":
        return OwnDraws(features, n_way=n_way, n_shot=n_shot, queries=queries, seed=seed)
    if draws == "authors":
        return AuthorsDraws(features, n_way=n_way, n_shot=n_shot, queries=queries, seed=seed)
    raise unknown_choice("draws", draws, DRAWS)


def _check_seed(seed: int) -> int:
    if not 0 <= seed < 2**32:
        raise InputError(f"seed must lie in 0..{2**32 - 1}, got {seed}.")
    return seed


def sample_episodes(
    features: FeatureSet,
    *,
    n_episodes: int,
    n_way: int = 5,
    n_shot: int = 1,
    queries: str | int | QuerySpec = 15,
    seed: int = 0,
) -> Episodes:
    """Episodes of the own sampler, all at once.

    Args:
        features: What to draw from; unlabelled rows are never drawn.
        n_episodes: How many.
        n_way: Classes per episode.
        n_shot: Support rows per class.
        queries: Queries per class, or a `QuerySpec` word such as "dirichlet:2:75".
        seed: Equal seeds give equal episodes.

    >>> from fewlabels import load_embedded
    >>> sample_episodes(load_embedded(), n_episodes=2, queries="dirichlet:2:60").query.shape
    (2, 60)
    """
    draws = OwnDraws(features, n_way=n_way, n_shot=n_shot, queries=queries, seed=seed)
    return _all_of(draws, n_episodes)


def draw_as_authors(
    features: FeatureSet,
    *,
    n_episodes: int,
    n_way: int = 5,
    n_shot: int = 1,
    queries: str | int | QuerySpec = 15,
    seed: int = 0,
) -> Episodes:
    """Episodes of the authors' script, all at once; see `AuthorsDraws`.

    >>> from fewlabels import load_embedded
    >>> draw_as_authors(load_embedded(), n_episodes=2).query.shape
    (2, 75)
    """
    draws = AuthorsDraws(features, n_way=n_way, n_shot=n_shot, queries=queries, seed=seed)
    return _all_of(draws, n_episodes)


def _all_of(draws: Draws, n_episodes: int) -> Episodes:
    if n_episodes < 1:
        raise InputError(f"n_episodes must be at least 1, got {n_episodes}.")
    return next(draws.chunks(n_episodes, n_episodes))


class OwnDraws:
    """Uniform draws of classes, then of images, without replacement, for any class sizes."""

    def __init__(
        self, features: FeatureSet, *, n_way: int, n_shot: int, queries: AnyQueries, seed: int
    ) -> None:
        self.spec = QuerySpec.parse(queries)
        self.n_way, self.n_shot, self.seed = n_way, n_shot, _check_seed(seed)
        _check_sizes(features, n_way, n_shot, self.spec)
        self._rows = np.concatenate(features.class_rows)
        self._offsets = np.concatenate([[0], np.cumsum(features.class_sizes)])

    def chunks(self, n_episodes: int, chunk_size: int) -> Iterator[Episodes]:
        """See `Draws`."""
        total = self.spec.total(self.n_way)
        numbers = np.zeros(max(3, self.n_way))
        given = self.spec.numbers * self.n_way if self.spec.kind == "each" else self.spec.numbers
        numbers[: len(given)] = given
        for first in range(0, n_episodes, chunk_size):
            size = min(chunk_size, n_episodes - first)
            shapes = (self.n_way, self.n_way * self.n_shot, self.n_way * self.n_shot, total, total)
            arrays = [np.empty((size, width), np.int64) for width in shapes]
            self._draw(first, numbers, arrays)
            yield Episodes(*arrays)

    def _draw(self, first: int, numbers: NDArray[np.float64], arrays: list[IntArray]) -> None:
        """Fill the arrays with episodes first, first + 1, ...; the threads run without the GIL."""

        def draw(begin: int) -> None:
            some = [array[begin : begin + THREAD_EPISODES] for array in arrays]
            drawn_from = (self._rows, self._offsets, self.n_shot, _KINDS[self.spec.kind], numbers)
            draw_episodes(self.seed, first + begin, *drawn_from, *some)

        with ThreadPoolExecutor() as pool:
            list(pool.map(draw, range(0, len(arrays[0]), THREAD_EPISODES)))


class AuthorsDraws:
    """The draws of the authors' published script from `np.random.seed(seed)`.

    For each episode: a permutation of the classes, of which the first `n_way` are used; then, for
    each way, a permutation of the image numbers, applied to the permutation of the previous way, of
    which the first n_shot + n_query are used. Classes are cut to the size of the smallest. Queries
    are ordered by image, then by way.
    """

    def __init__(
        self, features: FeatureSet, *, n_way: int, n_shot: int, queries: AnyQueries, seed: int
    ) -> None:
        spec = QuerySpec.parse(queries)
        if spec.kind != "each":
            raise InputError(
                f"queries must be one number for the authors' draws, got '{spec}'. Use draws 'own'."
            )
        self.n_way, self.n_shot, self.n_query = n_way, n_shot, int(spec.numbers[0])
        self.seed = _check_seed(seed)
        _check_sizes(features, n_way, n_shot, spec)
        self._smallest = int(features.class_sizes.min())
        # (classes, smallest)
        self._rows = np.stack([rows[: self._smallest] for rows in features.class_rows])

    def chunks(self, n_episodes: int, chunk_size: int) -> Iterator[Episodes]:
        """See `Draws`."""
        _, words, position, *_ = np.random.RandomState(self.seed).get_state(legacy=True)
        words, at = np.array(words), np.array([position])
        used = self.n_shot + self.n_query
        for first in range(0, n_episodes, chunk_size):
            size = min(chunk_size, n_episodes - first)
            classes = np.empty((size, self.n_way), np.int64)
            images = np.empty((size, self.n_way, used), np.int64)
            shuffle_episodes(words, at, len(self._rows), self._smallest, classes, images)
            rows = self._rows[classes[:, :, None], images].transpose(0, 2, 1)  # (E, image, way)
            ways = np.broadcast_to(np.arange(self.n_way), rows.shape)
            parts = [
                np.ascontiguousarray(array[:, part]).reshape(size, -1)
                for part in (slice(self.n_shot), slice(self.n_shot, None))
                for array in (rows, ways)
            ]
            yield Episodes(classes, *parts)


def _check_sizes(features: FeatureSet, n_way: int, n_shot: int, spec: QuerySpec) -> None:
    if n_way < 1:
        raise InputError(f"n_way must be at least 1, got {n_way}.")
    if features.n_classes == 0:
        raise InputError(
            "features must have labels to draw episodes from, got none. Take them from a folder "
            "with one sub-folder per class, or a file with labels."
        )
    if n_way > features.n_classes:
        raise InputError(
            f"n_way must be at most {features.n_classes}, the classes of the features, got {n_way}."
        )
    if n_shot < 1:
        raise InputError(f"n_shot must be at least 1, got {n_shot}.")
    total = spec.total(n_way)
    needed = n_shot + spec.most_of_a_class(n_way)
    sizes = features.class_sizes
    smallest = int(sizes.argmin())
    if sizes[smallest] < needed:
        small = int((sizes < needed).sum())
        others = f"; {small} of {len(sizes)} classes have too few" if small > 1 else ""
        way_out = (
            "" if len(sizes) - small < n_way else f", or drop {count(small, 'class', 'classes')}"
        )
        raise InputError(
            f"class '{features.class_names[smallest]}' must have at least {needed} images, "
            f"got {sizes[smallest]}{others}. Lower n_shot or queries ('{spec}'){way_out}."
        )
    if spec.kind == "dirichlet" and np.sort(sizes - n_shot)[:n_way].sum() < total:
        raise InputError(
            f"queries must be no more than the {n_way} smallest classes together have besides the "
            f"support, got {total} in '{spec}'. Lower the number."
        )
