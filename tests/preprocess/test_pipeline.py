import numpy as np
import pytest
import torch
from sklearn.preprocessing import StandardScaler, normalize

from fewlabels.errors import InputError
from fewlabels.preprocess import PAPER, PAPER_INDUCTIVE, Pipeline, Step
from fewlabels.preprocess.pipeline import MEASUREMENTS
from fewlabels.preprocess.power_rule import LARGEST_SHARE, MOST_MEASUREMENTS, are_measurements


def paper_in_numpy(
    support: np.ndarray, query: np.ndarray, beta: float
) -> tuple[np.ndarray, np.ndarray]:
    """The authors' preprocessing of one episode, in float64."""
    sides = []
    for side in (support, query):
        x = (side.astype(np.float64) + 1e-6) ** beta
        x = x / np.linalg.norm(x, axis=1, keepdims=True)
        x = x - x.mean(axis=0)
        sides.append(x / np.linalg.norm(x, axis=1, keepdims=True))
    return sides[0], sides[1]


@pytest.mark.parametrize("beta", [0.3, 0.5, 1.5])
@pytest.mark.parametrize(("dtype", "atol"), [(torch.float64, 1e-12), (torch.float32, 1e-5)])
def test_the_papers_pipeline_is_the_authors_arithmetic(draw_features, beta, dtype, atol):
    support, query = (
        draw_features(3, 5, 32, dtype=dtype),
        draw_features(3, 20, 32, seed=1, dtype=dtype),
    )
    got = Pipeline.parse(f"power({beta}) | unit | center | unit")(support, query)
    for episode in range(3):
        expected = paper_in_numpy(support[episode].numpy(), query[episode].numpy(), beta)
        for side, side_expected in zip(got, expected, strict=True):
            np.testing.assert_allclose(side[episode].numpy(), side_expected, atol=atol)


def test_the_papers_lines():
    assert str(PAPER) == "power(0.5) | unit | center | unit"
    assert str(PAPER_INDUCTIVE) == "power(0.5) | unit"
    assert PAPER.steps == (Step("power", 0.5), Step("unit"), Step("center"), Step("unit"))


@pytest.mark.parametrize(
    ("line", "printed"),
    [
        ("power(0.5) | unit | center | unit", "power(0.5) | unit | center | unit"),
        ("power(.5)|unit|center|unit", "power(0.5) | unit | center | unit"),
        ("  power( 5e-1 )  |unit ", "power(0.5) | unit"),
        ("power(-0.25)", "power(-0.25)"),
        ("power(0)", "power(0)"),
        ("power(1.0)", "power(1)"),
        ("power(0.123456789)", "power(0.123456789)"),
        ("unit | center(joint) | unit", "unit | center(joint) | unit"),
        ("center(mean)|unit", "center(mean) | unit"),
        ("none", "none"),
        (" none ", "none"),
        ("", "none"),
        ("  ", "none"),
    ],
)
def test_a_pipeline_prints_its_canonical_line_and_reads_it_back(line, printed):
    pipeline = Pipeline.parse(line)
    assert str(pipeline) == printed
    assert Pipeline.parse(printed) == pipeline
    assert Pipeline.parse(pipeline) == pipeline


def test_pipelines_of_different_steps_are_different():
    lines = [
        "none",
        "unit",
        "power(0.5)",
        "power(0.50001)",
        "unit | center",
        "unit | center(joint)",
        "center | unit",
    ]
    assert len({Pipeline.parse(line) for line in lines}) == len(lines)


@pytest.mark.parametrize(
    ("line", "power", "undecided", "needs_labels", "needs_mean"),
    [
        ("power(0.5) | unit | center | unit", 0.5, False, True, False),
        ("power(0.5) | unit", 0.5, False, False, False),
        ("power(auto) | unit | center(joint) | unit", "auto", True, False, False),
        ("signed_power(0.5) | unit | center(support)", 0.5, False, True, False),
        ("unit | center(mean) | unit", None, False, False, True),
        ("unit | center(support+mean) | unit", None, False, True, True),
        ("center(row) | unit | center(shrunk) | unit", None, False, True, False),
        ("none", None, False, False, False),
    ],
)
def test_what_a_pipeline_says_of_itself(line, power, undecided, needs_labels, needs_mean):
    pipeline = Pipeline.parse(line)
    assert pipeline.power == power
    assert pipeline.undecided == undecided
    assert pipeline.needs_labels == needs_labels
    assert pipeline.needs_mean == needs_mean


def test_another_power_and_another_centering_leave_the_rest_alone():
    line = Pipeline.parse("signed_power(0.5) | center(mean) | center | unit | center(joint)")
    changed = "power(auto) | center(mean) | center | unit | center(joint)"
    assert str(line.with_power("auto")) == changed
    moved = "signed_power(0.5) | center(mean) | center(support) | unit | center(support)"
    assert str(line.with_centering("support")) == moved
    assert str(Pipeline(()).with_power(0.3)) == "none"
    with pytest.raises(InputError, match="beta must be a number from -10 to 10, got 11"):
        line.with_power(11)
    with pytest.raises(InputError, match="a step must be one of"):
        line.with_centering("median")


def test_the_empty_pipeline_changes_nothing(draw_features):
    support, query = draw_features(5, 6) - 1, draw_features(9, 6, seed=1) - 1
    got = Pipeline.parse("none")(support, query)
    assert torch.equal(got[0], support)
    assert torch.equal(got[1], query)


@pytest.mark.parametrize(
    ("line", "n_rowwise"),
    [
        (PAPER, 2),
        (PAPER_INDUCTIVE, 2),
        ("unit | center(joint) | unit", 1),
        (
            "power(0.5) | unit | center(mean) | unit",
            4,
        ),  # a mean from outside treats each vector alone
        ("center(mean) | unit | center | unit", 2),
        ("power(0.5) | unit | center(support+mean) | unit", 2),
        ("power(0.5) | center(row) | unit | center(shrunk) | unit", 3),
        ("center | unit", 0),
        ("none", 0),
    ],
)
def test_rowwise_on_the_whole_set_then_episodic_equals_all_steps_on_the_episode(
    draw_features, line, n_rowwise
):
    pipeline = Pipeline.parse(line)
    assert len(pipeline.rowwise.steps) == n_rowwise
    assert pipeline.rowwise.steps + pipeline.episodic.steps == pipeline.steps
    features = draw_features(40, 16)
    mean = pipeline.mean_of(draw_features(30, 16, seed=1)) if pipeline.needs_mean else None
    rows = torch.randperm(40, generator=torch.Generator().manual_seed(2))[:20]
    whole = pipeline(features[rows[:5]], features[rows[5:]], mean=mean)
    ready = pipeline.transform(features, mean=mean)
    split = pipeline.episodic.apply(ready[rows[:5]], ready[rows[5:]], mean=mean)
    torch.testing.assert_close(whole, split, rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    "line",
    [
        PAPER,
        PAPER_INDUCTIVE,
        "unit | center(joint) | unit",
        "unit | center(mean) | center | unit",
        "unit | center(support+mean) | unit",
        "center(row) | unit | center(shrunk) | unit",
        "none",
    ],
)
def test_replayed_on_the_queries_the_recorded_means_give_the_queries(draw_features, line):
    pipeline = Pipeline.parse(line)
    support, query = draw_features(2, 5, 8), draw_features(2, 12, 8, seed=1)
    mean = pipeline.mean_of(draw_features(30, 8, seed=2)) if pipeline.needs_mean else None
    _, expected, means = pipeline.apply_and_record(support, query, mean=mean)
    assert torch.equal(pipeline.replay(query, means), expected)
    assert torch.equal(pipeline(support, query, mean=mean)[1], expected)


def test_a_given_mean_is_that_of_the_other_set_after_the_rowwise_steps(draw_features):
    pipeline = Pipeline.parse("power(0.5) | unit | center(mean) | unit")
    base, support, query = (draw_features(n, 8, seed=n) for n in (50, 5, 12))
    ready = np.sqrt(base.numpy() + 1e-6)
    mean = (ready / np.linalg.norm(ready, axis=1, keepdims=True)).mean(axis=0)
    np.testing.assert_allclose(pipeline.mean_of(base).numpy(), mean, atol=1e-14)
    got = pipeline(support, query, mean=pipeline.mean_of(base))
    for side, got_side in zip((support, query), got, strict=True):
        x = np.sqrt(side.numpy() + 1e-6)
        x = x / np.linalg.norm(x, axis=1, keepdims=True) - mean
        np.testing.assert_allclose(
            got_side.numpy(), x / np.linalg.norm(x, axis=1, keepdims=True), atol=1e-13
        )


def test_the_papers_pipeline_works_without_queries_and_with_one(draw_features):
    pipeline = Pipeline.parse(PAPER)
    support = draw_features(2, 5, 8)
    for n_query in (0, 1):
        ready_support, ready_query = pipeline(support, draw_features(2, n_query, 8, seed=1))
        assert ready_query.shape == (2, n_query, 8)
        np.testing.assert_allclose(ready_support.norm(dim=-1).numpy(), 1, atol=1e-12)
        np.testing.assert_allclose(
            ready_query.norm(dim=-1).numpy(), np.ones((2, n_query)), atol=1e-12
        )


@pytest.mark.parametrize(
    "line", [PAPER, PAPER_INDUCTIVE, "unit | center(joint)", "center | unit", "power(1) | center"]
)
def test_a_pipeline_leaves_its_inputs_alone(draw_features, line):
    support, query = draw_features(5, 6), draw_features(9, 6, seed=1)
    before = support.clone(), query.clone()
    pipeline = Pipeline.parse(line)
    pipeline(support, query)
    pipeline.transform(query)
    assert torch.equal(support, before[0])
    assert torch.equal(query, before[1])


@pytest.mark.parametrize(
    ("line", "refuses"),
    [
        (PAPER, True),
        ("power(0) | unit", True),
        ("power(1.0) | unit", False),
        ("unit | center", False),
    ],
)
def test_positive_only_says_whether_negative_features_are_refused(line, refuses):
    pipeline = Pipeline.parse(line)
    signed = torch.tensor([[1.0, -2.0], [3.0, 1.0]])
    assert pipeline.positive_only is refuses
    if refuses:
        with pytest.raises(InputError, match="must not be negative"):
            pipeline(signed, signed)
    else:
        pipeline(signed, signed)


@pytest.mark.parametrize(
    "word", ["whiten", "Unit", "power", "power()", "unit(2)", "center(median)", "power(0.5"]
)
def test_an_unknown_step_is_named_beside_the_choices(word):
    with pytest.raises(InputError) as error:
        Pipeline.parse(f"unit | {word} | unit")
    for part in ("power(BETA)", "unit", "center", "center(joint)", "center(mean)", f"'{word}'"):
        assert part in str(error.value)


@pytest.mark.parametrize("line", ["unit | | center", "unit |", "| unit", "unit | none"])
def test_an_empty_step_is_refused(line):
    with pytest.raises(InputError, match="a step must be one of"):
        Pipeline.parse(line)


@pytest.mark.parametrize("beta", ["nan", "inf", "-inf", "11", "-10.5"])
def test_a_beta_out_of_range_is_refused_when_parsing(beta):
    with pytest.raises(InputError, match="beta must be a number from -10 to 10"):
        Pipeline.parse(f"power({beta}) | unit")


def test_a_beta_that_is_no_number_is_named():
    with pytest.raises(InputError, match="power must hold a number, got 'half'"):
        Pipeline.parse("power(half)")


def test_center_mean_without_a_mean_says_how_to_get_one(draw_features):
    with pytest.raises(InputError, match=r"center\(mean\) needs a mean.*mean_of"):
        Pipeline.parse("unit | center(mean)")(draw_features(2, 3), draw_features(4, 3))


@pytest.mark.parametrize(
    ("zero_rows", "words"),
    [
        ([3], "in row 3"),
        ([0, 4], "in rows 0, 4"),
        ([0, 1, 2, 3, 4, 5, 7], "in rows 0, 1, 2, 3, 4 and 2 more"),
    ],
)
def test_vectors_of_zeros_are_refused_by_row(draw_features, zero_rows, words):
    support, query = draw_features(5, 6) + 1, draw_features(9, 6) + 1
    query[zero_rows] = 0
    with pytest.raises(InputError, match=f"query: .*{words}"):
        Pipeline.parse(PAPER)(support, query)
    with pytest.raises(InputError, match=f"features: .*{words}"):
        Pipeline.parse(PAPER).transform(query)


def test_a_vector_of_zeros_is_fine_where_nothing_divides_by_its_norm():
    zeros = torch.zeros(2, 3)
    support, _ = Pipeline.parse("power(0.5)")(zeros, zeros)
    np.testing.assert_allclose(support.numpy(), np.full((2, 3), 1e-3), rtol=1e-5)


def test_measurements_are_standardized_and_keep_their_length():
    rng = np.random.default_rng(0)
    rows = rng.normal(5, 1, (60, 4)) * [1, 1000, 1e-3, 1]
    rows[:, 3] = 7.0  # a column that tells nothing
    rows[10] = 0.0  # a row of zeros has a place like any other
    made, later = rows[:50], rows[50:]
    x, _, recorded = MEASUREMENTS.apply_and_record(torch.tensor(made), torch.tensor(made[:0]))
    scaler = StandardScaler().fit(made)
    for found, raw in ((x, made), (MEASUREMENTS.replay(torch.tensor(later), recorded), later)):
        scaled = scaler.transform(raw)
        expected = normalize(np.hstack([scaled, np.full((len(raw), 1), 2.0)]))
        np.testing.assert_allclose(found.numpy(), expected, atol=1e-9)
    MEASUREMENTS.check(torch.tensor(made), "features")
    assert MEASUREMENTS.n_added == 1
    assert not MEASUREMENTS.needs_labels


def test_a_constant_column_of_large_numbers_stays_constant():
    rows = torch.rand(90, 3) + torch.tensor([0.0, 16_777_217.0, 0.0])
    x, _ = MEASUREMENTS.apply(rows[:40], rows[40:])
    assert x.isfinite().all()
    constant = torch.full((90, 1), 123_456.7)
    x, _ = MEASUREMENTS.apply(torch.hstack([rows, constant]), rows.new_zeros(0, 4))
    assert (x[:, 3].abs() <= x[:, 4]).all()  # not above the value that `lift` adds


def test_few_columns_are_measurements():
    """Where the pipeline is to be decided, and centers all rows together."""
    folder = Pipeline.parse("power(auto) | unit | center(joint) | unit")
    few, many = torch.rand(9, MOST_MEASUREMENTS), torch.rand(9, MOST_MEASUREMENTS + 1)
    assert folder.decide(few) == MEASUREMENTS
    assert str(folder.decide(many)) == "power(0.5) | unit | center(joint) | unit"
    assert PAPER.decide(few) == PAPER
    assert Pipeline.parse(str(MEASUREMENTS)) == MEASUREMENTS
    with pytest.raises(InputError, match="a step must be one of"):
        Pipeline.parse("scale")


def test_columns_in_different_units_are_measurements():
    rows = torch.rand(400, 64, generator=torch.Generator().manual_seed(0))
    assert not are_measurements(rows)
    assert not are_measurements(1e30 * rows)
    assert not are_measurements(torch.ones(5, 64))  # no variance
    in_grams = rows.clone()
    in_grams[:, 7] *= 1000
    assert are_measurements(in_grams)
    share = float(in_grams.var(dim=0).max() / in_grams.var(dim=0).sum())
    assert share > LARGEST_SHARE
