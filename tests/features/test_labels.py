import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fewlabels.errors import InputError
from fewlabels.features.labels import number_labels


@pytest.mark.parametrize(
    "blank", [None, float("nan"), "", -1, -1.0, np.float32("nan"), np.int64(-1)]
)
@pytest.mark.parametrize(
    ("labels", "names"), [(["owl", "fox", "owl"], ("fox", "owl")), ([30, 4, 30], ("4", "30"))]
)
def test_every_blank_is_unlabelled(blank, labels, names):
    numbers, found = number_labels([*labels, blank])
    assert numbers.tolist() == [1, 0, 1, -1]
    assert found == names


def test_numbers_sort_as_numbers_and_names_as_text():
    assert number_labels([10, 9, 2])[1] == ("2", "9", "10")
    assert number_labels(["10", "9", "2"])[1] == ("10", "2", "9")


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int64", ">i4", "float32", "U1", "O"])
def test_arrays_of_every_kind(dtype):
    numbers, names = number_labels(np.array(["2", "0", "2"]).astype(dtype))
    assert numbers.dtype == np.int64
    assert (numbers.tolist(), names) == ([1, 0, 1], ("0", "2"))


def test_class_names_give_the_order_and_may_have_no_rows():
    order = ("owl", "ant", "fox")
    assert number_labels(["fox", "owl", ""], order)[0].tolist() == [2, 0, -1]
    assert number_labels([2, 0, -1], order)[0].tolist() == [2, 0, -1]
    with pytest.raises(InputError, match="'bee'"):
        number_labels(["fox", "bee"], order)


@pytest.mark.parametrize(
    "labels",
    [
        [1, "fox"],
        [1.5, 2],
        [b"fox"],
        [[1], [2]],
        [["a"], "b"],
        np.zeros((2, 2), int),
        [-2, 1],
        [float("inf")],
        np.array(["2020"], "M8[Y]"),
    ],
)
def test_nonsense_is_refused(labels):
    with pytest.raises(InputError, match="labels must"):
        number_labels(labels)


@pytest.mark.parametrize("blank", [-1, float("nan"), None])
def test_a_blank_that_became_text_is_refused(blank):
    with pytest.raises(
        InputError, match=r"labels must be an array of dtype=object .* in row 1\. .*'' for no label"
    ):
        number_labels(np.array(["owl", str(blank), "fox"]))
    assert number_labels(np.array(["owl", blank, "fox"], dtype=object))[0].tolist() == [1, -1, 0]


def test_pandas_blanks_are_unlabelled():
    pandas = pytest.importorskip("pandas")
    assert number_labels(pandas.Series(["owl", pandas.NA, "fox"], dtype="string"))[0].tolist() == [
        1,
        -1,
        0,
    ]


def test_nothing_labelled_has_no_classes():
    assert number_labels([None, "", -1])[1] == ()


@given(
    st.lists(
        st.one_of(
            st.none(), st.text(st.characters(exclude_characters="\0"), min_size=1, max_size=4)
        ),
        max_size=12,
    )
)
def test_numbers_lead_back_to_the_names(labels):
    numbers, names = number_labels(labels)
    assert [None if number < 0 else names[number] for number in numbers] == labels
    assert list(names) == sorted(set(labels) - {None})
