import dataclasses
import subprocess
import sys

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from fewlabels.errors import InputError
from fewlabels.features import FeatureSet


def small(**changes):
    fields = {
        "features": np.eye(4, 3),
        "labels": np.array([1, -1, 0, 1]),
        "class_names": ("ant", "bee"),
        "provenance": {"by": "hand"},
    }
    return FeatureSet(**fields | changes)


@pytest.mark.parametrize(
    ("given_dtype", "kept"),
    [
        ("f2", "f4"),
        ("f4", "f4"),
        ("f8", "f8"),
        (">f4", "f4"),
        (">f8", "f8"),
        ("i4", "f4"),
        ("u1", "f4"),
        ("i8", "f4"),
        ("?", "f4"),
    ],
)
def test_features_become_native_floats(given_dtype, kept):
    made = small(features=np.eye(4, 3).astype(given_dtype))
    assert made.features.dtype == np.dtype(kept)
    np.testing.assert_array_equal(made.features, np.eye(4, 3))


def test_torch_takes_the_arrays_without_a_warning():
    frozen = np.eye(4, 3, dtype=np.float32)
    frozen.flags.writeable = False
    assert torch.from_numpy(small(features=frozen).features).shape == (4, 3)
    assert torch.from_numpy(small(features=np.eye(3, 4).T[:, ::-1]).features).shape == (4, 3)


def test_zero_and_negative_vectors_are_welcome():
    assert small(features=-np.eye(4, 3)).features[3].tolist() == [0, 0, 0]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"features": np.zeros((0, 3))},
            r"features must be at least one row .* got shape \(0, 3\)",
        ),
        ({"features": np.zeros((4, 0))}, "at least one number"),
        ({"features": np.zeros(4)}, r"got shape \(4,\)"),
        ({"features": np.zeros((4, 3, 1))}, r"got shape \(4, 3, 1\)"),
        ({"features": [[1.0, 2.0], [3.0]]}, "rows of different lengths"),
        ({"features": [["a", "b"]] * 4}, "features must be real numbers"),
        ({"features": np.eye(4, 3).astype(complex)}, "features must be real numbers"),
        ({"features": np.eye(4, 3).astype(object)}, "features must be real numbers"),
        (
            {"features": np.array([[0.0], [np.nan], [1.0], [-np.inf]])},
            "NaN or infinity in rows 1, 3",
        ),
        ({"labels": np.array([0, 1])}, r"4 rows of features, got shape \(2,\)"),
        ({"labels": np.array([[0, 1, 0, 1]])}, "one entry for each"),
        ({"labels": np.array([0, 1, 2, 0])}, r"from -1 \(unlabelled\) to 1, .* got 2 in row 2"),
        ({"labels": np.array([-2, 1, 1, 0])}, "got -2 in row 0"),
        ({"labels": np.array([0.0, 1.0, 1.0, 0.0])}, "class numbers"),
        ({"labels": ["ant", "bee", "ant", "bee"]}, "from_arrays takes names"),
        ({"class_names": ("ant", "ant")}, "'ant' more than once"),
        ({"class_names": ("ant", "")}, "non-empty strings"),
        ({"class_names": ("ant", 7)}, "non-empty strings, got 7"),
        ({"provenance": {"epochs": 7}}, "'epochs': 7"),
        (
            {"names": ("a", "b", "c")},
            "names must have one entry for each of the 4 rows of features, got 3",
        ),
        ({"names": ("a", "b", "c", 4)}, "names must be strings"),
        ({"names": "abcd"}, "names must be strings, one per row"),
    ],
)
def test_what_breaks_a_rule_is_refused_by_name(changes, message):
    with pytest.raises(InputError, match=message):
        small(**changes)


def test_the_numbers_of_a_set():
    made = small()
    assert (len(made), made.dim, made.n_classes, made.class_sizes.tolist()) == (4, 3, 2, [1, 2])
    with pytest.raises(dataclasses.FrozenInstanceError):
        made.labels = np.zeros(4)


@given(hnp.arrays(np.int64, st.integers(1, 30), elements=st.integers(-1, 4)))
def test_class_rows_agree_with_a_plain_search(labels):
    made = FeatureSet(np.ones((len(labels), 2)), labels, tuple("abcde"), {})
    assert [rows.tolist() for rows in made.class_rows] == [
        np.flatnonzero(labels == number).tolist() for number in range(5)
    ]
    assert made.class_sizes.tolist() == [len(rows) for rows in made.class_rows]


def test_subset_by_numbers_and_by_mask():
    made = small()
    assert made.subset([3, 1]).features.tolist() == made.features[[3, 1]].tolist()
    assert made.subset([3, 1]).labels.tolist() == [1, -1]
    assert made.subset(made.labels >= 0).class_names == ("ant", "bee")
    with pytest.raises(InputError, match="at least one row"):
        made.subset([])


def test_names_follow_their_rows():
    made = small(names=["a.jpg", "b.jpg", "c.jpg", "d.jpg"])
    assert made.names == ("a.jpg", "b.jpg", "c.jpg", "d.jpg")
    assert made.subset([3, 1]).names == ("d.jpg", "b.jpg")
    assert made.subset(made.labels >= 0).names == ("a.jpg", "c.jpg", "d.jpg")
    assert made.subset(slice(1, 3)).names == ("b.jpg", "c.jpg")
    assert FeatureSet.from_arrays(np.eye(2), [0, 1], names=["x", "x"]).names == ("x", "x")
    assert small().names is small().subset([0]).names is None
    assert made.fingerprint == small().fingerprint


def test_fingerprint_follows_the_content_and_not_the_provenance():
    first = small()
    assert (
        first.fingerprint
        == small(provenance={}).fingerprint
        == small(features=np.asfortranarray(np.eye(4, 3))).fingerprint
    )
    others = [
        small(features=np.eye(4, 3) * 2),
        small(features=np.eye(4, 3, dtype=np.float32)),
        small(labels=np.array([1, 1, 0, 1])),
        small(class_names=("ant", "cat")),
        small(class_names=("ant", "bee", "cat")),
    ]
    assert len({first.fingerprint, *(other.fingerprint for other in others)}) == 6
    assert len(first.fingerprint) == 16


def test_the_room_needs_no_torch():
    code = (
        "import sys, fewlabels.features as f; f.load_embedded(); sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
