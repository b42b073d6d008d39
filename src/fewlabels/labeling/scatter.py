"""A map of the features: the two directions in which they differ most, as points in a picture."""

import colorsys
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fewlabels.labeling.model import Vectors

GOLDEN = 0.61803398875  # steps of this part of the colour circle never come close to an earlier one
WIDTH, HEIGHT, MARGIN = 720, 460, 14  # of the picture, in its own units
MOST_POINTS = 4000  # more would only cover one another, and make the file heavy


def project_plane(vectors: Vectors) -> NDArray[np.float64]:
    """Coordinates on the first two principal axes, (N, D) -> (N, 2)."""
    x = vectors.x.numpy().astype(np.float64)
    x = x - x.mean(axis=0)
    values, axes = np.linalg.eigh(x.T @ x) if x.shape[1] <= len(x) else np.linalg.eigh(x @ x.T)
    if x.shape[1] <= len(x):
        return np.asarray(x @ axes[:, [-1, -2]])
    return np.asarray(axes[:, [-1, -2]] * np.sqrt(np.maximum(values[[-1, -2]], 0)))


def color(number: int) -> str:
    """The colour of a class, the same in the page, the report and the map.

    >>> color(0), color(1)
    ('#4f86e0', '#9fc94a')
    """
    hue = (0.604 + number * GOLDEN) % 1
    lightness, saturation = ((0.595, 0.70), (0.54, 0.54), (0.66, 0.62))[number % 3]
    red, green, blue = colorsys.hls_to_rgb(hue, lightness, saturation)
    return f"#{round(red * 255):02x}{round(green * 255):02x}{round(blue * 255):02x}"


def draw_map(
    points: NDArray[np.float64],
    labels: Sequence[int],
    given: NDArray[np.bool_],
    titles: Sequence[str],
) -> str:
    """An SVG picture: small points for the model's labels, ringed ones for given labels, each with its name."""
    chosen = np.arange(len(points))
    if len(points) > MOST_POINTS:
        chosen = np.sort(np.random.default_rng(0).choice(len(points), MOST_POINTS, replace=False))
    low, high = points.min(axis=0), points.max(axis=0)
    scaled = (points - low) / np.where(high > low, high - low, 1)
    marks = []
    for i in sorted(chosen.tolist(), key=lambda i: bool(given[i])):
        x, y = (
            MARGIN + scaled[i, 0] * (WIDTH - 2 * MARGIN),
            HEIGHT - MARGIN - scaled[i, 1] * (HEIGHT - 2 * MARGIN),
        )
        ring = ' class="given" r="6"' if given[i] else ' r="3.5"'
        marks.append(
            f'<circle cx="{x:.1f}" cy="{y:.1f}"{ring} fill="{color(labels[i])}"><title>{titles[i]}</title></circle>'
        )
    return f'<svg class="map" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="Map of the features">{"".join(marks)}</svg>'
