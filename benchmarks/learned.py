"""Fit the network of `map-learned` on validation classes, and compare it with `map-auto`.

    python benchmarks/learned.py TRAIN ... [--test FILE ...] [--steps 6000] [--write]

TRAIN and FILE: feature files, .npy with 600 rows per class. 1 and 5 shots; most batches have 5 ways
and 75 queries, the others 3 to 20 ways (`OTHERS`). The episodes are balanced, from Dirichlet(1),
(2), (3) and (5), and with absent classes (`KINDS`). AdamW on the cross-entropy of the queries.
Prints, for the files of --test, the accuracy of map-auto and the paired difference, in other
episodes of 5 ways. --write replaces the weights of the package.
"""

import argparse
import time
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file
from torch import Tensor
from torch.nn.functional import cross_entropy

from fewlabels import FeatureSet, configure, sample_episodes
from fewlabels.features import read_features
from fewlabels.methods import learned
from fewlabels.methods.learned import N_INPUTS, N_PLAN, Clues, gather_clues, refine_logits

N_HIDDEN = 56
LEAST_ROWS = 45  # of a class; two present classes need 38 queries each beside five labels
PER_BATCH = 12_000  # pairs of query and class
MOST_EPISODES = 64  # of a batch
KINDS = {  # what follows the queries: part of the episodes
    "{each}": 0.30,
    "dirichlet:1:{all}": 0.07,
    "dirichlet:2:{all}": 0.40,
    "dirichlet:3:{all}": 0.08,
    "dirichlet:5:{all}": 0.05,
    "present:{some}:{all}": 0.10,
}
MAIN = (5, 15)  # ways, queries per class
OTHERS = ((3, 15), (5, 5), (5, 40), (10, 15), (20, 10))
N_MAIN, N_OTHER = 4000, 500  # episodes of a file and number of shots
MAIN_TURNS = 5  # batches of a main set for each of another
TESTS = ("15", "dirichlet:2:75", "present:2:75")
RATE, DECAY, EARLY = 4e-3, 1e-4, 0.3  # EARLY: weight of the loss of all rounds but the last
Drawn = tuple[Clues, Tensor]  # clues and true labels, (E, Q)


def read(path: Path) -> FeatureSet:
    """The features of classes with enough rows."""
    found = read_features(path, per_class=600 if path.suffix == ".npy" else None)
    large = np.flatnonzero(np.bincount(found.labels) >= LEAST_ROWS)
    kept = np.isin(found.labels, large)
    names = [found.class_names[number] for number in large]
    labels = np.searchsorted(large, found.labels[kept])
    return FeatureSet.from_arrays(found.features[kept], labels, names, found.provenance)


def draw(features: FeatureSet, n_way: int, n_shot: int, queries: str, n: int, seed: int) -> Drawn:
    """Episodes, in half precision: they are many."""
    rows = torch.as_tensor(features.features).float()
    dataset = features.provenance.get("dataset")
    method = configure("map-learned", n_shot=n_shot, dataset=dataset).decide(rows)
    how = {"n_way": n_way, "n_shot": n_shot, "queries": queries, "seed": seed}
    episodes = sample_episodes(features, n_episodes=n, **how)  # type: ignore[arg-type]
    parts = []
    for at in range(0, n, 50):
        chunk = slice(at, at + 50)
        x, q = (rows[torch.as_tensor(each[chunk])] for each in (episodes.support, episodes.query))
        y = torch.as_tensor(episodes.support_labels[chunk])
        support, query = method.pipeline.apply(x, q)
        found = gather_clues(support, y, query, n_way=n_way, **method.settings)
        parts.append([each.half() for each in found])
    clues = Clues(*(torch.cat(each) for each in zip(*parts, strict=True)))
    return clues, torch.as_tensor(episodes.query_labels)


def draw_mixture(features: FeatureSet, n_way: int, n_each: int, n_shot: int, n: int) -> Drawn:
    """Episodes of all kinds."""
    fewest = max(2, 2 * n_way // 5)
    some = f"{fewest}-{n_way - 1}" if fewest < n_way - 1 else str(fewest)
    parts = []
    for seed, (word, part) in enumerate(KINDS.items()):
        queries = word.format(each=n_each, all=n_way * n_each, some=some)
        parts.append(draw(features, n_way, n_shot, queries, round(part * n), 100 + seed))
    clues = Clues(*(torch.cat(each) for each in zip(*(c for c, _ in parts), strict=True)))
    return clues, torch.cat([labels for _, labels in parts])


def draw_all(paths: list[Path]) -> list[Drawn]:
    """Episodes of all files, numbers of shots, and sizes; in the order of batches."""
    main, others = [], []
    for features in map(read, paths):
        smallest = int(np.bincount(features.labels).min())
        for n_shot in (1, 5):
            main.append(draw_mixture(features, *MAIN, n_shot, N_MAIN))
            for n_way, n_each in OTHERS:
                enough = n_shot + n_way * n_each / max(2, 2 * n_way // 5) < smallest
                if enough and n_way <= len(features.class_names):
                    others.append(draw_mixture(features, n_way, n_each, n_shot, N_OTHER))
    return MAIN_TURNS * main + others


def take(clues: Clues, some: Tensor | slice) -> Clues:
    """Some episodes, in single precision."""
    return Clues(*(each[some].float() for each in clues))


def start(inputs: Tensor) -> dict[str, Tensor]:
    """Weights that change nothing yet; `inputs` tell means and scales."""
    flat = inputs.float()
    weights = {"mean": flat.mean(dim=0), "scale": flat.std(dim=0).clamp_min(1e-3)}
    shapes = {"A": (N_INPUTS, N_HIDDEN), "B": (N_PLAN, N_HIDDEN)}
    shapes |= {f"C{i}": (N_HIDDEN, N_HIDDEN) for i in range(1, 7)}
    for name, shape in shapes.items():
        fan = 6 * N_HIDDEN if name[0] == "C" else shape[0]
        weights[name] = (2 * torch.rand(shape) - 1) / fan**0.5
    weights |= {"a": torch.zeros(N_HIDDEN), "b": torch.zeros(N_HIDDEN), "c": torch.zeros(N_HIDDEN)}
    return weights


def fit(sets: list[Drawn], n_steps: int) -> dict[str, Tensor]:
    """Weights from sets of episodes, one set a batch."""
    torch.manual_seed(0)
    weights = start(torch.cat([clues.inputs[::40].flatten(0, -2) for clues, _ in sets]))
    fitted = [each.requires_grad_() for name, each in weights.items() if len(name) < 3]
    solver = torch.optim.AdamW(fitted, lr=RATE, weight_decay=DECAY)
    schedule = torch.optim.lr_scheduler.OneCycleLR(solver, RATE, total_steps=n_steps, pct_start=0.1)
    began, gains = time.perf_counter(), []
    for step in range(n_steps):
        if step % len(sets) == 0:
            order = torch.randperm(len(sets))
        clues, labels = sets[int(order[step % len(sets)])]
        count = min(MOST_EPISODES, PER_BATCH // clues.plan[0].numel())
        some = torch.randint(0, len(labels), (count,))
        clues, truth = take(clues, some), labels[some]
        rounds = refine_logits(clues, weights)
        losses = [cross_entropy(each.flatten(0, 1), truth.flatten()) for each in rounds]
        loss = losses[-1] + EARLY * torch.stack(losses[:-1]).sum()
        solver.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(fitted, 1.0)
        solver.step()
        schedule.step()
        right = [(each.argmax(-1) == truth).float().mean() for each in (rounds[-1], clues.plan)]
        gains.append(100 * float(right[0] - right[1]))
        if (step + 1) % 500 == 0:
            passed = time.perf_counter() - began
            print(step + 1, f"{passed:.0f} s, gain {np.mean(gains[-500:]):.2f}", flush=True)
    return {name: each.detach() for name, each in weights.items()}


def compare(path: Path, weights: dict[str, Tensor], n: int) -> None:
    """Print accuracies of map-auto and paired differences."""
    features = read(path)
    for n_shot in (1, 5):
        line = []
        for seed, queries in enumerate(TESTS):
            clues, truth = draw(features, MAIN[0], n_shot, queries, n, 200 + seed)
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
        print(path, n_shot, " | ".join(line), flush=True)


def main() -> None:
    """Fit, compare and write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("train", type=Path, nargs="*")
    parser.add_argument("--test", type=Path, nargs="*", default=[])
    parser.add_argument("--steps", type=int, default=6000)
    parser.add_argument("--episodes", type=int, default=1000, help="of a test")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.train:
        sets = draw_all(options.train)
        weights = fit(sets, options.steps)
        del sets
    else:  # those of the package
        weights = learned.load_weights()
    if options.write:
        path = Path(learned.__file__).with_name(learned.WEIGHTS)
        save_file({name: each.half().contiguous() for name, each in weights.items()}, path)
    with torch.no_grad():
        for path in options.test:
            compare(path, weights, options.episodes)


if __name__ == "__main__":
    main()
