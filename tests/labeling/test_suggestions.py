"""What to label next: doubtful ones, every region, duplicates once; and when to stop."""

import numpy as np
import pytest

from fewlabels.labeling.accuracy import Estimate
from fewlabels.labeling.answer import Answer, prepare, solve
from fewlabels.labeling.suggestions import advise, doubtful_below, suggest


def test_without_labels_the_first_suggestions_cover_the_classes(make_blobs):
    blobs = make_blobs(spread=0.2)
    chosen = suggest(prepare(blobs.features), np.full(len(blobs), -1), None, n=4)
    assert sorted(blobs.labels[chosen]) == [0, 1, 2, 3]


def test_near_duplicates_come_once(blobs, hide):
    features = np.concatenate([blobs.features, blobs.features[50:60].repeat(5, axis=0)])
    labels = np.concatenate([hide(blobs.labels, 2), np.full(50, -1)])
    vectors = prepare(features)
    chosen = suggest(vectors, labels, solve(vectors, labels, n_way=4), n=30)
    originals = [50 + (row - len(blobs)) // 5 if row >= len(blobs) else row for row in chosen]
    assert len(set(originals)) == len(originals)


def test_labelled_ones_and_their_copies_are_not_suggested(blobs, hide):
    labels = hide(blobs.labels, 2)
    features = np.concatenate([blobs.features, blobs.features[labels >= 0]])
    labels = np.concatenate([labels, np.full(8, -1)])
    vectors = prepare(features)
    chosen = suggest(vectors, labels, solve(vectors, labels, n_way=4), n=60)
    assert len(set(chosen)) == 60
    assert not set(chosen) & set(np.flatnonzero(labels >= 0))
    assert not set(chosen[:50]) & set(range(120, 128))


def test_they_help_more_than_chance(make_blobs, hide):
    gains = []
    for seed in range(8):
        blobs = make_blobs(n_classes=8, spread=1.6, seed=seed)
        vectors = prepare(blobs.features)
        start = hide(blobs.labels, 1)

        def accuracy(rows, start=start, blobs=blobs, vectors=vectors):
            labels = start.copy()
            labels[rows] = blobs.labels[rows]
            return (solve(vectors, labels, n_way=8).labels == blobs.labels)[labels < 0].mean()

        chosen = suggest(vectors, start, solve(vectors, start, n_way=8), n=16)
        rng = np.random.default_rng(seed)
        by_chance = [
            accuracy(rng.choice(np.flatnonzero(start < 0), 16, replace=False)) for _ in range(4)
        ]
        gains.append(accuracy(chosen) - np.mean(by_chance))
    assert np.mean(gains) > 0  # seen: 0.05, and 0.042 ± 0.010 in 16 draws


def test_no_more_than_there_are(blobs):
    labels = blobs.labels.copy()
    labels[5] = -1
    vectors = prepare(blobs.features)
    assert suggest(vectors, labels, solve(vectors, labels, n_way=4), n=10) == [5]


@pytest.mark.parametrize(
    ("sure", "estimate", "words"),
    [
        (0.5, None, "second image of a class"),
        (0.5, Estimate(5, 10, 0.5, 0.24, 0.76), "1 image is doubtful"),
        (
            0.99,
            Estimate(10, 10, 1.0, 0.72, 1.0),
            "No image is doubtful, but 10 hidden labels are too few to rely on",
        ),
        (
            0.99,
            Estimate(80, 100, 0.8, 0.71, 0.87),
            "No image is doubtful, but hidden labels say 80 %",
        ),
        (
            0.5,
            Estimate(200, 200, 1.0, 0.98, 1.0),
            "hardly help. Check the doubtful ones: 1 image is doubtful.",
        ),
        (
            0.99,
            Estimate(200, 200, 1.0, 0.98, 1.0),
            "hardly help. You may stop: no image is doubtful.",
        ),
    ],
)
def test_advice(sure, estimate, words):
    answer = Answer(np.array([[1, 0], [sure, 1 - sure]], dtype=np.float32), None, None, 1.0)
    assert words in advise(answer, np.array([0, -1]), estimate)


def test_advice_at_the_beginning_and_at_the_end():
    answer = Answer(np.eye(2, dtype=np.float32), None, None, 1.0)
    assert "Confidences are rough" in advise(answer, np.array([0, -1]), None)
    assert "being estimated" in advise(
        Answer(np.eye(3, 2, dtype=np.float32), None, None, 1.0), np.array([0, 0, -1]), None
    )
    assert "two classes" in advise(None, np.array([-1, -1]), None)
    assert "Every image" in advise(answer, np.array([0, 1]), None)


def test_nothing_is_called_sure_while_few_labels_can_be_hidden():
    """Of three hidden labels that were all right, not even half can be promised."""
    assert doubtful_below(None) > 1
    assert doubtful_below(Estimate(3, 3, 1.0, 0.44, 1.0)) > 1
    assert doubtful_below(Estimate(4, 4, 1.0, 0.51, 1.0)) == 0.8
