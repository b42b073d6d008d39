"""The CUDA engine against float64, where there is a GPU.

Without one: TRITON_INTERPRET=1 pytest -W default tests/kernels/test_cuda.py, on few episodes and
slowly, where Triton is installed. Its interpreter (3.6) needs numpy 2.3 or older.
"""

import os

import pytest
import torch

from fewlabels.evaluation import sample_episodes
from fewlabels.evaluation.engines import TorchEngine
from fewlabels.evaluation.fused import TritonEngine, grams
from fewlabels.features import FeatureSet, load_embedded
from fewlabels.kernels import gram
from fewlabels.methods import configure, find_method, method_names
from fewlabels.preprocess import Pipeline

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
DEVICE = "cpu" if INTERPRETED else "cuda"
N_EPISODES = 2 if INTERPRETED else 100
NAMES = [name for name in method_names() if find_method(name).kernel]
SETTINGS = [(name, {}) for name in NAMES] + [
    ("map", {"prior": "truth"}),
    ("map", {"prior": "estimate"}),
    ("map", {"lam": "auto"}),
]
IDS = [" ".join([name, *map("=".join, settings.items())]) for name, settings in SETTINGS]

pytestmark = pytest.mark.skipif(
    not (torch.cuda.is_available() or INTERPRETED), reason="needs a CUDA GPU"
)


class Engine(TritonEngine):
    """The engine on the device of these tests."""

    device = DEVICE


@pytest.mark.parametrize(("name", "settings"), SETTINGS, ids=IDS)
@pytest.mark.parametrize(
    ("n_way", "n_shot", "queries"),
    [(5, 1, "15"), (2, 5, "3"), (20, 5, "15"), (6, 2, "dirichlet:2:70"), (5, 1, "120")],
)
def test_labels_are_those_of_float64(name, settings, n_way, n_shot, queries):
    features = load_embedded()
    method = configure(name, n_shot=n_shot, **settings).decide(torch.as_tensor(features.features))
    episodes = sample_episodes(
        features, n_episodes=N_EPISODES, n_way=n_way, n_shot=n_shot, queries=queries
    )
    reference = TorchEngine(features, device=DEVICE, dtype="float64", mean_features=features)
    found = Engine(features, mean_features=features).predict(method, episodes)
    assert (found == reference.predict(method, episodes)).all()


def test_labels_of_faint_classes_are_those_of_float64():
    features = load_embedded()
    x = torch.as_tensor(features.features)
    noise = torch.randn(x.shape, generator=torch.Generator().manual_seed(0))
    x = (x + 1.5 * x.std() * noise).abs().numpy()  # the network's answer is averaged with the plans
    faint = FeatureSet.from_arrays(x, features.labels, features.class_names)
    method = configure("map-auto", n_shot=5).decide(torch.as_tensor(x))
    episodes = sample_episodes(faint, n_episodes=N_EPISODES, n_shot=5, queries="dirichlet:2:75")
    reference = TorchEngine(faint, device=DEVICE, dtype="float64")
    found = Engine(faint).predict(method, episodes)
    assert (found == reference.predict(method, episodes)).all()


def test_class_sizes_are_estimated_by_the_kernels():
    features = load_embedded()
    method = configure("map-auto", n_shot=1)
    of = {n: sample_episodes(features, n_episodes=1, n_shot=1, queries=n) for n in ("15", "120")}
    assert Engine(features)._fits(method, of["15"])
    assert not Engine(features)._fits(method, of["120"])  # more rows than a block has room for


@pytest.mark.parametrize("n", [2, 31, 80])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("largest", [1, 700])
def test_the_kth_largest_product_is_that_of_a_sorted_row(n, dtype, largest):
    from fewlabels.kernels import cuda

    x = 2 * torch.rand(3, 7, n, generator=torch.Generator().manual_seed(0), dtype=dtype) - 1
    x *= largest
    x[:, 1:4, 1] = x[:, 1:4, 0]  # two that are equal
    x.diagonal(dim1=1, dim2=2).fill_(-torch.inf)
    ranks = [1, n // 2, n - 1]
    found = cuda.kth_largest(x.to(DEVICE), ranks)
    for k, each in zip(ranks, found, strict=True):
        assert torch.equal(each.cpu(), x.sort(dim=-1, descending=True).values[..., k - 1])


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("row", [1, 8], ids=["support", "query"])
@pytest.mark.parametrize("kind", ["NEAREST", "KMEANS", "FREE", "MASS", "MINIMUM", "ESTIMATE"])
@pytest.mark.parametrize("line", ["none", "center | unit"])
def test_an_episode_with_a_number_that_is_not_finite_has_margin_minus_one(
    line, kind, row, dtype, bad
):
    from fewlabels.kernels import codes, cuda

    pipeline = Pipeline.parse(line)
    x = torch.randn(3, 18, 20, generator=torch.Generator().manual_seed(0), dtype=dtype)
    x += 2 * torch.eye(20, dtype=dtype)[torch.arange(18) % 3]

    def classify(x):
        labels = (torch.arange(6) % 3).expand(3, 6).int().contiguous().to(DEVICE)
        target = torch.full((1, 3), 2.0 if kind == "MINIMUM" else 4.0, dtype=dtype).to(DEVICE)
        settings = {"classifier": getattr(codes, kind), "lam": 10.0, "alpha": 0.3, "n_steps": 3}
        products = grams(pipeline, x.to(DEVICE), 6)
        if kind == "ESTIMATE":
            wides = gram.append_neighbor_means(products, n_support=6, n_way=3)
            settings |= {"lam": 0.0, "wides": wides}
        found = cuda.classify_grams(
            products,
            labels,
            n_query=12,
            n_way=3,
            target=target,
            tol=1e-6 if dtype == torch.float32 else 1e-10,
            **settings,
        )
        return found.labels.cpu(), found.margins.cpu()

    labels, margins = classify(x)
    assert (margins >= 0).all()
    x[1, row, 3] = bad
    new_labels, new_margins = classify(x)
    assert new_margins[1] == -1
    assert torch.equal(new_labels[[0, 2]], labels[[0, 2]])
    assert torch.equal(new_margins[[0, 2]], margins[[0, 2]])
