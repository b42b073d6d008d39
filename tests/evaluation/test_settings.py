"""Knobs of results, settings files there and back, and plans of several methods."""

import tomllib

import pytest

from fewlabels.errors import FileFormatError, InputError
from fewlabels.evaluation.settings import format_settings, knobs_taken, knobs_used, read_settings
from fewlabels.evaluation.sweep import evaluate_cells, plan_cells
from fewlabels.transport import Estimated, Sizes, Uniform

TUNED = {
    "map": {
        1: {"beta": 0.3, "lam": 12.5, "alpha": 0.4, "n_steps": 30},
        5: {"beta": -1.0, "lam": 1e-3},
    },
    "ncm": {1: {"beta": 0.25}},
}


def knobs(method):
    return knobs_used(str(method.pipeline), method.settings)


def test_settings_survive_the_file_and_any_toml_reader_reads_it(tmp_path):
    path = tmp_path / "settings.toml"
    path.write_text(
        format_settings(TUNED, comments=["Written by: fewlabels tune 'a\nb'", "77.3 ± 0.2 %"]),
        encoding="utf-8",
    )
    assert read_settings(path) == TUNED
    assert read_settings(tmp_path) == TUNED  # the folder that `tune` wrote
    assert tomllib.loads(path.read_text(encoding="utf-8"))["map"]["1-shot"]["lam"] == 12.5
    assert path.read_text(encoding="utf-8").splitlines()[:2] == [
        "# Written by: fewlabels tune 'a b'",
        "# 77.3 ± 0.2 %",
    ]


def test_what_makes_a_variant_is_not_written(tmp_path):
    path = tmp_path / "settings.toml"
    path.write_text(
        format_settings({"map-auto": {1: {"beta": 0.3, "alpha": 0.4, "n_steps": 30}}}),
        encoding="utf-8",
    )
    assert read_settings(path) == {"map-auto": {1: {"alpha": 0.4, "n_steps": 30}}}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "must hold a table"),
        ("[map.1-shot\n", "is not TOML"),
        (
            "[knn.1-shot]\nbeta = 1",
            "must be one of ncm-raw, ncm, kmeans, .*map-truth, .*folder, got 'knn'",
        ),
        ("map = 3", "tables such as"),
        ("[map]\nbeta = 1", "must be named by its shots"),
        ("[map.0-shot]\nbeta = 1", "must be named by its shots"),
        ("[ncm.1-shot]\nlam = 1", "must be one of beta, got 'lam'"),
        ("[map.1-shot]\nlam = '1'", "must be a number or 'auto', got '1'"),
        ("[map.1-shot]\nlam = true", "must be a number or 'auto', got True"),
        ("[map.1-shot]\nn_steps = 2.5", "must be a whole number, got 2.5"),
    ],
)
def test_a_bad_file_is_refused_in_one_line(tmp_path, text, said):
    path = tmp_path / "settings.toml"
    path.write_text(text)
    with pytest.raises(FileFormatError, match=said) as raised:
        read_settings(path)
    assert "settings.toml" in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_file_that_cannot_be_read(tmp_path):
    with pytest.raises(FileFormatError, match="does not exist"):
        read_settings(tmp_path / "none.toml")
    with pytest.raises(FileFormatError, match="cannot be read"):
        read_settings(tmp_path)


def test_a_pipeline_without_power_takes_no_beta():
    assert knobs_taken("ncm-raw") == ()
    assert knobs_taken("map", "unit | center | unit") == ("lam", "alpha", "n_steps", "prior")
    assert knobs_taken("ncm-raw", "power(0.3) | unit") == ("beta",)


def test_every_combination_once_and_only_knobs_that_a_method_takes():
    cells = plan_cells(
        ["ncm", "map", "map"],
        shots=[1, 5, 1],
        queries=["15", "dirichlet:2:75"],
        knobs={"lam": [5, 10], "beta": [0.5, 1]},
    )
    assert [(cell.n_shot, cell.queries) for cell in cells] == [
        (1, "15"),
        (1, "dirichlet:2:75"),
        (5, "15"),
        (5, "dirichlet:2:75"),
    ]
    for cell in cells:
        found = [
            (method.name, knobs(method)["beta"], knobs(method).get("lam"))
            for method in cell.methods
        ]
        assert found == [("ncm", 0.5, None), ("ncm", 1, None)] + [
            ("map", beta, lam) for beta in (0.5, 1) for lam in (5, 10)
        ]


def test_given_knobs_win_over_tuned_ones_and_these_over_the_papers():
    (cell,) = plan_cells(["map", "kmeans"], knobs={"alpha": [0.9]}, tuned=TUNED)
    assert knobs(cell.methods[0]) == {"beta": 0.3, "lam": 12.5, "alpha": 0.9, "n_steps": 30}
    assert knobs(cell.methods[1]) == {
        "beta": 0.5,
        "max_iterations": 100,
    }  # not in the file: the paper's
    (cell,) = plan_cells(["map"], pipeline="power(0.7) | unit", tuned=TUNED)
    assert str(cell.methods[0].pipeline) == "power(0.7) | unit"
    assert cell.methods[0].settings["lam"] == 12.5


@pytest.mark.parametrize(
    ("names", "options", "said"),
    [
        (
            ["ncm", "kmeans"],
            {"knobs": {"lam": [5]}},
            r"^lam has no effect on ncm, kmeans.*soft-kmeans, map",
        ),
        (["ncm-raw"], {"knobs": {"beta": [1]}}, "^beta has no effect on ncm-raw"),
        (["ncm"], {"knobs": {"n_steps": [3]}}, "^n_steps has no effect"),
        (["map"], {"knobs": {"beta": [1]}, "pipeline": "unit"}, "not both"),
        (["map"], {"knobs": {"lam": [10, 0]}}, "lam must be"),
        (["map"], {"knobs": {"alpha": [1.5]}}, "alpha must"),
        (["knn"], {}, "got 'knn'"),
        (
            ["map"],
            {"knobs": {"lamda": [1]}},
            "a knob must be one of beta, .*prior, .*, got 'lamda'",
        ),
        (["map"], {"knobs": {"n_steps": ["2.5"]}}, "n_steps must be a whole number, got 2.5"),
        (["kmeans"], {"tuned": TUNED}, "none of the methods kmeans"),
        (
            ["map"],
            {"tuned": TUNED, "shots": [3]},
            "settings holds map for 1, 5 shots, got 3.*Tune it",
        ),
        (["map"], {"queries": ["15", "some"]}, "queries must be"),
        (["map"], {"knobs": {"lam": ["sharp"]}}, "^lam must be a number or 'auto', got 'sharp'"),
        (["map"], {"knobs": {"alpha": ["auto"]}}, "^alpha must be a number, got 'auto'"),
        (
            ["map"],
            {"knobs": {"prior": ["equal"]}},
            r"^prior must be one of uniform, estimate, free, truth.*got 'equal'",
        ),
        (["map"], {"knobs": {"prior": ["0.5,-0.5,1"]}}, "must not be negative"),
        (["map"], {"knobs": {"prior": ["0.5,nan"]}}, "must not be negative"),
        (
            ["ncm", "map-auto"],
            {"knobs": {"prior": ["free"]}},
            r"^prior has no effect on ncm, map-auto\..*: map, map-folder\.",
        ),
    ],
)
def test_contradictions_are_refused(names, options, said):
    with pytest.raises(InputError, match=said):
        plan_cells(names, **options)


def test_words_are_knobs_too():
    knobs_given = {
        "lam": ["auto", "10"],
        "beta": ["auto"],
        "prior": ["uniform", "estimate", "0.5,0.3,0.2"],
    }
    (cell,) = plan_cells(["ncm", "map", "map-auto"], knobs=knobs_given)
    assert [method.name for method in cell.methods] == ["ncm", *["map"] * 6, "map-auto"]
    lams = [method.settings["lam"] for method in cell.methods[1:]]
    assert lams == ["auto"] * 3 + [10.0] * 3 + ["auto"]
    assert [method.settings["prior"] for method in cell.methods[1:4]] == [
        Uniform(),
        Estimated(),
        Sizes([0.5, 0.3, 0.2]),
    ]
    assert str(cell.methods[1].pipeline) == "power(auto) | unit | center | unit"
    # an estimate needs this centering
    assert str(cell.methods[2].pipeline) == "power(auto) | unit | center(support) | unit"


def test_sizes_that_do_not_fit_a_cell_are_refused_before_the_first_is_run(
    make_features,
):
    done = []
    cells = plan_cells(["map"], queries=["2,2,4", "2,2,2"], knobs={"prior": ["2,2,4"]})
    with pytest.raises(InputError, match=r"must sum to 6, .* got 8"):
        evaluate_cells(
            make_features([10] * 3), cells, n_way=3, n_episodes=3, on_progress=done.append
        )
    assert not done


def test_fractions_that_are_the_truth_answer_as_the_truth_does(make_features):
    cells = plan_cells(
        ["map"], queries=["2,2,4"], knobs={"prior": ["truth", "0.25,0.25,0.5", "2,2,4"]}
    )
    truth, *given = evaluate_cells(make_features([10] * 3), cells, n_way=3, n_episodes=10)[0]
    for result in given:
        assert result.accuracies.tolist() == truth.accuracies.tolist()


def test_a_last_cell_that_does_not_fit_is_refused_before_the_first_is_run(make_features):
    done = []
    cells = plan_cells(["ncm"], shots=[1, 9], queries=["5"])
    with pytest.raises(InputError, match="14 images, got 10"):
        evaluate_cells(make_features([10] * 5), cells, n_episodes=5, on_progress=done.append)
    assert not done


def test_ctrl_c_keeps_the_cells_that_were_done(make_features):
    done = []

    def stop_in_the_second(n):
        done.append(n)
        if len(done) == 3:
            raise KeyboardInterrupt

    cells = plan_cells(["ncm", "kmeans"], shots=[1, 2], queries=["3"])
    results, interrupted = evaluate_cells(
        make_features([10] * 5), cells, n_episodes=5, on_progress=stop_in_the_second
    )
    assert interrupted
    assert [(result.method, result.n_shot, result.n_episodes) for result in results] == [
        ("ncm", 1, 5),
        ("kmeans", 1, 5),
    ]
