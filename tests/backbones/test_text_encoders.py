"""Text encoders: by name, what is computed, and files that are missing or not the right ones."""

import sys

import numpy as np
import pytest
import torch
from torch import nn

from fewlabels.backbones.text import TEXT_ENCODERS, best_installed, load_text_encoder
from fewlabels.backbones.text.minilm import Bert, embed_tokens
from fewlabels.errors import FileFormatError, InputError, MissingExtraError

SENTENCES = ["My card was stolen", "Someone took my bank card", "How do I grow tomatoes?"]


def installed(name):
    if not TEXT_ENCODERS[name].is_installed():
        pytest.skip("a text encoder is not installed")
    return load_text_encoder(name)


@pytest.mark.parametrize("name", ["minilm", "wordllama"])
def test_sentences_of_one_meaning_are_alike(name):
    encoder = installed(name)
    rows = encoder.encode(SENTENCES)
    assert rows.shape == (3, encoder.feature_dim)
    np.testing.assert_allclose(np.linalg.norm(rows, axis=1), 1, rtol=1e-5)
    assert rows[0] @ rows[1] > rows[0] @ rows[2] + 0.2
    alone = np.concatenate([encoder.encode([each]) for each in SENTENCES])
    np.testing.assert_allclose(rows, alone, atol=2e-6)  # padding changes nothing but digits


def test_minilm_gives_the_published_vector():
    """The first numbers that sentence-transformers prints for this sentence in its model card."""
    row = installed("minilm").encode(["This is an example sentence"])[0]
    np.testing.assert_allclose(row[:3], [0.0676569, 0.0634959, 0.0487131], atol=2e-5)


def test_tfidf_needs_nothing_and_groups_words():
    encoder = load_text_encoder("tfidf")
    texts = [*SENTENCES, "tomatoes grow", "stolen cards", "猫が好き", "猫が好きです"]
    rows = encoder.encode(texts)
    assert rows.shape == (7, 7)
    assert rows[2] @ rows[3] > rows[2] @ rows[4]
    assert rows[5] @ rows[6] > 0.2 > rows[5] @ rows[0] + 0.1  # by letters: one word each
    np.testing.assert_array_equal(rows, encoder.encode(texts))
    assert np.isfinite(encoder.encode(["same", "same"])).all()
    assert encoder.encode(["!"]).shape == (1, 1)


def reference(network, tokens):
    """The same network as torch's own transformer layers, which have other names."""
    dim, n_heads = network.dim, 2
    parts = network.embeddings
    places = torch.arange(len(tokens))
    x = parts["word_embeddings"](tokens) + parts["position_embeddings"](places)
    x = parts["LayerNorm"](x + parts["token_type_embeddings"](torch.zeros_like(tokens)))[None]
    for layer in network.encoder["layer"]:
        own = nn.TransformerEncoderLayer(
            dim, n_heads, 24, dropout=0, activation="gelu", batch_first=True, layer_norm_eps=1e-12
        ).eval()
        inside = layer.attention["self"]
        weights = [inside[name].weight for name in ("query", "key", "value")]
        biases = [inside[name].bias for name in ("query", "key", "value")]
        with torch.no_grad():
            own.self_attn.in_proj_weight.copy_(torch.cat(weights))
            own.self_attn.in_proj_bias.copy_(torch.cat(biases))
        pairs = (
            (own.self_attn.out_proj, layer.attention["output"]["dense"]),
            (own.norm1, layer.attention["output"]["LayerNorm"]),
            (own.linear1, layer.intermediate["dense"]),
            (own.linear2, layer.output["dense"]),
            (own.norm2, layer.output["LayerNorm"]),
        )
        for theirs, ours in pairs:
            theirs.load_state_dict(ours.state_dict())
        x = own(x)
    return nn.functional.normalize(x[0].mean(dim=0), dim=0)


def test_bert_is_a_transformer_as_torch_knows_it():
    torch.manual_seed(0)
    network = Bert(n_words=50, dim=12, inner_dim=24, n_layers=2, n_heads=2, n_places=20).eval()
    tokens = [[3, 7, 9, 4], [1, 2], [5] * 11]
    with torch.no_grad():
        expected = [reference(network, torch.tensor(each)).numpy() for each in tokens]
    found = embed_tokens(network, tokens, device="cpu")
    np.testing.assert_allclose(found, np.stack(expected), atol=1e-5)


def test_names_are_checked_and_missing_packages_named(monkeypatch):
    with pytest.raises(
        InputError, match="must be one of fast, good, best, minilm, wordllama, tfidf, st:ORG/NAME"
    ):
        load_text_encoder("bert")
    with pytest.raises(InputError, match=r"one encoder, got 'best'.* Write minilm\+wordllama\."):
        load_text_encoder("best")
    monkeypatch.setitem(sys.modules, "sentence_transformers", None)
    with pytest.raises(MissingExtraError, match=r"needs sentence-transformers.*fewlabels\[st\]"):
        load_text_encoder("st:intfloat/e5-small")
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    for name in ("minilm", "wordllama"):
        with pytest.raises(MissingExtraError, match=rf"fewlabels\[{name}\]"):
            load_text_encoder(name)


def test_the_best_is_what_is_installed(monkeypatch):
    def without(*names):
        return {
            name: entry if name not in names else entry.__class__(entry.load, lambda: False)
            for name, entry in TEXT_ENCODERS.items()
        }

    module = sys.modules["fewlabels.backbones.text.encoder"]
    monkeypatch.setattr(module, "TEXT_ENCODERS", without("minilm", "wordllama"))
    assert best_installed() == "tfidf"


def test_weights_of_another_content_are_refused(tmp_path, monkeypatch):
    installed("wordllama")
    package = tmp_path / "wordllama"
    for file in (
        "weights/l2_supercat_256.safetensors",
        "tokenizers/l2_supercat_tokenizer_config.json",
    ):
        (package / file).parent.mkdir(parents=True)
        (package / file).write_bytes(b"other")
    (package / "__init__.py").write_text("raise RuntimeError('must not be run')")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(FileFormatError, match=r"must have the SHA-256 .* Reinstall wordllama"):
        load_text_encoder("wordllama")
