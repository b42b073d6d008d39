"""Priors: class masses from two integers; a class in Python, a word on the command line."""

import math
from typing import ClassVar

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fewlabels.errors import InputError
from fewlabels.transport import (
    AtLeast,
    Estimated,
    Free,
    Prior,
    Sizes,
    Truth,
    Uniform,
    as_prior,
)
from fewlabels.transport.prior import choices

WORDS = {"uniform": Uniform(), "free": Free(), "estimate": Estimated(), "truth": Truth()}
SIZES = st.lists(st.floats(0, 1e12), min_size=2, max_size=8)
PRIORS = st.one_of(
    st.sampled_from(list(WORDS.values())), st.builds(Sizes, SIZES), st.builds(AtLeast, SIZES)
)


# Words


@given(PRIORS)
def test_a_printed_prior_reads_back_as_itself(prior):
    again = as_prior(str(prior))
    assert again == prior
    assert type(again) is type(prior)
    assert str(again) == str(prior)
    assert as_prior(prior) is prior


@pytest.mark.parametrize(
    ("word", "prior"),
    [
        *WORDS.items(),
        ("0.5,0.3,0.2", Sizes([0.5, 0.3, 0.2])),
        ("30, 10", Sizes([30, 10])),
        ("at-least:30,30", AtLeast([30, 30])),
        ([1, 3], Sizes([1, 3])),
        ((0.25, 0.75), Sizes([0.25, 0.75])),
        (np.array([1.0, 2.0]), Sizes([1, 2])),
        (torch.tensor([[1.0, 2.0], [2.0, 1.0]]), Sizes([[1, 2], [2, 1]])),
    ],
    ids=str,
)
def test_what_a_prior_can_be_made_of(word, prior):
    assert as_prior(word) == prior
    assert type(as_prior(word)) is type(prior)


def test_whole_sizes_are_printed_as_whole_numbers():
    assert str(Sizes([30, 10.0, 0.5])) == "30,10,0.5"
    assert str(AtLeast(torch.tensor([30, 30]))) == "at-least:30,30"


def test_priors_are_equal_by_what_they_say():
    assert (
        len({Uniform(), Uniform(), Free(), Sizes([1, 2]), Sizes((1.0, 2.0)), AtLeast([1, 2])}) == 4
    )
    assert Sizes([1, 2]) != AtLeast([1, 2])
    assert Sizes([1, 2]) != Sizes([[1, 2], [2, 1]])
    assert Sizes([1, 2]) != "1,2"


@pytest.mark.parametrize("word", ["equal", "Uniform", "", "5", "at-least:", "at-least:x,y", "1,x"])
def test_an_unknown_word_lists_the_choices(word):
    with pytest.raises(InputError) as refused:
        as_prior(word)
    assert str(refused.value) == (
        "prior must be one of uniform, estimate, free, truth, one number per class such as "
        f"0.5,0.3,0.2, lower bounds such as at-least:30,30, got '{word}'."
    )
    assert choices() in str(refused.value)


@pytest.mark.parametrize("kind", [Sizes, AtLeast])
@pytest.mark.parametrize("sizes", [["a", "b"], None, 3.0, [], [[]], [[[1.0]]], [[1, 2], [3]]])
def test_what_is_no_row_of_numbers_is_refused_when_the_prior_is_made(kind, sizes):
    with pytest.raises(InputError, match="prior must hold one number per class, got"):
        kind(sizes)


@pytest.mark.parametrize("kind", [Sizes, AtLeast])
@pytest.mark.parametrize("size", [-1, math.nan, math.inf])
def test_sizes_that_make_no_sense_are_refused_when_the_prior_is_made(kind, size):
    with pytest.raises(InputError, match=r"prior must not be negative nor infinite, got \["):
        kind([1.0, size])
    word = f"{'at-least:' if kind is AtLeast else ''}1,{size}"
    with pytest.raises(InputError, match="prior must not be negative nor infinite"):
        as_prior(word)


def test_two_priors_of_one_word_are_refused():
    before = list(Prior.known)
    with pytest.raises(InputError, match="two priors are written 'free'"):

        class Again(Free):
            word: ClassVar[str] = "free"

    assert Prior.known == before


# Masses


@pytest.mark.parametrize("prior", [Uniform(), Estimated()])
def test_equal_classes_where_every_class_can_have_a_query(prior):
    assert prior.masses(7, 2).mass.tolist() == [[3.5, 3.5]]
    assert prior.masses(2, 2).mass.tolist() == [[1.0, 1.0]]
    assert prior.masses(1, 2) is None  # one query would be spread over two classes
    assert not prior.masses(7, 2).minimum


def test_free_imposes_nothing_and_only_estimated_estimates():
    assert Free().masses(75, 5) is None
    assert [each for each in WORDS.values() if each.estimated] == [Estimated()]
    assert [each for each in WORDS.values() if each.needs_truth] == [Truth()]


def test_the_truth_is_for_evaluations():
    with pytest.raises(InputError, match=r"prior 'truth' is for evaluations.*or 'estimate'"):
        Truth().masses(75, 5)


@pytest.mark.parametrize(
    "sizes", [[4, 2, 2], [0.5, 0.25, 0.25], [0.50002, 0.25, 0.25], [4.0002, 2, 2]]
)
def test_fractions_and_counts_become_counts_that_sum_to_the_queries(sizes):
    mass, minimum = Sizes(sizes).masses(8, 3)
    np.testing.assert_allclose(mass.numpy(), [[4, 2, 2]], rtol=1e-4)
    assert float(mass.sum()) == pytest.approx(8, rel=1e-14)
    assert mass.dtype == torch.float64
    assert not minimum


@given(st.lists(st.integers(0, 50), min_size=2, max_size=6).filter(any))
def test_counts_are_kept_as_they_are(counts):
    mass = Sizes(counts).masses(sum(counts), len(counts)).mass
    np.testing.assert_allclose(mass.numpy(), [counts], rtol=1e-14)


def test_every_episode_can_have_sizes_of_its_own():
    prior = Sizes(torch.tensor([[4, 2, 2], [0, 8, 0], [1, 1, 6]]))
    assert prior.masses(8, 3).mass.tolist() == [[4, 2, 2], [0, 8, 0], [1, 1, 6]]
    assert prior.take(np.array([2, 0])).masses(8, 3).mass.tolist() == [[1, 1, 6], [4, 2, 2]]
    assert prior.take([1]).masses(8, 3).mass.tolist() == [[0, 8, 0]]
    bounds = AtLeast(torch.tensor([[1, 2], [3, 0]])).take([1])
    assert bounds == AtLeast([3, 0])


@pytest.mark.parametrize("prior", [Uniform(), Free(), Sizes([4, 2]), AtLeast([1, 0])])
def test_a_prior_of_all_episodes_is_that_of_some(prior):
    assert prior.take([3, 1]) is prior


def test_lower_bounds_need_not_sum_to_anything():
    mass, minimum = AtLeast([3, 0, 1]).masses(8, 3)
    assert (mass.tolist(), minimum) == ([[3.0, 0.0, 1.0]], True)


@pytest.mark.parametrize(
    ("prior", "message"),
    [
        (Sizes([4, 4]), "prior must hold one number for each of the 3 classes, got 2"),
        (AtLeast([1, 1, 1, 1]), "prior must hold one number for each of the 3 classes, got 4"),
        (Sizes([4, 2, 3]), "prior must sum to 8, as counts of the queries, or to 1.*got 9"),
        (Sizes([0.5, 0.2, 0.2]), "prior must sum to 8, as counts of the queries, or to 1.*got 0.9"),
        (Sizes([0, 0, 0]), "must sum to 8"),
        (AtLeast([5, 5, 0]), "must sum to at most 8, got 10"),
    ],
)
def test_sizes_that_do_not_fit_the_queries_are_refused(prior, message):
    with pytest.raises(InputError, match=message):
        prior.masses(8, 3)
