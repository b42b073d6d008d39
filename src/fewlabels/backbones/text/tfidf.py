"""TF-IDF of words and of two to four letters, then LSA (Deerwester et al. 1990): 256 features.

Needs no weights. The vocabulary, how rare each word is, and the 256 directions are learned from the
texts at hand: a vector depends on all of them, and a later text has none. Letters inside words
help with typing errors, inflected words, and languages without spaces.
"""

import warnings
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fewlabels.backbones.text.encoder import TextEncoder, unit_rows
from fewlabels.errors import InputError
from fewlabels.io.stamps import short_hash

NAME = "tfidf"
VERSION = 1  # of what `encode` computes
DIM = 256
MOST_WORDS = 30_000  # words, and as many groups of letters: the most frequent ones
LETTERS = (2, 4)


def load_tfidf() -> TextEncoder:
    """The encoder."""
    digest = short_hash(f"{NAME} {VERSION}".encode(), digits=32)
    return TextEncoder(NAME, DIM, digest, encode, "the whole text", of_all=True)


def encode(texts: Sequence[str]) -> NDArray[np.float32]:
    """Vectors of n texts, (n, D), where D is 256, or n if there are fewer texts."""
    from scipy.sparse import hstack
    from sklearn.decomposition import TruncatedSVD
    from sklearn.feature_extraction.text import TfidfVectorizer

    how = {"sublinear_tf": True, "max_features": MOST_WORDS, "dtype": np.float32}
    words = TfidfVectorizer(token_pattern=r"\w+", **how)
    letters = TfidfVectorizer(analyzer="char_wb", ngram_range=LETTERS, **how)
    parts = []
    for part in (words, letters):
        try:
            parts.append(part.fit_transform(texts))
        except ValueError:  # no word in any text
            continue
    if not parts:
        raise InputError("texts must hold letters or digits, got none in any text.")
    counts = hstack(parts).tocsr()
    dim = min(DIM, *counts.shape)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # of texts that are all alike
        rows = TruncatedSVD(dim, random_state=0).fit_transform(counts)
    return unit_rows(np.nan_to_num(rows))
