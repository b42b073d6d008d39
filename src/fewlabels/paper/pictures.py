"""What all drawings of tables and figures share: heading, style of panels, small files."""

import io
import re
from typing import Any

from fewlabels.evaluation.plots import render
from fewlabels.paper.report import Report, label

COLORS = 192  # of the palette of a PNG file: enough for flat colors with smooth edges
HEADING = {"fontsize": 8.5, "x": 0.01, "ha": "left", "linespacing": 1.35}


def set_heading(figure: Any, report: Report, *lines: str) -> None:
    """The exhibit's name, the given lines, and how the features of ours were made."""
    name = f"{label(report.name)}: {report.title}"
    made = report.data.get("features_note", "")
    figure.suptitle("\n".join(filter(None, [name, *lines, made])), **HEADING)


def finish(figure: Any) -> dict[str, bytes]:
    """The bytes of a "png" and an "svg" file, made small because a repository keeps them."""
    png = _shrink_png(render(figure, "png"))
    figure.set_layout_engine("none")  # the panels are in place
    return {"png": png, "svg": _shrink_svg(render(figure, "svg"))}


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
    return re.sub(r"\s+", " ", text).strip().encode() + b"\n"
