import pytest
from hypothesis import given
from hypothesis import strategies as st

from fewlabels.io.words import count, listing, name_rows, split_names

WORDS = st.lists(st.text("abc", min_size=1, max_size=3), max_size=12)


def test_counts():
    assert count(0, "label") == "0 labels"
    assert count(1, "class", "classes") == "1 class"
    assert count(1_234_567, "class", "classes") == "1,234,567 classes"


@given(WORDS, st.integers(1, 6), st.sampled_from([", ", "; ", "\n  "]))
def test_a_list_shows_all_words_or_counts_the_rest(words, most, separator):
    text = listing(iter(words), most=most, separator=separator)
    if len(words) <= most:
        assert text == separator.join(words)
        assert "more" not in text
    else:
        joint = " " if separator == ", " else separator
        rest = f"{joint}and {len(words) - most} more"
        assert text == separator.join(words[:most]) + rest


def test_large_rests_have_thousands_marked():
    assert listing(range(2001), most=1) == "0 and 2,000 more"


def test_rows():
    assert name_rows([7]) == "row 7"
    assert name_rows([1, 2]) == "rows 1, 2"
    assert name_rows(range(8)) == "rows 0, 1, 2, 3, 4 and 3 more"
    assert name_rows([1, 2, 3], most=2) == "rows 1, 2 and 1 more"


@given(st.lists(st.text("abc-./ ", min_size=1).map(str.strip), min_size=1, max_size=4))
def test_names_come_apart_as_they_were_joined(names):
    assert split_names(" + ".join([*names, "no such file"])) == [*names, "no such file"]


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_a_path_with_a_plus_is_one_name(tmp_path, monkeypatch, kind):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "conv4+resnet18"
    assert split_names(path.name) == ["conv4", "resnet18"]
    path.touch() if kind == "file" else path.mkdir()
    assert split_names(path.name) == ["conv4+resnet18"]
    assert split_names(str(path)) == [str(path)]


def test_a_text_that_cannot_be_a_path_is_split():
    assert split_names("a" * 5000 + "+b\0") == ["a" * 5000, "b\0"]
