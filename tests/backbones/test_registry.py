import pytest
import torch

from fewlabels.backbones import BACKBONES, build_backbone
from fewlabels.errors import InputError


def test_an_unknown_name_lists_the_choices():
    with pytest.raises(
        InputError,
        match=r"backbone must be one of wrn28-10, resnet12, .*densenet121.*, got 'vgg16'",
    ):
        build_backbone("vgg16")


def test_a_name_is_taken_once():
    with pytest.raises(InputError, match="named 'conv4' must not exist already"):
        BACKBONES["conv4"] = BACKBONES["resnet12"]
    assert BACKBONES["conv4"] is not BACKBONES["resnet12"]


@pytest.mark.parametrize("name", ["conv4", "resnet18", "mobilenet", "densenet121"])
def test_dropout_is_refused_where_there_is_none(name):
    with pytest.raises(
        InputError,
        match=rf"must be 0 for {name}, .*, got 0\.1\. Backbones with dropout: wrn28-10, resnet12",
    ):
        build_backbone(name, dropout=0.1)


@pytest.mark.parametrize("dropout", [-0.1, 1.0, float("nan")])
def test_dropout_is_a_share(dropout):
    with pytest.raises(InputError, match="dropout must be at least 0 and below 1"):
        build_backbone("tiny-wrn", dropout=dropout)


def test_images_too_small_to_pool_are_refused():
    with pytest.raises(InputError, match="image_size must be at least 16 pixels, got 8"):
        build_backbone("conv4", image_size=8)


@pytest.mark.parametrize("size", [16, 17, 31])
def test_the_smallest_images_still_have_a_position(size, tiny):
    backbone = build_backbone(tiny, image_size=size).eval()
    assert backbone(torch.zeros(1, 3, size, size)).shape == (1, backbone.feature_dim)


def test_the_seed_decides_the_weights_and_the_generator_of_torch_is_left_alone(tiny):
    torch.manual_seed(3)
    before = torch.get_rng_state()
    first, same, other = (build_backbone(tiny, seed=seed).state_dict() for seed in (1, 1, 2))
    assert torch.equal(torch.get_rng_state(), before)
    assert all(torch.equal(first[key], same[key]) for key in first)
    assert any(not torch.equal(first[key], other[key]) for key in first)
