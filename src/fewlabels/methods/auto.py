"""MAP where nobody knows the class sizes: the plans of `estimation`, refined by a small network.

`estimation` computes a plan with equal sizes and free ones, and their weighted mean. A network that
was fitted on episodes of other classes (`refinement`) refines it. It was fitted on vectors of norm
1, so all vectors are brought to norm 1 first. In episodes of more rows than `SMOOTHING.dense_rows`,
or of fewer queries than classes, the weighted mean is the answer.

The mean of few labelled rows is far from that of all classes, and the mean of the queries is near
the largest class. So each row is centered by the mean of its own values, which brings the mean of
all classes near zero, and then all are centered by the mean of the labelled rows, shrunk toward
zero as far as the rows tell (`steps.center_row`, `steps.shrunk_mean`).

`map-auto-mean` is the same where the mean of images of other classes is known: the rows are
centered by the mean of the labelled rows and of the one from outside.
"""

from dataclasses import replace

import torch
from torch import Tensor

from fewlabels.methods.assignment import Assignment, one_hot
from fewlabels.methods.base import Method, register
from fewlabels.methods.estimation import WeighedPlans, assign_plan, estimate_lam, weigh_plans
from fewlabels.methods.map import (
    ALPHA_KNOB,
    ESTIMATED,
    N_STEPS_KNOB,
    REFERENCE,
    STEPS,
    assign_known,
    assign_map,
    keep_neighborhood,
    paper_alpha,
    paper_n_steps,
)
from fewlabels.methods.parts import check_rows
from fewlabels.methods.refinement import (
    VOTERS,
    Clues,
    describe_episodes,
    nearest_votes,
    refine_plan,
)
from fewlabels.preprocess.pipeline import Pipeline
from fewlabels.preprocess.smoothing import SMOOTHING, append_neighbor_means, rows_of_products
from fewlabels.preprocess.steps import AUTO, SUPPORT_AND_MEAN, unit
from fewlabels.transport.prior import Estimated, Prior, Uniform


def assign_auto(
    support: Tensor,
    support_labels: Tensor,
    query: Tensor,
    *,
    n_way: int,
    alpha: float = paper_alpha(5),
    n_steps: int = paper_n_steps(5),
    lam: str = AUTO,
    prior: Prior | str = Estimated.word,
    neighborhood: tuple[Tensor, Tensor] | None = None,
) -> Assignment:
    """Labels without known class sizes, (E, S, D), (E, S), (E, Q, D) -> Assignment.

    Args:
        support: Preprocessed labelled vectors.
        support_labels: Class numbers.
        query: Preprocessed unlabelled vectors.
        n_way: Number of classes.
        alpha: Step size of the class centers.
        n_steps: Steps of MAP with equal sizes.
        lam: "auto", the only value: it is read from the features.
        prior: `Estimated`, the only value.
        neighborhood: As in `assign_map`; used only where the network is not.
    """
    ALPHA_KNOB.check(alpha)
    N_STEPS_KNOB.check(n_steps)
    if not refines(support.shape[1], query.shape[1], n_way):
        return assign_map(
            support,
            support_labels,
            query,
            n_way=n_way,
            lam=lam,
            alpha=alpha,
            n_steps=n_steps,
            prior=prior,
            neighborhood=neighborhood,
        )
    support, query = check_rows(support, support_labels, query, n_way)
    rows = torch.cat([support, query], dim=1)
    unit_rows = unit(rows)
    n_support = support.shape[1]
    clues, found, equal = gather_clues(
        unit_rows[:, :n_support],
        support_labels,
        unit_rows[:, n_support:],
        n_way=n_way,
        alpha=alpha,
        n_steps=n_steps,
    )
    squared = (rows * rows).sum(dim=-1).mean(dim=-1)
    squared = torch.where(squared > 0, squared, 1.0)
    decided = assign_plan(
        support,
        clues.members,
        query,
        refine_plan(clues),
        lam=clues.lam / squared,  # for later rows, which are not of norm 1 in all pipelines
        certainty=found.certainty,
    )
    return decided._replace(
        n_iterations=equal.n_iterations + decided.n_iterations,
        converged=equal.converged,
        calibrated=torch.ones_like(equal.converged),  # the network was fitted to a cross-entropy
    )


def refines(n_support: int, n_query: int, n_way: int) -> bool:
    """Whether the network refines the plan of episodes of this size."""
    return n_way > 1 and n_query >= n_way and n_support + n_query <= SMOOTHING.dense_rows


def gather_clues(
    support: Tensor,
    support_labels: Tensor,
    query: Tensor,
    *,
    n_way: int,
    alpha: float,
    n_steps: int,
) -> tuple[Clues, WeighedPlans, Assignment]:
    """What the network is told, the plans of `estimation`, and the one with equal sizes.

    As `assign_auto`, of vectors of norm 1.
    """
    n_support, dtype = support.shape[1], support.dtype
    rows = torch.cat([support, query], dim=1).double()
    plain = rows @ rows.mT
    if rows.shape[2] > rows.shape[1]:
        rows = rows_of_products(plain)
    joined = torch.cat(
        append_neighbor_means(rows[:, :n_support], rows[:, n_support:], n_way=n_way), dim=1
    )
    smooth = joined @ joined.mT
    if joined.shape[2] > joined.shape[1]:
        joined = rows_of_products(smooth)
    (support, query), wide = (
        (each[:, :n_support].to(dtype).contiguous(), each[:, n_support:].to(dtype).contiguous())
        for each in (rows, joined)
    )
    members = one_hot(support_labels, n_way, dtype)
    lam = estimate_lam(wide[0], support_labels, wide[1], n_way=n_way, alpha=alpha)
    equal = assign_known(support, support_labels, query, n_way, lam, alpha, n_steps, Uniform())
    found = weigh_plans(wide[0], members, wide[1], equal.plan, lam=lam, alpha=alpha)
    votes = [
        nearest_votes(each, n_support, k) for each, k in zip((plain, smooth), VOTERS, strict=True)
    ]
    clues = describe_episodes(
        torch.stack([plain, smooth], dim=1).to(dtype),
        torch.stack(votes, dim=1).to(dtype),
        members,
        lam=lam,
        equal=equal.plan,
        biases=equal.biases,
        found=found,
    )
    return clues, found, equal


AUTO_METHOD = Method(
    "map-auto",
    "PT+MAP, estimated",
    REFERENCE,
    Pipeline.parse("power(auto) | center(row) | unit | center(shrunk) | unit"),
    assign_auto,
    knobs=STEPS,
    fixed=ESTIMATED,
    kernel="map-refined",
    prepare_rows=keep_neighborhood,
)
register(
    AUTO_METHOD,
    replace(
        AUTO_METHOD,
        name="map-auto-mean",
        title="PT+MAP, estimated, base mean",
        pipeline=AUTO_METHOD.pipeline.with_centering(SUPPORT_AND_MEAN),
    ),
)
