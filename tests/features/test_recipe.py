from dataclasses import fields, replace

from hypothesis import given
from hypothesis import strategies as st

from fewlabels.features import recipe as module
from fewlabels.features.recipe import FeatureRecipe

FIRST = FeatureRecipe(
    backbone="conv4",
    weights="0" * 32,
    transform="crop(32)",
    views="center",
    precision="float32",
    dim=64,
)


def test_every_field_is_part_of_the_key():
    changed = [
        replace(FIRST, **{field.name: 65 if field.name == "dim" else "other"})
        for field in fields(FIRST)
    ]
    assert len({FIRST.key, *(other.key for other in changed)}) == 1 + len(fields(FIRST))


def test_the_version_is_part_of_the_key(monkeypatch):
    before = FIRST.key
    monkeypatch.setattr(module, "VERSION", module.VERSION + 1)
    assert FIRST.key != before


@given(first=st.text(), second=st.text())
def test_words_do_not_run_into_one_another(first, second):
    made = replace(FIRST, backbone=first, weights=second)
    other = replace(FIRST, backbone=first + second, weights="")
    assert (made.key == other.key) == (second == "")
