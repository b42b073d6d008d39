"""`map-auto`: what its network starts from, its formulas, and where it is not used."""

from importlib.resources import files

import numpy as np
import pytest
import torch

from fewlabels import (
    FeatureSet,
    InputError,
    configure,
    evaluate,
    fit,
    load_embedded,
    sample_episodes,
)
from fewlabels.fitting import answer
from fewlabels.methods import find_method, refinement
from fewlabels.methods.assignment import similarities
from fewlabels.methods.auto import assign_auto, gather_clues, refines
from fewlabels.methods.map import assign_map
from fewlabels.methods.refinement import (
    CLEAR,
    FAINT,
    LARGEST_INPUT,
    LARGEST_LOG_ODDS,
    VOTERS,
    describe_plan,
    find_trust,
    load_weights,
    refine_logits,
)

TWO_PLANS = {"prior": "estimate", "lam": "auto"}  # of the method map: map-auto without its network


def label(name, episodes, features, n_shot, **settings):
    rows = torch.as_tensor(features.features).float()
    pipeline = find_method("map-auto").pipeline
    method = configure(name, n_shot=n_shot, dataset="cifar-fs", pipeline=pipeline, **settings)
    x, q = (rows[torch.as_tensor(each)] for each in (episodes.support, episodes.query))
    y = torch.as_tensor(episodes.support_labels)
    return answer(method.decide(rows), x, y, q, n_way=5).assignment


@pytest.fixture(scope="module", params=[1, 5])
def uneven(request):
    features = load_embedded()
    queries = "dirichlet:2:75"
    drawn = sample_episodes(features, n_episodes=60, n_shot=request.param, queries=queries)
    return features, drawn, request.param


def test_without_weights_of_the_last_layer_it_is_the_weighted_mean_of_two_plans(
    uneven, monkeypatch
):
    weights = load_weights() | {"c": torch.zeros_like(load_weights()["c"])}
    monkeypatch.setattr(refinement, "load_weights", lambda: weights)
    features, drawn, n_shot = uneven
    found = label("map-auto", drawn, features, n_shot)
    expected = label("map", drawn, features, n_shot, **TWO_PLANS)
    torch.testing.assert_close(found.plan, expected.plan, atol=2e-3, rtol=0)
    torch.testing.assert_close(found.lam, expected.lam, atol=1e-3, rtol=1e-3)
    torch.testing.assert_close(found.certainty, expected.certainty, atol=1e-3, rtol=0)


@pytest.mark.parametrize("n_shot", [1, 5])
def test_the_network_is_more_accurate_than_the_plan_that_it_starts_from(n_shot):
    features = load_embedded()
    drawn = sample_episodes(features, n_episodes=100, n_shot=n_shot, queries="present:2:75")
    truth = torch.as_tensor(drawn.query_labels)
    found = label("map-auto", drawn, features, n_shot)
    before = label("map", drawn, features, n_shot, **TWO_PLANS)
    gain = (found.labels == truth).double().mean() - (before.labels == truth).double().mean()
    assert gain > 0.01  # 0.03 in 10,000 novel episodes (benchmarks/refinement.py)


def test_later_rows_are_decided_in_the_proportions_that_were_found(uneven):
    features, drawn, n_shot = uneven
    rows = torch.as_tensor(features.features).float()
    method = configure("map-auto", n_shot=n_shot, dataset="cifar-fs").decide(rows)
    x, q = (rows[torch.as_tensor(each)] for each in (drawn.support, drawn.query))
    given = answer(method, x, torch.as_tensor(drawn.support_labels), q, n_way=5)
    found = given.assignment
    torch.testing.assert_close(found.plan.sum(dim=-1), torch.ones(60, 75))
    assert found.converged.all()
    scores = found.lam[:, None, None] * similarities(given.query, found.prototypes)
    again = (scores + found.biases[:, None]).softmax(dim=-1)
    torch.testing.assert_close(again.mean(dim=1), found.proportions, atol=1e-3, rtol=0)


@pytest.mark.parametrize("size", [0.01, 1.0, 30.0])
def test_the_norm_of_vectors_changes_nothing(uneven, size):
    features, drawn, n_shot = uneven
    rows = torch.as_tensor(features.features).double()
    pipeline = configure("map-auto", n_shot=n_shot).decide(rows).pipeline
    x, q = pipeline.apply(rows[torch.as_tensor(drawn.support)], rows[torch.as_tensor(drawn.query)])
    y = torch.as_tensor(drawn.support_labels)
    expected, found = (assign_auto(s * x, y, s * q, n_way=5) for s in (1.0, size))
    torch.testing.assert_close(found.plan, expected.plan, atol=1e-6, rtol=0)
    torch.testing.assert_close(found.lam * size**2, expected.lam)
    torch.testing.assert_close(found.biases, expected.biases, atol=1e-5, rtol=0)


def literal_rounds(clues, weights):
    """The formulas of `refinement`, query by query and class by class, of the first episode."""
    w = {name: each.double().numpy() for name, each in weights.items()}
    n_support = clues.members.shape[1]
    n_query, n_way = clues.plan.shape[1:]
    votes = clues.votes[0, :, :, n_support:].numpy()
    f = (clues.inputs[0].numpy() - w["mean"]) / w["scale"]
    pairs = [(i, j) for i in range(n_query) for j in range(n_way)]
    s = np.zeros((n_query, n_way, len(w["a"])))
    for i, j in pairs:
        s[i, j] = np.maximum(f[i, j].clip(-LARGEST_INPUT, LARGEST_INPUT) @ w["A"] + w["a"], 0)
    z, rounds = np.log(clues.plan[0].numpy().clip(1e-5)), []
    for t in range(len(w["c"])):
        p = np.exp(z) / np.exp(z).sum(axis=1, keepdims=True)
        g = describe_plan(torch.tensor(p)[None], torch.tensor(z)[None], clues)[0].numpy()
        g = g.clip(-LARGEST_LOG_ODDS, LARGEST_LOG_ODDS)
        parts = np.split(w["N"][t], len(VOTERS), axis=1)
        u = np.zeros_like(s)
        for i, j in pairs:
            u[i, j] = s[i, j] @ w["M"][t] + g[i, j] @ w["B"][t] + w["b"][t]
            for k, n in enumerate(parts):
                u[i, j] += sum(votes[k, i, other] * s[other, j] for other in range(n_query)) @ n
            members = sum(p[q, j] * s[q, j] for q in range(n_query)) / (1 + p[:, j].sum())
            of_class = [s[:, j].mean(axis=0), members, s.mean(axis=(0, 1))]
            of_query = [s[i].mean(axis=0), sum(p[i, way] * s[i, way] for way in range(n_way))]
            u[i, j] += np.concatenate(of_class) @ w["C"][t] + np.concatenate(of_query) @ w["D"][t]
        u = np.maximum(u, 0)
        z = z + u @ w["c"][t]
        if t < len(w["c"]) - 1:
            s = s + u @ w["O"][t]
        rounds.append(z)
    return rounds


@pytest.mark.parametrize("centering", ["support", "support+mean"])
def test_the_rounds_follow_the_formulas(centering):
    features = load_embedded()
    drawn = sample_episodes(features, n_episodes=1, n_way=4, n_shot=2, queries="dirichlet:2:20")
    rows = torch.as_tensor(features.features).double()
    pipeline = configure("map-auto", n_shot=2).decide(rows).pipeline.with_centering(centering)
    x, q = (rows[torch.as_tensor(each)] for each in (drawn.support, drawn.query))
    x, q = pipeline.apply(x, q, mean=pipeline.mean_of(rows))
    y = torch.as_tensor(drawn.support_labels)
    clues, *_ = gather_clues(x, y, q, n_way=4, alpha=0.2, n_steps=5)
    weights = {name: each.double() for name, each in load_weights().items()}
    found = refine_logits(clues, weights)
    for each, expected in zip(found, literal_rounds(clues, weights), strict=True):
        np.testing.assert_allclose(each[0].numpy(), expected, atol=1e-9)


@pytest.mark.parametrize(
    ("signal", "trust"),
    [(0.0, 0.0), (FAINT, 0.0), ((FAINT + CLEAR) / 2, 0.5), (CLEAR, 1.0), (9.0, 1.0)],
)
def test_the_network_is_trusted_where_classes_are_clear(signal, trust):
    of_labels = signal * torch.tensor([[1.0, -1.0], [-1.0, 1.0]])[None]
    assert find_trust(of_labels).tolist() == pytest.approx([trust])


@pytest.fixture(scope="module")
def faint():
    """Normal features of many columns: the means of classes are hardly apart."""
    random = np.random.default_rng(0)
    y = np.repeat(np.arange(8), 40)
    x = random.normal(size=(len(y), 256)) + 0.25 * random.normal(size=(8, 256))[y]
    return FeatureSet.from_arrays(x.astype(np.float32), [f"class {each}" for each in y])


@pytest.mark.parametrize("n_shot", [1, 5])
def test_it_is_no_worse_than_two_plans_where_classes_are_faint(faint, n_shot):
    drawn = sample_episodes(faint, n_episodes=60, n_shot=n_shot, queries=15)
    truth = torch.as_tensor(drawn.query_labels)
    found, before = (
        (label(name, drawn, faint, n_shot, **settings).labels == truth).double().mean()
        for name, settings in (("map-auto", {}), ("map", TWO_PLANS))
    )
    assert before > 0.4
    assert found > before - 0.05  # the network alone: 0.3 less at five shots


def test_the_weights_are_small():
    assert len((files("fewlabels.methods") / refinement.WEIGHTS).read_bytes()) < 100_000
    assert all(each.isfinite().all() for each in load_weights().values())


@pytest.mark.parametrize("n_shot", [1, 5])
def test_every_door_knows_the_method_that_needs_a_mean(n_shot):
    features = load_embedded()
    drawn = sample_episodes(features, n_episodes=1, n_shot=n_shot, queries="dirichlet:2:75")
    rows = torch.as_tensor(features.features)
    x, q = (rows[torch.as_tensor(each[0])] for each in (drawn.support, drawn.query))
    method = configure("map-auto-mean", n_shot=n_shot).decide(torch.cat([x, q]))
    mean = method.pipeline.mean_of(rows)
    found = fit("map-auto-mean", x, drawn.support_labels[0], q, mean=mean, calibrate=True)
    y = torch.as_tensor(drawn.support_labels)
    expected = answer(method, x[None], y, q[None], n_way=5, mean=mean)
    np.testing.assert_array_equal(found.numbers, expected.assignment.labels[0])
    again = found.predict(q)  # later rows are centered as the queries were
    assert (again == found.labels).mean() > 0.9
    with pytest.raises(InputError, match="needs a mean, got none"):
        fit("map-auto-mean", x, drawn.support_labels[0], q)
    with pytest.raises(InputError, match="mean_features must be given"):
        evaluate("map-auto-mean", n_episodes=2)


def test_a_mean_from_outside_helps_where_classes_are_absent():
    features = load_embedded()
    how = {"n_shot": 1, "queries": "present:2:75", "n_episodes": 200, "mean_features": features}
    with_mean, without = evaluate(["map-auto-mean", "map-auto"], features, **how)
    assert with_mean.accuracies.mean() > without.accuracies.mean()


def test_fewer_queries_than_classes_are_decided_without_the_network():
    support, labels = torch.eye(3)[None], torch.arange(3)[None]
    query = support[:, :2] + 0.1
    found = assign_auto(support, labels, query, n_way=3, n_steps=5)
    expected = assign_map(support, labels, query, n_way=3, n_steps=5, lam="auto", prior="estimate")
    assert torch.equal(found.plan, expected.plan)
    assert not found.calibrated.any()


def test_many_rows_are_decided_without_the_network():
    generator = torch.Generator().manual_seed(0)
    centers = torch.randn(1, 3, 8, generator=generator)
    support, labels = centers, torch.arange(3)[None]
    query = centers[:, torch.arange(1200) % 3] + torch.randn(1, 1200, 8, generator=generator)
    assert not refines(3, 1200, 3)
    found = assign_auto(support, labels, query, n_way=3, n_steps=5)
    expected = assign_map(support, labels, query, n_way=3, n_steps=5, lam="auto", prior="estimate")
    assert torch.equal(found.plan, expected.plan)
