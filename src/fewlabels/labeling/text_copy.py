"""The plain-text copy of a journal, from which a project can be rebuilt: decisions.jsonl.

One line of JSON per change, in order:

    {"about": {"title": ..., "root": ..., "backbone": ...}, "digest": ...}
    {"batch": 3, "time": ..., "decisions": [[item, label, origin, mark, predicted, person, aside],
     ...], ...}    lines of former versions end with `predicted`
    {"undone": 3, "time": ...}    null as time: brought back

The digest of a line depends on the line and on all lines before it. So a line that was changed,
removed or moved is noticed, and what comes before it can still be trusted.
"""

import json
import os
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from fewlabels.errors import FewLabelsError
from fewlabels.io.files import sync_folder, unwritable, write_file
from fewlabels.io.stamps import short_hash

Change = dict[str, Any]  # one line, without its digest


class Decision(NamedTuple):
    """One decision about one item."""

    item: str
    label: str | None
    origin: str
    mark: str | None
    predicted: str | None
    person: str = ""  # who decided; "" without a name
    aside: bool = False  # kept as this person's, but not the label of the item


@dataclass
class Copied:
    """What a copy tells: the changes up to the first damaged line."""

    abouts: list[dict[str, str]] = field(default_factory=list)  # the last one is valid
    batches: dict[int, tuple[str, list[Decision]]] = field(default_factory=dict)  # time, decisions
    undone: dict[int, str] = field(default_factory=dict)  # time by batch
    digest: str = ""  # of the last line
    damaged_line: int | None = None  # the first one, from 1


class TextCopy:
    """The copy beside a journal."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._digest: str | None = None  # of the last line; None if the file must be written anew

    def read(self) -> Copied:
        """What the file tells; nothing where there is none."""
        return read_copy(self.path)

    def go_on_after(self, found: Copied) -> None:
        """Append from now on to what `read` found, which is all that the journal holds."""
        self._digest = found.digest

    def append(self, change: Change, *, durable: bool = False) -> bool:
        """Add a line; False where it could not be written whole, so that `rewrite` is needed.

        Args:
            change: The line.
            durable: Flush it to the disk. The journal itself has every decision.
        """
        if self._digest is None:
            return False
        digest, self._digest = _digest(self._digest, change), None
        with suppress(OSError), self.path.open("ab") as file:
            file.write(_line(change, digest))
            file.flush()
            if durable:
                os.fsync(file.fileno())
            self._digest = digest
        return self._digest is not None

    def remove(self) -> None:
        """Remove the file until `rewrite` makes it again."""
        self._digest = None
        try:
            self.path.unlink(missing_ok=True)
        except OSError as error:
            raise unwritable(self.path, error) from error
        sync_folder(self.path.parent)

    def rewrite(self, changes: Iterable[Change]) -> None:
        """Write the file anew; where that fails, the next change tries again."""
        digest, lines = "", []
        for change in changes:
            digest = _digest(digest, change)
            lines.append(_line(change, digest))
        with suppress(FewLabelsError):  # the journal itself has everything
            write_file(self.path, b"".join(lines))
            self._digest = digest


def read_copy(path: Path) -> Copied:
    """What a copy tells; nothing where there is none."""
    found = Copied()
    try:
        lines = path.read_bytes().splitlines(keepends=True)
    except FileNotFoundError:
        return found
    for number, line in enumerate(lines, start=1):
        try:
            change = json.loads(line)
            digest = change.pop("digest")
            if not line.endswith(b"\n") or digest != _digest(found.digest, change):
                raise ValueError
            _apply(change, found)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            found.damaged_line = number
            break
        found.digest = digest
    return found


def _digest(before: str, change: Change) -> str:
    return short_hash(before.encode(), json.dumps(change, sort_keys=True).encode())


def _line(change: Change, digest: str) -> bytes:
    text = json.dumps({**change, "digest": digest}, ensure_ascii=False)
    return text.encode("utf-8", "surrogatepass") + b"\n"


def _apply(change: Change, found: Copied) -> None:
    if "about" in change:
        found.abouts.append(dict(change["about"]))
    elif "batch" in change:
        decisions = [Decision(*each) for each in change["decisions"]]
        found.batches[int(change["batch"])] = (change["time"], decisions)
    elif change["time"] is None:
        found.undone.pop(int(change["undone"]), None)
    else:
        found.undone[int(change["undone"])] = change["time"]
