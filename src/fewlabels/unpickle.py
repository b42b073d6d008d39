"""Pickles of plain data: dicts, lists, numbers, text and numpy arrays. No code of a pickle runs.

A pickle may name any function in Python, and an ordinary unpickler calls it. Here every name that
is allowed stands for a small replacement function of this file, and any other name is refused
before anything is called. numpy's own functions are not called either, because a forged dtype can
make them read arbitrary memory.
"""

import pickle
import re
from io import BytesIO
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from fewlabels.io.files import unreadable

_NUMBERS_OR_TEXT = re.compile(r"[biufU]\d+")  # dtype codes, without objects, records, raw memory


def load_plain(data: bytes, *, where: str, holds: str) -> Any:
    """Read a pickle of any protocol, also from Python 2, that holds only plain data."""
    try:
        # Python 2 pickled array data as str; latin1 maps its bytes one to one.
        content = _PlainUnpickler(BytesIO(data), encoding="latin1").load()
        check_unfolded(content, len(data))
        return _without_stand_ins(content)
    except Exception as error:  # damaged bytes raise errors of any class
        raise unreadable(where, error, holds=holds) from error


def check_unfolded(content: Any, n_bytes: int) -> None:
    """Refuse lists in lists that share items until they have more items than the file has bytes.

    A file names each item with at least one byte. Lists that hold another list ten times, nine
    deep, have 10^9 items in 200 bytes.
    """
    sizes: dict[int, int] = {}

    def size(value: Any) -> int:
        if not isinstance(value, dict | list | tuple):
            return 1
        if id(value) not in sizes:
            sizes[id(value)] = n_bytes + 1  # of a list that holds itself
            inside = value.values() if isinstance(value, dict) else value
            sizes[id(value)] = 1 + sum(map(size, inside))
        return sizes[id(value)]

    if size(content) > n_bytes:
        raise pickle.UnpicklingError("its lists share items until they are larger than the file")


class _Dtype:
    """Replaces numpy.dtype during loading; only the byte order of its state is used."""

    __slots__ = ("plain",)

    def __init__(self, code: str) -> None:
        if not _NUMBERS_OR_TEXT.fullmatch(code):
            raise pickle.UnpicklingError(
                f"it holds an array of dtype {code!r}, which is refused: "
                "only numbers and text are read"
            )
        self.plain = np.dtype(code)

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.plain = self.plain.newbyteorder(state[1])


class _Array:
    """Replaces numpy.ndarray during loading."""

    __slots__ = ("plain",)
    plain: NDArray[Any]

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        _version, shape, dtype, is_fortran, raw = state
        data = raw.encode("latin-1") if isinstance(raw, str) else raw
        order: Any = "F" if is_fortran else "C"
        self.plain = np.frombuffer(data, dtype.plain).reshape(shape, order=order)


# A pickle can set attributes on what it names. The stand-ins below are functions without default
# arguments, or types that refuse attributes: a pickle cannot change this load or a later one.


def _dtype(code: str, _align: object, _copy: object) -> _Dtype:
    return _Dtype(code)


def _reconstruct(_subtype: object, _shape: object, _code: object) -> _Array:
    return _Array()


def _frombuffer(
    data: bytes | bytearray, dtype: _Dtype, shape: tuple[int, ...], order: str
) -> _Array:
    array = _Array()
    array.__setstate__((1, shape, dtype, order == "F", data))
    return array


def _scalar(dtype: _Dtype, raw: bytes | str) -> Any:
    data = raw.encode("latin-1") if isinstance(raw, str) else raw
    return _frombuffer(data, dtype, (), "C").plain.item()


def _encode(text: str, _encoding: object) -> bytes:
    return text.encode("latin-1")


def _dict(*arguments: Any) -> dict[Any, Any]:
    # An OrderedDict of Python 2 has its pairs here, a defaultdict its factory, which is dropped.
    return dict(arguments[0]) if arguments and isinstance(arguments[0], list) else {}


_STAND_INS: dict[tuple[str, str], object] = {
    ("numpy", "ndarray"): "ndarray",  # only ever an argument of _reconstruct
    ("numpy", "dtype"): _dtype,
    ("_codecs", "encode"): _encode,  # how protocols 0 to 2 carry bytes
    ("collections", "OrderedDict"): _dict,
    ("collections", "defaultdict"): _dict,
    ("builtins", "list"): list,  # the usual factory of a defaultdict
    ("__builtin__", "list"): list,
}
for _core in ("numpy.core", "numpy._core"):  # before and since numpy 2
    _STAND_INS[f"{_core}.multiarray", "_reconstruct"] = _reconstruct
    _STAND_INS[f"{_core}.multiarray", "scalar"] = _scalar
    _STAND_INS[f"{_core}.numeric", "_frombuffer"] = _frombuffer


class _PlainUnpickler(pickle._Unpickler):
    """The unpickler of pickle.py: the C version allocates whatever size damaged bytes state."""

    # The Python version still allocates for BYTEARRAY8. BINBYTES8 reads only the bytes there are.
    dispatch: ClassVar[dict[int, Any]] = {
        **pickle._Unpickler.dispatch,
        pickle.BYTEARRAY8[0]: pickle._Unpickler.dispatch[pickle.BINBYTES8[0]],
    }

    def find_class(self, module_name: str, global_name: str, /) -> Any:
        if (module_name, global_name) not in _STAND_INS:
            raise pickle.UnpicklingError(
                f"it asks for {module_name}.{global_name}, which is refused: "
                "plain data does not need it"
            )
        return _STAND_INS[module_name, global_name]


def _without_stand_ins(value: Any) -> Any:
    if isinstance(value, _Array):
        return value.plain
    if isinstance(value, dict):
        return {key: _without_stand_ins(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_without_stand_ins(item) for item in value]
    return value
