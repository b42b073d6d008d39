import json

import numpy as np
import pytest
import safetensors.numpy
import safetensors.torch
import torch

from fewlabels.errors import FileFormatError, InputError
from fewlabels.io.container import Container

KIND = Container(
    key="ptmap_test", version=2, holds="a test of fewlabels", way_out="Write one with a test."
)
TORCH = Container(key="ptmap_test", version=2, holds="a test", way_out="Write one.", framework="pt")
BARE = Container(key="ptmap_test", version=None, holds="a test", way_out="Write one.")


@pytest.fixture
def arrays():
    rng = np.random.default_rng(0)
    return {
        "rows": rng.normal(size=(5, 3)).astype(np.float32),
        "labels": np.arange(5),
        "bytes": np.arange(7, dtype=np.uint8),
        "scale": np.array(3, np.float16),
    }


def test_a_file_comes_back(tmp_path, arrays):
    path = tmp_path / "below" / "a.safetensors"
    KIND.write(path, arrays, {"names": ["é", "b"], "none": None})
    header, tensors = KIND.read(path)
    assert header == {"version": 2, "names": ["é", "b"], "none": None}
    assert tensors.keys() == arrays.keys()
    for name, array in arrays.items():
        np.testing.assert_array_equal(tensors[name], array)
        assert tensors[name].dtype == array.dtype


def test_torch_tensors_make_the_same_bytes_and_keep_their_types(tmp_path, arrays):
    tensors = {name: torch.from_numpy(np.asarray(array)) for name, array in arrays.items()}
    assert TORCH.pack(tensors, {"a": 1}) == KIND.pack(arrays, {"a": 1})
    TORCH.write(tmp_path / "a", {"half": torch.ones(2, dtype=torch.bfloat16)}, {})
    assert TORCH.read(tmp_path / "a")[1]["half"].dtype == torch.bfloat16


def test_the_bytes_are_those_of_safetensors_with_one_sorted_json_text(arrays):
    header = {"b": 1, "a": {"y": [2], "x": "é"}}
    packed = KIND.pack(arrays, header)
    found = json.loads(packed[8 : 8 + int.from_bytes(packed[:8], "little")])
    digest = json.loads(found["__metadata__"]["ptmap_test"])["digest"]
    text = json.dumps({"version": 2, "digest": digest, **header}, sort_keys=True)
    assert packed == safetensors.numpy.save(arrays, metadata={"ptmap_test": text})
    text = json.dumps(header, sort_keys=True)
    assert BARE.pack(arrays, header) == safetensors.numpy.save(
        arrays, metadata={"ptmap_test": text}
    )


@pytest.mark.parametrize("kind", [KIND, TORCH], ids=["numpy", "torch"])
def test_every_changed_bit_is_noticed_or_changes_nothing(tmp_path, arrays, kind):
    """Commit 7d831a6 read 134 of 150 files with a changed bit as if nothing had happened."""
    path = tmp_path / "a.safetensors"
    tensors = {name: torch.from_numpy(np.asarray(array)) for name, array in arrays.items()}
    kind.write(path, arrays if kind is KIND else tensors, {"names": ["é"]})
    content = path.read_bytes()
    noticed = 0
    for bit in range(0, 8 * len(content), 3):
        damaged = bytearray(content)
        damaged[bit // 8] ^= 1 << bit % 8
        path.write_bytes(damaged)
        try:
            header, found = kind.read(path)
        except FileFormatError:
            noticed += 1
            continue
        assert header["names"] == ["é"]  # only the name of the digest may have changed
        assert all(np.array_equal(found[name], arrays[name]) for name in arrays)
    assert noticed > 0.98 * len(range(0, 8 * len(content), 3))


def test_a_file_from_before_there_were_digests_is_read(tmp_path, arrays):
    content = safetensors.numpy.save(arrays, metadata={"ptmap_test": '{"version": 2}'})
    (tmp_path / "a").write_bytes(content)
    assert KIND.read(tmp_path / "a")[0] == {"version": 2}


def test_single_tensors_are_read_from_an_open_file(tmp_path, arrays):
    BARE.write(tmp_path / "a", arrays, {"recipe": "x"})
    with BARE.open(tmp_path / "a") as (header, file):
        assert header == {"recipe": "x"}
        np.testing.assert_array_equal(file.get_tensor("labels"), arrays["labels"])


def test_other_safetensors_files_are_refused(tmp_path, arrays):
    path = tmp_path / "a.safetensors"
    for metadata in (None, {"ptmap_other": "{}"}):
        safetensors.numpy.save_file(arrays, path, metadata=metadata)
        with pytest.raises(
            FileFormatError,
            match=r"but does not hold a test of fewlabels\. Write one with a test\.$",
        ):
            KIND.read(path)


def test_a_newer_version_is_refused_and_an_older_one_read(tmp_path, arrays):
    path = tmp_path / "a.safetensors"
    for version in (1, 2, 3):
        text = json.dumps({"version": version})
        safetensors.numpy.save_file(arrays, path, metadata={"ptmap_test": text})
        if version < 3:
            assert KIND.read(path)[0]["version"] == version
        else:
            with pytest.raises(
                FileFormatError, match=r"format version 3, .* reads up to 2\. Upgrade fewlabels"
            ):
                KIND.read(path)


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "{}", '"text"', '{"version": "x"}', '{"version": null}', "[" * 100_000]
)
def test_a_damaged_header_is_refused(tmp_path, arrays, text):
    path = tmp_path / "a.safetensors"
    safetensors.numpy.save_file(arrays, path, metadata={"ptmap_test": text})
    with pytest.raises(
        FileFormatError, match=r"cannot be read .* The file must hold a test of fewlabels\."
    ):
        KIND.read(path)


def test_a_file_cut_anywhere_is_refused(tmp_path, arrays):
    whole = KIND.pack(arrays, {})
    for length in range(0, len(whole), 7):
        (tmp_path / "cut").write_bytes(whole[:length])
        with pytest.raises(FileFormatError, match="cut cannot be read"):
            KIND.read(tmp_path / "cut")


def test_missing_files_and_unwritable_paths_are_refused(tmp_path, arrays):
    with pytest.raises(FileFormatError, match="does not exist"):
        KIND.read(tmp_path / "nowhere")
    with pytest.raises(FileFormatError, match="is a folder"):
        KIND.read(tmp_path)
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match=r"cannot be written .*\. Choose another folder\.$"):
        KIND.write(tmp_path / "file" / "a", arrays, {}, way_out="Choose another folder.")
