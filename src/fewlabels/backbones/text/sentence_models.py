"""Models of sentence-transformers by name (Reimers and Gurevych 2019)."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fewlabels.backbones import hub
from fewlabels.backbones.encoder import digest_weights
from fewlabels.backbones.text.encoder import HUB, SENTENCE_SCALE, TextEncoder


def load_sentence_model(name: str, device: str = "cpu") -> TextEncoder:
    """The encoder, on a device.

    Args:
        name: As on the hub, like "intfloat/multilingual-e5-small", or a local folder.
        device: Where it runs.
    """
    package = "sentence-transformers"
    library = hub.import_extra(
        "sentence_transformers", package=package, extra="st", purpose=f"{HUB}{name}"
    )
    try:
        model = library.SentenceTransformer(name, device=device)
    except Exception as error:  # of the library, of downloads, of damaged files
        raise hub.unreachable(f"{HUB}{name}", error) from error

    def encode(texts: Sequence[str]) -> NDArray[np.float32]:
        rows = model.encode(list(texts), show_progress_bar=False, convert_to_numpy=True)
        return np.asarray(rows, dtype=np.float32)

    longest = getattr(model, "max_seq_length", None)
    reads = f"the first {longest} tokens" if longest else "the whole text"
    digest = digest_weights(model, architecture=f"{HUB}{name} {longest}")
    return TextEncoder(
        f"{HUB}{name}", encode(["a"]).shape[1], digest, encode, reads, SENTENCE_SCALE
    )
