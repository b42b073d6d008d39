"""Each system against formulas written out plainly, and what all systems share."""

import copy
import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from fewlabels.backbones import build_backbone
from fewlabels.errors import InputError
from fewlabels.training.systems import SYSTEMS, Shape
from fewlabels.training.systems.base import split_rows
from fewlabels.training.systems.dsn import find_basis, overlap, subspace_distances

SIZE = 16
E, W, K, Q, D = 2, 3, 4, 5, 6


def make(name, *, n_way=W, n_classes=7, seed=0, **settings):
    kind = SYSTEMS[name]
    backbone = None if kind.frozen else build_backbone("conv4", image_size=SIZE, seed=seed)
    torch.manual_seed(seed)
    return kind(
        backbone,
        kind.Settings(**settings),
        feature_dim=64,
        n_way=n_way,
        n_classes=n_classes,
    )


def inputs_of(system, n, *, seed=0):
    """Random images, or features for a frozen system."""
    generator = torch.Generator().manual_seed(seed)
    shape = (n, 64) if system.frozen else (n, 3, SIZE, SIZE)
    return torch.randn(shape, generator=generator)


def episode(dim=D, *, seed=0, n_shot=K):
    rng = np.random.default_rng(seed)
    return (
        torch.from_numpy(rng.normal(size=(E, W, n_shot, dim))),
        torch.from_numpy(rng.normal(size=(E, W * Q, dim))),
    )


@pytest.fixture(params=sorted(SYSTEMS))
def system(request):
    return make(request.param)


def test_the_systems_of_the_papers_tables_are_here():
    assert sorted(SYSTEMS) == ["baseline++", "dsn", "leo", "maml", "matching", "mct", "protonet"]
    with pytest.raises(InputError, match=r"system must be one of .*protonet.*, got 'protnet'"):
        SYSTEMS["protnet"]
    with pytest.raises(InputError, match="must not exist already"):
        SYSTEMS.register(SYSTEMS["maml"])


def test_rows_are_by_episode_by_class_support_first():
    shape = Shape(n_way=2, n_shot=1, n_query=2)
    support, query = split_rows(torch.arange(12).float().unsqueeze(1), shape)
    assert support[..., 0].tolist() == [[[0], [3]], [[6], [9]]]
    assert query[..., 0].tolist() == [[1, 2, 4, 5], [7, 8, 10, 11]]


def test_every_system_learns_two_kinds_of_images(system):
    """A few steps on one batch of episodes lower the loss, and every weight has a gradient."""
    shape = Shape(W, 2, 3)
    inputs = inputs_of(system, 2 * W * shape.n_each)
    labels = torch.arange(W).repeat_interleave(shape.n_each).repeat(2)
    inputs = inputs + 0.5 * inputs[:W].repeat_interleave(shape.n_each, dim=0).repeat(
        2, *[1] * (inputs.ndim - 1)
    )
    optimizer = torch.optim.Adam(system.parameters(), lr=1e-3)
    losses = []
    for _ in range(15):
        torch.manual_seed(0)  # the same noise in every step
        optimizer.zero_grad()
        loss = system(inputs, labels, shape)
        loss.backward()
        assert all(weight.grad is not None for weight in system.parameters())
        optimizer.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < losses[0]


def test_an_episode_is_answered_the_same_alone_and_in_a_batch(system):
    system.eval()
    with torch.no_grad():
        rows = system.represent(inputs_of(system, E * W * (K + Q)))
        support, query = split_rows(rows, Shape(W, K, Q))
        together = system.answer(support, query)
        alone = system.answer(support[1:], query[1:])
    assert together.shape == (E, W * Q, W)
    torch.testing.assert_close(together[1:], alone, rtol=1e-3, atol=1e-3)


def test_permuted_classes_permute_the_logits(system):
    """Of MAML until its head, which has an output per way, is trained."""
    assert_equivariant(system)
    if system.fixed_n_way:
        torch.nn.init.normal_(system.head.weight)
        with pytest.raises(AssertionError):
            assert_equivariant(system)


def assert_equivariant(system):
    system.eval()
    order = torch.tensor([2, 0, 1])
    with torch.no_grad():
        rows = system.represent(inputs_of(system, E * W * (K + Q)))
        support, query = split_rows(rows, Shape(W, K, Q))
        straight, permuted = system.answer(support, query), system.answer(support[:, order], query)
    torch.testing.assert_close(permuted, straight[..., order], rtol=1e-3, atol=1e-3)


def test_protonet_is_minus_the_squared_distance_to_the_mean():
    support, query = episode()
    logits = make("protonet", temperature=2.0).answer(support, query)
    for e in range(E):
        for i in range(W * Q):
            for j in range(W):
                mean = sum(support[e, j]) / K
                expected = -sum((query[e, i] - mean) ** 2) / 2
                assert logits[e, i, j] == pytest.approx(float(expected))


def test_matching_sums_the_attention_of_a_class():
    support, query = episode()
    system = make("matching", scale=5.0)
    found = system.answer(support, query).exp()
    for e in range(E):
        for i in range(W * Q):
            x = query[e, i]
            scores = [
                math.exp(5 * float(x @ s / (x.norm() * s.norm()))) for s in support[e].flatten(0, 1)
            ]
            shares = np.array(scores).reshape(W, K).sum(axis=1) / sum(scores)
            np.testing.assert_allclose(found[e, i].detach().numpy(), shares, rtol=1e-5)


def test_full_context_is_the_lstm_of_the_paper():
    """One query, read twice, with the recurrence written out."""
    system = make("matching", full_context=True, n_reads=2)
    generator = torch.Generator().manual_seed(1)
    rows, query = (torch.randn(1, n, 64, generator=generator) for n in (4, 1))
    found_rows, found = system._embed_fully(rows, query)
    states = system.read_support(rows)[0]
    expected_rows = rows + states[..., :64] + states[..., 64:]
    torch.testing.assert_close(found_rows, expected_rows)
    x = query[0]
    h, c, read = x, torch.zeros(1, 64), torch.zeros(1, 64)
    for _ in range(2):
        h, c = system.read_query(torch.cat([x, read], dim=1), (h, c))
        h = h + x
        attention = torch.softmax(h @ expected_rows[0].T, dim=1)
        read = sum(attention[0, i] * expected_rows[0, i] for i in range(4))[None]
    torch.testing.assert_close(found[0], h)
    plain = make("matching")
    assert not hasattr(plain, "read_query")


@pytest.mark.parametrize("first_order", [False, True])
@pytest.mark.parametrize("n_steps", [1, 2])
def test_gradients_of_maml_are_those_of_the_written_out_computation(first_order, n_steps):
    """torch.autograd step by step, with the graph of the inner gradients kept or cut."""
    shape = Shape(W, 1, 2)
    settings = {"inner_lr": 0.1, "inner_steps": n_steps, "first_order": first_order}
    system = make("maml", **settings).double()
    inputs = inputs_of(system, 2 * W * shape.n_each).double()
    system(inputs, torch.empty(0), shape).backward()
    # with torch's own batch norm, which is right without vmap
    backbone = build_backbone("conv4", image_size=SIZE, seed=0)
    network = torch.nn.Sequential(backbone, copy.deepcopy(system.head)).double()
    names = [name for name, _ in network.named_parameters()]
    start = [weight.detach().clone().requires_grad_() for weight in network.parameters()]
    losses = []
    for e in range(2):
        support, query = (part[e] for part in split_rows(inputs, shape))
        weights = start
        for _ in range(n_steps):
            out = torch.func.functional_call(
                network, dict(zip(names, weights, strict=True)), support.flatten(0, 1)
            )
            loss = F.cross_entropy(out, torch.arange(W))
            gradients = torch.autograd.grad(loss, weights, create_graph=not first_order)
            weights = [w - 0.1 * g for w, g in zip(weights, gradients, strict=True)]
        out = torch.func.functional_call(network, dict(zip(names, weights, strict=True)), query)
        losses.append(F.cross_entropy(out, torch.arange(W).repeat_interleave(2)))
    expected = torch.autograd.grad(sum(losses) / 2, start)
    for (name, weight), gradient in zip(system.named_parameters(), expected, strict=True):
        torch.testing.assert_close(weight.grad, gradient, rtol=1e-6, atol=1e-9, msg=name)


def test_second_order_differs_from_first_order_and_episodes_at_once_change_nothing():
    shape = Shape(W, 1, 2)
    gradients = {}
    for first_order, at_once in ((False, 0), (True, 0), (False, 1)):
        system = make("maml", inner_lr=0.1, first_order=first_order, at_once=at_once).double()
        system(inputs_of(system, 2 * W * shape.n_each).double(), torch.empty(0), shape).backward()
        gradients[first_order, at_once] = system.head.weight.grad
    torch.testing.assert_close(gradients[False, 1], gradients[False, 0])
    assert (gradients[True, 0] - gradients[False, 0]).abs().max() > 1e-4


def test_maml_takes_more_steps_in_tests():
    """With one step the support is fitted less than with twenty."""
    losses = {}
    for steps in (1, 20):
        system = make("maml", inner_lr=0.05, test_steps=steps).eval()
        rows = inputs_of(system, W * 2)
        with torch.no_grad():
            logits = system.answer(rows.view(1, W, 2, *rows.shape[1:]), rows[None])
        losses[steps] = float(F.cross_entropy(logits[0], torch.arange(W).repeat_interleave(2)))
    assert losses[20] < losses[1]


def test_baseline_fits_a_cosine_classifier_to_the_support():
    """The weights after two steps, by SGD of torch."""
    system = make("baseline++", fit_steps=2, fit_lr=0.5, scale=4.0).double()
    support, query = episode(64)
    found = system.answer(support, query)
    for e in range(E):
        rows = F.normalize(support[e], dim=-1)
        weights = rows.mean(dim=1).clone().requires_grad_()
        optimizer = torch.optim.SGD([weights], lr=0.5, momentum=0.9, weight_decay=1e-3)
        for _ in range(2):
            optimizer.zero_grad()
            logits = 4 * rows.flatten(0, 1) @ F.normalize(weights, dim=-1).T
            F.cross_entropy(logits, torch.arange(W).repeat_interleave(K)).backward()
            optimizer.step()
        expected = 4 * F.normalize(query[e], dim=-1) @ F.normalize(weights, dim=-1).T
        torch.testing.assert_close(found[e], expected)


def test_baseline_trains_on_the_base_classes():
    system = make("baseline++", n_classes=9, scale=3.0)
    images, labels = inputs_of(system, 8), torch.tensor([0, 8, 3, 3, 1, 2, 7, 7])
    loss = system(images, labels, Shape(4, 1, 1)).item()
    logits = 3 * F.normalize(system.backbone(images), dim=1) @ F.normalize(system.head.weight).T
    assert loss == pytest.approx(F.cross_entropy(logits, labels).item(), rel=1e-4)


def test_distances_to_subspaces_are_those_of_least_squares():
    """The distance to the affine hull of the support rows, by numpy's lstsq."""
    support, query = episode(20)
    basis = find_basis(support)
    found = subspace_distances(query, support.mean(dim=2), basis)
    for e in range(E):
        for j in range(W):
            mean = support[e, j].mean(dim=0).numpy()
            spread = (support[e, j].numpy() - mean).T
            for i in range(W * Q):
                residual = query[e, i].numpy() - mean
                best = spread @ np.linalg.lstsq(spread, residual, rcond=None)[0]
                # the ridge leaves a little of what lies in the subspace
                assert found[e, i, j] == pytest.approx(((residual - best) ** 2).sum(), rel=0.01)


def test_one_shot_has_no_subspace_and_equal_rows_are_no_error():
    support, query = episode(n_shot=1)
    system = make("dsn", refinements=0, temperature=1.0).eval()
    proto = make("protonet")
    torch.testing.assert_close(
        system.answer(support.unsqueeze(3), query.unsqueeze(2)), proto.answer(support, query)
    )
    same = support.expand(E, W, 3, D)
    assert torch.isfinite(find_basis(same)).all()


def test_refined_means_are_weighted_by_probabilities():
    support, query = episode(n_shot=1)
    system = make("dsn", refinements=1, temperature=1.0).eval()
    p = make("protonet").answer(support, query).softmax(dim=-1)
    means = torch.stack(
        [
            torch.stack(
                [
                    (support[e, j, 0] + (p[e, :, j, None] * query[e]).sum(dim=0))
                    / (1 + p[e, :, j].sum())
                    for j in range(W)
                ]
            )
            for e in range(E)
        ]
    )
    expected = -torch.cdist(query, means).square()
    torch.testing.assert_close(system.answer(support.unsqueeze(3), query.unsqueeze(2)), expected)


def test_overlap_is_zero_for_orthogonal_and_full_for_equal_subspaces():
    apart = torch.eye(6).view(1, 3, 2, 6)
    assert float(overlap(apart)) == pytest.approx(0)
    assert float(overlap(apart[:, :1].expand(1, 3, 2, 6))) == pytest.approx(2)


def test_confidence_moves_prototypes_as_the_formulas_say():
    """One step of DFMN-MCT for one episode with two views, written out."""
    system = make("mct", test_steps=1, scale=3.0).double().eval()
    support, query = (part.unsqueeze(-2).repeat_interleave(2, -2) for part in episode(64))
    query[..., 1, :] *= 1.5  # the views differ
    found = system.answer(support, query).exp()

    def u(x):
        return x / x.norm() * math.sqrt(3)

    def confidence(centers):
        views = []
        for v in range(2):
            d = torch.stack(
                [
                    torch.stack([(u(x) - u(c)).square().sum() for c in centers[v]])
                    for x in query[0, :, v]
                ]
            )
            views.append(torch.softmax(-d, dim=1))
        return sum(views) / 2

    centers = [support[0, :, :, v].mean(dim=1) for v in range(2)]
    p = confidence(centers)
    centers = [
        (support[0, :, :, v].sum(dim=1) + p.T @ query[0, :, v]) / (K + p.sum(dim=0))[:, None]
        for v in range(2)
    ]
    torch.testing.assert_close(found[0], confidence(centers))


def test_mct_refuses_a_backbone_without_a_mean_over_positions():
    with pytest.raises(InputError, match="must end in a mean over positions"):
        SYSTEMS["mct"](
            build_backbone("conv4-flat", image_size=32),
            SYSTEMS["mct"].Settings(),
            feature_dim=256,
            n_way=5,
            n_classes=4,
        )


def test_latent_steps_fit_the_support():
    """More steps in the latent space lower the loss of the support; tests draw no numbers."""
    losses = {}
    for n_steps in (0, 10):
        system = make("leo", inner_steps=n_steps, tuning_steps=0, inner_lr=0.5).eval()
        rows = system.represent(inputs_of(system, W * K))
        support = rows.view(1, W, K, 64)
        logits = system.answer(support, rows[None])
        losses[n_steps] = float(F.cross_entropy(logits[0], torch.arange(W).repeat_interleave(K)))
        torch.manual_seed(5)
        torch.testing.assert_close(system.answer(support, rows[None]), logits, rtol=0, atol=0)
    assert losses[10] < losses[0]


@pytest.mark.parametrize(
    ("name", "settings", "words"),
    [
        ("protonet", {"temperature": 0}, "temperature must be positive, got 0"),
        ("matching", {"scale": -1.0}, "scale must be positive"),
        ("matching", {"n_reads": 0}, "n_reads must be at least 1, got 0"),
        ("maml", {"inner_lr": 0}, "inner_lr must be positive"),
        ("maml", {"inner_steps": 0}, "inner_steps and test_steps must be at least 1"),
        ("maml", {"at_once": -1}, "at_once must not be negative"),
        ("baseline++", {"fit_lr": 0}, "scale and fit_lr must be positive"),
        ("baseline++", {"fit_steps": -1}, "fit_steps must not be negative"),
        ("dsn", {"temperature": 0}, "temperature must be positive"),
        ("dsn", {"refinements": -1}, "apart and refinements must not be negative"),
        ("mct", {"scale": 0}, "scale must be positive"),
        ("mct", {"dense": -1.0}, "dense must not be negative"),
        ("leo", {"latent_dim": 0}, "latent_dim must be at least 1"),
        ("leo", {"dropout": 1.0}, "dropout must be from 0 to below 1"),
        ("leo", {"inner_lr": 0}, "must be positive"),
        ("leo", {"kl": -1.0}, "must not be negative"),
    ],
)
def test_wrong_settings_are_named(name, settings, words):
    with pytest.raises(InputError, match=words):
        SYSTEMS[name].Settings(**settings)
