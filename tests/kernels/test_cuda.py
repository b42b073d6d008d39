"""The CUDA engine against float64, where there is a GPU."""

import pytest
import torch

from fewlabels.evaluation import sample_episodes
from fewlabels.evaluation.engines import TorchEngine, make_engine
from fewlabels.evaluation.fused import grams
from fewlabels.features import load_embedded
from fewlabels.methods import configure, find_method, method_names
from fewlabels.preprocess import Pipeline

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")


@pytest.mark.parametrize(
    "name",
    [name for name in method_names() if find_method(name).kernel and name != "simpleshot-cl2n"],
)
@pytest.mark.parametrize("prior", ["uniform", "truth"])
@pytest.mark.parametrize(
    ("n_way", "n_shot", "queries"),
    [(5, 1, "15"), (2, 5, "3"), (20, 5, "15"), (6, 2, "dirichlet:2:70"), (5, 1, "120")],
)
def test_labels_are_those_of_float64(name, prior, n_way, n_shot, queries):
    features = load_embedded()
    method = configure(name, n_shot=n_shot, prior=prior)
    episodes = sample_episodes(
        features, n_episodes=100, n_way=n_way, n_shot=n_shot, queries=queries
    )
    expected = TorchEngine(features, device="cuda", dtype="float64").predict(method, episodes)
    engine = make_engine(features, engine="triton", device="cuda")
    assert (engine.predict(method, episodes) == expected).all()


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("row", [1, 8], ids=["support", "query"])
@pytest.mark.parametrize("kind", ["NEAREST", "KMEANS", "FREE", "MASS", "MINIMUM"])
@pytest.mark.parametrize("line", ["none", "center | unit"])
def test_an_episode_with_a_number_that_is_not_finite_has_margin_minus_one(
    line, kind, row, dtype, bad
):
    from fewlabels.kernels import codes, cuda

    pipeline = Pipeline.parse(line)
    x = torch.randn(3, 18, 20, generator=torch.Generator().manual_seed(0), dtype=dtype)
    x += 2 * torch.eye(20, dtype=dtype)[torch.arange(18) % 3]

    def classify(x):
        labels = (torch.arange(6) % 3).expand(3, 6).int().contiguous().cuda()
        target = torch.full((1, 3), 2.0 if kind == "MINIMUM" else 4.0, dtype=dtype).cuda()
        settings = {"classifier": getattr(codes, kind), "lam": 10.0, "alpha": 0.3, "n_steps": 3}
        found = cuda.classify_grams(
            grams(pipeline, x.cuda(), 6),
            labels,
            n_query=12,
            n_way=3,
            target=target,
            tol=1e-6 if dtype == torch.float32 else 1e-10,
            **settings,
        )
        return tuple(part.cpu() for part in found)

    labels, margins = classify(x)
    assert (margins >= 0).all()
    x[1, row, 3] = bad
    new_labels, new_margins = classify(x)
    assert new_margins[1] == -1
    assert torch.equal(new_labels[[0, 2]], labels[[0, 2]])
    assert torch.equal(new_margins[[0, 2]], margins[[0, 2]])
