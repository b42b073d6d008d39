"""Fit the schedules of UNEM on validation classes.

    python benchmarks/unem.py [--episodes 500] [--iterations 150]

Class proportions from Dirichlet(2), 75 queries, 5 ways, CIFAR-FS (own WRN) and CUB (ResNet18)
together; Adam on the cross-entropy of the queries, 48 episodes of each at a time. Prints the
schedules for `methods.unem.SCHEDULES` and the accuracy on the episodes that they were fitted on.
"""

import argparse
from pathlib import Path

import torch
from torch import Tensor
from torch.nn.functional import softplus

from fewlabels import FeatureSet, configure, sample_episodes
from fewlabels.methods.assignment import one_hot

ARTIFACTS = Path(__file__).parents[1] / "artifacts"
SETS = ("cifar-fs/wrn28-10", "cub/resnet18")
N_LAYERS, WAYS, BATCH = 10, 5, 48


def draw(name: str, n_shot: int, n_episodes: int) -> tuple[Tensor, Tensor, Tensor]:
    """Inner products (E, N, N), labels of the support (E, S, W) and of the queries (E, Q)."""
    features = FeatureSet.load(ARTIFACTS / name / "val.safetensors")
    how = {"n_way": WAYS, "n_shot": n_shot, "queries": "dirichlet:2:75", "seed": 7}
    episodes = sample_episodes(features, n_episodes=n_episodes, **how)  # type: ignore[arg-type]
    x = torch.as_tensor(features.features)
    pipeline = configure("unem", n_shot=n_shot).pipeline
    rows = torch.cat(pipeline.apply(x[episodes.support], x[episodes.query]), dim=1)
    known = one_hot(torch.as_tensor(episodes.support_labels), WAYS, rows.dtype)
    return rows @ rows.mT, known, torch.as_tensor(episodes.query_labels)


def unroll(products: Tensor, known: Tensor, raw: dict[str, Tensor]) -> Tensor:
    """Class probabilities of the queries, (E, Q, W); prototypes are weights of the rows."""
    n_support = known.shape[1]
    spreads = (known / known.sum(dim=1, keepdim=True)).mT
    prototypes = torch.nn.functional.pad(spreads, (0, products.shape[1] - n_support))
    log_sizes = products.new_zeros(len(products), 1, WAYS)
    scale, weights, temperatures = softplus(raw["s"]), softplus(raw["a"]), 1 + softplus(raw["t"])
    for layer in range(N_LAYERS):
        norms = ((prototypes @ products) * prototypes).sum(dim=-1)
        similar = 2 * products[:, n_support:] @ prototypes.mT - norms[:, None]
        scores = scale**2 / 2 * similar + weights[layer] * log_sizes
        plan = (scores / temperatures[layer]).softmax(dim=-1)
        log_sizes = (plan.mean(dim=1) + 1e-9).log()[:, None]
        whole = torch.cat([known, plan], dim=1).mT
        prototypes = whole / whole.sum(dim=-1, keepdim=True)
    return plan


def main() -> None:
    """Fit and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--episodes", type=int, default=500)
    parser.add_argument("--iterations", type=int, default=150)
    options = parser.parse_args()
    torch.set_num_threads(1)
    for n_shot in (1, 5):
        drawn = [draw(name, n_shot, options.episodes) for name in SETS]
        starts = {"s": torch.tensor(6.0), "a": torch.full((N_LAYERS,), 0.54)}
        starts["t"] = torch.full((N_LAYERS,), -2.0)
        raw = {name: start.requires_grad_() for name, start in starts.items()}
        solver = torch.optim.Adam(raw.values(), lr=0.05)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(solver, options.iterations)
        torch.manual_seed(0)
        for _ in range(options.iterations):
            loss = torch.zeros(())
            for products, known, labels in drawn:
                some = torch.randint(0, options.episodes, (BATCH,))
                plan = unroll(products[some], known[some], raw)
                loss = loss - (plan.gather(-1, labels[some][..., None]) + 1e-6).log().mean()
            solver.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            solver.step()
            schedule.step()
        with torch.no_grad():
            right = [(unroll(p, k, raw).argmax(-1) == y).float().mean() for p, k, y in drawn]
            print(n_shot, [f"{100 * float(each):.2f}" for each in right])
            print("sharpness", round(float(softplus(raw["s"])) ** 2, 2))
            print("size_weights", [round(float(each), 2) for each in softplus(raw["a"])])
            print("temperatures", [round(float(each), 2) for each in 1 + softplus(raw["t"])])


if __name__ == "__main__":
    main()
