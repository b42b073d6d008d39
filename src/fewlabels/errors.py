"""Every error a user of fewlabels can meet, and how its message is worded.

    FewLabelsError
    ├── InputError          an argument or an array breaks a rule      (also a ValueError)
    ├── FileFormatError     a file cannot be read as what it claims    (also a ValueError)
    └── MissingExtraError   an optional dependency is not installed    (also an ImportError)

A message names the argument, the rule, the value and the way out, in one sentence or two:
"sample_episodes: class 'leek' must have at least n_shot + n_query = 20 images, got 12. Lower n_query or drop the class."
"""

from collections.abc import Iterable


class FewLabelsError(Exception):
    """Base of all errors raised on purpose; its message is meant for a person."""


class InputError(FewLabelsError, ValueError):
    """An argument or an array breaks a rule."""


class FileFormatError(FewLabelsError, ValueError):
    """A file is missing, truncated, unsafe, or not what its name says."""


class MissingExtraError(FewLabelsError, ImportError):
    """An optional dependency is needed and not installed."""

    def __init__(self, package: str, *, extra: str, purpose: str) -> None:
        super().__init__(f"{purpose} needs {package}: pip install 'fewlabels[{extra}]'")


def unknown_choice(what: str, value: object, choices: Iterable[str]) -> InputError:
    """The error for a name that is not in a list of names."""
    return InputError(f"{what} must be one of {', '.join(choices)}, got {value!r}.")


def name_rows(rows: Iterable[int], *, most: int = 5) -> str:
    """Row numbers as words: "row 3", "rows 3, 8, 9 and 12 more"."""
    listed = [int(row) for row in rows]
    if len(listed) == 1:
        return f"row {listed[0]}"
    shown = ", ".join(str(row) for row in listed[:most])
    return f"rows {shown}" + (f" and {len(listed) - most} more" if len(listed) > most else "")
