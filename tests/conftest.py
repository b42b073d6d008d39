"""Fixtures of all tests: episodes of Gaussian classes, oracles in float64 numpy, the program.

The oracles share no line with the code under test. Torch gets one thread: its tensors here are
small, and synchronising threads costs more than it saves.
"""

import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import hypothesis
import numpy as np
import pytest
import torch
from torch import Tensor

from fewlabels.cli import main

torch.set_num_threads(1)

# No test depends on time: the machine is shared.
hypothesis.settings.register_profile("fewlabels", deadline=None)
hypothesis.settings.load_profile("fewlabels")


class Episodes(NamedTuple):
    support: Tensor  # (E, S, D)
    support_labels: Tensor  # (E, S)
    query: Tensor  # (E, Q, D)
    query_labels: Tensor  # (E, Q)

    @property
    def inputs(self) -> tuple[Tensor, Tensor, Tensor]:
        return self.support, self.support_labels, self.query

    def numpy(self, episode: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        return tuple(
            x[episode].double().numpy() if x.is_floating_point() else x[episode].numpy()
            for x in self.inputs
        )  # type: ignore[return-value]


def _draw_episodes(
    *,
    n_episodes: int = 3,
    n_shot: Sequence[int] = (2, 2, 2),
    n_query: Sequence[int] = (6, 6, 6),
    dim: int = 8,
    spread: float = 0.35,
    seed: int = 0,
    dtype: torch.dtype = torch.float64,
) -> Episodes:
    """Classes of the given sizes around random unit vectors.

    `spread` is the standard deviation times sqrt(dim).
    """
    rng = np.random.default_rng(seed)
    n_way = len(n_shot)
    sides = []
    centers = rng.normal(size=(n_episodes, n_way, dim))
    centers /= np.linalg.norm(centers, axis=-1, keepdims=True)
    for counts in (n_shot, n_query):
        labels = np.stack(
            [rng.permutation(np.repeat(np.arange(n_way), counts)) for _ in range(n_episodes)]
        )
        x = np.take_along_axis(centers, labels[..., None], axis=1) + rng.normal(
            size=(*labels.shape, dim)
        ) * spread / np.sqrt(dim)
        sides.append((torch.tensor(x, dtype=dtype), torch.tensor(labels)))
    return Episodes(*sides[0], *sides[1])


def _sinkhorn(cost: np.ndarray, lam: float, column_mass: np.ndarray) -> np.ndarray:
    """Plan with rows of 1 and the given columns, by alternating scaling until nothing moves."""
    kernel = np.exp(-lam * (cost - cost.min(axis=1, keepdims=True)))
    v = np.ones(cost.shape[1])
    for _ in range(50_000):
        u = 1 / (kernel @ v)
        columns = v * (u @ kernel)
        if np.abs(columns - column_mass).max() < 1e-12:
            return u[:, None] * kernel * v
        v = v * (column_mass / columns)
    raise AssertionError("the oracle did not converge")


def _map_by_the_letter(
    support: np.ndarray,
    support_labels: np.ndarray,
    query: np.ndarray,
    *,
    n_way: int,
    lam: float,
    alpha: float,
    n_steps: int,
    solve: Callable[[np.ndarray], np.ndarray],
) -> np.ndarray:
    """Algorithm 1 of the paper, row by row; `solve` turns squared distances into a plan, (Q, W)."""
    known = np.eye(n_way)[support_labels]
    centers = np.stack([support[support_labels == way].mean(axis=0) for way in range(n_way)])
    samples = np.concatenate([support, query])
    for _ in range(n_steps):
        distances = ((query[:, None] - centers[None]) ** 2).sum(axis=-1)
        memberships = np.concatenate([known, solve(distances)])
        means = np.stack(
            [np.average(samples, axis=0, weights=memberships[:, way]) for way in range(n_way)]
        )
        centers = centers + alpha * (means - centers)
    return solve(((query[:, None] - centers[None]) ** 2).sum(axis=-1))


@pytest.fixture
def draw_episodes() -> Callable[..., Episodes]:
    return _draw_episodes


@pytest.fixture
def sinkhorn() -> Callable[[np.ndarray, float, np.ndarray], np.ndarray]:
    return _sinkhorn


@pytest.fixture
def map_by_the_letter() -> Callable[..., np.ndarray]:
    return _map_by_the_letter


class Done(NamedTuple):
    code: int
    stdout: str
    stderr: str


@pytest.fixture(scope="session")
def program() -> Callable[..., Done]:
    """The program as installed, in a process of its own."""

    def run(*arguments: object) -> Done:
        command = [str(Path(sys.executable).with_name("fewlabels")), *map(str, arguments)]
        done = subprocess.run(
            command, capture_output=True, text=True, encoding="utf-8", timeout=600, check=False
        )
        return Done(done.returncode, done.stdout, done.stderr)

    return run


@pytest.fixture
def here(monkeypatch, capsys) -> Callable[..., Done]:
    """The same in this process, to save the imports."""

    def run(*arguments: object) -> Done:
        monkeypatch.setattr(sys, "argv", ["fewlabels", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main()
        return Done(ended.value.code, *capsys.readouterr())

    return run
