import json

import numpy as np
import pytest
import safetensors.numpy
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from fewlabels.errors import FileFormatError, InputError
from fewlabels.features import FeatureSet, read_features
from fewlabels.features.embedded import FILE

RNG_SEED = 3
KEY = "ptmap_features"  # as in files from before the package was called fewlabels


@pytest.fixture
def made():
    rng = np.random.default_rng(RNG_SEED)
    return FeatureSet.from_arrays(
        rng.exponential(size=(12, 5)).astype("f4"),
        ["käse", "", "a b"] * 4,
        provenance={"split": "novel — 1"},
    )


def same(first, second):
    return (first.labels.tolist(), first.class_names, first.provenance) == (
        second.labels.tolist(),
        second.class_names,
        second.provenance,
    )


def test_float32_comes_back_bit_for_bit(made, tmp_path):
    made.save(tmp_path / "x.safetensors")
    back = FeatureSet.load(tmp_path / "x.safetensors")
    assert same(back, made)
    assert back.fingerprint == made.fingerprint


@given(names=st.lists(st.text(), min_size=12, max_size=12))
def test_names_come_back(tmp_path_factory, names):
    path = tmp_path_factory.mktemp("names") / "x.safetensors"
    made = FeatureSet.from_arrays(np.ones((12, 2)), [0] * 12, names=names)
    made.save(path)
    assert FeatureSet.load(path).names == read_features(path).names == tuple(names)


def test_names_that_are_no_unicode_come_back(tmp_path):
    name = b"gr\xfc\xdfe.jpg".decode(errors="surrogateescape")
    FeatureSet.from_arrays([[1.0]], [0], names=[name]).save(tmp_path / "x.safetensors")
    assert FeatureSet.load(tmp_path / "x.safetensors").names == (name,)


def test_a_set_without_names_makes_the_bytes_it_always_made(made, tmp_path):
    made.save(tmp_path / "x.safetensors")
    with safetensors.safe_open(tmp_path / "x.safetensors", framework="numpy") as file:
        assert sorted(file.keys()) == ["features", "labels"]
        assert json.loads(file.metadata()[KEY])["version"] == 1
    assert FeatureSet.load(tmp_path / "x.safetensors").names is None


@pytest.mark.parametrize("names", [b'["one"]', b"[1, 2]", b"{", b'"ab"'])
def test_names_that_do_not_fit_are_refused(tmp_path, names):
    about = {"version": 1, "encoding": "float32", "class_names": ["a"], "provenance": {}}
    tensors = {
        "features": np.ones((2, 2), "f4"),
        "labels": np.zeros(2, "i8"),
        "names": np.frombuffer(names, "u1"),
    }
    safetensors.numpy.save_file(
        tensors, tmp_path / "x.safetensors", metadata={KEY: json.dumps(about)}
    )
    with pytest.raises(FileFormatError, match=r"x\.safetensors"):
        FeatureSet.load(tmp_path / "x.safetensors")


def test_float16_rounds_as_numpy_does(made, tmp_path):
    made.save(tmp_path / "x.safetensors", encoding="float16")
    np.testing.assert_array_equal(
        FeatureSet.load(tmp_path / "x.safetensors").features,
        made.features.astype("f2").astype("f4"),
    )


@given(
    features=hnp.arrays(
        np.float32,
        hnp.array_shapes(min_dims=2, max_dims=2),
        elements=st.floats(0, 2.0**60, width=32),
    ),
    names=st.lists(st.text(min_size=1), min_size=1, max_size=4, unique=True),
    provenance=st.dictionaries(st.text(), st.text(), max_size=3),
)
def test_root8_is_within_half_a_step_of_the_root(tmp_path_factory, features, names, provenance):
    path = tmp_path_factory.mktemp("root8") / "x.safetensors"
    made = FeatureSet(features, np.arange(len(features)) % len(names), tuple(names), provenance)
    made.save(path, encoding="root8")
    back = FeatureSet.load(path)
    assert same(back, made)
    step = np.sqrt(features.max()) / 255
    assert (np.abs(np.sqrt(back.features) - np.sqrt(features)) <= step * (0.5 + 1e-4)).all()
    assert ((back.features == 0) >= (features == 0)).all()


def test_root8_refuses_negatives(tmp_path):
    with pytest.raises(
        InputError,
        match=r"must not be negative for encoding root8, got some in row 2\. Use float16",
    ):
        FeatureSet.from_arrays([[1, 0], [0, 1], [-1, 0]], [0, 0, 0]).save(
            tmp_path / "n.safetensors", encoding="root8"
        )
    assert list(tmp_path.iterdir()) == []


def test_what_float16_cannot_hold_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"must fit float16 .* got values up to 7e\+04"):
        FeatureSet.from_arrays([[7e4]], [0]).save(tmp_path / "x.safetensors", encoding="float16")


def test_unknown_encoding_lists_the_choices(made, tmp_path):
    with pytest.raises(InputError, match="float32, float16, root8, got 'int4'"):
        made.save(tmp_path / "x.safetensors", encoding="int4")


def test_the_same_set_makes_the_same_bytes(made, tmp_path):
    made.save(tmp_path / "x.safetensors")
    made.save(tmp_path / "y.safetensors")
    assert (tmp_path / "x.safetensors").read_bytes() == (tmp_path / "y.safetensors").read_bytes()


def test_a_failing_write_leaves_the_old_file_and_no_rubbish(made, tmp_path, monkeypatch):
    path = tmp_path / "x.safetensors"
    made.save(path)
    before = path.read_bytes()
    monkeypatch.setattr(
        "pathlib.Path.replace", lambda *_: (_ for _ in ()).throw(OSError("disk full"))
    )
    with pytest.raises(InputError, match=r"cannot be written \(disk full\)"):
        made.subset([0]).save(path)
    assert [entry.name for entry in tmp_path.iterdir()] == [path.name]
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        (None, r"does not hold features that FeatureSet\.save wrote\. Make one"),
        ({"format": "pt"}, r"does not hold features that FeatureSet\.save wrote\. Make one"),
        (
            {"version": 2, "encoding": "float32"},
            r"version 2, this fewlabels reads up to 1\. Upgrade",
        ),
        (
            {"version": 1, "encoding": "zip", "class_names": ["a"], "provenance": {}},
            "encoding must be one of",
        ),
        (
            {"version": 1, "encoding": "float32", "class_names": ["a", "a"], "provenance": {}},
            "more than once",
        ),
        (
            {"version": 1, "encoding": "root8", "class_names": ["a"], "provenance": {}},
            "cannot be read",
        ),
        ({"version": 1, "encoding": "float32"}, "cannot be read"),
        ("[1", "cannot be read"),
    ],
)
def test_metadata_of_others_or_of_the_future(tmp_path, metadata, message):
    if isinstance(metadata, dict) and "version" in metadata:
        metadata = {KEY: json.dumps(metadata)}
    elif isinstance(metadata, str):
        metadata = {KEY: metadata}
    path = tmp_path / "x.safetensors"
    safetensors.numpy.save_file(
        {"features": np.ones((2, 2), "f4"), "labels": np.zeros(2, "i8")}, path, metadata=metadata
    )
    with pytest.raises(FileFormatError, match=message) as caught:
        FeatureSet.load(path)
    assert str(path) in str(caught.value)


def without_digest(path):
    """The header but for its digest, and the bytes of the tensors."""
    content = path.read_bytes()
    start = 8 + int.from_bytes(content[:8], "little")
    found = json.loads(content[8:start])
    (known,) = found.pop("__metadata__").values()
    header = json.loads(known)
    header.pop("digest", None)
    return found, header, content[start:]


def test_a_file_of_an_older_version_is_read_and_written_with_a_digest_more(tmp_path):
    FeatureSet.load(FILE).save(tmp_path / "x.safetensors", encoding="root8")
    assert without_digest(tmp_path / "x.safetensors") == without_digest(FILE)
