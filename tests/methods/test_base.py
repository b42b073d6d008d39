"""A method as one declaration: its knobs, its registry entry, and the settings of the paper."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from fewlabels import Knob, configure, method_names, register
from fewlabels.errors import InputError
from fewlabels.evaluation.fused import KERNELS
from fewlabels.methods.base import BETA, PriorKnob, find_method, typical_shots, unregister
from fewlabels.transport import Estimated, Free, Sizes, Truth, Uniform

METHODS = [find_method(name) for name in method_names()]
EVERY_METHOD = pytest.mark.parametrize("method", METHODS, ids=method_names())
CENTERED = "center(row) | unit | center(shrunk) | unit"  # in map-auto


# Declarations


@EVERY_METHOD
def test_every_method_says_where_it_was_published(method):
    reference = method.reference
    assert reference.link.startswith("https://")
    assert 1950 < reference.year < 2100
    assert str(reference) == (
        f"{reference.authors} ({reference.year}). {reference.title}. {reference.link}"
    )
    assert min(map(len, (reference.authors, reference.title, method.title))) > 2


@EVERY_METHOD
def test_every_kernel_that_a_method_names_is_known_to_the_engines(method):
    assert method.kernel is None or method.kernel in KERNELS


@EVERY_METHOD
@pytest.mark.parametrize("n_shot", [1, 5])
@pytest.mark.parametrize("dataset", [None, "cifar-fs"])
def test_every_default_passes_the_check_of_its_knob(method, n_shot, dataset):
    knobs = {name: knob for name, knob in method.knobs_for().items() if name != BETA.name}
    values = {name: knob.default_for(n_shot, dataset) for name, knob in knobs.items()}
    for name, knob in knobs.items():
        assert knob.check(values[name]) == values[name]
        assert knob.parse(knob.show(values[name])) == values[name]
    assert method.configure(n_shot=n_shot, dataset=dataset).settings == {**values, **method.fixed}


@EVERY_METHOD
def test_every_knob_has_words_and_a_grid_within_its_range(method):
    for knob in method.knobs_for().values():
        assert knob.words
        assert knob.words[0].islower()
        assert not knob.words.endswith(".")
        assert [knob.check(value) for value in knob.grid] == list(knob.grid)
        assert bool(knob.grid) <= bool(knob.symbol)  # a tuned knob is drawn


@EVERY_METHOD
def test_no_knob_can_change_what_makes_a_method_what_it_is(method):
    assert not set(method.fixed) & set(method.knobs_for())
    for name in method.fixed:
        with pytest.raises(InputError, match=f"must be one of .*, got '{name}'"):
            method.configure(n_shot=1, **{name: 3.0})


# Knobs


@pytest.mark.parametrize(
    ("knob", "rule"),
    [
        (Knob("a", "x", low=0, above_low=True, high=1), "a number above 0 and up to 1"),
        (Knob("a", "x", low=0, whole=True), "a whole number of at least 0"),
        (Knob("a", "x", high=3), "a number up to 3"),
        (Knob("a", "x"), "a number that is finite"),
    ],
)
def test_the_range_in_words(knob, rule):
    assert knob.rule == rule


@pytest.mark.parametrize(
    ("knob", "value", "message"),
    [
        ({"low": 0, "above_low": True}, 0, "alpha must be a number above 0, got 0."),
        ({"low": 0, "above_low": True}, math.nan, "alpha must be a number above 0, got nan."),
        ({"low": 0}, math.inf, "alpha must be a number of at least 0, got inf."),
        ({}, math.inf, "alpha must be a number that is finite, got inf."),
        ({"high": 1, "note": "The paper uses 0.2."}, 2, "up to 1, got 2. The paper uses 0.2."),
        ({}, "sharp", "alpha must be a number, got 'sharp'."),
        ({}, True, "alpha must be a number, got True."),
        ({}, None, "alpha must be a number, got None."),
        ({"also": ("auto",)}, "sharp", "alpha must be a number or 'auto', got 'sharp'."),
        ({"whole": True}, 2.5, "alpha must be a whole number, got 2.5."),
        ({"whole": True}, 2.0, "alpha must be a whole number, got 2.0."),
    ],
)
def test_a_value_out_of_range_is_refused_with_the_rule(knob, value, message):
    with pytest.raises(InputError) as refused:
        Knob("alpha", "step size", **knob).check(value)
    assert message in str(refused.value)


@pytest.mark.parametrize("value", [0.25, 3, np.float32(0.5), np.int64(2), "auto"])
def test_a_value_in_range_comes_back_as_it_is(value):
    assert Knob("lam", "x", low=0, also=("auto",)).check(value) is value


@pytest.mark.parametrize(
    ("whole", "text", "value"),
    [
        (False, "0.5", 0.5),
        (False, " 5e-1 ", 0.5),
        (False, 0.5, 0.5),
        (False, "auto", "auto"),
        (True, "5", 5),
        (True, "5.0", 5),
        (True, 5, 5),
    ],
)
def test_a_text_is_parsed_as_the_value_it_shows(whole, text, value):
    found = Knob("lam", "x", whole=whole, also=("auto",)).parse(text)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("whole", "text", "message"),
    [
        (False, "sharp", "lam must be a number, got 'sharp'"),
        (False, "", "lam must be a number, got ''"),
        (True, "2.5", "lam must be a whole number, got 2.5"),
        (False, "nan", "lam must be a number of at least 0, got nan"),
        (False, "-1", "lam must be a number of at least 0, got -1"),
    ],
)
def test_a_text_without_a_value_is_refused(whole, text, message):
    with pytest.raises(InputError, match=message):
        Knob("lam", "x", whole=whole, low=0).parse(text)


def test_the_knob_of_class_sizes_holds_priors():
    knob = PriorKnob("prior", "class sizes")
    assert knob.parse("free") == knob.check("free") == knob.check(Free()) == Free()
    assert knob.check([1, 3]) == knob.parse("1,3") == Sizes([1, 3])
    assert knob.show(Estimated()) == "estimate"
    with pytest.raises(InputError, match="prior must be one of uniform, estimate, free, truth, "):
        knob.parse("equal")


# The registry


@pytest.fixture
def toy():
    """A registered method that no file declares."""
    method = replace(find_method("ncm"), name="toy", title="Toy", kernel=None)
    register(method)
    yield method
    unregister("toy")


def test_a_registered_method_is_found_by_its_name(toy):
    assert method_names()[-1] == "toy"
    assert find_method("toy") is toy
    assert find_method(toy) is toy
    assert configure("toy", n_shot=1).method is toy


def test_two_methods_of_one_name_are_refused(toy):
    with pytest.raises(InputError, match=r"method 'toy' is registered already, for Toy\. Choose"):
        register(replace(toy, title="Another"))
    assert find_method("toy") is toy


def test_an_unknown_method_lists_the_choices():
    names = (
        "ncm-raw, ncm, kmeans, soft-kmeans, map, map-folder, map-truth, map-auto, "
        "map-auto-mean, simpleshot-l2n, simpleshot-cl2n, matching, cosine-head, svm, bd-cspn, mct, "
        "laplacianshot, "
        "tim, alpha-tim, paddle, unem, anchored, bavardage, tafssl, tafssl-ica, tafssl-shift, bms, "
        "bms-equal, protolp, ilpc, am, alpha-am, label-spreading, dsn, logistic, sgc, folder"
    )
    assert names == ", ".join(method_names())
    with pytest.raises(InputError, match=f"method must be one of {names}, got 'knn'"):
        configure("knn", n_shot=1)


@pytest.mark.parametrize(
    ("name", "knob", "choices"),
    [
        ("ncm", "lam", "beta"),
        ("kmeans", "n_steps", "beta, max_iterations"),
        ("map", "lamda", "beta, lam, alpha, n_steps, prior"),
        ("map", "proportions", "beta, lam, alpha, n_steps, prior"),
        ("map-auto", "beta", "alpha, n_steps"),  # the power is read from the features
    ],
)
def test_an_unknown_knob_lists_the_choices(name, knob, choices):
    message = f"a knob of method '{name}' must be one of {choices}, got '{knob}'"
    with pytest.raises(InputError, match=message):
        configure(name, n_shot=1, **{knob: 3.0})


def test_a_knob_of_a_method_without_knobs_is_refused():
    with pytest.raises(InputError, match=r"'ncm-raw' has no knobs, got 'beta'\. Leave it out"):
        configure("ncm-raw", n_shot=1, beta=3.0)


# What configure chooses


@pytest.mark.parametrize(
    ("n_shot", "dataset", "alpha", "n_steps"),
    [
        (1, None, 0.4, 30),
        (1, "mini-imagenet", 0.4, 30),
        (1, "cub", 0.4, 30),
        (1, "cifar-fs", 0.3, 30),
        (1, "tiered-imagenet", 0.3, 30),
        (5, None, 0.2, 20),
        (5, "cifar-fs", 0.2, 20),
        (20, "tiered-imagenet", 0.2, 20),
    ],
)
def test_the_papers_table_of_settings(n_shot, dataset, alpha, n_steps):
    steps = {"alpha": alpha, "n_steps": n_steps}
    expected = {
        "map": {"lam": 10.0, **steps, "prior": Uniform()},
        "soft-kmeans": {"lam": 10.0, **steps, "prior": Free()},
        "map-auto": {"lam": "auto", **steps, "prior": Estimated()},
        "map-folder": {"lam": "auto", **steps, "prior": Estimated()},
        "map-truth": {"lam": 10.0, **steps, "prior": Truth()},
        "folder": {},
        "kmeans": {"max_iterations": 100},
        "ncm": {},
        "ncm-raw": {},
    }
    found = {name: configure(name, n_shot=n_shot, dataset=dataset) for name in expected}
    assert {name: method.settings for name, method in found.items()} == expected


@pytest.mark.parametrize(
    ("name", "title", "pipeline"),
    [
        ("ncm-raw", "NCM", "none"),
        ("ncm", "PT+NCM", "power(0.5) | unit"),
        ("kmeans", "PT+K-Means", "power(0.5) | unit | center | unit"),
        ("soft-kmeans", "PT+soft K-Means", "power(0.5) | unit | center | unit"),
        ("map", "PT+MAP", "power(0.5) | unit | center | unit"),
        ("map-auto", "PT+MAP, estimated", f"power(auto) | {CENTERED}"),
        ("map-folder", "PT+MAP for folders", "power(auto) | unit | center(joint) | unit"),
        ("map-truth", "PT+MAP, told the truth", "power(0.5) | unit | center | unit"),
        ("folder", "Folder", "power(auto) | unit | center(joint) | unit"),
    ],
)
def test_each_methods_title_and_pipeline(name, title, pipeline):
    method = configure(name, n_shot=1)
    assert (method.name, method.title, str(method.pipeline)) == (name, title, pipeline)


def test_the_title_says_pt_only_where_there_is_a_power():
    assert configure("map", n_shot=1, pipeline="unit | center").title == "MAP"
    assert configure("map", n_shot=1, pipeline="signed_power(0.5)").title == "PT+MAP"
    assert configure("ncm-raw", n_shot=1, pipeline="power(0.3)").title == "NCM"


def test_what_is_given_wins_over_the_paper_and_none_does_not():
    method = configure("map", n_shot=1, lam=5.0, alpha=0.1, n_steps=None, prior="free")
    assert method.settings == {"lam": 5.0, "alpha": 0.1, "n_steps": 30, "prior": Free()}


@pytest.mark.parametrize("beta", [0, 0.3, 1, -0.5, "auto"])
def test_beta_replaces_the_power_and_nothing_else(beta):
    found = configure("map", n_shot=1, beta=beta)
    assert str(found.pipeline) == f"power({beta}) | unit | center | unit"
    assert str(configure("ncm", n_shot=1, beta=beta).pipeline) == f"power({beta}) | unit"


@pytest.mark.parametrize("beta", [11, math.nan, "half", "0.5"])
def test_a_beta_out_of_range_is_refused(beta):
    with pytest.raises(InputError, match="beta must be a number"):
        configure("map", n_shot=1, beta=beta)


def test_a_pipeline_replaces_the_methods_own():
    found = configure("map", n_shot=1, pipeline="unit|center(joint)")
    assert str(found.pipeline) == "unit | center(joint)"
    assert configure("map", n_shot=1, pipeline=found.pipeline).pipeline == found.pipeline


def test_beta_and_pipeline_contradict_each_other():
    with pytest.raises(InputError, match="beta or pipeline, not both"):
        configure("map", n_shot=1, beta=0.3, pipeline="unit")


def test_an_estimated_prior_brings_its_centering():
    found = configure("map", n_shot=1, prior="estimate")
    assert str(found.pipeline) == "power(0.5) | unit | center(support) | unit"
    found = configure("map", n_shot=1, prior="estimate", pipeline="unit | center")
    assert str(found.pipeline) == "unit | center"


def test_the_power_is_decided_once_and_only_where_it_is_open():
    features = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    method = configure("map-auto", n_shot=1).decide(features)
    assert str(method.pipeline) == f"power(0.5) | {CENTERED}"
    assert method.decide(-features) is method


@pytest.mark.parametrize(
    ("labels", "shots"),
    [([0, 1, 1, 1, 2, 2, 2], 3), ([0, 0, 1, 1, 2, 2, 2], 2), ([0, 1, 1], 1), ([0], 1)],
)
def test_the_median_class_decides_the_shots(labels, shots):
    assert typical_shots(torch.tensor(labels)) == shots
