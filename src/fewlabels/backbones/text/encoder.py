"""TextEncoder: texts to vectors, by name; the counterpart of `Encoder`, which is for images.

name          what                                                            installed by
minilm        all-MiniLM-L6-v2: a small transformer, 384 features             fewlabels[minilm]
wordllama     static vectors of tokens, averaged: 256 features, very fast     fewlabels[wordllama]
tfidf         words and letters of the texts at hand, 256 features            always there
st:ORG/NAME   any model of sentence-transformers; needs the network once      fewlabels[st]
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fewlabels.errors import one_of_several, unknown_choice


@dataclass(frozen=True, eq=False)
class TextEncoder:
    """Computes one vector per text."""

    name: str
    feature_dim: int
    weights_digest: str  # 32 hex digits: changes with everything that the vectors depend on
    encode: Callable[[Sequence[str]], NDArray[np.float32]]  # n texts -> (n, feature_dim)
    reads: str  # how much of a text counts, in words
    scale: float | None = None  # of cosines with class names; None: names tell too little
    of_all: bool = False  # vectors depend on all texts: none can be kept, or made of later texts


@dataclass(frozen=True)
class Entry:
    """A text encoder before it is loaded."""

    load: Callable[[str], TextEncoder]  # from the device
    is_installed: Callable[[], bool]


def _minilm(device: str) -> TextEncoder:
    from fewlabels.backbones.text.minilm import load_minilm

    return load_minilm(device)


def _wordllama(device: str) -> TextEncoder:  # noqa: ARG001 - it looks up vectors
    from fewlabels.backbones.text.wordllama import load_wordllama

    return load_wordllama()


def _tfidf(device: str) -> TextEncoder:  # noqa: ARG001
    from fewlabels.backbones.text.tfidf import load_tfidf

    return load_tfidf()


def _has(*modules: str) -> Callable[[], bool]:
    return lambda: all(find_spec(module) is not None for module in modules)


TEXT_ENCODERS: Mapping[str, Entry] = {  # the most accurate first (benchmarks/texts.py)
    "minilm": Entry(_minilm, _has("all_minilm_l6_v2", "tokenizers")),
    "wordllama": Entry(_wordllama, _has("wordllama", "tokenizers")),
    "tfidf": Entry(_tfidf, lambda: True),
}
TEXT_QUALITIES = {"fast": "wordllama", "good": "minilm", "best": "minilm+wordllama"}
HUB = "st:"
SENTENCE_SCALE = 20.0  # of cosines in the training of sentence-transformers
CHOICES = (*TEXT_QUALITIES, *TEXT_ENCODERS, f"{HUB}ORG/NAME")


def load_text_encoder(name: str, *, device: str = "cpu") -> TextEncoder:
    """The encoder of this name."""
    if name.startswith(HUB):
        from fewlabels.backbones.text.sentence_models import load_sentence_model

        return load_sentence_model(name.removeprefix(HUB), device)
    single = TEXT_QUALITIES.get(name, name)
    if single in TEXT_QUALITIES.values() and "+" in single:
        raise one_of_several("backbone of texts", name, single)
    if single not in TEXT_ENCODERS:
        raise unknown_choice("backbone of texts", name, CHOICES)
    return TEXT_ENCODERS[single].load(device)


def best_installed() -> str:
    """The most accurate encoder that is installed."""
    return next(name for name, entry in TEXT_ENCODERS.items() if entry.is_installed())


def unit_rows(rows: NDArray[Any]) -> NDArray[np.float32]:
    """Rows of length 1, (n, D); zeros stay."""
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    unit: NDArray[np.float32] = (rows / np.where(norms > 0, norms, 1)).astype(np.float32)
    return unit
