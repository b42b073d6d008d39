"""Query counts in one word."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fewlabels.errors import InputError
from fewlabels.evaluation.queries import QuerySpec

WHOLE = st.integers(1, 10_000_000)
SPECS = st.one_of(
    st.builds(lambda n: QuerySpec("each", (n,)), WHOLE),
    st.builds(
        lambda counts: QuerySpec("counts", tuple(counts)),
        st.lists(st.integers(0, 10_000_000), min_size=2, max_size=6).filter(any),
    ),
    st.builds(lambda a, n: QuerySpec("dirichlet", (a, n)), st.floats(1e-6, 1e6), WHOLE),
    st.builds(lambda k, more: QuerySpec("present", (k, k + more)), WHOLE, st.integers(0, 1000)),
    st.builds(
        lambda low, more, rest: QuerySpec("present", (low, low + more + rest, low + more)),
        *(WHOLE, st.integers(1, 1000), st.integers(0, 1000)),
    ),
)


@settings(deadline=None)
@given(SPECS)
def test_a_printed_spec_reads_back_as_itself(spec):
    assert QuerySpec.parse(str(spec)) == spec


@pytest.mark.parametrize(
    ("word", "kind", "total", "most"),
    [
        ("15", "each", 45, 15),
        ("30,10,5", "counts", 45, 30),
        ("0,0,1", "counts", 1, 1),
        ("dirichlet:2:75", "dirichlet", 75, 0),
        ("dirichlet:0.5:7", "dirichlet", 7, 0),
        ("present:2:75", "present", 75, 38),
        ("present:3:3", "present", 3, 1),
        ("present:1-3:30", "present", 30, 30),
        ("present:2-3:9", "present", 9, 5),
    ],
)
def test_what_a_word_means_for_three_ways(word, kind, total, most):
    spec = QuerySpec.parse(word)
    assert (spec.kind, spec.total(3), spec.most_of_a_class(3), str(spec)) == (
        kind,
        total,
        most,
        word,
    )


def test_numbers_and_specs_are_taken_as_they_are():
    assert QuerySpec.parse(15) == QuerySpec.parse(" 15 ") == QuerySpec.parse(QuerySpec.parse("15"))


WITHOUT_MEANING = """0 -3 1.5 many 3, 0,0 3,-1 3,x 15:3 normal:2:75
    dirichlet dirichlet:2 dirichlet:2:75:1 dirichlet:0:75 dirichlet:-1:75 dirichlet:nan:75
    dirichlet:inf:75 dirichlet:2:0 dirichlet:2:7.5 dirichlet::75 dirichlet:x:75
    present present:2 present:0:75 present:3:2 present:2:75:1
    present:2-:75 present:-2:75 present:2-2:75 present:3-2:75 present:1-2-3:75 present:2-9:8"""


@pytest.mark.parametrize("word", ["", *WITHOUT_MEANING.split()])
def test_a_word_without_meaning_is_refused_with_the_grammar(word):
    grammar = r"queries must be N, N,N,\.\.\., dirichlet:A:N, present:K:N or present:A-B:N, with"
    with pytest.raises(InputError, match=rf"{grammar} N at least 1 .*, A above 0 .*, got "):
        QuerySpec.parse(word)


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("3,4", "one number for each of the 3 ways, got 2"),
        ("present:4:8", "at most 3 ways present"),
        ("present:2-4:8", "at most 3 ways present, got 4"),
    ],
)
def test_a_spec_that_does_not_fit_the_ways(word, message):
    with pytest.raises(InputError, match=message):
        QuerySpec.parse(word).total(3)
