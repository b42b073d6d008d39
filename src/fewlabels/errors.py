"""All errors that fewlabels raises on purpose, and the rules for their messages.

    FewLabelsError
    ├── InputError          an argument or an array breaks a rule      (also a ValueError)
    ├── FileFormatError     a file cannot be read as what it claims    (also a ValueError)
    └── MissingExtraError   an optional dependency is not installed    (also an ImportError)

A message names the argument, the rule, the value and the way out, in one or two sentences:
"class 'leek' must have at least 20 images, got 12. Lower n_shot or queries, or drop the class."
Arguments are written as in Python; only the command line names options.
"""

from collections.abc import Iterable


class FewLabelsError(Exception):
    """Base of all errors raised on purpose. Its message is written for a person."""


class InputError(FewLabelsError, ValueError):
    """An argument or an array breaks a rule."""


class FileFormatError(FewLabelsError, ValueError):
    """A file is missing, truncated, unsafe, or not what its name says."""


class MissingExtraError(FewLabelsError, ImportError):
    """A dependency is needed and not installed; `extra` is empty for one that every user has."""

    def __init__(self, package: str, *, extra: str, purpose: str) -> None:
        wanted = f"'fewlabels[{extra}]'" if extra else "fewlabels"
        super().__init__(f"{purpose} needs {package}: pip install {wanted}")


def unknown_choice(what: str, value: object, choices: Iterable[str]) -> InputError:
    """The error for a name that is not in a list of names."""
    return InputError(f"{what} must be one of {', '.join(choices)}, got {value!r}.")


def one_of_several(what: str, name: str, names: str) -> InputError:
    """The error for the name of several things side by side where one is needed."""
    return InputError(f"{what} must be one encoder, got {name!r}, which is {names}. Write {names}.")
