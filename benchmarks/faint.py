"""How far does the network of `map-auto` go beyond the features that it was fitted to?

    python benchmarks/faint.py [--episodes 200]

Validation classes of networks, folders of images, and features in which classes are fainter: with
noise added (in standard deviations of the features), normal ones, scikit-learn's digits, and texts
(functions of Python's standard library, by the package that they are in) as counts of words, all
of them and reduced to 100 components. 5 ways, 75 queries. For each the signal, which is the
standard deviation that `refinement.find_trust` takes, the accuracy of two plans, and what is gained
by the network alone and by its mean with two plans, for several pairs of FAINT and CLEAR. Writes
benchmarks/results/faint.json.
"""

import argparse
import ast
import json
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from refinement import draw, read, take
from sklearn.datasets import load_digits
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer

from fewlabels import FeatureSet
from fewlabels.evaluation.results import versions
from fewlabels.methods import refinement
from fewlabels.methods.refinement import CLEAR, FAINT, OF_LABELS, load_weights, refine_logits

ROOT = Path(__file__).parents[1]
SHARED = ROOT.parent / "shared" / "features"
RESULTS = Path(__file__).with_name("results") / "faint.json"
NETWORKS = {
    "CIFAR-FS, own WRN": ROOT / "artifacts/cifar-fs/wrn28-10/val.safetensors",
    "CIFAR-FS, older WRN": SHARED / "cifar-fs-wrn28-10/val.npy",
    "CIFAR-FS, Conv4": ROOT / "artifacts/cifar-fs/conv4/val.safetensors",
    "CUB, ResNet18": ROOT / "artifacts/cub/resnet18/val.safetensors",
}
NOISY = ("CIFAR-FS, own WRN", "CUB, ResNet18")
NOISE = (0.5, 1.0, 1.5)
NORMAL = ((64, 0.35), (512, 0.2), (16, 0.8))  # columns, standard deviation of the class means
FOLDERS = ("textures", "trash", "steel")
PACKAGES = ("asyncio", "email", "http", "importlib", "logging", "multiprocessing", "tkinter")
PACKAGES += ("ctypes", "unittest", "xml")
LEAST_CHARACTERS, MOST_TEXTS = 150, 100  # of a function; of a package
RAMPS = ((FAINT, CLEAR), (0.0, 2.0), (0.5, 1.5), (1.0, 2.0), (0.5, 2.5), (0.0, 3.0))
SHOTS, QUERIES = (1, 2, 5), ("15", "dirichlet:2:75", "present:2:60")


def feature_sets() -> Iterator[tuple[str, FeatureSet]]:
    """All features, by name."""
    random = np.random.default_rng(0)
    for name, path in NETWORKS.items():
        features = read(path)
        yield name, features
        x, y = features.features, features.labels
        for part in NOISE * (name in NOISY):
            noise = part * x.std() * random.normal(size=x.shape)
            yield f"{name}, noise {part}", numbered(np.abs(x + noise), y)
    for name in FOLDERS:
        found = np.load(SHARED / "folders" / f"{name}.npz")
        yield name, numbered(found["features"], found["labels"])
    yield "digits", numbered(*load_digits(return_X_y=True))
    y = np.repeat(np.arange(10), 60)
    for columns, apart in NORMAL:
        means = apart * random.normal(size=(10, columns))
        x = random.normal(size=(len(y), columns)) + means[y]
        yield f"normal, {columns} columns, {apart}", numbered(x, y)
    texts, packages = read_functions()
    counts = TfidfVectorizer(sublinear_tf=True, min_df=2, stop_words="english").fit_transform(texts)
    yield "texts, counts of words", numbered(counts.toarray(), packages)
    reduced = TruncatedSVD(100, random_state=0).fit_transform(counts)
    yield "texts, 100 components", numbered(reduced, packages)


def numbered(x: np.ndarray, y: np.ndarray) -> FeatureSet:
    """Features of classes that have only numbers."""
    return FeatureSet.from_arrays(np.asarray(x, dtype=np.float32), [f"class {each}" for each in y])


def read_functions() -> tuple[list[str], np.ndarray]:
    """Functions of Python's standard library, and the number of the package of each."""
    random, texts, packages = np.random.default_rng(0), [], []
    for number, package in enumerate(PACKAGES):
        found = []
        for path in sorted(Path(sysconfig.get_path("stdlib"), package).rglob("*.py")):
            source = path.read_text(errors="ignore")
            nodes = ast.walk(ast.parse(source))
            functions = (node for node in nodes if isinstance(node, ast.FunctionDef))
            found += [ast.get_source_segment(source, node) or "" for node in functions]
        found = [text for text in found if len(text) >= LEAST_CHARACTERS]
        random.shuffle(found)
        texts += found[:MOST_TEXTS]
        packages += [number] * len(found[:MOST_TEXTS])
    return texts, np.array(packages)


def measure(
    name: str, features: FeatureSet, n_shot: int, queries: str, n: int
) -> dict[str, object]:
    """Signal, accuracy of two plans, and gains in points, on some episodes."""
    clues, truth = draw(features, 5, n_shot, queries, n, 1, "cpu")
    clues = take(clues, slice(None))
    with torch.no_grad():
        refined = refine_logits(clues, load_weights())[-1].softmax(dim=-1)
    of_labels = clues.inputs[..., OF_LABELS]

    def accuracy(plan: torch.Tensor) -> float:
        return 100 * float((plan.argmax(dim=-1) == truth).double().mean())

    before, gains = accuracy(clues.plan), {"network": accuracy(refined)}
    for ramp in RAMPS:
        refinement.FAINT, refinement.CLEAR = ramp
        trust = refinement.find_trust(of_labels)[:, None, None]
        gains[f"{ramp[0]} to {ramp[1]}"] = accuracy(torch.lerp(clues.plan, refined, trust))
    return {
        **{"features": name, "queries": queries, "n_shot": n_shot, "n_episodes": n},
        "signal": float(of_labels.std(dim=(1, 2), correction=0).median()),
        "two_plans": before,
        "gains": {rule: each - before for rule, each in gains.items()},
    }


def main() -> None:
    """Measure all."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--episodes", type=int, default=200)
    options = parser.parse_args()
    cells = []
    for name, features in feature_sets():
        for n_shot in SHOTS:
            for queries in QUERIES:
                cells.append(measure(name, features, n_shot, queries, options.episodes))
                print(json.dumps(cells[-1]), flush=True)
    report = {"cells": cells, "chosen": f"{FAINT} to {CLEAR}", "versions": versions()}
    RESULTS.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
