"""Every architecture has its stated size, and its features depend only on the image."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from fewlabels.backbones import BACKBONES, Backbone, build_backbone
from fewlabels.backbones.saved import build_empty

SIZE = 32
LINEAR_10 = {"wrn28-10": 640 * 10 + 10, "mobilenet": 1024 * 10 + 10, "resnet18-3x3": 512 * 10 + 10}
PUBLISHED = {  # name: (parameters, features); counts of others less their classifier
    "wrn28-10": (
        36_479_194 - LINEAR_10["wrn28-10"],
        640,
    ),  # with 10 classes, Zagoruyko and Komodakis' 36.5 M
    "wrn28-10-dct": (  # 24 channels enter the first convolution instead of 3
        36_479_194 - LINEAR_10["wrn28-10"] + 16 * (24 - 3) * 9,
        640,
    ),
    "wrn28-10-simpleshot": (36_479_194 - LINEAR_10["wrn28-10"], 640),  # biases folded away
    "resnet12": (12_424_320, 640),  # Lee et al.'s 12.4 M
    # 24 channels enter the first convolution and the first shortcut instead of 3
    "resnet12-dct": (12_424_320 + 64 * (24 - 3) * (9 + 1), 640),
    "resnet18": (11_689_512 - 512 * 1000 - 1000, 512),  # torchvision's, with 1000 classes
    "resnet18-dct": (11_689_512 - 512 * 1000 - 1000 + 64 * (24 - 3) * 49, 512),
    "resnet18-3x3": (
        11_173_962 - LINEAR_10["resnet18-3x3"],
        512,
    ),  # the usual CIFAR variant, with 10 classes
    "resnet10": (4_905_792, 512),  # Chen et al.'s 4.9 M
    "resnet10-3x3": (4_905_792 - 64 * 3 * (49 - 9), 512),
    "conv4": (113_088 - 4 * 64, 64),  # the usual one has four biases of 64
    "conv4-flat": (113_088 - 4 * 64, 1600),
    "conv4-32-flat": (864 + 3 * 32 * 32 * 9 + 4 * 2 * 32, 800),
    "mobilenet": (
        3_217_226 - LINEAR_10["mobilenet"],
        1024,
    ),  # the usual CIFAR variant, with 10 classes
    # torchvision's has 1000 classes and a stem of 7x7 convolution and batch norm, ours a bare 3x3
    "densenet121": (7_978_856 - 1024 * 1000 - 1000 - 64 * (3 * (49 - 9) + 2), 1024),
}


def images(n, size=SIZE, seed=0):
    return torch.randn(n, 3, size, size, generator=torch.Generator().manual_seed(seed))


def settle(backbone):
    """Give batch norms the statistics of some images, then switch to evaluation."""
    norms = [layer for layer in backbone.modules() if isinstance(layer, torch.nn.BatchNorm2d)]
    for norm in norms:
        norm.momentum = 1.0
    with torch.no_grad():
        backbone(images(8))
    return backbone.eval()


def test_every_registered_backbone_is_checked(tiny_backbones):
    assert set(PUBLISHED) == set(BACKBONES) - set(tiny_backbones)


@pytest.mark.parametrize("name", PUBLISHED)
def test_parameters_and_features_are_as_published(name):
    backbone = build_empty(name, {})
    assert (
        sum(parameter.numel() for parameter in backbone.parameters()),
        backbone.feature_dim,
    ) == PUBLISHED[name]


@pytest.mark.parametrize("name", ["wrn28-10", "resnet12", "resnet18", "densenet121", "mobilenet"])
def test_full_size_networks_run(name):
    with torch.inference_mode():
        features = build_backbone(name, image_size=SIZE).eval()(images(1))
    assert features.shape == (1, PUBLISHED[name][1])
    assert features.isfinite().all()
    assert features.max() > 0


def test_forward_is_stem_stages_head(tiny):
    backbone = settle(build_backbone(tiny, image_size=SIZE))
    x = backbone.stem(images(2))
    for stage in backbone.stages:
        x = stage(x)
    torch.testing.assert_close(backbone.head(x), backbone(images(2)), rtol=0, atol=0)
    assert isinstance(backbone, Backbone)


@pytest.mark.parametrize(
    ("name", "n_stages"),
    [
        ("wrn28-10", 3),
        ("wrn28-10-dct", 3),
        ("resnet12", 4),
        ("resnet12-dct", 4),
        ("resnet18", 4),
        ("resnet18-dct", 4),
        ("conv4", 4),
        ("densenet121", 4),
    ],
)
def test_number_of_stages(name, n_stages):
    assert len(build_empty(name, {}).stages) == n_stages


@settings(max_examples=15, deadline=None)
@given(
    pixels=hnp.arrays(np.float32, (2, 3, 17, 20), elements=st.floats(-100, 100, width=32)),
    training=st.booleans(),
    name=st.sampled_from(
        [
            "tiny-wrn",
            "tiny-wrn-dct",
            "tiny-resnet12",
            "tiny-resnet10",
            "tiny-conv4",
            "tiny-mobilenet",
            "tiny-densenet",
        ]
    ),
)
def test_features_are_never_negative(pixels, training, name):
    with torch.no_grad():
        features = build_backbone(name, image_size=17).train(training)(torch.from_numpy(pixels))
    assert (features >= 0).all()
    assert features.shape == (2, build_backbone(name, image_size=17).feature_dim)


def test_features_are_not_all_alike(tiny):
    features = settle(build_backbone(tiny, image_size=SIZE))(images(4))
    assert features.min() >= 0
    assert features.std(dim=0).max() > 1e-3


def test_a_row_does_not_know_its_neighbours(tiny):
    backbone, batch = settle(build_backbone(tiny, image_size=SIZE)), images(5, seed=1)
    with torch.inference_mode():
        together = backbone(batch)
        alone = torch.cat([backbone(image[None]) for image in batch])
        turned = backbone(batch.flip(0)).flip(0)
    torch.testing.assert_close(alone, together, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(turned, together, rtol=1e-4, atol=1e-4)


def test_gradients_reach_every_parameter(tiny):
    backbone = build_backbone(tiny, image_size=SIZE)
    features = backbone(images(16))
    (
        features * torch.randn(features.shape, generator=torch.Generator().manual_seed(1))
    ).sum().backward()
    assert [
        name
        for name, parameter in backbone.named_parameters()
        if parameter.grad is None or not parameter.grad.any()
    ] == []


def test_channels_last_and_bfloat16_change_only_the_precision(tiny):
    backbone, batch = settle(build_backbone(tiny, image_size=SIZE)), images(4, seed=2)
    with torch.inference_mode():
        plain = backbone(batch)
        backbone.to(memory_format=torch.channels_last)
        batch = batch.to(memory_format=torch.channels_last)
        torch.testing.assert_close(backbone(batch), plain, rtol=1e-4, atol=1e-4)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            rough = backbone(batch).float()
    bound = (
        0.4 if tiny == "tiny-mobilenet" else 0.05
    )  # 26 narrow layers without shortcuts blow rounding up
    assert (rough - plain).norm() < bound * plain.norm()


@pytest.mark.parametrize("name", ["tiny-wrn", "tiny-wrn-dct", "tiny-resnet12", "tiny-resnet10"])
def test_one_graph_holds_the_whole_network(name):
    backbone, batch = build_backbone(name, image_size=SIZE), images(4)
    compiled = torch.compile(
        backbone, backend="eager", fullgraph=True
    )  # fails where Python decides on data
    torch.testing.assert_close(compiled(batch), build_backbone(name, image_size=SIZE)(batch))


@pytest.mark.parametrize("name", ["tiny-wrn", "tiny-wrn-simpleshot", "tiny-resnet12"])
def test_dropout_acts_in_training_only(name):
    backbone, batch = build_backbone(name, dropout=0.5), images(4)
    assert not torch.equal(backbone(batch), backbone(batch))
    backbone.eval()
    assert torch.equal(backbone(batch), backbone(batch))


def test_the_last_block_of_resnet12_alone_ends_in_relu():
    backbone = settle(build_backbone("tiny-resnet12"))
    x, lowest = backbone.stem(images(4)), []
    for stage in backbone.stages:
        x = stage(x)
        lowest.append(x.min().item())
    assert all(low < 0 for low in lowest[:-1])  # leaky
    assert lowest[-1] == 0


@pytest.mark.parametrize(
    ("name", "size", "side"),
    [
        ("resnet18", 32, 32),
        ("resnet18", 40, 40),
        ("resnet18", 41, 21),
        ("resnet18", 84, 42),
        ("resnet18", 96, 48),
        ("resnet18", 159, 80),
        ("resnet18", 160, 40),
        ("resnet18", 224, 56),
        ("resnet10-3x3", 84, 84),
        ("resnet18-3x3", 96, 96),
        ("wrn28-10", 84, 84),
    ],
)
def test_the_stem_follows_the_image_size(name, size, side):
    stem = build_empty(name, {"image_size": size}).stem
    assert stem(torch.empty(1, 3, size, size, device="meta")).shape[-2:] == (side, side)


def test_wrn_keeps_half_and_quarter_resolution():
    backbone = build_empty("wrn28-10", {})
    x, shapes = backbone.stem(torch.empty(1, 3, 32, 32, device="meta")), []
    for stage in backbone.stages:
        x = stage(x)
        shapes.append(tuple(x.shape[1:]))
    assert shapes == [(160, 32, 32), (320, 16, 16), (640, 8, 8)]


def test_convolutions_begin_with_kaiming_variance():
    weights = build_backbone("conv4").stages[3][0].weight
    assert weights.std().item() == pytest.approx((2 / (64 * 9)) ** 0.5, rel=0.02)
    leaky = build_backbone("resnet12").stages[1].conv2.weight
    assert leaky.std().item() == pytest.approx((2 / (1 + 0.1**2) / (160 * 9)) ** 0.5, rel=0.02)
