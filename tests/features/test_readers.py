import pickle
import sys
import zipfile

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from fewlabels.errors import FileFormatError, InputError, MissingExtraError
from fewlabels.features import FeatureSet, read_features
from fewlabels.features.readers import READERS

NAMES = ["ant", "bee"]
FEATURES = np.random.default_rng(5).exponential(size=(6, 4)).astype("f4")
LABELS = np.array([0, 0, 0, 1, 1, 1])
SUFFIXES = sorted(READERS)


def write(path, features=FEATURES):
    """The same six vectors of two classes in the format that the suffix says."""
    by_name = {
        name: [features[row] for row in np.flatnonzero(number == LABELS)]
        for number, name in enumerate(NAMES)
    }
    names_of_rows = [NAMES[number] for number in LABELS]
    match path.suffix:
        case ".safetensors":
            FeatureSet.from_arrays(features, names_of_rows).save(path)
        case ".npz":
            np.savez(path, features=features, labels=LABELS, class_names=NAMES)
        case ".npy":
            np.save(path, features)
            np.save(path.with_name(f"{path.stem}_labels.npy"), names_of_rows)
        case ".parquet":
            parquet.write_table(
                pa.table({"embedding": list(features), "label": names_of_rows}), path
            )
        case ".csv":
            frame = pd.DataFrame(features, columns=[f"e{number}" for number in range(4)])
            frame.assign(label=names_of_rows).to_csv(path, index=False, na_rep="nan")
        case ".pt":
            torch.save(
                {
                    "features": torch.from_numpy(features),
                    "labels": torch.from_numpy(LABELS),
                    "class_names": NAMES,
                },
                path,
            )
        case ".pkl" | ".plk":
            path.write_bytes(pickle.dumps(by_name))
    return path


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_every_format_tells_the_same(tmp_path, suffix):
    read = read_features(str(write(tmp_path / f"x{suffix}")))
    np.testing.assert_array_equal(read.features, FEATURES)
    assert (read.labels.tolist(), read.class_names) == (LABELS.tolist(), ("ant", "bee"))
    assert suffix == ".safetensors" or read.provenance == {"file": f"x{suffix}"}
    torch.from_numpy(read.features)  # warns, and so fails, if the array is read-only


@pytest.mark.parametrize("suffix", sorted({*SUFFIXES} - {".csv"}))  # text has no checksum
def test_every_cut_of_every_format_is_refused(tmp_path, suffix):
    path = write(tmp_path / f"x{suffix}")
    whole = path.read_bytes()
    for size in sorted(
        {
            0,
            1,
            2,
            7,
            8,
            9,
            60,
            *np.linspace(10, len(whole) - 1, 40).astype(int).tolist(),
            len(whole) - 2,
        }
    ):
        path.write_bytes(whole[:size])
        with pytest.raises(FileFormatError) as caught:
            read_features(path)
        assert str(path) in str(caught.value), size
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("suffix", SUFFIXES)
@settings(deadline=None, max_examples=30)
@given(data=st.data())
def test_damaged_bytes_give_features_or_a_file_format_error(tmp_path_factory, suffix, data):
    path = write(tmp_path_factory.mktemp("damaged") / f"x{suffix}")
    whole = bytearray(path.read_bytes())
    for place in data.draw(st.lists(st.integers(0, len(whole) - 1), min_size=1, max_size=3)):
        whole[place] ^= data.draw(st.integers(1, 255))
    path.write_bytes(whole)
    try:
        damaged = read_features(path)
    except FileFormatError:
        return
    assert np.isfinite(damaged.features).all()


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_missing_files_folders_and_files_of_another_format(tmp_path, suffix):
    path = tmp_path / f"x{suffix}"
    with pytest.raises(FileFormatError, match="does not exist"):
        read_features(path)
    path.mkdir()
    with pytest.raises(FileFormatError, match="is a folder"):
        read_features(path)
    path.rmdir()
    path.write_text("a,b\n1,2\n")
    with pytest.raises(FileFormatError, match="must hold"):
        read_features(path)


def test_a_folder_of_any_name_is_named_a_folder(tmp_path):
    with pytest.raises(FileFormatError, match="is a folder"):
        read_features(tmp_path)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_broken_numbers_are_named_with_the_file(tmp_path, suffix):
    path = tmp_path / f"x{suffix}"
    broken = FEATURES.copy()
    broken[4, 1] = np.nan
    if suffix == ".safetensors":
        write(path)
        content = path.read_bytes().replace(FEATURES.tobytes(), broken.tobytes())
        path.write_bytes(content.replace(b"digest", b"former"))  # of before there were digests
    else:
        write(path, broken)
    with pytest.raises(FileFormatError, match=r"NaN or infinity in row 4") as caught:
        read_features(path)
    assert str(path) in str(caught.value)


def test_unknown_suffix_lists_the_known(tmp_path):
    (tmp_path / "x.txt").write_text("1,2")
    known = r"\.safetensors, \.npz, \.npy, \.parquet, \.csv, \.pt, \.pkl, \.plk, got '\.txt'"
    with pytest.raises(InputError, match=known):
        read_features(tmp_path / "x.txt")


def test_suffixes_may_be_shouted(tmp_path):
    assert len(read_features(write(tmp_path / "x.npz").rename(tmp_path / "X.NPZ"))) == 6


def test_npy_labels_by_blocks_or_beside_or_not_at_all(tmp_path):
    path = tmp_path / "x.npy"
    np.save(path, np.ones((22, 3)))
    with pytest.raises(FileFormatError, match=r"x_labels\.npy.*per_class=K"):
        read_features(path)
    blocks = read_features(path, per_class=2)
    assert blocks.class_names == tuple(str(number) for number in range(11))
    assert blocks.labels.tolist() == [row // 2 for row in range(22)]
    for odd in (0, -2, 4):
        with pytest.raises(InputError, match=f"must divide the number of rows, 22, got {odd}"):
            read_features(path, per_class=odd)
    np.save(tmp_path / "x_labels.npy", np.zeros(5, int))
    with pytest.raises(FileFormatError, match="22 rows of features"):
        read_features(path)
    with pytest.raises(InputError, match="per_class must be left out"):
        read_features(path, per_class=2)
    (tmp_path / "x_labels.npy").write_bytes(b"")
    with pytest.raises(FileFormatError, match=r"x_labels\.npy cannot be read"):
        read_features(path)


@pytest.mark.parametrize("suffix", sorted({*SUFFIXES} - {".npy"}))
def test_per_class_is_refused_where_labels_are(tmp_path, suffix):
    with pytest.raises(InputError, match="per_class must be left out"):
        read_features(write(tmp_path / f"x{suffix}"), per_class=3)


def test_npz_without_labels_or_names(tmp_path):
    path = tmp_path / "x.npz"
    np.savez(path, features=FEATURES)
    assert read_features(path, per_class=3).labels.tolist() == LABELS.tolist()
    with pytest.raises(FileFormatError, match="must come with labels"):
        read_features(path)
    np.savez(path, features=FEATURES, labels=[5, 5, 12, 12, 3, -1])
    assert read_features(path).class_names == ("3", "5", "12")
    np.savez(path, vectors=FEATURES)
    with pytest.raises(FileFormatError, match="arrays 'features'"):
        read_features(path)


@pytest.mark.parametrize("suffix", [".npy", ".npz", ".pt", ".pkl"])
def test_files_without_labels_are_refused_or_read_as_unlabelled(tmp_path, suffix):
    path = tmp_path / f"x{suffix}"
    match suffix:
        case ".npy":
            np.save(path, FEATURES)
        case ".npz":
            np.savez(path, features=FEATURES)
        case ".pt":
            torch.save({"features": torch.from_numpy(FEATURES)}, path)
        case ".pkl":
            path.write_bytes(pickle.dumps({"features": FEATURES}))
    with pytest.raises(FileFormatError, match="must come with labels") as caught:
        read_features(path)
    assert ("per_class=K" in str(caught.value)) == (suffix in (".npy", ".npz"))
    read = read_features(path, labels_needed=False)
    np.testing.assert_array_equal(read.features, FEATURES)
    assert (read.labels.tolist(), read.class_names) == ([-1] * 6, ())


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_labels_that_are_there_are_read_whether_needed_or_not(tmp_path, suffix):
    assert (
        read_features(write(tmp_path / f"x{suffix}"), labels_needed=False).labels.tolist()
        == LABELS.tolist()
    )


@pytest.mark.parametrize("suffix", [".npy", ".npz"])
def test_numpy_files_with_pickled_objects_are_refused(tmp_path, suffix):
    path = tmp_path / f"x{suffix}"
    content = np.array([{"a": 1}], dtype=object)
    np.save(path, content) if suffix == ".npy" else np.savez(path, features=content, labels=[0])
    with pytest.raises(FileFormatError, match=r"allow_pickle=False|objects of Python"):
        read_features(path)


def test_labels_of_pandas_in_a_npz_name_the_way_out(tmp_path):
    path, labels = tmp_path / "x.npz", np.array(["ash", "elm", None], dtype=object)
    np.savez(path, features=np.eye(3), labels=labels)
    with pytest.raises(FileFormatError, match=r"array 'labels'.*labels=x\.astype\(str\)"):
        read_features(path)
    np.savez(path, features=np.eye(3), labels=np.where(labels == None, "", labels).astype(str))  # noqa: E711
    assert read_features(path).class_names == ("ash", "elm")


def test_a_text_file_named_npz_is_no_archive_and_gets_no_unsafe_advice(tmp_path):
    path = tmp_path / "x.npz"
    path.write_text("features")
    with pytest.raises(FileFormatError, match="must hold arrays in an archive") as caught:
        read_features(path)
    assert "pickle" not in str(caught.value)


def test_a_compressed_npz_with_a_damaged_member(tmp_path):
    path = tmp_path / "x.npz"
    np.savez_compressed(path, features=np.tile(FEATURES, (50, 50)), labels=np.zeros(300, int))
    with zipfile.ZipFile(path) as archive:
        start = archive.getinfo("features.npy").header_offset + 200
    raw = bytearray(path.read_bytes())
    raw[start : start + 20] = bytes(20)
    path.write_bytes(raw)
    with pytest.raises(FileFormatError, match="cannot be read"):
        read_features(path)


@pytest.mark.parametrize(
    "kind",
    [
        pa.list_(pa.float32()),
        pa.large_list(pa.float64()),
        pa.list_(pa.float32(), 4),
        pa.list_(pa.float16()),
    ],
)
@pytest.mark.parametrize(
    "labels",
    [
        pa.array(["bee", None, "ant", "", "bee", "ant"]),
        pa.array([7, None, 3, -1, 7, 3]),
        pa.array(["b", None, "a", None, "b", "a"]).dictionary_encode(),
    ],
)
def test_parquet_columns_of_every_type(tmp_path, kind, labels):
    path = tmp_path / "x.parquet"
    table = pa.table({"embedding": pa.array(FEATURES.astype("f2").tolist(), kind), "label": labels})
    parquet.write_table(table, path, row_group_size=2)
    read = read_features(path)
    np.testing.assert_array_equal(read.features, FEATURES.astype("f2"))
    assert read.labels.tolist() == [1, -1, 0, -1, 1, 0]


def test_parquet_without_labels_is_unlabelled(tmp_path):
    parquet.write_table(pa.table({"embedding": list(FEATURES)}), tmp_path / "x.parquet")
    assert read_features(tmp_path / "x.parquet").labels.tolist() == [-1] * 6


@pytest.mark.parametrize(
    "column",
    [[[1.0], [1.0, 2.0]], [[1.0], None], [], [[], []], [1.0, 2.0], ["a", "b"], [["a"], ["b"]]],
)
def test_parquet_columns_that_are_no_vectors(tmp_path, column):
    parquet.write_table(pa.table({"embedding": column}), tmp_path / "x.parquet")
    with pytest.raises(FileFormatError):
        read_features(tmp_path / "x.parquet")


def test_parquet_without_its_column_or_its_package(tmp_path, monkeypatch):
    parquet.write_table(pa.table({"numbers": list(FEATURES)}), tmp_path / "x.parquet")
    with pytest.raises(FileFormatError, match="a column 'embedding'"):
        read_features(tmp_path / "x.parquet")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(MissingExtraError, match=r"fewlabels\[parquet\]"):
        read_features(tmp_path / "x.parquet")


@pytest.mark.parametrize(
    "dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.int32]
)
def test_pt_dtypes_and_class_dicts(tmp_path, dtype):
    path = tmp_path / "x.pt"
    tensor = torch.arange(1, 25).reshape(6, 4).to(dtype)
    torch.save({3: tensor[:2], 10: list(tensor[2:])}, path)
    read = read_features(path)
    assert read.features.tolist() == tensor.tolist()
    assert (read.class_names, read.labels.tolist()) == (("3", "10"), [0, 0, 1, 1, 1, 1])


def test_pt_with_gradients_and_names_as_labels(tmp_path):
    torch.save(
        {"features": torch.ones(2, 3, requires_grad=True), "labels": ["b", "a"]}, tmp_path / "x.pt"
    )
    assert read_features(tmp_path / "x.pt").labels.tolist() == [1, 0]


def test_pt_with_code_is_refused_in_one_sentence(tmp_path):
    torch.save({"features": torch.nn.Linear(2, 2)}, tmp_path / "x.pt")
    with pytest.raises(FileFormatError, match="only tensors and plain data") as caught:
        read_features(tmp_path / "x.pt")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({}, "must hold a dict with entries, got dict"),
        ([1, 2], "got list"),
        (FEATURES, "got ndarray"),
        (
            {"a": [np.ones(3)], "b": [np.ones(2)]},
            r"class 'b' must hold at least one vector of 3 numbers .* got shape \(1, 2\)",
        ),
        ({"a": [np.ones(3)], "b": []}, "class 'b' must hold at least one vector"),
        ({"a": np.ones(3)}, "class 'a' must hold"),
        ({"a": 1.0}, "class 'a' must hold"),
        ({"a": [np.ones(3), np.ones(2)]}, "cannot be read"),
        ({"a": [np.ones(3)], 1: [np.ones(3)]}, "all names or all whole numbers"),
        ({"a": [["x", "y"]]}, "real numbers"),
    ],
)
def test_pickles_of_something_else(tmp_path, content, message):
    path = tmp_path / "x.pkl"
    path.write_bytes(pickle.dumps(content))
    with pytest.raises(FileFormatError, match=message) as caught:
        read_features(path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("protocol", range(6))
def test_the_authors_dump(tmp_path, protocol):
    """As their save_features.py writes it: pickle.dump({class number: [vector, ...]})."""
    content = {
        number: [FEATURES[row] for row in np.flatnonzero(number == LABELS)] for number in (1, 0)
    }
    (tmp_path / "output.plk").write_bytes(pickle.dumps(content, protocol=protocol))
    read = read_features(tmp_path / "output.plk")
    assert read.class_names == ("0", "1")
    np.testing.assert_array_equal(read.features[read.class_rows[0]], FEATURES[:3])
    np.testing.assert_array_equal(read.features[read.class_rows[1]], FEATURES[3:])


def test_files_of_the_same_rows_are_put_side_by_side(tmp_path):
    rng = np.random.default_rng(0)
    one, other = rng.random((4, 3)), rng.random((4, 2))
    labels, names = ["owl", "wren", "owl", ""], list("abcd")
    for name, rows in (("one", one), ("other", other)):
        about = {"backbone": name, "dataset": "birds"}
        FeatureSet.from_arrays(rows, labels, None, about, names).save(
            tmp_path / f"{name}.safetensors"
        )
    paths = f"{tmp_path / 'one.safetensors'}+{tmp_path / 'other.safetensors'}"
    joined = read_features(paths)
    np.testing.assert_array_equal(joined.features, np.hstack([one, other]).astype(np.float32))
    assert joined.labels.tolist() == [0, 1, 0, -1]
    assert joined.names == tuple(names)
    assert joined.provenance == {"backbone": "one+other", "dataset": "birds"}


@pytest.mark.parametrize(
    ("rows", "labels", "names", "said"),
    [
        (3, "aba", "wxy", "the 4 rows of"),
        (4, "abba", "wxyz", "the labels of"),
        (4, "abab", "zyxw", "got other names"),
    ],
)
def test_files_of_other_rows_are_refused(tmp_path, rows, labels, names, said):
    FeatureSet.from_arrays(np.ones((4, 2)), list("abab"), names=list("wxyz")).save(
        tmp_path / "one.safetensors"
    )
    FeatureSet.from_arrays(np.ones((rows, 2)), list(labels), names=list(names)).save(
        tmp_path / "other.safetensors"
    )
    with pytest.raises(InputError, match=said):
        read_features(f"{tmp_path / 'one.safetensors'}+{tmp_path / 'other.safetensors'}")
