"""Tables of embeddings, under the names of columns that people have."""

import json

import numpy as np
import pandas as pd
import pytest

from fewlabels import label_folder
from fewlabels.errors import FileFormatError, InputError
from fewlabels.features import read_features

VECTORS = np.random.default_rng(3).normal(size=(4, 3)).astype(np.float32)
FRAME = pd.DataFrame(
    {
        "id": [7, 8, 9, 10],
        "path": ["a/1.jpg", "b/1.jpg", "b/2.jpg", "früh.jpg"],
        "label": ["owl", "", None, "wren"],
        "embedding": list(VECTORS),
    }
)
NUMBERED = FRAME.drop(columns="embedding").assign(
    **{f"emb_{number}": VECTORS[:, number] for number in (2, 0, 1)}, seen1=1, seen2=2
)


def save(frame, path):
    if path.suffix == ".parquet":
        frame.to_parquet(path)
    else:
        if "embedding" in frame:
            texts = [json.dumps(each.tolist()) for each in frame["embedding"]]
            frame = frame.assign(embedding=texts)
        frame.to_csv(path, index=False)
    return path


@pytest.mark.parametrize("form", [".parquet", ".csv", "frame"])
@pytest.mark.parametrize("frame", [FRAME, NUMBERED], ids=["one column", "numbered columns"])
def test_names_labels_and_vectors(tmp_path, frame, form):
    source = frame if form == "frame" else save(frame, tmp_path / f"x{form}")
    read = read_features(source)
    np.testing.assert_allclose(read.features, VECTORS, rtol=1e-6)
    assert read.names == tuple(FRAME["path"])
    assert read.class_names == ("owl", "wren")
    assert read.labels.tolist() == [0, -1, -1, 1]
    read = read_features(source, columns={"name": "id"})
    assert read.names == ("7", "8", "9", "10")


@pytest.mark.parametrize("suffix", [".parquet", ".csv"])
def test_other_names_of_columns(tmp_path, suffix):
    names = {"path": "Photo", "label": "species", "id": "key"}
    path = save(NUMBERED.rename(columns=names), tmp_path / f"x{suffix}")
    columns = {"name": "Photo", "label": "species", "embedding": "emb_"}
    read = read_features(path, columns=columns)
    assert (read.names, read.class_names) == (tuple(FRAME["path"]), ("owl", "wren"))
    for role, wrong in (("name", "photo"), ("label", "kind"), ("embedding", "x")):
        with pytest.raises(FileFormatError, match=rf"'{role}' must be one of key, Photo.*{wrong}"):
            read_features(path, columns=columns | {role: wrong})
    with pytest.raises(FileFormatError, match=r"role of a column must be one of name.*'path'"):
        read_features(path, columns={"path": "Photo"})


def test_what_is_wrong_is_named(tmp_path):
    twice = FRAME.assign(path="same.jpg")
    with pytest.raises(InputError, match=r"'path' must name each row once, got 'same\.jpg'"):
        read_features(twice)
    with pytest.raises(InputError, match=r"must hold a column 'embedding'.*got id, path, label"):
        read_features(FRAME.drop(columns="embedding"))
    with pytest.raises(InputError, match="same length in every row, got lengths 2, 3"):
        read_features(FRAME.assign(embedding=[[1, 2], [1, 2, 3]] * 2))
    path = tmp_path / "x.csv"
    path.write_text("id,e0,e1\na,1,2\nb,1,two\n")
    with pytest.raises(FileFormatError, match="column 'e1' must hold numbers, got 'two' in row 1"):
        read_features(path, labels_needed=False)
    path.write_text("id,embedding\na,[1; 2]\n")
    with pytest.raises(FileFormatError, match=r"vectors such as \[0\.1, 0\.2\], got '\[1; 2\]'"):
        read_features(path, labels_needed=False)
    path.write_text("id,e0,e1\na,1,2\nb,1\n")
    with pytest.raises(
        FileFormatError, match="must have 3 cells as the first line, got 2 in row 1"
    ):
        read_features(path, labels_needed=False)
    np.savez(tmp_path / "x.npz", features=VECTORS)
    with pytest.raises(InputError, match=r"columns must be left out for a \.npz file"):
        read_features(tmp_path / "x.npz", columns={"name": "id"}, labels_needed=False)


def test_columns_of_a_wide_table_are_all_named(tmp_path):
    """Of 300 numbered columns and two others, a message names the two as well."""
    numbers = {f"e{number}": [0.5, 1.5] for number in range(300)}
    frame = pd.DataFrame({"photo": ["a", "b"], **numbers, "species": ["owl", ""]})
    with pytest.raises(InputError, match="one of photo, e0 to e299, species, got 'specis'"):
        read_features(frame, columns={"label": "specis"})
    frame.to_csv(tmp_path / "x.csv", index=False)
    with pytest.raises(InputError, match="no column 'label', but photo, e0 to e299, species"):
        label_folder(tmp_path / "x.csv")


def test_a_long_name_of_a_column_is_read_at_once(tmp_path):
    """Zeros before a letter took time with the third power of their number: hours for these."""
    path = tmp_path / "t.csv"
    path.write_text(f"{'0' * 20_000}x,e01,e2,e10\n1,2,3,4\n5,6,7,8\n")
    found = read_features(path, labels_needed=False)
    np.testing.assert_array_equal(found.features, [[2, 3, 4], [6, 7, 8]])
