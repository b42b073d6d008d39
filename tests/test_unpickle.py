"""Allowed and refused pickles; the malicious ones below would write a file if they ran."""

import builtins
import os
import pickle
import struct
import subprocess
import tracemalloc
from collections import OrderedDict, defaultdict
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from fewlabels import unpickle
from fewlabels.errors import FileFormatError
from fewlabels.features import read_features
from fewlabels.unpickle import load_plain


def load_pickle(path):
    return load_plain(path.read_bytes(), where=str(path), holds="a pickled dict")


class Call:
    """Pickles as a call of `function`."""

    def __init__(self, function, *arguments):
        self.call = (function, arguments)

    def __reduce__(self):
        return self.call


def written(tmp_path, content, protocol=None):
    path = tmp_path / "x.pkl"
    path.write_bytes(
        content if isinstance(content, bytes) else pickle.dumps(content, protocol=protocol)
    )
    return path


@given(
    arrays=st.dictionaries(
        st.one_of(st.integers(0, 99), st.text(min_size=1, max_size=3)),
        hnp.arrays(
            st.sampled_from(["<f4", ">f4", "<f8", "f2", "i8", "u1", "?"]),
            hnp.array_shapes(min_dims=0, max_dims=3, min_side=1, max_side=4),
        ),
        max_size=3,
    ),
    protocol=st.integers(0, pickle.HIGHEST_PROTOCOL),
    layout=st.sampled_from(["C", "F", "strided"]),
)
def test_plain_data_comes_back_as_ordinary_pickle_gives_it(
    tmp_path_factory, arrays, protocol, layout
):
    def lay_out(array):
        if layout == "strided":
            return np.repeat(array, 2, axis=0)[::2] if array.ndim else array
        return np.asarray(array, order=layout)

    content = {key: [lay_out(array), array.flatten()[:1][0]] for key, array in arrays.items()}
    back = load_pickle(written(tmp_path_factory.mktemp("plain"), content, protocol))
    assert back.keys() == content.keys()
    for key, (array, scalar) in content.items():
        assert back[key][0].dtype == array.dtype
        np.testing.assert_array_equal(back[key][0], array)
        np.testing.assert_equal(back[key][1], scalar)


@pytest.mark.parametrize("protocol", range(6))
def test_dicts_of_every_make_become_plain(tmp_path, protocol):
    vectors = defaultdict(list)
    vectors[np.int64(3)].append(np.ones(2))
    back = load_pickle(written(tmp_path, OrderedDict(a=vectors), protocol))
    assert type(back) is type(back["a"]) is dict
    assert back["a"][3][0].tolist() == [1, 1]


def python2_string(raw):
    return b"T" + struct.pack("<i", len(raw)) + raw


def test_a_pickle_of_python_2(tmp_path):
    """{'owl': [array([1., 200.5])]} of Python 2.7 and numpy 1.16: array data in a byte string."""
    data = np.array([1.0, 200.5], "<f4").tobytes()
    array = (
        b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85"
        + python2_string(b"b")
        + b"\x87R"
    )
    dtype = (
        b"cnumpy\ndtype\n"
        + python2_string(b"f4")
        + b"K\x00K\x01\x87R(K\x03"
        + python2_string(b"<")
        + b"NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
    )
    state = b"(K\x01K\x02\x85" + dtype + b"\x89" + python2_string(data) + b"tb"
    path = written(tmp_path, b"\x80\x02}" + python2_string(b"owl") + b"](" + array + state + b"es.")
    assert path.read_bytes().isascii() is False  # some bytes of the data are above 127
    assert {
        key: [vector.tolist() for vector in vectors] for key, vectors in load_pickle(path).items()
    } == {"owl": [[1.0, 200.5]]}
    assert read_features(path).class_names == ("owl",)


def malicious(mark):
    touch = f"touch {mark}"
    python = f"__import__('pathlib').Path({str(mark)!r}).touch()"
    return {
        "system": (Call(os.system, touch), r"posix\.system|nt\.system"),
        "eval": (Call(builtins.eval, python), r"builtins\.eval|__builtin__\.eval"),
        "exec in a list": ({"owl": [np.ones(2), Call(builtins.exec, python)]}, r"\.exec"),
        "a shell": (
            Call(subprocess.check_output, ["touch", str(mark)]),
            r"(subprocess|commands)\.check_output",
        ),
        "nested": (Call(getattr, Call(__import__, "os"), "system"), r"\.(getattr|__import__)"),
        "as a dict key": ({Call(os.system, touch): [np.ones(2)]}, r"\.system"),
        "inside an object array": (
            {"owl": np.array([Call(os.system, touch)], dtype=object)},
            "refused",
        ),
        "a path": (Call(Path, str(mark)), r"pathlib"),
        "numpy's own loader": (Call(np.load, str(mark)), r"numpy\.load"),
    }


@pytest.mark.parametrize("name", malicious("x"))
@pytest.mark.parametrize("protocol", range(6))
@pytest.mark.parametrize("suffix", [".pkl", ".plk"])
def test_what_would_run_is_refused_by_name_and_does_not_run(tmp_path, name, protocol, suffix):
    mark = tmp_path / "it-ran"
    content, refused = malicious(mark)[name]
    path = tmp_path / f"x{suffix}"
    path.write_bytes(pickle.dumps(content, protocol=protocol))
    with pytest.raises(FileFormatError, match=refused) as caught:
        read_features(path)
    assert str(path) in str(caught.value)
    assert not mark.exists()


def test_the_malicious_pickle_would_run_elsewhere(tmp_path):
    """So that the test above can fail: ordinary pickle does what it is told."""
    pickle.loads(pickle.dumps(malicious(tmp_path / "it-ran")["system"][0]))
    assert (tmp_path / "it-ran").exists()


@pytest.mark.parametrize(
    "array",
    [
        np.array([None]),
        np.array([[1], "a"], dtype=object),
        np.zeros(1, "f4,O"),
        np.zeros(1, "f4,i4"),
        np.zeros(1, "M8[s]"),
        np.zeros(1, "V8"),
    ],
)
@pytest.mark.parametrize("protocol", [2, 5])
def test_arrays_of_objects_and_records_are_refused(tmp_path, array, protocol):
    with pytest.raises(FileFormatError, match="is refused"):
        load_pickle(written(tmp_path, {"owl": array}, protocol))


@pytest.mark.parametrize(
    "state",
    [
        (
            3,
            "|",
            None,
            ("a",),
            {"a": (np.dtype("f8"), 0)},
            8,
            1,
            16,
        ),  # a record smuggled in by the state of a plain dtype
        (3, "|", (np.dtype("f8"), (4,)), None, None, 32, 1, 0),
        (3, "|", None, None, None, 1 << 40, 1, 63),  # an element size beyond the buffer
    ],
)
def test_a_forged_dtype_state_changes_nothing_but_the_byte_order(state):
    dtype = unpickle._dtype("f4", False, True)
    dtype.__setstate__(state)
    assert dtype.plain == np.dtype("f4")


def test_a_buffer_shorter_than_its_shape_is_refused(tmp_path):
    whole = pickle.dumps({"owl": np.ones((2, 3))}, protocol=5)
    forged = whole.replace(b"K\x02K\x03\x86", b"K\x02K\x04\x86")
    assert forged != whole
    with pytest.raises(FileFormatError, match="cannot reshape"):
        load_pickle(written(tmp_path, forged))


@pytest.mark.parametrize(
    "forged",
    [
        # sets __defaults__ on a stand-in
        b"\x80\x02ccollections\nOrderedDict\nN}X\x0c\x00\x00\x00__defaults__]\x85s\x86b.",
        b"\x80\x02cbuiltins\nlist\nN}X\x06\x00\x00\x00appendNs\x86b.",  # sets list.append
        b"\x80\x02cnumpy.core.multiarray\n_reconstruct\n}X\x08\x00\x00\x00__code__Nsb.",
    ],
)
def test_tampering_with_stand_ins_outlives_no_load(tmp_path, forged):
    with pytest.raises(FileFormatError):
        read_features(written(tmp_path, forged))
    good = written(tmp_path, OrderedDict(owl=[np.ones(2)]), 2)
    assert load_pickle(good)["owl"][0].tolist() == [1, 1]
    assert [].append


def test_a_list_that_holds_itself_is_refused(tmp_path):
    ring = {}
    ring["owl"] = [ring]
    with pytest.raises(FileFormatError, match="share items"):
        load_pickle(written(tmp_path, ring))


def test_persistent_ids_are_refused(tmp_path):
    with pytest.raises(FileFormatError, match="cannot be read"):
        load_pickle(written(tmp_path, b"\x80\x02X\x01\x00\x00\x00aQ."))


def test_text_arrays_come_back(tmp_path):
    for protocol in range(6):
        content = {"names": np.array(["fox", "käse", ""]), "name": np.str_("owl")}
        back = load_pickle(written(tmp_path, content, protocol))
        assert (back["names"].tolist(), back["name"]) == (["fox", "käse", ""], "owl")


@pytest.mark.parametrize(
    "forged",
    [
        b"\x80\x02]r\xff\xff\xff\x7f.",  # a memo of two billion places
        b"\x80\x05\x96" + struct.pack("<Q", 1 << 35) + b"abc.",  # 32 GiB in one bytearray
        b"\x80\x04\x8e" + struct.pack("<Q", 1 << 35) + b"abc.",
        b"\x80\x04\x95" + struct.pack("<Q", 1 << 35) + b"N.",
    ],
)
def test_sizes_that_the_file_cannot_back_cost_no_memory(tmp_path, forged):
    path = written(tmp_path, forged)
    tracemalloc.start()
    try:
        with pytest.raises(FileFormatError):
            read_features(path)
        assert tracemalloc.get_traced_memory()[1] < 1 << 22
    finally:
        tracemalloc.stop()


def test_a_text_pickle_of_python_2(tmp_path):
    """Protocol 0, the default there: array data as an escaped string."""
    state = (
        b"(lp1\ncnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(I0\ntS'b'\ntR"
        b"(I1\n(I1\ntcnumpy\ndtype\n(S'f4'\nI0\nI1\ntR"
    )
    path = written(
        tmp_path,
        b"(dp0\nI7\n" + state + b"(I3\nS'<'\nNNNI-1\nI-1\nI0\ntbI00\nS'\\x00\\x80\\xc8C'\ntbas.",
    )
    assert load_pickle(path)[7][0].tolist() == [401.0]
