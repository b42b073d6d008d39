import numpy as np
import pytest
import torch
from PIL import Image, ImageEnhance

from fewlabels.training.augment import (
    augment,
    crop_resized,
    jitter_colors,
    normalize,
    rotate,
    to_float,
)
from fewlabels.training.recipe import Augment

WHOLE = Augment(crop_area=(1.0, 1.0), crop_aspect=(1.0, 1.0), jitter=0.0, flip=False)


@pytest.fixture
def pixels():
    return torch.from_numpy(
        np.random.default_rng(0).integers(0, 256, (6, 20, 20, 3), dtype=np.uint8)
    )


def stream(seed=0):
    return torch.Generator().manual_seed(seed)


def test_a_crop_of_the_whole_image_is_the_image(pixels):
    images = to_float(pixels)
    torch.testing.assert_close(crop_resized(images, WHOLE, size=20, generator=stream()), images)


def test_mirror_images_are_mirror_images_about_half_of_the_time():
    images = torch.arange(4.0).expand(1000, 3, 4, 4) / 4
    flipped = crop_resized(
        images, Augment(crop_area=(1, 1), crop_aspect=(1, 1), jitter=0), size=4, generator=stream()
    )
    mirrored = torch.isclose(flipped, images.flip(3)).flatten(1).all(dim=1)
    upright = torch.isclose(flipped, images).flatten(1).all(dim=1)
    assert (mirrored ^ upright).all()
    assert 430 < mirrored.sum() < 570


def test_crops_show_parts_of_the_image_as_large_as_settings_say():
    # A ramp from left to right: the slope of a crop tells the share of the width that it shows.
    ramp = ((torch.arange(64.0) + 0.5) / 64).expand(500, 3, 64, 64)
    settings = Augment(crop_area=(0.25, 0.5), crop_aspect=(0.8, 1.25), jitter=0, flip=False)
    crops = crop_resized(ramp, settings, size=16, generator=stream())
    widths = (crops[:, 0, 8, 8] - crops[:, 0, 8, 7]) * 16
    assert widths.min() > np.sqrt(0.25 * 0.8) - 1e-3
    assert widths.max() < np.sqrt(0.5 * 1.25) + 1e-3
    assert crops.min() >= 0
    assert crops.max() <= 1
    assert crops[:, 0, 0, 0].std() > 0.05  # and they are not all at one place


def test_color_jitter_is_pillows_where_one_factor_moves():
    image = np.random.default_rng(1).integers(40, 200, (8, 8, 3), dtype=np.uint8)
    generator = stream(3)
    got = jitter_colors(to_float(torch.from_numpy(image)[None]), 0.4, generator=generator)
    brightness, contrast, saturation = (
        (1 - 0.4 + 0.8 * torch.rand(3, 1, 1, 1, 1, generator=stream(3))).flatten().tolist()
    )
    want = Image.fromarray(image)
    for kind, factor in (
        (ImageEnhance.Brightness, brightness),
        (ImageEnhance.Contrast, contrast),
        (ImageEnhance.Color, saturation),
    ):
        want = kind(want).enhance(factor)
    difference = 255 * got[0].permute(1, 2, 0).numpy() - np.asarray(want, dtype=np.float32)
    assert np.abs(difference).max() < 3  # Pillow rounds to whole values after each step


def test_an_image_depends_on_its_place_and_the_stream_alone(pixels):
    settings = Augment()
    first, again = (augment(pixels, settings, size=16, generator=stream(5)) for _ in range(2))
    assert torch.equal(first, again)
    changed = pixels.clone()
    changed[1:] = 0
    assert torch.equal(augment(changed, settings, size=16, generator=stream(5))[0], first[0])
    assert not torch.equal(augment(pixels, settings, size=16, generator=stream(6)), first)


def test_normalized_images_have_about_zero_mean(pixels):
    assert normalize(to_float(pixels)).mean().abs() < 0.5
    torch.testing.assert_close(
        normalize(torch.tensor([0.485, 0.456, 0.406]).view(1, 3, 1, 1)), torch.zeros(1, 3, 1, 1)
    )


def test_rotations_come_one_after_the_other(pixels):
    images = to_float(pixels)
    turned = rotate(images)
    assert turned.shape == (24, 3, 20, 20)
    for turns in range(4):
        want = np.rot90(images[2].permute(1, 2, 0).numpy(), turns)
        np.testing.assert_array_equal(turned[6 * turns + 2].permute(1, 2, 0).numpy(), want)
