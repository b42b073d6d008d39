"""Episodes: which rows of a feature set are support and which are queries, for many problems."""

import hashlib
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

IntArray = NDArray[np.int64]


@dataclass(frozen=True)
class Episodes:
    """Rows and labels of E episodes. Labels are ways: 0..W-1, positions in `classes`.

    >>> from fewlabels import load_embedded, sample_episodes
    >>> episodes = sample_episodes(load_embedded(), n_episodes=3, n_shot=2)
    >>> episodes.support.shape, episodes.query.shape, episodes.query_counts[0].tolist()
    ((3, 10), (3, 75), [15, 15, 15, 15, 15])
    """

    classes: IntArray  # (E, W) class numbers of the feature set
    support: IntArray  # (E, S) rows of the feature set
    support_labels: IntArray  # (E, S)
    query: IntArray  # (E, Q)
    query_labels: IntArray  # (E, Q)

    def __len__(self) -> int:
        return len(self.classes)

    @property
    def arrays(self) -> tuple[IntArray, ...]:
        """All fields, in their order."""
        return (self.classes, self.support, self.support_labels, self.query, self.query_labels)

    def take(self, part: slice | IntArray) -> "Episodes":
        """Some of the episodes, by their numbers."""
        return Episodes(*(array[part] for array in self.arrays))

    @property
    def n_way(self) -> int:
        """Classes per episode."""
        return int(self.classes.shape[1])

    @property
    def query_counts(self) -> IntArray:
        """Queries of each way, (E, W)."""
        ways = range(self.n_way)
        return np.stack([(self.query_labels == way).sum(axis=1) for way in ways], axis=1)

    @property
    def hash(self) -> str:
        """Fingerprint of the episodes: equal for two runs exactly if they had the same episodes."""
        return EpisodeDigest().after(self).hexdigest()


class EpisodeDigest:
    """Fingerprint of episodes that arrive in chunks; where the chunks were cut does not matter."""

    def __init__(self) -> None:
        self._hash = hashlib.sha256()

    def after(self, episodes: Episodes) -> "EpisodeDigest":
        """The fingerprint with these episodes added."""
        longer = EpisodeDigest()
        longer._hash = self._hash.copy()
        parts = [part.astype("<i4") for part in episodes.arrays]
        longer._hash.update(np.concatenate(parts, axis=1).data)
        return longer

    def hexdigest(self) -> str:
        """The first 16 hexadecimal digits."""
        return self._hash.hexdigest()[:16]
