import importlib.util
from pathlib import Path

import numpy as np
import pytest

from fewlabels.features import FeatureSet, load_embedded
from fewlabels.features.embedded import FILE

SHARED = Path(__file__).resolve().parents[2].parent / "shared"
needs_shared = pytest.mark.skipif(
    not (SHARED / "features").exists(), reason="the shared folder is not here"
)


@pytest.fixture(scope="module")
def original():
    spec = importlib.util.spec_from_file_location(
        "make_embedded", Path(__file__).with_name("make_embedded.py")
    )
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.make(SHARED)


def prototype_accuracy(made, *, n_episodes=2000, seed=0):
    """Nearest class mean on power(0.5) | unit features, 5-way 1-shot with 15 queries a class."""
    roots = np.sqrt(made.features + 1e-6)
    x = (roots / np.linalg.norm(roots, axis=1, keepdims=True)).reshape(20, 200, -1)
    rng = np.random.default_rng(seed)
    hits = []
    for _ in range(n_episodes):
        ways = rng.choice(20, 5, replace=False)
        rows = np.stack([rng.choice(200, 16, replace=False) for _ in ways])
        episode = x[ways[:, None], rows]  # (5, 16, D)
        similarity = (
            episode[:, 1:] @ episode[:, 0].T
        )  # (5, 15, 5): for unit vectors the nearest has the largest product
        hits.append((similarity.argmax(axis=-1) == np.arange(5)[:, None]).mean())
    return 100 * np.mean(hits)


def test_it_is_small_and_says_what_it_is():
    made = load_embedded()
    assert FILE.stat().st_size <= 3_000_000
    assert made.features.shape == (4000, 640)
    assert made.features.dtype == np.float32
    assert made.class_sizes.tolist() == [200] * 20
    assert made.class_names[:3] == ("whale", "poppy", "rose")
    assert {key: made.provenance[key] for key in ("dataset", "split", "backbone")} == {
        "dataset": "cifar-fs",
        "split": "novel",
        "backbone": "wrn28-10",
    }
    assert "/" not in made.provenance["source"]


def test_it_can_be_told_apart_in_episodes():
    assert (
        prototype_accuracy(load_embedded(), n_episodes=200) > 65
    )  # chance is 20, the paper's order of magnitude 70


def tensors(path):
    """The bytes behind the header."""
    content = path.read_bytes()
    return content[8 + int.from_bytes(content[:8], "little") :]


@needs_shared
def test_it_is_what_the_script_makes(original, tmp_path):
    original.save(tmp_path / "again.safetensors", encoding="root8")
    assert (
        FeatureSet.load(tmp_path / "again.safetensors").fingerprint == load_embedded().fingerprint
    )
    # The file is from before headers had a digest.
    assert tensors(tmp_path / "again.safetensors") == tensors(FILE)


@needs_shared
def test_root8_costs_no_accuracy(original):
    rounded = load_embedded()
    error = np.linalg.norm(rounded.features - original.features, axis=1) / np.linalg.norm(
        original.features, axis=1
    )
    assert error.max() < 0.02  # measured: 0.0151
    assert abs(prototype_accuracy(rounded) - prototype_accuracy(original)) < 0.1
