"""One wording of counts and lists in messages, and one parser of "a+b"."""

import os
from collections.abc import Iterable

MOST = 5  # items that a message names before it only counts them
JOIN = "+"  # between the names of several backbones
ERROR_CHARACTERS = 160  # of another program's error message that are shown


def count(n: int, word: str, plural: str | None = None) -> str:
    """A number with its noun; the plural is `word` with an s if left out.

    >>> count(1, "label"), count(2000, "label"), count(3, "class", "classes")
    ('1 label', '2,000 labels', '3 classes')
    """
    return f"{n:,} {word if n == 1 else plural or word + 's'}"


def listing(words: Iterable[object], *, most: int = MOST, separator: str = ", ") -> str:
    r"""The first `most` words, and how many more there are.

    >>> listing("abcd", most=2)
    'a, b and 2 more'
    >>> listing("abcd", most=2, separator="; ")
    'a; b; and 2 more'
    """
    shown = [str(word) for word in words]
    n_more = len(shown) - most
    text = separator.join(shown[:most])
    if n_more <= 0:
        return text
    return f"{text}{' ' if separator == ', ' else separator}and {n_more:,} more"


def name_rows(rows: Iterable[int], *, most: int = MOST) -> str:
    """Row numbers in words.

    >>> name_rows([3]), name_rows([3, 8, 9], most=2)
    ('row 3', 'rows 3, 8 and 1 more')
    """
    numbers = [int(row) for row in rows]
    return f"row{'' if len(numbers) == 1 else 's'} {listing(numbers, most=most)}"


def first_line(error: BaseException) -> str:
    r"""The first line of an error's message, at most 160 characters, without a final period.

    >>> first_line(ValueError("bad byte.\nat line 3"))
    'bad byte'
    """
    return (str(error).splitlines() or [""])[0].rstrip(". ")[:ERROR_CHARACTERS]


def split_names(text: str) -> list[str]:
    """The names in "a+b", without spaces around them; an existing path is one name.

    >>> split_names("wrn28-10 + resnet18")
    ['wrn28-10', 'resnet18']
    """
    if os.path.exists(text):  # noqa: PTH110 - unlike Path.exists, it is False for any text
        return [text]
    return [name.strip() for name in text.split(JOIN)]


FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")  # what spreadsheets take for a formula


def escape_formula(text: str) -> str:
    """A cell of a CSV file that no spreadsheet computes: an apostrophe before what looks like one.

    >>> escape_formula("=1+1"), escape_formula("leek")
    ("'=1+1", 'leek')
    """
    return f"'{text}" if text.lstrip("'").startswith(FORMULA_STARTS) else text


def unescape_formula(cell: str) -> str:
    """The text that `escape_formula` made a cell of.

    >>> unescape_formula("'=1+1"), unescape_formula("'tis")
    ('=1+1', "'tis")
    """
    escaped = cell.startswith("'") and cell.lstrip("'").startswith(FORMULA_STARTS)
    return cell[1:] if escaped else cell


def percent(part: float, digits: int = 0) -> str:
    """A part of one in per cent.

    >>> percent(0.925, 1)
    '92.5 %'
    """
    return f"{100 * part:.{digits}f} %"
