"""Fit the network of `map-auto` (methods/refinement.py), and measure what it brings.

    python benchmarks/refinement.py fit TRAIN ... [--test FILE ...] [--minutes 5] [--write]
    python benchmarks/refinement.py measure NAME=FILE[=OTHERS] ... [--episodes 10000]

TRAIN: features of classes that the backbone was not trained on, as benchmarks/folds.py makes them;
benchmarks/folds has some. FILE: features of validation classes, or of novel ones; .npy with 600
rows per class. 1 and 5 shots; most episodes have 5 ways and 75 queries, the others 3 to 20 ways
(`OTHERS`). They are balanced, from Dirichlet distributions, and with absent classes (`KINDS`). In
half of the chunks of episodes, only a random part of the features is used, so that classes lie
otherwise each time. In a quarter of them, rows are centered by the mean of the classes that are not
in the episode too, as those of `map-auto-mean` are. AdamW on the cross-entropy of the queries; the
mean of the weights over the last steps is kept.

Other processes (`--workers`) draw new episodes all the time, and few are seen more than twice:
fitted to 150,000 drawn episodes, the network soon knows them.

`fit` prints, for the files of --test, the accuracy without the network and the paired difference,
at 5 ways, without and with a mean from outside; --write replaces the weights of the package.
`measure` does it with the package's code and writes benchmarks/results/refinement.json; NAMEs that
are not given keep their cells. OTHERS: features of other classes, whose mean `map-auto-mean` takes.
"""

import argparse
import itertools
import json
import math
import shlex
import shutil
import sys
import tempfile
import time
from collections import deque
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from functools import cache
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.nn.functional import cross_entropy

from fewlabels import FeatureSet, configure, evaluate, sample_episodes
from fewlabels.evaluation.results import versions
from fewlabels.features import read_features
from fewlabels.methods import refinement
from fewlabels.methods.auto import gather_clues
from fewlabels.methods.base import find_method
from fewlabels.methods.estimation import WeighedPlans
from fewlabels.methods.refinement import N_INPUTS, N_PLAN, VOTERS, Clues, refine_logits
from fewlabels.preprocess.steps import SUPPORT_AND_MEAN

RESULTS = Path(__file__).with_name("results") / "refinement.json"
WIDTH, N_ROUNDS = 32, 4  # 48 and 64 units, 5 and 6 rounds are not better on validation classes
LEAST_ROWS = 45  # of a class; two present classes need 38 queries each beside five labels
KINDS = {  # queries: part of the episodes
    "{each}": 0.18,
    "dirichlet:0.5:{all}": 0.05,
    "dirichlet:1:{all}": 0.08,
    "dirichlet:2:{all}": 0.51,
    "dirichlet:3:{all}": 0.05,
    "dirichlet:5:{all}": 0.04,
    "present:{some}:{all}": 0.09,
}
MAIN = (5, 15)  # ways, queries per class
OTHERS = ((3, 15), (5, 5), (5, 40), (10, 15), (20, 10), (5, 2))
OUTSIDE_PART = 0.25  # of the chunks
MAIN_PART = 0.75  # of the sets
SET, KEPT_SETS = 1024, 64  # episodes of a set; sets in memory
TESTS = ("15", "dirichlet:2:75", "dirichlet:0.5:75", "present:2:75")
CHUNK = 256  # episodes whose clues are computed at a time
FEWEST_FEATURES = 0.35  # part of the features that a chunk keeps at least
RATE, DECAY, MOMENTS = 3e-3, 1e-4, (0.9, 0.99)
WARM_UP = 200  # steps
KEPT_MEAN = 0.999  # weight of the past in the mean of the weights
EARLY = 0.3  # weight of the mean loss of all rounds but the last
Drawn = tuple[Clues, Tensor]  # clues and true labels, (E, Q)


def draw(
    features: FeatureSet,
    n_way: int,
    n_shot: int,
    queries: str,
    n: int,
    seed: int,
    device: str,
    random: np.random.Generator | None = None,
    outside: float = 0.0,
) -> Drawn:
    """Episodes, in half precision: they are many. With `random`, of parts of the features.

    `outside`: part of the chunks that are centered by the mean of the other classes too.
    """
    rows = torch.as_tensor(features.features).float()
    dataset = features.provenance.get("dataset")
    method = configure("map-auto", n_shot=n_shot, dataset=dataset).decide(rows)
    knobs = {name: method.settings[name] for name in ("alpha", "n_steps")}
    how = {"n_way": n_way, "n_shot": n_shot, "queries": queries, "seed": seed}
    episodes = sample_episodes(features, n_episodes=n, **how)  # type: ignore[arg-type]
    rows, parts = rows.to(device), []
    for at in range(0, n, CHUNK):
        chunk, used = slice(at, at + CHUNK), rows
        if random is not None and random.random() < 0.5:
            count = int(rows.shape[1] * random.uniform(FEWEST_FEATURES, 1.0))
            used = rows[:, torch.as_tensor(random.permutation(rows.shape[1])[:count]).to(device)]
        used, _, _ = method.pipeline.rowwise.apply_and_record(used, used[:0])
        x, q, y = (
            torch.as_tensor(each[chunk]).to(device)
            for each in (episodes.support, episodes.query, episodes.support_labels)
        )
        steps, mean = method.pipeline.episodic, None
        if outside == 1 or (random is not None and random.random() < outside):
            steps = steps.with_centering(SUPPORT_AND_MEAN)
            mean = means_of_others(used, features.labels, episodes.classes[chunk])
        support, query = steps.apply(used[x], used[q], mean=mean)
        clues, *_ = gather_clues(support, y, query, n_way=n_way, **knobs)
        parts.append([each.half() for each in clues])
    clues = Clues(*(torch.cat(each) for each in zip(*parts, strict=True)))
    return clues, torch.as_tensor(episodes.query_labels).to(device)


def means_of_others(rows: Tensor, labels: np.ndarray, classes: np.ndarray) -> Tensor:
    """Mean of the rows of all classes but those of each episode, (N, D) and (E, W) -> (E, 1, D)."""
    numbers = torch.as_tensor(labels).to(rows.device)
    counts = torch.bincount(numbers).to(rows)
    sums = rows.new_zeros(len(counts), rows.shape[1]).index_add(0, numbers, rows)
    own = torch.as_tensor(classes).to(rows.device)
    others = sums.sum(dim=0) - sums[own].sum(dim=1)
    return (others / (counts.sum() - counts[own].sum(dim=1))[:, None])[:, None]


def draw_mixture(
    features: FeatureSet,
    n_way: int,
    n_each: int,
    n_shot: int,
    n: int,
    device: str,
    random: np.random.Generator,
) -> Drawn:
    """Episodes of all kinds."""
    fewest = max(2, 2 * n_way // 5)
    some = f"{fewest}-{n_way - 1}" if fewest < n_way - 1 else str(fewest)
    parts = []
    for word, part in KINDS.items():
        queries = word.format(each=n_each, all=n_way * n_each, some=some)
        count = max(1, round(part * n))
        what = (features, n_way, n_shot, queries, count, int(random.integers(2**31)), device)
        parts.append(draw(*what, random, OUTSIDE_PART))
    clues = Clues(*(torch.cat(each) for each in zip(*(c for c, _ in parts), strict=True)))
    return clues, torch.cat([labels for _, labels in parts])


def read_all(path: Path) -> FeatureSet:
    """All features of a file."""
    return read_features(path, per_class=600 if path.suffix == ".npy" else None)


@cache
def read(path: Path) -> FeatureSet:
    """The features of classes with enough rows."""
    found = read_all(path)
    large = np.flatnonzero(np.bincount(found.labels) >= LEAST_ROWS)
    kept = np.isin(found.labels, large)
    names = [found.class_names[number] for number in large]
    labels = np.searchsorted(large, found.labels[kept])
    return FeatureSet.from_arrays(found.features[kept], labels, names, found.provenance)


def draw_set(paths: list[Path], number: int, folder: Path, device: str) -> Path:
    """One set of episodes of one file, number of shots and size, in a file of `folder`."""
    torch.set_num_threads(1)
    random = np.random.default_rng(number)
    features = read(paths[number % len(paths)])
    n_shot, n = int(random.choice((1, 5))), SET
    size = MAIN
    if random.random() > MAIN_PART:
        smallest = int(features.class_sizes.min())
        fit_in = [
            each
            for each in OTHERS
            if n_shot + math.prod(each) / max(2, 2 * each[0] // 5) < smallest
            and each[0] <= len(features.class_names)
        ]
        size = fit_in[random.integers(len(fit_in))]
        n = max(64, min(n, n * math.prod(MAIN) * MAIN[0] // (math.prod(size) * size[0])))
    clues, labels = draw_mixture(features, *size, n_shot, n, device, random)
    path = folder / f"{number}.pt"
    torch.save((list(clues), labels), path)
    return path


class Stream:
    """Sets of episodes that processes draw while the network is fitted; the last ones are kept."""

    def __init__(self, paths: list[Path], workers: int, device: str) -> None:
        self.paths, self.device = paths, device
        self.folder = Path(tempfile.mkdtemp())
        self.pool = ProcessPoolExecutor(workers, mp_context=get_context("spawn"))
        self.numbers = itertools.count()
        self.pending: set[Future[Path]] = set()
        self.kept: deque[Drawn] = deque(maxlen=KEPT_SETS)
        self.n_episodes = 0
        for _ in range(workers + 1):
            self.submit()

    def submit(self) -> None:
        """Let a process draw another set."""
        what = (self.paths, next(self.numbers), self.folder, self.device)
        self.pending.add(self.pool.submit(draw_set, *what))

    def take(self, random: np.random.Generator) -> Drawn:
        """One of the last sets. At first it waits until there are as many as files."""
        while True:
            missing = len(self.kept) < len(self.paths)
            done, self.pending = wait(self.pending, None if missing else 0, FIRST_COMPLETED)
            for path in (future.result() for future in done):
                clues, labels = torch.load(path, map_location=self.device)
                path.unlink()
                self.kept.append((Clues(*clues), labels))
                self.n_episodes += len(labels)
                self.submit()
            if len(self.kept) >= len(self.paths):
                return self.kept[random.integers(len(self.kept))]

    def close(self) -> None:
        """Stop the processes and remove their files."""
        self.pool.shutdown(cancel_futures=True)
        shutil.rmtree(self.folder)


def take(clues: Clues, some: Tensor | slice) -> Clues:
    """Some episodes, in single precision."""
    return Clues(*(each[some].float() for each in clues))


def start(inputs: Tensor) -> dict[str, Tensor]:
    """Weights that change nothing yet; `inputs` tell means and scales."""
    flat, d = inputs.float(), WIDTH
    weights = {"mean": flat.mean(dim=0), "scale": flat.std(dim=0).clamp_min(1e-3)}
    shapes = {  # shape, largest weight
        "A": ((N_INPUTS, d), N_INPUTS**-0.5),
        "M": ((N_ROUNDS, d, d), (4 * d) ** -0.5),
        "B": ((N_ROUNDS, N_PLAN, d), 0.3 * N_PLAN**-0.5),
        "N": ((N_ROUNDS, d, len(VOTERS) * d), (4 * d) ** -0.5),
        "C": ((N_ROUNDS, 3 * d, d), (9 * d) ** -0.5),
        "D": ((N_ROUNDS, 2 * d, d), (9 * d) ** -0.5),
        "O": ((N_ROUNDS - 1, d, d), 0.5 * d**-0.5),
        "a": ((d,), 0.0),
        "b": ((N_ROUNDS, d), 0.0),
        "c": ((N_ROUNDS, d), 0.0),
    }
    for name, (shape, largest) in shapes.items():
        weights[name] = largest * (2 * torch.rand(shape, device=flat.device) - 1)
    return weights


def fit(
    stream: Stream, minutes: float, batch: int, rate: float, first: dict[str, Tensor] | None
) -> dict[str, Tensor]:
    """Weights from sets of episodes."""
    torch.manual_seed(0)
    random = np.random.default_rng(0)
    weights = first or start(stream.take(random)[0].inputs.flatten(0, -2))
    fitted = [each.requires_grad_() for name, each in weights.items() if len(name) == 1]
    mean = {name: each.detach().clone() for name, each in weights.items()}
    solver = torch.optim.AdamW(fitted, lr=rate, weight_decay=DECAY, betas=MOMENTS)
    stream.take(random)  # the time begins when there are episodes
    began, step, gains = time.perf_counter(), 0, []
    while (passed := (time.perf_counter() - began) / (60 * minutes)) < 1:
        for group in solver.param_groups:
            group["lr"] = rate * min(1, step / WARM_UP) * (1 + math.cos(math.pi * passed)) / 2
        clues, labels = stream.take(random)
        cells = MAIN[0] ** 2 * MAIN[1]  # queries times classes of a main episode
        count = max(4, min(batch, batch * cells // clues.plan[0].numel()))
        some = torch.randint(0, len(labels), (count,), device=labels.device)
        clues, truth = take(clues, some), labels[some]
        rounds = refine_logits(clues, weights)
        losses = [cross_entropy(each.flatten(0, 1), truth.flatten()) for each in rounds]
        solver.zero_grad()
        (losses[-1] + EARLY * torch.stack(losses[:-1]).mean()).backward()
        torch.nn.utils.clip_grad_norm_(fitted, 1.0)
        solver.step()
        step += 1
        past = min(KEPT_MEAN, step / (step + 10))
        with torch.no_grad():
            for name, each in mean.items():
                each.lerp_(weights[name].detach(), 1 - past)
        right = [(each.argmax(-1) == truth).float().mean() for each in (rounds[-1], clues.plan)]
        gains.append((right[0] - right[1]).detach())
        if step % 500 == 0:
            gain = 100 * torch.stack(gains[-500:]).mean()
            seen = f"{stream.n_episodes:,} episodes"
            print(f"step {step}, {passed:.0%} of the time, {seen}, gain {gain:.2f}", flush=True)
    return mean


def compare(path: Path, weights: dict[str, Tensor], n: int, device: str) -> None:
    """Print accuracies without the network and paired differences."""
    features = read(path)
    for outside, n_shot in itertools.product((0.0, 1.0), (1, 5)):
        line = []
        for seed, queries in enumerate(TESTS):
            what = (features, MAIN[0], n_shot, queries, n, 200 + seed, device)
            clues, truth = draw(*what, outside=outside)
            gains, before = [], []
            for at in range(0, n, 100):
                some = take(clues, slice(at, at + 100))
                logits = refine_logits(some, weights)[-1]
                new, old = (
                    100 * (each.argmax(-1) == truth[at : at + 100]).double().mean(dim=1)
                    for each in (logits, some.plan)
                )
                gains.append(new - old)
                before.append(old)
            gain = torch.cat(gains)
            half = 1.96 * float(gain.std()) / n**0.5
            line.append(f"{torch.cat(before).mean():.2f} {gain.mean():+.2f} ± {half:.2f}")
        name = "map-auto-mean" if outside else "map-auto"
        print(path, n_shot, name, " | ".join(line), flush=True)


def measure(name: str, path: Path, others: Path | None, n: int) -> list[dict[str, object]]:
    """Accuracy of map-auto, of the same without the network, and of PT+MAP, on equal episodes.

    And of map-auto-mean, where there are features of other classes.
    """
    features = read_all(path)
    outside = None if others is None else read_all(others)
    fewest, cells = int(features.class_sizes.min()), []
    auto = find_method("map-auto")
    for queries in TESTS:
        for n_shot in (1, 5):
            kind = {"n_shot": n_shot, "dataset": features.provenance.get("dataset")}
            if queries.startswith("present"):
                queries = f"present:2:{min(75, 2 * (fewest - n_shot))}"
            two = configure("map", **kind, pipeline=auto.pipeline, prior="estimate", lam="auto")
            methods = [configure("map-auto", **kind), two, configure("map", **kind)]
            methods += [configure("map-auto-mean", **kind)] * (outside is not None)
            how = {"n_shot": n_shot, "queries": queries, "n_episodes": n}
            found = evaluate(methods, features, mean_features=outside, **how)
            right = [100 * each.accuracies for each in found]
            gain = right[0] - right[1]
            cell = {
                **{"features": name, "queries": queries, "n_shot": n_shot, "n_episodes": n},
                **{"map_auto": right[0].mean(), "two_plans": right[1].mean()},
                **{"map": right[2].mean(), "gain": gain.mean()},
                "half_width": 1.96 * gain.std(ddof=1) / n**0.5,
                "seconds": [each.seconds for each in found],
            }
            if outside is not None:
                gain = right[3] - right[0]
                cell |= {"map_auto_mean": right[3].mean(), "mean_gain": gain.mean()}
                cell["mean_half_width"] = 1.96 * gain.std(ddof=1) / n**0.5
            cells.append(cell)
            print(json.dumps(cell), flush=True)
    return cells


def largest_error(features: FeatureSet) -> float:
    """The largest difference of a probability of the network in float32 and in float64."""
    rows, largest = torch.as_tensor(features.features).double(), 0.0
    cells = ((1, "15"), (1, "dirichlet:2:75"), (5, "dirichlet:2:75"))
    for (n_shot, queries), name in itertools.product(cells, ("map-auto", "map-auto-mean")):
        method = configure(name, n_shot=n_shot).decide(rows)
        steps = {name: method.settings[name] for name in ("alpha", "n_steps")}
        episodes = sample_episodes(features, n_episodes=300, n_shot=n_shot, queries=queries, seed=9)
        x, q = (rows[torch.as_tensor(each)] for each in (episodes.support, episodes.query))
        y = torch.as_tensor(episodes.support_labels)
        mean = method.pipeline.mean_of(rows) if method.pipeline.needs_mean else None
        support, query = method.pipeline.apply(x, q, mean=mean)
        clues, found, equal = gather_clues(support, y, query, n_way=5, **steps)
        single = refinement.describe_episodes(
            *(each.float() for each in (clues.products, clues.votes, clues.members)),
            lam=clues.lam.float(),
            equal=equal.plan.float(),
            biases=equal.biases.float(),
            found=WeighedPlans(*(each.float() for each in found)),
        )
        exact, fast = (refinement.refine_plan(each) for each in (clues, single))
        difference = fast.double() - exact
        largest = max(largest, float(difference.abs().max()))
    return largest


def main() -> None:
    """Fit and compare, or measure."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("fit", "measure"))
    parser.add_argument("files", nargs="+")
    parser.add_argument("--test", type=Path, nargs="*", default=[])
    parser.add_argument("--minutes", type=float, default=5, help="of fitting")
    parser.add_argument("--workers", type=int, default=1, help="processes that draw episodes")
    parser.add_argument("--batch", type=int, default=128, help="episodes of a step")
    parser.add_argument("--rate", type=float, default=RATE)
    parser.add_argument("--start", type=Path, nargs="*", help="weights to go on from, their mean")
    parser.add_argument("--episodes", type=int, help="of a test: 1,500; of measure: 10,000")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--output", type=Path, help="where to write the weights")
    parser.add_argument("--write", action="store_true", help="replace the weights of the package")
    options = parser.parse_args()
    if options.what == "measure":
        named = [file.split("=") for file in options.files]
        n = options.episodes or 10_000
        report = json.loads(RESULTS.read_text()) if RESULTS.exists() else {"cells": []}
        for name, file, *others in named:  # other features keep their cells
            kept = [cell for cell in report["cells"] if cell["features"] != name]
            outside = Path(others[0]) if others else None
            report["cells"] = kept + measure(name, Path(file), outside, n)
        errors = [largest_error(read(Path(file))) for _, file, *_ in named]
        report |= {"seed": 0, "versions": versions()}
        report["largest_error"] = max(errors)
        RESULTS.write_text(json.dumps(report, indent=1) + "\n")
        return
    files = [Path(file) for file in options.files]
    first = None
    if options.start:
        known = [load_file(path, device=options.device) for path in options.start]
        first = {name: sum(each[name].float() for each in known) / len(known) for name in known[0]}
    stream = Stream(files, options.workers, options.device)
    try:
        weights = fit(stream, options.minutes, options.batch, options.rate, first)
    finally:
        stream.close()
    package = Path(refinement.__file__).with_name(refinement.WEIGHTS)
    for path in [package] * options.write + [options.output] * bool(options.output):
        halves = {name: each.half().cpu().contiguous() for name, each in weights.items()}
        save_file(halves, path, metadata={"command": shlex.join(["python", *sys.argv])})
    with torch.no_grad():
        for path in options.test:
            compare(path, weights, options.episodes or 1500, options.device)


if __name__ == "__main__":
    main()
