"""The compiled loop of the authors' draws: the numbers of NumPy's legacy generator and its shuffle.

An episode takes about 4,000 random numbers. One in three is rejected, because it is larger than the
index to swap. NumPy's loop spends most of its time on mispredicted branches there.
"""

import numpy as np

from fewlabels.evaluation.episodes import IntArray
from fewlabels.kernels.compilation import jit

_WORDS, _MIDDLE = 624, 397  # of the Mersenne twister MT19937 (Matsumoto and Nishimura, 1998)
_jit = jit()


@_jit
def _twisted(here: np.uint32, after: np.uint32, ahead: np.uint32) -> np.uint32:
    y = (here & np.uint32(0x80000000)) | (after & np.uint32(0x7FFFFFFF))
    return ahead ^ (y >> np.uint32(1)) ^ ((y & np.uint32(1)) * np.uint32(0x9908B0DF))


@_jit
def _twist(words: np.ndarray) -> None:
    """Replace all words of NumPy's legacy generator by the next ones."""
    rest = _WORDS - _MIDDLE
    for i in range(rest):
        words[i] = _twisted(words[i], words[i + 1], words[i + _MIDDLE])
    for i in range(rest, _WORDS - 1):
        words[i] = _twisted(words[i], words[i + 1], words[i - rest])
    words[-1] = _twisted(words[-1], words[0], words[_MIDDLE - 1])


@_jit
def _temper(words: np.ndarray, tempered: np.ndarray) -> None:
    """The numbers that the generator gives, from its words."""
    for i in range(_WORDS):
        y = words[i]
        y ^= y >> np.uint32(11)
        y ^= (y << np.uint32(7)) & np.uint32(0x9D2C5680)
        y ^= (y << np.uint32(15)) & np.uint32(0xEFC60000)
        tempered[i] = y ^ (y >> np.uint32(18))


@_jit
def _shuffle(words: np.ndarray, tempered: np.ndarray, position: IntArray, order: IntArray) -> None:
    """`RandomState.shuffle`: from the end, swap each entry with one before it or with itself.

    NumPy draws again where a number is too large. Here such a number swaps the entry with itself
    and the same entry is tried again, without a branch.
    """
    i = np.int64(len(order) - 1)
    mask = np.int64(1)
    while mask < i:
        mask = 2 * mask + 1
    at = position[0]
    while i > 0:
        if at == _WORDS:
            _twist(words)
            _temper(words, tempered)
            at = 0
        j = np.int64(tempered[at]) & mask
        at += 1
        fits = np.int64(j <= i)
        j = i + fits * (j - i)
        order[i], order[j] = order[j], order[i]
        i -= fits
        mask >>= np.int64(i <= mask >> 1)
    position[0] = at


@_jit
def shuffle_episodes(
    words: np.ndarray,
    position: IntArray,
    n_classes: int,
    n_images: int,
    classes: IntArray,
    images: IntArray,
) -> None:
    """Fill classes, (E, W), and images, (E, W, used), in place, as `AuthorsDraws` describes.

    `words` and `position` are those of `RandomState.get_state`; they change, for the next chunk.
    """
    n_episodes, n_way, used = images.shape
    tempered = np.empty(_WORDS, np.uint32)
    _temper(words, tempered)
    for episode in range(n_episodes):
        order = np.arange(n_classes)
        _shuffle(words, tempered, position, order)
        for way in range(n_way):  # assigning slices would take seconds to compile
            classes[episode, way] = order[way]
        order = np.arange(n_images)
        for way in range(n_way):
            _shuffle(words, tempered, position, order)
            for i in range(used):
                images[episode, way, i] = order[i]
