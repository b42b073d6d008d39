"""Feature files of other programs: one reader per suffix, each from a path to Contents."""

import pickle
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple
from zipfile import is_zipfile

import numpy as np
from numpy.typing import NDArray

from fewlabels.errors import FileFormatError, InputError, unknown_choice
from fewlabels.features import storage, tables
from fewlabels.features.feature_set import FeatureSet
from fewlabels.features.labels import UNLABELLED
from fewlabels.features.storage import Contents
from fewlabels.io.files import check_zip, reading, require_file
from fewlabels.io.words import JOIN, split_names
from fewlabels.unpickle import check_unfolded, load_plain

BLOCKS = (".npy", ".npz")  # formats whose rows may come without labels, in equal blocks
PICKLE_HOLDS = "a pickled dict of class -> list of feature vectors"
ROWS_HOLD = "a table with a first line of column names"
TABLE_HOLDS = "a column 'embedding' of vectors, perhaps columns 'path' and 'label'"
LABELS_HOLD = "the labels (N,), names or whole numbers"


def read_features(
    path: Any,
    *,
    per_class: int | None = None,
    labels_needed: bool = True,
    columns: Mapping[str, str] | None = None,
) -> FeatureSet:
    """Read a FeatureSet from a file, whose suffix tells the format, or from a table.

    Args:
        path: A .safetensors, .npz, .npy, .parquet, .csv, .pt, .pkl or .plk file; or a pandas
            DataFrame or a Hugging Face dataset with a column of embeddings. No code in pickles is
            run. "a.npz+b.npz" puts the features of the same rows in both files side by side.
        per_class: For a .npy or .npz file without labels: each K consecutive rows are one class.
        labels_needed: Refuse a file without labels; otherwise all of its rows are unlabelled.
        columns: Of a table: the columns of "name", "label" and "embedding" where they are called
            otherwise, see `fewlabels.features.tables`.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder) / "features.npz"
    ...     np.savez(path, features=[[9.0, 1.0], [1.0, 9.0]], labels=["cat", "dog"])
    ...     read_features(path).class_names
    ('cat', 'dog')
    """
    if tables.is_table(path):
        found = tables.read_contents(tables.open_frame(path), columns)
        return FeatureSet.from_arrays(found.features, found.labels, names=found.names)
    if len(parts := split_names(str(path))) > 1:
        read = partial(
            read_features, per_class=per_class, labels_needed=labels_needed, columns=columns
        )
        return join_features([read(part) for part in parts], parts)
    path = Path(path)
    require_file(path, holds="features")
    suffix = path.suffix.lower()
    if suffix not in READERS:
        raise unknown_choice(f"the suffix of {path}", suffix, READERS)
    reader = READERS[suffix]
    if columns and suffix not in TABLES:
        raise InputError(f"columns must be left out for a {suffix} file, got {dict(columns)}.")
    with reading(path, holds=reader.holds):
        if suffix in TABLES:
            contents = tables.read_contents(TABLES[suffix](path), columns)
        else:
            contents = reader.read(path)
    labels = contents.labels
    if per_class is not None:
        if suffix not in BLOCKS or labels is not None:
            raise InputError(
                "per_class must be left out unless a .npy or .npz file has no labels, "
                f"got {per_class} for {path}."
            )
        labels = block_labels(len(contents.features), per_class)
    elif labels is None:
        if labels_needed:
            raise FileFormatError(
                f"{path} must come with labels, got features only. {_way_to_labels(path)}"
            )
        labels = np.full(len(contents.features), UNLABELLED)
    with reading(path, holds=reader.holds):
        about = contents.provenance or {"file": path.name}
        return FeatureSet.from_arrays(
            contents.features, labels, contents.class_names, about, contents.names
        )


def join_features(parts: Sequence[FeatureSet], paths: Sequence[str]) -> FeatureSet:
    """Features of the same rows from several files, side by side."""
    first = parts[0]
    for part, path in zip(parts, paths, strict=True):
        if len(part) != len(first):
            what = f"the {len(first):,} rows of {paths[0]}, got {len(part):,}"
        elif part.class_names != first.class_names or (part.labels != first.labels).any():
            what = f"the labels of {paths[0]} in the same order"
        elif part.names is not None and first.names not in (None, part.names):
            what = f"the rows of {paths[0]} in the same order, got other names"
        else:
            continue
        raise InputError(f"{path} must have {what}.")
    known = {key for part in parts for key in part.provenance}
    provenance = {key: [part.provenance.get(key, "") for part in parts] for key in sorted(known)}
    return FeatureSet(
        np.concatenate([part.features for part in parts], axis=1),
        first.labels,
        first.class_names,
        {
            key: values[0] if len(set(values)) == 1 else JOIN.join(values)
            for key, values in provenance.items()
        },
        first.names,
    )


def read_table(source: Any, columns: Mapping[str, str] | None = None) -> tables.TableRows:
    """The rows of a .csv or .parquet file, a DataFrame or a dataset, with vectors or texts.

    Args:
        source: As in `read_features`.
        columns: By role, see `fewlabels.features.tables`.
    """
    if tables.is_table(source):
        return tables.read_rows(tables.open_frame(source), columns)
    path = Path(source)
    with reading(path, holds=ROWS_HOLD):
        return tables.read_rows(TABLES[path.suffix.lower()](path), columns)


def block_labels(n_rows: int, per_class: int) -> NDArray[np.int64]:
    """Labels where each `per_class` consecutive rows are one class, (n_rows,).

    >>> block_labels(6, 2).tolist()
    [0, 0, 1, 1, 2, 2]
    """
    if per_class < 1 or n_rows % per_class:
        raise InputError(f"per_class must divide the number of rows, {n_rows}, got {per_class}.")
    return np.arange(n_rows) // per_class


def _labels_file(path: Path) -> Path:
    return path.with_name(f"{path.stem}_labels.npy")


def _way_to_labels(path: Path) -> str:
    if path.suffix.lower() not in BLOCKS:
        return "Add them to it as 'labels'."
    in_file = path.suffix.lower() == ".npz"
    where = "in it as 'labels'" if in_file else f"as {_labels_file(path).name} beside it"
    return f"Save them {where}, or give per_class=K if each K consecutive rows are one class."


def _load_npy(path: Path) -> Any:
    with path.open("rb") as file:
        return np.lib.format.read_array(file, allow_pickle=False)


def _read_npy(path: Path) -> Contents:
    features = np.atleast_1d(_load_npy(path))
    beside = _labels_file(path)
    if not beside.exists():
        return Contents(features, labels=None)
    with reading(beside, holds=LABELS_HOLD):
        return Contents(features, _load_npy(beside))


def _read_npz(path: Path) -> Contents:
    if not is_zipfile(path):  # numpy's message would advise to load it unsafely
        raise InputError(
            "the file must hold arrays in an archive, as numpy.savez writes it, got another kind "
            "of file. Write it or copy it again."
        )
    check_zip(path)  # a damaged entry name can hide the labels
    with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
        found = {name: _read_array(arrays, name) for name in ("class_names", "features", "labels")}
    names, features = found["class_names"], found["features"]
    if features is None:
        raise KeyError("features is not a file in the archive")
    return Contents(
        np.atleast_1d(features), found["labels"], None if names is None else names.tolist()
    )


def _read_array(arrays: Any, name: str) -> Any:
    """An array of a .npz file, None if it is not there."""
    if name not in arrays:
        return None
    with arrays.zip.open(f"{name}.npy") as file:
        version = np.lib.format.read_magic(file)
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else None
        if read is not None and read(file)[2].hasobject:
            raise InputError(
                f"array '{name}' must hold numbers or texts, got objects of Python, which numpy "
                f"reads only by running them. Save it by {name}=x.astype(str), with '' where a "
                "label is missing."
            )
    return arrays[name]


def _read_pt(path: Path) -> Contents:
    import torch

    def to_numpy(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            plain = value.detach()
            if plain.numel() > plain.untyped_storage().nbytes():
                raise InputError(
                    "the file must hold all numbers of its tensors, got repeated ones."
                )
            # numpy has no bfloat16
            return (plain.float() if plain.dtype == torch.bfloat16 else plain).numpy()
        if isinstance(value, dict):
            return {key: to_numpy(item) for key, item in value.items()}
        return [to_numpy(item) for item in value] if isinstance(value, list | tuple) else value

    try:
        check_zip(path)
        content = torch.load(path, map_location="cpu", weights_only=True)
        check_unfolded(content, path.stat().st_size)
    except pickle.UnpicklingError as error:  # torch's message suggests an unsafe way to load it
        raise InputError(
            "the file must hold only tensors and plain data, got other objects or damaged bytes."
        ) from error
    return _from_dict(to_numpy(content))


def _read_pickle(path: Path) -> Contents:
    return _from_dict(load_plain(path.read_bytes(), where=str(path), holds=PICKLE_HOLDS))


def _from_dict(content: Any) -> Contents:
    """Either {"features"[, "labels"[, "class_names"]]} or {class: vectors}."""
    if not isinstance(content, dict) or not content:
        raise InputError(f"the file must hold a dict with entries, got {type(content).__name__}.")
    if "features" in content:
        return Contents(content["features"], content.get("labels"), content.get("class_names"))
    blocks = [np.asarray(vectors) for vectors in content.values()]
    dim = blocks[0].shape[-1] if blocks[0].ndim else 0
    for name, block in zip(content, blocks, strict=True):
        if block.ndim != 2 or len(block) == 0 or block.shape[1] != dim:
            raise InputError(
                f"class {name!r} must hold at least one vector of {dim} numbers "
                f"like the first class, got shape {block.shape}."
            )
    labels = [name for name, block in zip(content, blocks, strict=True) for _ in block]
    return Contents(np.concatenate(blocks), labels)


class Reader(NamedTuple):
    """A function that reads a format, and what its file must hold, for messages."""

    read: Callable[[Path], Contents]
    holds: str


TABLES = {".parquet": tables.open_parquet, ".csv": tables.open_csv}
_PICKLE = Reader(_read_pickle, PICKLE_HOLDS)
READERS: dict[str, Reader] = {
    ".safetensors": Reader(storage.read, storage.FORMAT.holds),
    ".npz": Reader(_read_npz, "arrays 'features' (N, D), 'labels' (N,) and perhaps 'class_names'"),
    ".npy": Reader(_read_npy, "an array (N, D) of numbers"),
    ".parquet": Reader(lambda path: tables.read_contents(tables.open_parquet(path)), TABLE_HOLDS),
    ".csv": Reader(lambda path: tables.read_contents(tables.open_csv(path)), TABLE_HOLDS),
    ".pt": Reader(_read_pt, "tensors {'features', 'labels'} or {class: vectors}"),
    ".pkl": _PICKLE,
    ".plk": _PICKLE,  # the suffix of the authors' files
}
