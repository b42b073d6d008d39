"""Methods of the literature beside slow literal loops, scikit-learn or autograd, on real features.

Every oracle works on one episode in numpy (float64) and shares no line with the code under test.
"""

import warnings

import numpy as np
import pytest
import torch
from scipy.special import digamma, softmax
from sklearn.decomposition import PCA, FastICA
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import NearestNeighbors
from sklearn.semi_supervised import LabelSpreading
from sklearn.svm import LinearSVC

from fewlabels import classify, configure, evaluate, fit, load_embedded, sample_episodes
from fewlabels.errors import InputError
from fewlabels.fitting import answer
from fewlabels.methods import parts
from fewlabels.methods.unem import SCHEDULES


def unit(x):
    return x / np.linalg.norm(x, axis=-1, keepdims=True)


def squared(x, c):
    return ((x[:, None, :] - c[None]) ** 2).sum(axis=-1)


def means_of(x, y, n_way):
    return np.stack([x[y == way].mean(axis=0) for way in range(n_way)])


def balance(scores, columns):
    """Plan with rows of 1 and the given columns, by alternating scaling."""
    kernel = np.exp(scores - scores.max(axis=1, keepdims=True))
    v = np.ones(scores.shape[1])
    for _ in range(20_000):
        change = columns / (v * (kernel.T @ (1 / (kernel @ v))))
        v = v * change
        if np.abs(np.log(change)).max() < 1e-11:
            break
    return kernel * v / (kernel @ v)[:, None]


def bound(scores, least):
    """Plan with rows of 1 and columns of at least `least`: columns below it are raised to it."""
    kernel = np.exp(scores - scores.max(axis=1, keepdims=True))
    v = np.ones(scores.shape[1])
    for _ in range(20_000):
        mass = v * (kernel.T @ (1 / (kernel @ v)))
        change = np.where(mass < least, max(least, 1e-300) / mass, 1.0)
        v = v * change
        if np.abs(np.log(change)).max() < 1e-11:
            break
    return kernel * v / (kernel @ v)[:, None]


def rectified(x, y, q, n_way):
    """BD-CSPN's prototypes and shifted queries, row by row."""
    q = q + x.mean(axis=0) - q.mean(axis=0)
    first = means_of(x, y, n_way)
    sums, weights = np.zeros_like(first), np.zeros(n_way)
    for row, known in [*zip(x, y, strict=True), *((each, None) for each in q)]:
        cosines = np.array([row @ c / np.linalg.norm(row) / np.linalg.norm(c) for c in first])
        way = cosines.argmax() if known is None else known
        weight = softmax(10 * cosines)[way]
        sums[way] += weight * row
        weights[way] += weight
    return sums / weights[:, None], q


def oracle_nearest(x, y, q, n_way):
    return squared(q, means_of(x, y, n_way)).argmin(axis=1)


def oracle_bdcspn(x, y, q, n_way):
    prototypes, q = rectified(x, y, q, n_way)
    return (unit(q) @ unit(prototypes).T).argmax(axis=1)


def oracle_laplacianshot(x, y, q, n_way):
    prototypes, q = rectified(x, y, q, n_way)
    unary = squared(q, prototypes)
    near = NearestNeighbors(n_neighbors=3).fit(q).kneighbors(return_distance=False)
    labels = softmax(-unary, axis=1)
    for _ in range(20):
        labels = np.stack(
            [softmax(-unary[i] + 0.7 * labels[near[i]].sum(axis=0)) for i in range(len(q))]
        )
    return labels.argmax(axis=1)


def oracle_tim(x, y, q, n_way, *, order=1.0, weight=0.1):
    """The loss as it is written, autograd and torch's Adam."""
    x, q, truth = torch.tensor(x), torch.tensor(q), torch.tensor(y)
    prototypes = torch.tensor(means_of(x.numpy(), y, n_way), requires_grad=True)
    solver = torch.optim.Adam([prototypes], lr=1e-3)

    def logits(rows):
        return -7.5 * ((rows[:, None, :] - prototypes[None]) ** 2).sum(dim=-1)

    def entropy(p):
        if order == 1:
            return -(p * p.log()).sum(dim=-1)
        return (1 - (p**order).sum(dim=-1)) / (order - 1)

    for _ in range(100):
        solver.zero_grad()
        p = logits(q).softmax(dim=1)
        loss = weight * torch.nn.functional.cross_entropy(logits(x), truth)
        loss = loss - entropy(p.mean(dim=0)) + weight * entropy(p).mean()
        loss.backward()
        solver.step()
    return logits(q).argmax(dim=1).numpy()


def oracle_alpha_tim(x, y, q, n_way):
    return oracle_tim(x, y, q, n_way, order=2.0 if len(x) == n_way else 7.0, weight=1.0)


def oracle_paddle(x, y, q, n_way):
    prototypes, sizes = means_of(x, y, n_way), np.full(n_way, 1 / n_way)
    for _ in range(100):
        u = softmax(-20 * squared(q, prototypes) + np.log(sizes), axis=1)
        sizes = np.maximum(u.mean(axis=0), 1e-300)  # a class may become empty
        for way in range(n_way):
            total = x[y == way].sum(axis=0) + sum(u[i, way] * q[i] for i in range(len(q)))
            prototypes[way] = total / ((y == way).sum() + u[:, way].sum())
    return (-20 * squared(q, prototypes) + np.log(sizes)).argmax(axis=1)


def oracle_tafssl(x, y, q, n_way):
    reduced = unit(PCA(n_way - 1, svd_solver="full").fit_transform(np.concatenate([x, q])))
    x, q = reduced[: len(x)], reduced[len(x) :]
    prototypes = means_of(x, y, n_way)
    for _ in range(20):
        p = softmax(-10 * squared(q, prototypes), axis=1)
        for way in range(n_way):
            total = x[y == way].sum(axis=0) + p[:, way] @ q
            prototypes[way] = total / ((y == way).sum() + p[:, way].sum())
    return squared(q, prototypes).argmin(axis=1)


def oracle_bms(x, y, q, n_way, *, equal=False):
    prototypes, least = unit(means_of(x, y, n_way)), 0
    for _ in range(21):
        scores = 8.5 * unit(q) @ prototypes.T
        plan = balance(scores, len(q) / n_way) if equal else bound(scores, least)
        least = np.bincount(plan.argmax(axis=1), minlength=n_way).min()
        sums = [x[y == way].sum(axis=0) + plan[:, way] @ q for way in range(n_way)]
        prototypes = unit(np.stack(sums))
    return plan.argmax(axis=1)


def oracle_bms_equal(x, y, q, n_way):
    return oracle_bms(x, y, q, n_way, equal=True)


def oracle_protolp(x, y, q, n_way):
    rows = np.concatenate([x, q])
    left, sizes, _ = np.linalg.svd(rows, full_matrices=False)
    rows = left[:, :40] * sizes[:40]
    rows = unit(rows - rows.mean(axis=0))
    x, q, truth = rows[: len(x)], rows[len(x) :], np.eye(n_way)[y]
    prototypes = unit(means_of(x, y, n_way))
    for step in range(101):
        z = np.concatenate([truth, balance(-10 * squared(q, prototypes), len(q) / n_way)])
        known = z[: len(x)]
        walk = z.T @ z @ np.diag(1 / z.sum(axis=0))
        spread = np.linalg.inv(known.T @ known + np.eye(n_way) - walk) @ known.T @ truth
        f = np.concatenate([truth, balance(np.log(z @ spread)[len(x) :], len(q) / n_way)])
        if step < 100:
            mixed = 0.6 * f + 0.4 * z
            means = (mixed.T @ rows) / mixed.sum(axis=0)[:, None]
            prototypes = prototypes + 0.2 * (means - prototypes)
    return f[len(x) :].argmax(axis=1)


def oracle_label_spreading(x, y, q, n_way):
    model = LabelSpreading(max_iter=10_000, tol=1e-14)
    model.fit(np.concatenate([x, q]), np.concatenate([y, np.full(len(q), -1)]))
    return model.transduction_[len(x) :]


def oracle_dsn(x, y, q, n_way):
    costs, n_dims = [], np.bincount(y).min() - 1
    for way in range(n_way):
        rows = x[y == way]
        apart = q - rows.mean(axis=0)
        axes = np.linalg.svd(rows - rows.mean(axis=0), full_matrices=False)[2][:n_dims]
        costs.append(((apart - apart @ axes.T @ axes) ** 2).sum(axis=1))
    return np.argmin(costs, axis=0)


def oracle_sgc(x, y, q, n_way):
    rows = np.concatenate([x, q])
    cosines = rows @ rows.T
    graph = np.zeros_like(cosines)
    found = NearestNeighbors(n_neighbors=10, metric="cosine").fit(rows)
    for i, near in enumerate(found.kneighbors(return_distance=False)):
        for k in near:
            graph[i, k] = graph[k, i] = max(cosines[i, k], 0)
    degree = np.diag(graph.sum(axis=0) ** -0.5)
    hop = 0.5 * np.eye(len(rows)) + degree @ graph @ degree
    rows = hop @ hop @ hop @ rows
    model = LogisticRegression(C=30, max_iter=5000, tol=1e-8).fit(rows[: len(x)], y)
    probabilities = model.predict_proba(rows[len(x) :])
    return probabilities.argmax(axis=1)


def oracle_matching(x, y, q, n_way):
    labels = []
    for row in q:
        cosines = np.array([row @ each / np.linalg.norm(row) / np.linalg.norm(each) for each in x])
        votes = softmax(10 * cosines)
        labels.append(np.argmax([votes[y == way].sum() for way in range(n_way)]))
    return np.array(labels)


def oracle_cosine_head(x, y, q, n_way):
    """Autograd and torch's SGD."""
    weights = torch.tensor(unit(means_of(unit(x), y, n_way)), requires_grad=True)
    solver = torch.optim.SGD([weights], lr=0.1, momentum=0.9)
    cosine = torch.nn.functional.cosine_similarity

    def logits(rows):
        return 10 * cosine(torch.tensor(rows)[:, None, :], weights[None], dim=-1)

    for _ in range(100):
        solver.zero_grad()
        torch.nn.functional.cross_entropy(logits(x), torch.tensor(y)).backward()
        solver.step()
    return logits(q).argmax(dim=1).numpy()


def oracle_svm(x, y, q, n_way):
    model = LinearSVC(C=1.0, tol=1e-9, max_iter=200_000, dual=True, random_state=0).fit(x, y)
    return model.predict(q)


def oracle_unem(x, y, q, n_way):
    schedule = SCHEDULES[1 if len(x) == n_way else 5]
    prototypes, sizes = means_of(x, y, n_way), np.full(n_way, 1 / n_way)
    for weight, temperature in zip(schedule.size_weights, schedule.temperatures, strict=True):
        logits = -schedule.sharpness / 2 * squared(q, prototypes) + weight * (np.log(sizes) + 1)
        u = softmax(logits / temperature, axis=1)
        sizes = np.maximum(u.mean(axis=0), 1e-300)  # a class may become empty
        for way in range(n_way):
            total = x[y == way].sum(axis=0) + u[:, way] @ q
            prototypes[way] = total / ((y == way).sum() + u[:, way].sum())
    return u.argmax(axis=1)


def oracle_mct(x, y, q, n_way):
    prototypes = means_of(x, y, n_way)
    for _ in range(10):
        p = softmax(-10 * squared(q, prototypes), axis=1)
        for way in range(n_way):
            total = x[y == way].sum(axis=0) + p[:, way] @ q
            prototypes[way] = total / ((y == way).sum() + p[:, way].sum())
    return squared(q, prototypes).argmin(axis=1)


def oracle_anchored(x, y, q, n_way):
    anchors = means_of(x, y, n_way)
    prototypes = anchors.copy()
    for _ in range(10):
        p = softmax(-10 * squared(q, prototypes), axis=1)
        for way in range(n_way):
            number = (p.argmax(axis=1) == way).sum()
            part = number / (1 + number)
            prototypes[way] = part * (p[:, way] @ q) / p[:, way].sum() + (1 - part) * anchors[way]
    return squared(q, prototypes).argmin(axis=1)


def oracle_bavardage(x, y, q, n_way):
    """With the published projection to the span of the differences of the means."""
    prototypes = means_of(x, y, n_way)
    for _ in range(5):
        r = softmax(-20 * squared(q, prototypes), axis=1)
        for way in range(n_way):
            total = x[y == way].sum(axis=0) + r[:, way] @ q
            prototypes[way] = total / ((y == way).sum() + r[:, way].sum())
    r = softmax(-20 * squared(q, prototypes), axis=1)
    for _ in range(6):
        whole = np.concatenate([np.eye(n_way)[y], r])
        b = 10 + whole.sum(axis=0)
        means = whole.T @ np.concatenate([x, q]) / b[:, None]
        axes = np.linalg.qr((means[1:] - means[0]).T)[0]
        a = 2 + r.sum(axis=0)
        logs = digamma(a) - digamma(a.sum()) - (n_way - 1) / (2 * b)
        r = softmax(-20 * squared(q @ axes, means @ axes) + logs, axis=1)
    return r.argmax(axis=1)


def oracle_tafssl_ica(x, y, q, n_way):
    """Scikit-learn's FastICA: its rotation must change no label."""
    model = FastICA(n_way - 1, whiten="unit-variance", max_iter=5000, tol=1e-8, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a rotation that did not converge is one too
        reduced = unit(model.fit_transform(np.concatenate([x, q])))
    x, q = reduced[: len(x)], reduced[len(x) :]
    prototypes = means_of(x, y, n_way)
    for _ in range(20):
        p = softmax(-10 * squared(q, prototypes), axis=1)
        for way in range(n_way):
            total = x[y == way].sum(axis=0) + p[:, way] @ q
            prototypes[way] = total / ((y == way).sum() + p[:, way].sum())
    return squared(q, prototypes).argmin(axis=1)


def oracle_ilpc(x, y, q, n_way):
    rows, n = np.concatenate([x, q]), len(x)
    found = NearestNeighbors(n_neighbors=20, metric="cosine").fit(rows)
    graph = np.zeros((len(rows), len(rows)))
    for i, near in enumerate(found.kneighbors(return_distance=False)):
        graph[i, near] = np.maximum(unit(rows[i]) @ unit(rows[near]).T, 0) ** 3
    graph = (graph + graph.T) / 2
    degree = np.diag(graph.sum(axis=1) ** -0.5)
    walk = np.eye(len(rows)) - 0.8 * degree @ graph @ degree
    labels = np.concatenate([y, np.full(len(q), -1)])
    for _ in range(int(np.ceil(len(q) / (3 * n_way)))):
        known = labels >= 0
        one = np.where(known[:, None], np.eye(n_way)[labels], 0)
        f = np.maximum(np.linalg.solve(walk, one), 0)[~known]
        f = (f / f.sum(axis=1, keepdims=True)) ** 3
        sizes = len(q) / n_way - np.array([(labels[n:] == way).sum() for way in range(n_way)])
        if not known.all():
            plan = f
            for _ in range(5000):
                before = plan
                plan = plan / plan.sum(axis=1, keepdims=True)
                plan = plan * (sizes / np.maximum(plan.sum(axis=0), 1e-300))
                if np.abs(plan - before).max() < 1e-15:
                    break
            guess = labels.copy()
            guess[~known] = plan.argmax(axis=1)
        losses = np.zeros(len(rows))
        weights = torch.tensor(means_of(rows, guess, n_way), requires_grad=True)
        solver = torch.optim.SGD([weights], lr=0.1, momentum=0.9, weight_decay=5e-4)
        for _ in range(100):
            solver.zero_grad()
            loss = torch.nn.functional.cross_entropy(
                torch.tensor(rows) @ weights.T, torch.tensor(guess), reduction="none"
            )
            losses += loss.detach().numpy()
            loss.mean().backward()
            solver.step()
        for way in range(n_way):
            free = np.flatnonzero((guess == way) & (labels < 0))
            best = free[np.argsort(losses[free])][:3]
            labels[best] = way
    return guess[n:]


def oracle_tafssl_shift(x, y, q, n_way):
    rows = np.concatenate([x, q])
    z = unit(PCA(n_way - 1, svd_solver="full").fit_transform(rows))
    near, far = z[: len(x)], z[len(x) :]
    c = means_of(near, y, n_way)
    for _ in range(4):
        p = softmax(-10 * squared(far, c), axis=1)
        n = min((p[:, way] > 0.3).sum() for way in range(n_way))
        c = np.stack(
            [
                np.concatenate([near[y == way], far[np.argsort(-p[:, way])[:n]]]).mean(axis=0)
                for way in range(n_way)
            ]
        )
    return squared(far, c).argmin(axis=1)


def oracle_manifold(x, y, q, n_way, *, order, balance):
    """By autograd and the Adam of torch, one episode, with loops over the nodes."""
    spread, k = (0.8, 20) if len(x) == n_way else (0.9, 10)
    rows, truth = torch.tensor(np.concatenate([x, q])), torch.tensor(y)
    n = n_way + len(rows)
    c = torch.tensor(means_of(x, y, n_way), requires_grad=True)
    g = torch.ones(n, n, dtype=torch.float64, requires_grad=True)
    b = torch.full((n, n), spread, dtype=torch.float64, requires_grad=True)
    adam = torch.optim.Adam([c, g, b], lr=1e-3)

    def distances(x, y):
        return torch.cdist(x, y, compute_mode="donot_use_mm_for_euclid_dist")

    between = distances(rows, rows)

    def entropy(p):
        return -(p * p.log()).sum(-1) if order == 1 else (1 - (p**order).sum(-1)) / (order - 1)

    def scores():
        own, far = distances(c, c), distances(c, rows)
        d = torch.cat([torch.cat([own, far], 1), torch.cat([far.T, between], 1)])
        a = torch.exp(-g * d / d.std())
        kept = torch.zeros(n, n, dtype=torch.float64)
        for i in range(n_way, n):
            wanted = a[i].detach().clone()
            wanted[:n_way] *= 1 + 1e-9
            order_of = [j for j in torch.argsort(wanted, descending=True).tolist() if j != i]
            kept[i, order_of[:k]] = 1
        w = b * (a * kept + (a * kept).T) / 2
        root = torch.diag(w.sum(1) ** -0.5)
        start = 15 * torch.eye(n, dtype=torch.float64)[:, :n_way]
        found = torch.linalg.inv(torch.eye(n) - spread * root @ w @ root) @ start
        return found[n_way:]

    for _ in range(100):
        adam.zero_grad()
        z = scores()
        p = torch.softmax(z[len(x) :], dim=-1)
        loss = torch.nn.functional.cross_entropy(z[: len(x)], truth)
        loss = loss - balance * entropy(p.mean(0)) + entropy(p).mean()
        loss.backward()
        adam.step()
    return scores()[len(x) :].argmax(dim=1).numpy()


def oracle_am(x, y, q, n_way):
    return oracle_manifold(x, y, q, n_way, order=1, balance=10)


def oracle_alpha_am(x, y, q, n_way):
    return oracle_manifold(x, y, q, n_way, order=2 if len(x) == n_way else 5, balance=1)


SLOW_LOOPS = ("protolp", "am", "alpha-am")
ORACLES = {
    "tafssl-shift": oracle_tafssl_shift,
    "am": oracle_am,
    "alpha-am": oracle_alpha_am,
    "matching": oracle_matching,
    "cosine-head": oracle_cosine_head,
    "svm": oracle_svm,
    "unem": oracle_unem,
    "mct": oracle_mct,
    "anchored": oracle_anchored,
    "bavardage": oracle_bavardage,
    "tafssl-ica": oracle_tafssl_ica,
    "ilpc": oracle_ilpc,
    "simpleshot-l2n": oracle_nearest,
    "bd-cspn": oracle_bdcspn,
    "laplacianshot": oracle_laplacianshot,
    "tim": oracle_tim,
    "alpha-tim": oracle_alpha_tim,
    "paddle": oracle_paddle,
    "tafssl": oracle_tafssl,
    "bms": oracle_bms,
    "bms-equal": oracle_bms_equal,
    "protolp": oracle_protolp,
    "label-spreading": oracle_label_spreading,
    "dsn": oracle_dsn,
    "sgc": oracle_sgc,
}


def draw(n_shot, queries, n_episodes=3, n_way=5, seed=7):
    """Real episodes, float64: (E, S, D), (E, S), (E, Q, D)."""
    features = load_embedded()
    episodes = sample_episodes(
        features, n_episodes=n_episodes, n_way=n_way, n_shot=n_shot, queries=queries, seed=seed
    )
    x = torch.tensor(features.features).double()
    return x[episodes.support], torch.tensor(episodes.support_labels), x[episodes.query]


@pytest.mark.parametrize("queries", ["15", "dirichlet:2:75"])
@pytest.mark.parametrize("n_shot", [1, 5])
@pytest.mark.parametrize("name", ORACLES)
def test_every_label_is_that_of_a_literal_loop(name, n_shot, queries):
    support, labels, query = draw(n_shot, queries, 1 if name in SLOW_LOOPS else 3)
    method = configure(name, n_shot=n_shot)
    found = answer(method, support, labels, query, n_way=5)
    for e in range(len(support)):
        expected = ORACLES[name](
            found.support[e].numpy(), labels[e].numpy(), found.query[e].numpy(), 5
        )
        np.testing.assert_array_equal(found.assignment.labels[e], expected)
    assert found.assignment.converged.all()


def test_sgc_answers_in_any_order_and_company_alike():
    """Its solver stops at a small gradient: a looser tolerance than in tests/properties."""
    support, labels, query = draw(5, "15", n_episodes=4)
    method = configure("sgc", n_shot=5)
    straight = answer(method, support, labels, query, n_way=5).assignment
    order = torch.randperm(75, generator=torch.Generator().manual_seed(0))
    shots = torch.randperm(25, generator=torch.Generator().manual_seed(1))
    permuted = answer(method, support[:, shots], labels[:, shots], query[:, order], n_way=5)
    torch.testing.assert_close(permuted.assignment.plan, straight.plan[:, order], rtol=0, atol=1e-3)
    for e in range(4):
        alone = answer(method, support[e, None], labels[e, None], query[e, None], n_way=5)
        torch.testing.assert_close(alone.assignment.plan[0], straight.plan[e], rtol=0, atol=1e-3)
    single = answer(method, support, labels, query[:, :1], n_way=5).assignment
    assert single.plan.shape == (4, 1, 5)


# Base-class statistics


def test_simpleshot_centers_by_the_mean_of_other_classes():
    support, labels, query = draw(5, "15", n_episodes=1)
    base = load_embedded().features[:900].astype(np.float64)
    found = fit("simpleshot-cl2n", support[0], labels[0], query[0], mean=base.mean(axis=0))
    x, q = (unit(each[0].numpy() - base.mean(axis=0)) for each in (support, query))
    np.testing.assert_array_equal(found.labels, oracle_nearest(x, labels[0].numpy(), q, 5))


def test_simpleshot_without_a_mean_says_what_it_needs_and_what_else_there_is():
    support, labels, query = draw(1, "15", n_episodes=1)
    with pytest.raises(InputError, match=r"needs a mean, got none.*center\(joint\)"):
        fit("simpleshot-cl2n", support[0], labels[0], query[0])
    with pytest.raises(InputError, match="mean_features must be given"):
        evaluate("simpleshot-cl2n", n_episodes=2)


# Edges

SOFT = [name for name in ORACLES if name != "simpleshot-l2n"]


@pytest.mark.parametrize("name", SOFT)
def test_a_single_class_gets_every_query(name):
    support, labels, query = draw(2, "4", n_way=1, n_episodes=2)
    found = answer(configure(name, n_shot=2), support, labels, query, n_way=1).assignment
    assert (found.labels == 0).all()
    torch.testing.assert_close(found.plan, torch.ones_like(found.plan))
    assert found.prototypes.isfinite().all()


@pytest.mark.parametrize("name", SOFT)
def test_equal_rows_are_an_answer(name):
    """Every shot of a class, and every query, is the same row: the rank is that of the classes."""
    support, _, _ = draw(1, "15", n_episodes=2, n_way=3)
    labels = torch.tensor([[0, 1, 2] * 3] * 2)
    ways = torch.tensor([0, 1, 2, 0, 1, 2])
    found = answer(
        configure(name, n_shot=3), support.repeat(1, 3, 1), labels, support[:, ways], n_way=3
    ).assignment
    assert found.labels.tolist() == [ways.tolist()] * 2
    assert found.plan.isfinite().all()
    assert found.prototypes.isfinite().all()


@pytest.mark.parametrize("name", ["laplacianshot", "sgc"])
def test_more_neighbors_than_rows_are_all_rows(name):
    support, labels, query = draw(1, "1", n_way=3)
    many, all_others = (
        answer(
            configure(name, n_shot=1, n_neighbors=k), support, labels, query, n_way=3
        ).assignment.plan
        for k in (1000, 2 if name == "laplacianshot" else 5)
    )
    torch.testing.assert_close(many, all_others, rtol=0, atol=0)


def test_subspaces_of_one_shot_are_points():
    support, labels, query = draw(1, "15")
    by_name = [
        answer(configure(name, n_shot=1), support, labels, query, n_way=5).assignment.labels
        for name in ("dsn", "ncm")
    ]
    assert torch.equal(*by_name)


def test_subspaces_of_unequal_shots_have_equally_many_dimensions():
    support, labels, query = draw(5, "15")
    keep = torch.tensor([i for i in range(25) if int(labels[0, i]) or i in (0, 1, 2)])
    same = (labels == labels[0]).all(dim=1)
    support, labels, query = support[same][:, keep], labels[same][:, keep], query[same]
    found = answer(configure("dsn", n_shot=5), support, labels, query, n_way=5)
    for e in range(len(support)):
        x, q = found.support[e].numpy(), found.query[e].numpy()
        expected = oracle_dsn(x, labels[e].numpy(), q, 5)
        np.testing.assert_array_equal(found.assignment.labels[e], expected)


@pytest.mark.parametrize("name", ["label-spreading", "sgc"])
def test_too_many_rows_for_pairs_are_refused(name, monkeypatch):
    monkeypatch.setattr(parts, "MOST_ROWS", 79)
    support, labels, query = draw(1, "15", n_episodes=1)
    with pytest.raises(InputError, match=f"method '{name}' .* takes up to 79 rows, got 80"):
        classify(support[0], labels[0], query[0], method=name)


def test_a_query_that_no_label_reaches_goes_to_the_nearest_mean():
    rows = torch.tensor([[[0.0, 0.0], [10.0, 0.0]]])
    query = torch.tensor([[[1.0, 500.0], [9.0, 500.0], [0.1, 0.0]]])
    method = configure("label-spreading", n_shot=1, pipeline="none")
    found = method.assign(rows, torch.tensor([[0, 1]]), query, n_way=2)
    assert found.labels.tolist() == [[0, 1, 0]]
    assert found.plan.isfinite().all()


@pytest.mark.parametrize("name", ["bms", "paddle"])
def test_absent_classes_become_small_where_sizes_are_free(name):
    support, labels, query = draw(5, "40,40,0,0,0", n_episodes=5)
    found = answer(configure(name, n_shot=5), support, labels, query, n_way=5).assignment
    equal = answer(configure("bms-equal", n_shot=5), support, labels, query, n_way=5).assignment
    assert found.proportions[:, 2:].sum(dim=1).mean() < 0.45  # of 0.6 where sizes are equal
    torch.testing.assert_close(equal.proportions, torch.full_like(equal.proportions, 0.2))
