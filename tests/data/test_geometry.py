"""Resizing and cropping against hand-counted sizes and places."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from fewlabels.data.geometry import crop_center, resize_short_side, resize_square
from fewlabels.errors import InputError

SIDE = st.integers(1, 60)


@given(width=SIDE, height=SIDE, size=SIDE)
def test_the_short_side_becomes_the_size_and_the_aspect_stays(width, height, size):
    resized = resize_short_side(Image.new("RGB", (width, height)), size)
    assert min(resized.size) == size
    assert (resized.width - size) * (width - height) >= 0  # the longer side stays the longer one
    exact = size * max(width, height) / min(width, height)
    assert exact - 1 < max(resized.size) <= exact  # rounded down


@given(width=SIDE, height=SIDE, data=st.data())
def test_the_crop_is_in_the_middle(width, height, data):
    size = data.draw(st.integers(1, min(width, height)))
    coordinates = np.zeros((height, width, 3), np.uint8)
    coordinates[..., 0], coordinates[..., 1] = np.arange(width), np.arange(height)[:, None]
    cropped = np.asarray(crop_center(Image.fromarray(coordinates), size)).astype(int)
    assert cropped.shape == (size, size, 3)
    left, top = cropped[0, 0, :2]
    right, bottom = width - 1 - cropped[-1, -1, 0], height - 1 - cropped[-1, -1, 1]
    assert abs(left - right) <= 1
    assert abs(top - bottom) <= 1


def test_what_fits_is_not_touched():
    image = Image.new("RGB", (7, 7))
    assert resize_short_side(image, 7) is resize_square(image, 7) is crop_center(image, 7) is image


def test_square_does_not_keep_the_aspect(noise):
    image = Image.fromarray(noise(20, 10))
    np.testing.assert_array_equal(
        resize_square(image, 6), image.resize((6, 6), Image.Resampling.BICUBIC)
    )


def test_resizing_is_antialiased():
    stripes = np.zeros((64, 64, 3), np.uint8)
    stripes[:, ::2] = 255
    assert (
        np.ptp(np.asarray(resize_short_side(Image.fromarray(stripes), 8)).astype(int)) < 12
    )  # grey, not black and white


def test_a_crop_larger_than_the_image_is_refused():
    with pytest.raises(
        InputError, match=r"crop\(9\) needs an image of at least 9 × 9 pixels, got 20 × 8"
    ):
        crop_center(Image.new("RGB", (20, 8)), 9)
