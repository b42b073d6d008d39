"""The answers of the authors' own script on real features; see `make_golden_small.py`."""

from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import torch

from fewlabels.methods.assignment import Assignment
from fewlabels.methods.map import assign_map
from fewlabels.preprocess import PAPER, Pipeline

HERE = Path(__file__).resolve().parent
SHARED = HERE.parents[1].parent / "shared" / "features" / "cifar-fs-wrn28-10"
N_WAY, N_QUERY = 5, 15
MOST_DIFFERENT_LABELS = 5 / 15_000  # the script works in float32 and stops a whole batch at once
MOST_DIFFERENT_PLAN = 5e-3

needs_shared = pytest.mark.skipif(not (SHARED / "golden.npz").exists(), reason=f"needs {SHARED}")
SETTINGS = pytest.mark.parametrize(
    ("key", "n_shot", "alpha", "n_steps"),
    [("s1_a0.3", 1, 0.3, 30), ("s1_a0.4", 1, 0.4, 30), ("s5_a0.2", 5, 0.2, 20)],
)
DTYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.float64])


class Golden(NamedTuple):
    features: torch.Tensor  # (N, D) float16
    rows: torch.Tensor  # (tasks, ways, images) into `features`
    answers: dict[str, np.ndarray]


@pytest.fixture(scope="module")
def small_golden() -> Golden:
    with np.load(HERE / "golden_small.npz") as stored:
        arrays = dict(stored)
    return Golden(
        torch.from_numpy(arrays.pop("features")),
        torch.from_numpy(arrays.pop("rows").astype(np.int64)),
        arrays,
    )


@pytest.fixture(scope="module")
def whole_golden() -> Golden:
    with np.load(SHARED / "golden.npz") as stored:
        arrays = dict(stored)
    rows = arrays["classes"].astype(np.int64)[:, :, None] * 600 + arrays["images"]
    return Golden(torch.from_numpy(np.load(SHARED / "novel.npy")), torch.from_numpy(rows), arrays)


def classify(
    golden: Golden, dtype: torch.dtype, *, n_shot: int, alpha: float, n_steps: int
) -> Assignment:
    pipeline = Pipeline.parse(PAPER)
    features = pipeline.transform(golden.features.to(dtype))
    image_major = golden.rows.transpose(1, 2)  # (tasks, images, ways): query j belongs to way j % 5
    n_tasks = len(image_major)
    support = features[image_major[:, :n_shot].reshape(n_tasks, -1)]
    query = features[image_major[:, n_shot : n_shot + N_QUERY].reshape(n_tasks, -1)]
    support, query = pipeline.episodic.apply(support, query)
    return assign_map(
        support,
        torch.arange(N_WAY).repeat(n_shot).expand(n_tasks, -1),
        query,
        n_way=N_WAY,
        alpha=alpha,
        n_steps=n_steps,
    )


def assert_agrees(got: Assignment, golden: Golden, key: str) -> None:
    labels, plan = golden.answers[f"{key}_pred"], golden.answers[f"{key}_plan"]
    assert got.labels.shape == labels.shape
    assert got.converged.all()
    assert (got.labels.numpy() != labels).mean() <= MOST_DIFFERENT_LABELS
    np.testing.assert_allclose(got.plan[: len(plan)].numpy(), plan, atol=MOST_DIFFERENT_PLAN)


@SETTINGS
@DTYPES
def test_ten_tasks_are_answered_as_by_the_authors(small_golden, key, n_shot, alpha, n_steps, dtype):
    got = classify(small_golden, dtype, n_shot=n_shot, alpha=alpha, n_steps=n_steps)
    assert_agrees(got, small_golden, key)


@needs_shared
@SETTINGS
@DTYPES
def test_all_golden_tasks_are_answered_as_by_the_authors(
    whole_golden, key, n_shot, alpha, n_steps, dtype
):
    got = classify(whole_golden, dtype, n_shot=n_shot, alpha=alpha, n_steps=n_steps)
    assert got.labels.numel() == 15_000
    assert_agrees(got, whole_golden, key)


@needs_shared
def test_the_small_file_is_the_start_of_the_whole_one(small_golden, whole_golden):
    n_tasks = len(small_golden.rows)
    assert torch.equal(
        small_golden.features[small_golden.rows], whole_golden.features[whole_golden.rows[:n_tasks]]
    )
    for name, answer in small_golden.answers.items():
        np.testing.assert_array_equal(answer, whole_golden.answers[name][:n_tasks])
