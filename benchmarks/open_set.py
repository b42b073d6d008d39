"""Outliers among the queries: our none-of-these beside OSLO and EOL, in the field's protocol.

    python benchmarks/open_set.py [--episodes 300] [--split val]

5 ways, and 5 other classes whose rows are outliers: 15 inliers and 15 outliers per class, 25 and 5,
5 and 25. Accuracy of the inliers, and of the outlier score AUROC, AUPR (outliers are positive) and
precision at 90 % recall, means over episodes in %. CIFAR-FS own WRN and CUB ResNet18.

OSLO (Boudiaf et al. 2023): two rounds of
    xi_i = sigmoid(sum_k z_ik cos(x_i, m_k) / 0.05);  z_i = softmax_k(xi_i cos(x_i, m_k) / 0.1)
    m_k  = mean of the support rows of class k (weight 1) and the queries (weight xi_i z_ik)
    score of an outlier 1 - xi; rows centered by their joint mean, norm 1.
EOL: l_ik = 10 (exp(e_k) cos(x_i, m_k) + d_k), inlier probability
    v = sigmoid(logsumexp_k l - log W + log b), p = v softmax(l); Adam (rate 0.01, 50 steps) on m, e
    and d of cross-entropy(support) + conditional entropy / W + divergences of the mean class part
    and of the outlier part from 1/W and b. The assumed part b of outliers is told: 0.5, 0.3 and 0.7
    for the three mixtures; "untold" is EOL with b = 0.5 for all of them. Rows are centered by their
    joint mean here, because a features file does not hold the mean of the base classes.
Ours: labels of `folder`, which `fewlabels label` runs, and the score of its column none_of_these,
`confidence.outlier_probabilities`.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.metrics import average_precision_score, precision_recall_curve, roc_auc_score
from torch import Tensor
from torch.nn.functional import cross_entropy, normalize

from fewlabels import FeatureSet, configure, sample_episodes
from fewlabels.confidence.outliers import outlier_probabilities
from fewlabels.evaluation.results import versions
from fewlabels.fitting import answer
from fewlabels.methods.assignment import class_means, one_hot

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results" / "open_set.json"
SETS = ("cifar-fs/wrn28-10", "cub/resnet18")
MIXTURES = {(15, 15): 0.5, (25, 5): 0.3, (5, 25): 0.7}  # EOL's b
UNTOLD = 0.5  # EOL's b where the part of outliers is not known
W = 5


def oslo(x: Tensor, y: Tensor, q: Tensor) -> tuple[Tensor, Tensor]:
    """Labels and outlier scores, (E, Q) each."""
    truth = one_hot(y, W, x.dtype)
    means = class_means(x, y, W)
    z = q.new_full((*q.shape[:2], W), 1 / W)
    inlier = q.new_ones(q.shape[:2])
    for _ in range(2):
        cosine = normalize(q, dim=-1) @ normalize(means, dim=-1).mT
        inlier = torch.sigmoid((z * cosine).sum(dim=-1) / 0.05)
        z = (inlier[..., None] * cosine / 0.1).softmax(dim=-1)
        weights = torch.cat([truth, inlier[..., None] * z], dim=1)
        means = weights.mT @ torch.cat([x, q], dim=1) / weights.sum(dim=1)[..., None]
    cosine = normalize(q, dim=-1) @ normalize(means, dim=-1).mT
    return cosine.argmax(dim=-1), 1 - inlier


def eol(x: Tensor, y: Tensor, q: Tensor, b: float) -> tuple[Tensor, Tensor]:
    """Likewise."""
    means = class_means(x, y, W).requires_grad_()
    e = torch.zeros(len(x), 1, W, requires_grad=True)
    d = torch.zeros(len(x), 1, W, requires_grad=True)
    solver = torch.optim.Adam([means, e, d], lr=0.01)

    def logits(rows: Tensor) -> Tensor:
        return 10 * (e.exp() * (normalize(rows, dim=-1) @ normalize(means, dim=-1).mT) + d)

    def inlier_of(found: Tensor) -> Tensor:
        return torch.sigmoid(found.logsumexp(dim=-1) - np.log(W) + np.log(b))

    for _ in range(50):
        solver.zero_grad()
        found = logits(q)
        p = inlier_of(found)[..., None] * found.softmax(dim=-1)
        known = logits(x).flatten(0, 1)
        loss = cross_entropy(known, y.flatten(), reduction="sum") / x.shape[1]
        loss = loss - (p * (p + 1e-9).log()).sum(dim=-1).mean(dim=-1).sum() / W
        part = p.mean(dim=1) * W / (1 - b)
        out = (1 - p.mean(dim=1).sum(dim=-1)) / b
        loss = loss + (part * (part + 1e-9).log()).mean(dim=-1).sum()
        loss = loss + (out * (out.clamp_min(1e-9)).log()).sum()
        loss.backward()  # type: ignore[no-untyped-call]
        solver.step()
    with torch.no_grad():
        found = logits(q)
        inlier = inlier_of(found)
        weights = torch.cat([one_hot(y, W, x.dtype), inlier[..., None] * found.softmax(-1)], dim=1)
        last = weights.mT @ torch.cat([x, q], dim=1) / weights.sum(dim=1)[..., None]
        cosine = normalize(q, dim=-1) @ normalize(last, dim=-1).mT
    return cosine.argmax(dim=-1), 1 - inlier


def measure(labels: Tensor, score: Tensor, truth: Tensor) -> dict[str, float]:
    """Means over episodes, in percent."""
    found: dict[str, list[float]] = {"accuracy": [], "auroc": [], "aupr": [], "precision": []}
    for guess, rated, right in zip(labels.numpy(), score.numpy(), truth.numpy(), strict=True):
        out = right >= W
        found["accuracy"].append((guess == right)[~out].mean())
        found["auroc"].append(roc_auc_score(out, rated))
        found["aupr"].append(average_precision_score(out, rated))
        precision, recall, _ = precision_recall_curve(out, rated)
        found["precision"].append(precision[recall >= 0.9].max())
    return {name: round(100 * float(np.mean(values)), 2) for name, values in found.items()}


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--episodes", type=int, default=300)
    parser.add_argument("--split", default="val")
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows: list[dict[str, Any]] = []
    for name in SETS:
        features = FeatureSet.load(ROOT / "artifacts" / name / f"{options.split}.safetensors")
        x = torch.as_tensor(features.features)
        for n_shot in (1, 5):
            for (inside, outside), b in MIXTURES.items():
                words = ",".join([str(inside)] * W + [str(outside)] * W)
                how: Any = {"n_way": 2 * W, "n_shot": n_shot, "queries": words}
                drawn = sample_episodes(features, n_episodes=options.episodes, **how)
                known = drawn.support_labels[0] < W  # the order of the ways is that of the words
                support, query = x[drawn.support[:, known]], x[drawn.query]
                y = torch.as_tensor(drawn.support_labels[:, known])
                truth = torch.as_tensor(drawn.query_labels)
                method = configure("folder", n_shot=n_shot).decide(x)
                ours = answer(method, support, y, query, n_way=W)
                labels = ours.assignment.labels
                score = outlier_probabilities(ours.support, y, ours.query, labels)
                joint = configure("sgc", n_shot=n_shot).pipeline  # centered by the joint mean
                s, q = joint.apply(support, query)
                answers = {
                    "ours": (labels, score),
                    "oslo": oslo(s, y, q),
                    "eol": eol(s, y, q, b),
                    "eol, untold": eol(s, y, q, UNTOLD),
                }
                for who, (guess, rated) in answers.items():
                    found = measure(guess, rated, truth)
                    kind = {"features": name, "split": options.split, "n_shot": n_shot}
                    kind |= {"inliers": inside, "outliers": outside, "method": who}
                    rows.append({**kind, **found, "n_episodes": options.episodes})
                    print(name, n_shot, f"{inside}:{outside}", who, found, flush=True)
                RESULTS.write_text(
                    json.dumps({"results": rows, "versions": versions()}, indent=1) + "\n"
                )


if __name__ == "__main__":
    main()
