"""Small files that show the same."""

import io
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest
from matplotlib.figure import Figure
from PIL import Image

from fewlabels.evaluation.plots import render
from fewlabels.paper.draw_tables import vertical_shifts
from fewlabels.paper.pictures import finish


@pytest.fixture(scope="module")
def figure():
    drawn = Figure(figsize=(3, 2))
    panel = drawn.subplots()
    panel.plot([1, 2, 3], [0.123456, 0.2, 0.15], marker="o", label="ours")
    panel.legend(title="0.015 %")
    return drawn


def test_a_png_with_a_palette_looks_the_same(figure):
    small = finish(figure)["png"]
    whole = render(figure, "png")
    assert len(small) < 0.6 * len(whole)
    ours, theirs = (
        np.asarray(Image.open(io.BytesIO(each)).convert("RGB"), np.int64) for each in (small, whole)
    )
    assert ours.shape == theirs.shape
    assert np.abs(ours - theirs).mean() < 1
    assert np.abs(ours - theirs).max() < 64


def test_an_svg_keeps_its_shapes_and_their_scales(figure):
    small, whole = (
        ElementTree.fromstring(each) for each in (finish(figure)["svg"], render(figure, "svg"))
    )
    tags = [
        [
            element.tag
            for element in tree.iter()
            if element.tag.endswith(("}path", "}use", "}clipPath"))
        ]
        for tree in (small, whole)
    ]
    assert tags[0] == tags[1]
    scales = [
        [
            element.get("transform")
            for element in tree.iter()
            if "scale(0.0156" in (element.get("transform") or "")
        ]
        for tree in (small, whole)
    ]
    assert scales[0] == scales[1] != []


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([], []),
        ([1.0], [0]),
        ([1.0, 9.0], [0, 0]),
        ([9.1, 1.0, 9.0], [1, 0, -1]),
        ([1.0, 1.1, 1.2], [-1, 1, -1]),
    ],
)
def test_marks_that_would_touch_give_way(values, expected):
    assert vertical_shifts(values, 0.5) == expected
