"""What a better decision about class sizes could bring to `map-auto`, on validation classes.

    python benchmarks/unknown_sizes.py [--episodes 400] [--split novel]

CIFAR-FS (own WRN) and CUB (own ResNet18), 5 ways, 75 queries, balanced and Dirichlet(2). Accuracies
of the plans that `map-auto` is made of (`methods.estimation`), of itself, and of

- no prior: the free fit in which a class is not preferred for its size,
- told the kind: equal sizes where classes are balanced, else the better of both free fits: what a
  perfect decision between these plans reaches,
- gate: the free plan, with a weight by logistic regression on statistics of the plans (see
  `statistics`), fitted on the validation classes of the other family,
- told the sizes: MAP told the true class sizes.

Writes benchmarks/results/unknown_sizes.json.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import Tensor

from fewlabels import FeatureSet, configure, sample_episodes
from fewlabels.evaluation.results import versions
from fewlabels.fitting import answer
from fewlabels.methods.assignment import one_hot
from fewlabels.methods.estimation import free_plan, log_evidence
from fewlabels.methods.map import assign_map
from fewlabels.preprocess.smoothing import append_neighbor_means
from fewlabels.transport.prior import Sizes, Uniform

HERE = Path(__file__).parent
RESULTS = HERE / "results" / "unknown_sizes.json"
FAMILIES = {"cifar-fs": "wrn28-10", "cub": "resnet18"}
KINDS = ("15", "dirichlet:2:75")
N_WAY = 5
CHUNK = 100  # episodes; memory
Plans = dict[str, Tensor]


def make_plans(family: str, split: str, n_shot: int, queries: str, n: int) -> Plans:
    """Plans (E, Q, W) by name, `evidence` (E,) and `truth` (E, Q)."""
    path = HERE.parent / "artifacts" / family / FAMILIES[family] / f"{split}.safetensors"
    features = FeatureSet.load(path)
    rows = torch.as_tensor(features.features).float()
    dataset = features.provenance.get("dataset")
    method = configure("map-auto", n_shot=n_shot, dataset=dataset).decide(rows)
    alpha, n_steps = (method.settings[name] for name in ("alpha", "n_steps"))
    episodes = sample_episodes(features, n_episodes=n, n_way=N_WAY, n_shot=n_shot, queries=queries)
    parts: list[Plans] = []
    for at in range(0, n, CHUNK):
        chunk = slice(at, at + CHUNK)
        y, truth = (
            torch.as_tensor(each[chunk])
            for each in (episodes.support_labels, episodes.query_labels)
        )
        x, q = (rows[torch.as_tensor(each[chunk])] for each in (episodes.support, episodes.query))
        found = answer(method, x, y, q, n_way=N_WAY)
        support, query, lam = found.support, found.query, found.assignment.lam
        assert isinstance(lam, Tensor)
        wide = append_neighbor_means(support, query, n_way=N_WAY)
        members = one_hot(y, N_WAY, support.dtype)
        free, plain = (
            free_plan(wide[0], members, wide[1], lam=lam, alpha=alpha, prior=prior)
            for prior in (True, False)
        )
        # lam is each episode's own: rows are scaled to carry it
        scaled = [(lam / 10).sqrt()[:, None, None] * each for each in (support, query)]
        sizes = one_hot(truth, N_WAY, support.dtype).sum(dim=1).clamp_min(1e-3)
        equal, told = (
            assign_map(scaled[0], y, scaled[1], n_way=N_WAY, alpha=alpha, n_steps=n_steps, prior=p)
            for p in (Uniform(), Sizes(sizes / sizes.sum(dim=-1, keepdim=True)))
        )
        evidence = log_evidence(wide[0], members, wide[1], free, lam=lam, solve=False)
        evidence -= log_evidence(wide[0], members, wide[1], equal.plan, lam=lam, solve=True)
        parts.append(
            {
                "map-auto": found.assignment.plan,
                "equal": equal.plan,
                "free": free,
                "no prior": plain,
                "told the sizes": told.plan,
                "biases": equal.biases,
                "evidence": evidence / query.shape[1],
                "truth": truth,
            }
        )
    return {name: torch.cat([part[name] for part in parts]) for name in parts[0]}


def statistics(plans: Plans) -> np.ndarray[Any, Any]:
    """What may tell balanced classes from others, (E, n)."""
    free, plain, equal = (plans[name] for name in ("free", "no prior", "equal"))
    spread = [(N_WAY * each.mean(dim=1)).std(dim=-1, correction=0) for each in (free, plain)]
    agree = [(each.argmax(-1) == equal.argmax(-1)).float().mean(dim=1) for each in (free, plain)]
    doubt = [-torch.special.xlogy(each, each).sum(-1).mean(dim=1) for each in (free, plain, equal)]
    gap = plans["evidence"]
    found = [*spread, gap, gap.clamp_min(0), plans["biases"].std(dim=-1), *agree, *doubt]
    return torch.stack(found, dim=-1).numpy()


def accuracy(plan: Tensor, plans: Plans) -> float:
    """In percent."""
    return round(100 * float((plan.argmax(dim=-1) == plans["truth"]).float().mean()), 2)


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--episodes", type=int, default=400)
    parser.add_argument("--split", default="val", choices=("val", "novel"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    stored = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    rows = []
    for n_shot in (1, 5):
        fitted = {
            (family, kind): make_plans(family, "val", n_shot, kind, options.episodes)
            for family in FAMILIES
            for kind in KINDS
        }
        for family in FAMILIES:
            other = [fitted[key] for key in fitted if key[0] != family]
            model = make_pipeline(StandardScaler(), LogisticRegression())
            uneven = np.repeat([kind != "15" for kind in KINDS], options.episodes)
            model.fit(np.concatenate([statistics(each) for each in other]), uneven)
            chances = []
            for kind in KINDS:
                plans = fitted[family, kind]
                if options.split != "val":
                    plans = make_plans(family, options.split, n_shot, kind, options.episodes)
                chances.append(model.predict_proba(statistics(plans))[:, 1])
                weight = torch.tensor(chances[-1])[:, None, None]
                names = ("map-auto", "equal", "free", "no prior", "told the sizes")
                row: dict[str, Any] = {name: accuracy(plans[name], plans) for name in names}
                row["told the kind"] = (
                    row["equal"] if kind == "15" else max(row["free"], row["no prior"])
                )
                row["gate"] = accuracy(
                    weight * plans["free"] + (1 - weight) * plans["equal"], plans
                )
                rows.append({"family": family, "n_shot": n_shot, "queries": kind, **row})
                print(rows[-1], flush=True)
            print("AUC of the gate", round(roc_auc_score(uneven, np.concatenate(chances)), 3))
    found = {"episodes": options.episodes, "rows": rows}
    whole = {**stored, options.split: found, "versions": versions()}
    RESULTS.write_text(json.dumps(whole, indent=1) + "\n")


if __name__ == "__main__":
    main()
