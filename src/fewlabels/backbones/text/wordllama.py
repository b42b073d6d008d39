"""WordLlama: a static vector per token, averaged over the text (Miller 2024), 256 features.

The vectors and the tokenizer are two files of the pip package wordllama (MIT). They are read
directly: the package's own loader asks the network for the tokenizer.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load

from fewlabels.backbones.hub import import_extra
from fewlabels.backbones.text.encoder import TextEncoder, unit_rows
from fewlabels.backbones.text.packages import check_digest, package_folder

NAME, PACKAGE, EXTRA = "wordllama", "wordllama", "wordllama"
WEIGHTS = "weights/l2_supercat_256.safetensors"
TOKENIZER = "tokenizers/l2_supercat_tokenizer_config.json"
SHA256 = {  # of version 0.4.0.post1
    WEIGHTS: "64b47a2dc493cb8e85944076601189739852d7b64e0e1eedcb1937a251cd9fd5",
    TOKENIZER: "93248f2a9ec36c7b35f700a033d5f36228aae48db61aee31007fa49062cdeb68",
}


def load_wordllama() -> TextEncoder:
    """The encoder."""
    tokenizers = import_extra("tokenizers", extra=EXTRA, purpose=NAME)
    folder = package_folder("wordllama", package=PACKAGE, extra=EXTRA, purpose=NAME)
    content = {
        file: check_digest(
            (folder / file).read_bytes(), digest, where=f"{PACKAGE}/{file}", package=PACKAGE
        )
        for file, digest in SHA256.items()
    }
    vectors: NDArray[np.float32] = load(content[WEIGHTS])["embedding.weight"].astype(np.float32)
    tokenizer = tokenizers.Tokenizer.from_str(content[TOKENIZER].decode())
    tokenizer.no_truncation()
    tokenizer.no_padding()

    def encode(texts: Sequence[str]) -> NDArray[np.float32]:
        found = np.zeros((len(texts), vectors.shape[1]), np.float32)
        for row, each in enumerate(tokenizer.encode_batch(list(texts), add_special_tokens=False)):
            if each.ids:
                found[row] = vectors[each.ids].mean(axis=0)
        return unit_rows(found)

    return TextEncoder(NAME, vectors.shape[1], SHA256[WEIGHTS][:32], encode, "the whole text")
