"""ImageTransform: one line in, the same line out, and the numbers that a hand computation gives."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from fewlabels.data.transforms import ImageTransform
from fewlabels.errors import InputError

SIZES = st.integers(1, 512)
FILTERS = st.sampled_from(["", ", bicubic", ", bilinear", ", lanczos"])
NUMBERS = st.floats(-10, 10).map(lambda number: f"{number:.6g}")
STEPS = st.one_of(
    st.builds("resize({}{})".format, SIZES, FILTERS),
    st.builds("square({}{})".format, SIZES, FILTERS),
    st.builds("crop({})".format, SIZES),
)
NORMALIZE = st.builds(
    "normalize({})".format,
    st.tuples(*[NUMBERS] * 3, *[st.floats(0.01, 10).map(lambda number: f"{number:.6g}")] * 3).map(
        lambda six: f"{' '.join(six[:3])}, {' '.join(six[3:])}"
    ),
)


@given(st.lists(STEPS, max_size=4), st.lists(NORMALIZE, max_size=1))
def test_the_line_comes_back(steps, normalize):
    line = " | ".join([*steps, *normalize])
    sizes = [int(step.partition("(")[2].split(",")[0].rstrip(")")) for step in steps]
    if any(
        step.startswith("crop") and after > before
        for step, before, after in zip(steps[1:], sizes, sizes[1:], strict=False)
    ):
        with pytest.raises(InputError, match="needs at least"):
            ImageTransform.parse(line)
        return
    transform = ImageTransform.parse(line)
    assert ImageTransform.parse(str(transform)) == transform
    assert ImageTransform.parse(transform) == transform
    assert str(ImageTransform.parse(str(transform).replace(" | ", "|").replace("(", " ( "))) == str(
        transform
    )
    assert ", bicubic" not in str(transform)


@given(st.lists(STEPS, min_size=1, max_size=3), st.integers(1, 40), st.integers(1, 40))
def test_the_size_is_the_size_that_comes_out(steps, width, height):
    try:
        transform = ImageTransform.parse(" | ".join(steps))
        values = transform(Image.new("RGB", (width, height)))
    except InputError:
        return
    if transform.size is not None:
        assert values.shape == (3, transform.size, transform.size)


def test_the_paper_like_line_equals_a_hand_computation(noise):
    means, stds = (
        np.array([0.507, 0.487, 0.441], np.float32),
        np.array([0.267, 0.256, 0.276], np.float32),
    )
    transform = ImageTransform.parse(
        "resize(36) | crop(32) | normalize(0.507 0.487 0.441, 0.267 0.256 0.276)"
    )
    assert (
        str(transform) == "resize(36) | crop(32) | normalize(0.507 0.487 0.441, 0.267 0.256 0.276)"
    )
    assert transform.size == 32
    assert transform.normalization == ((0.507, 0.487, 0.441), (0.267, 0.256, 0.276))
    image = Image.fromarray(noise(100, 72))
    small = np.asarray(image.resize((50, 36), Image.Resampling.BICUBIC))[2:34, 9:41].astype(
        np.float32
    )
    expected = ((small / 255 - means) / stds).transpose(2, 0, 1)
    values = transform(image)
    assert values.dtype == torch.float32
    assert values.is_contiguous()
    torch.testing.assert_close(values, torch.from_numpy(expected), rtol=1e-6, atol=1e-6)


def test_filters_are_those_they_name(noise):
    image = Image.fromarray(noise(40, 40))
    for name, resample in [
        ("bilinear", Image.Resampling.BILINEAR),
        ("lanczos", Image.Resampling.LANCZOS),
    ]:
        expected = np.asarray(image.resize((8, 8), resample)).transpose(2, 0, 1)
        for step in ("resize", "square"):
            values = ImageTransform.parse(f"{step}(8, {name})")(image)
            np.testing.assert_array_equal((values * 255).round().byte(), expected)


@pytest.mark.parametrize("line", ["", "none", " "])
def test_no_steps_make_a_tensor_of_values_up_to_one(line, noise):
    transform = ImageTransform.parse(line)
    assert (str(transform), transform.size) == ("none", None)
    assert transform.normalization == ((0.0, 0.0, 0.0), (1.0, 1.0, 1.0))
    image = Image.fromarray(noise())
    np.testing.assert_array_equal(transform(image) * 255, np.asarray(image).transpose(2, 0, 1))


def test_the_image_is_left_as_it_is(noise):
    image = Image.fromarray(noise(20, 20))
    ImageTransform.parse("normalize(0 0 0, 1 1 1)")(image).zero_()
    np.testing.assert_array_equal(image, noise(20, 20))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (
            "flip",
            r"one of resize\(S\), square\(S\), crop\(S\) and normalize\(R G B, R G B\), got 'flip'",
        ),
        ("resize(32) | | crop(32)", "got ''"),
        ("resize(32", "got 'resize"),
        ("resize()", "whole number of pixels from 1 to 8192, got ''"),
        ("resize(-3)", "got '-3'"),
        ("crop(0)", "got '0'"),
        ("square(9000)", "got '9000'"),
        ("resize(3.5)", "got '3.5'"),
        ("resize(32, nearest)", "the filter must be one of bicubic, bilinear, lanczos"),
        ("crop(32, bilinear)", "only resize and square take a filter"),
        (
            "resize(32) | crop(36)",
            r"crop\(36\) needs at least 36 pixels, but the image has only 32 there",
        ),
        ("crop(32) | crop(36)", "only 32 there"),
        ("normalize(0 0 0, 1 1 1) | crop(3)", "normalize must be the last step"),
        ("normalize(0.5, 0.5)", "three means and three standard deviations"),
        ("normalize(0 0 0, 1 1 x)", "three means and three standard deviations"),
        ("normalize(0 0 nan, 1 1 1)", "three means and three standard deviations"),
        (
            "normalize(0 0 0, 1 1 0)",
            "standard deviations of normalize must be above 0, got '1 1 0'",
        ),
    ],
)
def test_typos_are_named(line, message):
    with pytest.raises(InputError, match=message):
        ImageTransform.parse(line)


def test_images_that_do_not_fit_are_refused():
    with pytest.raises(InputError, match="must be RGB, got mode L"):
        ImageTransform.parse("crop(3)")(Image.new("L", (5, 5)))
    with pytest.raises(
        InputError, match=r"crop\(9\) needs an image of at least 9 × 9 pixels, got 5 × 5"
    ):
        ImageTransform.parse("crop(9)")(Image.new("RGB", (5, 5)))
