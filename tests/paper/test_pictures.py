"""Small files that show the same."""

import io
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest
from matplotlib import rc_context
from matplotlib.figure import Figure
from PIL import Image

from fewlabels.evaluation.plots import render
from fewlabels.paper.draw_tables import vertical_shifts
from fewlabels.paper.pictures import REAL_TEXT, finish


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


def test_an_svg_keeps_its_shapes_and_has_real_text(figure):
    small = ElementTree.fromstring(finish(figure)["svg"])
    with rc_context(REAL_TEXT):
        whole = ElementTree.fromstring(render(figure, "svg"))

    def shapes(tree):
        kinds = ("}path", "}use", "}clipPath", "}text")
        return [element.tag for element in tree.iter() if element.tag.endswith(kinds)]

    assert shapes(small) == shapes(whole)
    texts = [each for each in small.iter() if each.tag.endswith("}text")]
    assert {"0.015 %", "ours"} <= {each.text for each in texts}
    assert all("Verdana, sans-serif" in each.get("style") for each in texts)


def test_a_pdf_has_real_text_and_no_date(figure):
    pdf = finish(figure)["pdf"]
    assert b"/Type0" in pdf  # a font, not outlines
    assert b"CreationDate" not in pdf
    assert pdf == finish(figure)["pdf"]


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
