"""Imbalance by the sampler's own episodes, and the figure of it."""

import io
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest
from PIL import Image

from fewlabels.evaluation.draw_imbalance import draw_imbalance, expected_imbalance
from fewlabels.evaluation.sampling import sample_episodes
from fewlabels.evaluation.sweep import evaluate_cells, plan_cells


@pytest.mark.parametrize(
    "word",
    [
        "20",
        "dirichlet:2:200",
        "dirichlet:1:200",
        "dirichlet:0.3:200",
        "present:2:200",
        "100,50,30,20,0",
    ],
)
def test_the_expected_imbalance_is_that_of_drawn_episodes(make_features, word):
    episodes = sample_episodes(make_features([250] * 5), n_episodes=1500, queries=word)
    fractions = episodes.query_counts / episodes.query_counts.sum(axis=1, keepdims=True)
    drawn = np.abs(fractions - 1 / 5).sum(axis=1) / 2
    assert expected_imbalance(word, 5) == pytest.approx(
        drawn.mean(), abs=4 * drawn.std() / 1500**0.5 + 0.004
    )  # counts are whole numbers


def test_the_figure_holds_every_method_and_kind_in_order_of_imbalance(make_features):
    words = ["present:2:9", "3", "dirichlet:2:9"]
    cells = plan_cells(
        ["ncm", "map", "map-truth"],
        shots=[1, 2],
        queries=words,
        knobs={"prior": ["uniform", "free"]},
    )
    results = evaluate_cells(make_features([20] * 4), cells, n_way=3, n_episodes=4)[0]
    figure = draw_imbalance(results, about="birds <3")
    with Image.open(io.BytesIO(figure["png"])) as image:
        assert image.size[0] > 1400
    assert ElementTree.fromstring(figure["svg"]).tag.endswith("svg")
    assert draw_imbalance(results, about="birds <3")["svg"] == figure["svg"]
    text = figure["svg"].decode()
    places = [text.index(f"<!-- {word}") for word in ("equal", "Dirichlet(2)", "2 of 3 present")]
    assert places == sorted(places)
    for word in (
        "n = 4 episodes",
        "PT+NCM",
        "prior free",
        "prior uniform",
        "told the truth",
        "1-shot",
        "2-shot",
    ):
        assert word in text


def test_what_ctrl_c_left_is_drawn(make_features):
    cells = plan_cells(["ncm", "map"], queries=["3", "dirichlet:2:9"])
    results = evaluate_cells(make_features([20] * 4), cells, n_way=3, n_episodes=1)[0]
    assert draw_imbalance(results[:-1])["png"].startswith(b"\x89PNG")
