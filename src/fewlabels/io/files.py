"""Files that are written completely or not at all, and one wording of errors of files."""

import codecs
import hashlib
import json
import os
import re
import secrets
import shutil
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

from fewlabels.errors import FewLabelsError, FileFormatError, InputError
from fewlabels.io.locks import lock, locked_folder, try_lock
from fewlabels.io.words import first_line

NAME_CHARACTERS = 32  # of the file's name kept in the temporary one, so that it never gets too long
TEMPORARY = ".fewlabels"  # the end of the names of temporary files: no other program uses it
HELD = f".lock{TEMPORARY}"  # in a folder that a process writes to
CHECKED_BYTES = 32  # of SHA-256
UNPACKED_BYTES = 1 << 28  # of a packed file: so much is always read
UNPACKED_RATIO = 100  # times the size of a packed file: features seldom pack to a tenth
CHOOSE_ANOTHER = "Choose another path."
FORBIDDEN = re.compile(r'[<>:"/\\|?*\x00-\x1f]')  # in file names on Windows, the strictest system
# Names that Windows keeps for devices, with any suffix.
RESERVED = re.compile(r"(con|prn|aux|nul|com\d|lpt\d)(\..*)?", re.IGNORECASE)


def write_file(
    path: Path,
    content: bytes | Callable[[BinaryIO], object],
    *,
    durable: bool = True,
    way_out: str = CHOOSE_ANOTHER,
) -> None:
    """Write a file atomically: readers see the old file or the complete new one.

    The content is written to a temporary file in the same folder and flushed to the disk. Then the
    temporary file is renamed to `path`. On failure an existing file is unchanged.

    Args:
        durable: Flush to the disk, so that a loss of power cannot damage the file (about 10 ms).
            False is for files that can be made again.
        way_out: The last sentence of the message when it fails.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with _temporary(path) as (temporary, file):
            if callable(content):
                content(file)
            else:
                file.write(content)
            file.flush()
            if durable:
                os.fsync(file.fileno())
            _rename(temporary, file, path)
        if durable:
            sync_folder(path.parent)
    except OSError as error:
        raise unwritable(path, error, way_out=way_out) from error
    remove_temporaries(path.parent, path.name)


def copy_file(source: Path, target: Path) -> None:
    """Copy a file with its times, so that `target` is complete or not there; OSError on failure."""
    with _temporary(target) as (temporary, file), source.open("rb") as original:
        shutil.copyfileobj(original, file)
        file.flush()
        shutil.copystat(source, temporary)
        _rename(temporary, file, target)


def _rename(temporary: Path, file: BinaryIO, path: Path) -> None:
    if os.name == "nt":
        file.close()  # an open file cannot be renamed there; elsewhere it stays locked until then
    temporary.replace(path)


@contextmanager
def _temporary(path: Path) -> Iterator[tuple[Path, BinaryIO]]:
    """A new file beside `path`, locked while it is open, and removed at the end if it is there."""
    while True:
        kept = path.name[:NAME_CHARACTERS]
        temporary = path.with_name(f".{kept}.{secrets.token_hex(4)}{TEMPORARY}")
        file = temporary.open("xb")
        lock(file)
        if temporary.exists():  # another process may have removed it before it was locked
            break
        file.close()
    try:
        with file:
            yield temporary, file
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


def remove_temporaries(folder: Path, name: str | None = None) -> list[Path]:
    """Remove the temporary files that killed processes left in a folder, and return their paths.

    A file that a living process writes is locked, and stays.

    Args:
        name: Only temporary files of the file with this name; of all files if left out.
    """
    kept, suffix = ".+", re.escape(TEMPORARY)
    if name is not None:  # then also of former versions, whose names had no suffix
        kept, suffix = re.escape(name[:NAME_CHARACTERS]), f"({suffix})?"
    pattern = re.compile(rf"\.{kept}\.[0-9a-f]{{8}}{suffix}", re.DOTALL)
    removed = []
    with suppress(OSError):
        for path in sorted(folder.iterdir()):
            with suppress(OSError):  # another process was faster
                if pattern.fullmatch(path.name) and path.is_file():
                    with path.open("rb+") as file:
                        if try_lock(file):
                            path.unlink()
                            removed.append(path)
    return removed


def write_checked(path: Path, content: bytes) -> None:
    """Write a file that can be made again, behind the digest of its content."""
    write_file(path, hashlib.sha256(content).digest() + content, durable=False)


def read_checked(path: Path) -> bytes | None:
    """What `write_checked` wrote; None where it is missing or damaged."""
    with suppress(OSError):
        data = path.read_bytes()
        digest, content = data[:CHECKED_BYTES], data[CHECKED_BYTES:]
        return content if hashlib.sha256(content).digest() == digest else None
    return None


def write_json(path: Path, content: object) -> None:
    """Write JSON with the digest of its content."""
    text = json.dumps(content, sort_keys=True)  # what UTF-8 has no bytes for is escaped
    digest = hashlib.sha256(text.encode()).hexdigest()
    write_file(path, f'{{"digest": "{digest}", "content": {text}}}\n'.encode())


def read_json(path: Path, *, holds: str, way_out: str) -> Any:
    """What `write_json` wrote; refused where it was changed since."""
    with reading(path, holds=holds):
        found = json.loads(path.read_bytes())
        content, digest = found["content"], found["digest"]
    text = json.dumps(content, sort_keys=True)
    if hashlib.sha256(text.encode()).hexdigest() != digest:
        raise FileFormatError(f"{path} is damaged: its digest is another. {way_out}")
    return content


def make_folder(path: Path) -> Path:
    """Make a folder with its parents, check that files can be written there, and return it."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path):  # without a name where the system can
            pass
    except OSError as error:
        raise unwritable(path, error) from error
    return path


@contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """A new folder beside `path`, to be renamed to it; removed at the end if it is still there.

    So are those that killed processes left: a folder that a living process fills is locked.
    """
    kept = path.name[:NAME_CHARACTERS]
    pattern = re.compile(rf"\.{re.escape(kept)}\.[0-9a-f]{{8}}{re.escape(TEMPORARY)}", re.DOTALL)
    try:
        for other in sorted(make_folder(path.parent).iterdir()):
            if pattern.fullmatch(other.name) and other.is_dir():
                with locked_folder(other) as is_ours:
                    if is_ours:
                        shutil.rmtree(other, ignore_errors=True)
        while True:
            made = path.with_name(f".{kept}.{secrets.token_hex(4)}{TEMPORARY}")
            made.mkdir()
            with locked_folder(made):
                if not made.exists():  # another process removed it before it was locked
                    continue
                try:
                    yield made
                finally:
                    shutil.rmtree(made, ignore_errors=True)
                return
    except OSError as error:
        raise unwritable(path, error) from error


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """Let one process at a time write into a folder, which is made; another one is refused."""
    path = make_folder(folder) / HELD
    try:
        file = path.open("ab")
    except OSError as error:
        raise unwritable(folder, error) from error
    with file:
        if not try_lock(file):
            raise InputError(
                f"another process is writing to {folder}. Wait for it, or choose another folder."
            )
        try:
            yield
        finally:
            path.unlink(missing_ok=True)


def unwritable(path: Path, error: Exception, *, way_out: str = CHOOSE_ANOTHER) -> InputError:
    """The error for a path that cannot be written: path, reason and way out.

    >>> print(unwritable(Path("a.csv"), OSError(28, "No space left on device")))
    a.csv cannot be written (No space left on device). Choose another path.
    """
    reason = getattr(error, "strerror", None) or error
    return InputError(f"{path} cannot be written ({reason}). {way_out}")


def allowed_name(name: str) -> str:
    """A name of a file or folder like this one that every system allows.

    >>> allowed_name("12:30?.jpg"), allowed_name("aux.png"), allowed_name(" . ")
    ('12_30_.jpg', '_aux.png', '_')
    """
    plain = FORBIDDEN.sub("_", name).strip(". ") or "_"
    return f"_{plain}" if RESERVED.fullmatch(plain) else plain


def check_suffix(argument: str, path: Path, suffixes: Sequence[str]) -> None:
    """Refuse a path whose suffix is none of `suffixes`; `argument` is its name in the message.

    >>> check_suffix("report", Path("r.HTML"), [".html"])
    """
    if path.suffix.lower() not in suffixes:
        raise InputError(f"{argument} must end in {' or '.join(suffixes)}, got '{path.name}'.")


def check_writable(path: Path) -> None:
    """Refuse the path of a file that could not be written, before any work is done."""
    if path.is_dir():
        raise InputError(f"{path} is a folder: it must be the name of a file. {CHOOSE_ANOTHER}")
    make_folder(path.parent)


def check_apart(inputs: Mapping[str, Path | None], outputs: Mapping[str, Path | None]) -> None:
    """Refuse an output that would overwrite an input or another output, before any work is done."""
    taken = [(argument, path) for argument, path in inputs.items() if path is not None]
    for argument, path in outputs.items():
        if path is None:
            continue
        for other, there in taken:
            if _is_same(path, there):
                raise InputError(
                    f"{argument} must not be {path}, which is {other} already. {CHOOSE_ANOTHER}"
                )
        taken.append((argument, path))


def require_file(path: Path, *, holds: str) -> None:
    """Refuse a path where there is no file; `holds` says what the file should hold."""
    if path.is_dir():
        raise FileFormatError(
            f"{path} is a folder; it must be a file that holds {holds}. Name a file inside it."
        )
    if not path.exists():
        raise FileFormatError(f"{path} does not exist. Check the path for typos.")


@contextmanager
def reading(path: Path, *, holds: str) -> Iterator[None]:
    """Report every error inside as one FileFormatError that names the file and the way out."""
    require_file(path, holds=holds)
    try:
        yield
    except InputError as error:
        raise FileFormatError(f"{path}: {error}") from error
    except FewLabelsError:
        raise
    except Exception as error:  # parsers raise errors of any class on damaged bytes
        raise unreadable(path, error, holds=holds) from error


def decode_text(path: Path, content: bytes) -> str:
    """The text of a file in UTF-8, or in UTF-16 with its mark; anything else is refused."""
    utf16 = content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    try:
        return content.decode("utf-16" if utf16 else "utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise FileFormatError(
            f"{path}, line {line}: the file must be text in UTF-8, got another encoding. "
            "Save it as 'CSV UTF-8'."
        ) from None


def check_zip(path: Path) -> None:
    """Refuse a zip file with a damaged entry or an unpacked size that is out of all proportion.

    Checked by its checksums (CRC-32). A file that is no zip file passes: its reader refuses it.
    """
    if not zipfile.is_zipfile(path):
        return
    with zipfile.ZipFile(path) as archive:
        check_unpacked(path, sum(entry.file_size for entry in archive.infolist()))
        if (damaged := archive.testzip()) is not None:
            raise ValueError(f"'{damaged}' is damaged")


def check_unpacked(path: Path, n_bytes: int) -> None:
    """Refuse a packed file whose content is both large and far larger than the file."""
    if n_bytes > max(UNPACKED_BYTES, UNPACKED_RATIO * path.stat().st_size):
        raise InputError(
            f"the file must not grow more than {UNPACKED_RATIO} times when it is unpacked, "
            f"got {n_bytes:,} bytes from {path.stat().st_size:,}. Save it without compression."
        )


def unreadable(where: Path | str, error: Exception, *, holds: str) -> FileFormatError:
    """The error for damaged bytes: where they are, what a parser said, and the way out.

    >>> print(unreadable("a.pkl", EOFError("no data"), holds="labels"))
    a.pkl cannot be read (EOFError: no data). The file must hold labels. Write it or copy it again.
    """
    return FileFormatError(
        f"{where} cannot be read ({type(error).__name__}: {first_line(error)}). "
        f"The file must hold {holds}. Write it or copy it again."
    )


def _is_same(one: Path, other: Path) -> bool:
    if one.resolve() == other.resolve():
        return True
    # X.csv and x.csv are one file where the file system ignores case.
    return one.exists() and other.exists() and one.samefile(other)


def sync_folder(folder: Path) -> None:
    """Flush the new name to the disk too; Windows and some network file systems cannot."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
