"""What all drawings of tables and figures share: files that are small and have real text."""

import io
import re
from typing import Any

from fewlabels.evaluation.plots import render

COLORS = 192  # of the palette of a PNG file: enough for flat colors with smooth edges
REAL_TEXT: Any = {  # instead of outlines of letters: text that can be searched and copied
    "svg.fonttype": "none",
    "pdf.fonttype": 42,
}
FONTS = "font-family: 'DejaVu Sans', Verdana, sans-serif"


def finish(figure: Any) -> dict[str, bytes]:
    """The bytes of a "png", an "svg" and a "pdf" file, small because a repository keeps them."""
    from matplotlib import rc_context

    png = _shrink_png(render(figure, "png"))
    figure.set_layout_engine("none")  # the panels are in place
    with rc_context(REAL_TEXT):
        return {"png": png, "svg": _shrink_svg(render(figure, "svg")), "pdf": render(figure, "pdf")}


def _shrink_png(content: bytes) -> bytes:
    """The same image with a palette, about a third of the bytes."""
    from PIL import Image  # comes with matplotlib

    buffer = io.BytesIO()
    with Image.open(io.BytesIO(content)) as image:
        small = image.convert("RGB").quantize(COLORS, dither=Image.Dither.NONE)
        small.save(buffer, "png", dpi=image.info.get("dpi", (72, 72)))
    return buffer.getvalue()


def _shrink_svg(content: bytes) -> bytes:
    """The same drawing without comments and with two digits per number.

    Numbers below 1 keep their digits, because they may be scales.

    >>> _shrink_svg(b'<svg><!-- a --><path d="M 1.23456 0.015625"/> <g/></svg>').decode().strip()
    '<svg><path d="M 1.23 0.015625"/><g/></svg>'
    """
    text = re.sub(r"<metadata>.*?</metadata>|<!--.*?-->", "", content.decode(), flags=re.DOTALL)
    text = re.sub(r"(?<![\d.])([1-9]\d*\.\d\d)\d+", r"\1", text)
    text = re.sub(r'<g id="[^"]*"', "<g", text)  # nothing refers to groups
    text = re.sub(r">\s+<", "><", text)
    text = text.replace("font-family: 'DejaVu Sans'", FONTS)  # the first that the reader has
    return re.sub(r"\s+", " ", text).strip().encode() + b"\n"
