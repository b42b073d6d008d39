"""Labels by name: which names a file may use, and what to say of those that come to nothing."""

from collections.abc import Mapping, Sequence

from fewlabels.data import ImageSet
from fewlabels.labeling.given import Given

SHOWN = 5  # images that a remark names


def by_name_of(given: Given, names: Sequence[str]) -> dict[str, str]:
    """Labels by item number as labels by name."""
    return {names[item]: label for item, label in given.labels.items()}


def by_item(by_name: Mapping[str, str], names: Sequence[str]) -> dict[int, str]:
    """Labels by name as labels by number in a list of names; names that are not in it are left out."""
    return {item: by_name[name] for item, name in enumerate(names) if name in by_name}


def known_names(images: ImageSet) -> list[str]:
    """The names that a file may use: to label what was passed over is no mistake."""
    return [*images.names, *(problem.name for problem in images.problems)]


def remark_lost(by_name: Mapping[str, str], names: Sequence[str]) -> list[str]:
    """A remark about labels of images that are not among those that can be read, and about classes that have no other; or none."""
    there = set(names)
    lost = [name for name in by_name if name not in there]
    if not lost:
        return []
    gone = sorted(
        {by_name[name] for name in lost}
        - {label for name, label in by_name.items() if name in there}
    )
    classes = (
        f" No other image of {'this class has' if len(gone) == 1 else 'these classes has'} a label: {some(gone)}."
        if gone
        else ""
    )
    return [
        f"{count(len(lost), 'label')} lost with images that cannot be read: {some(lost)}.{classes}"
    ]


def remark_problems(images: ImageSet) -> list[str]:
    """A remark about what was passed over when the images were listed; or none."""
    problems = [str(each) for each in images.problems]
    return [f"{count(len(problems), 'file')} passed over: {some(problems)}"] if problems else []


def count(n: int, word: str) -> str:
    """A number and a word in the plural it needs.

    >>> count(1, "label"), count(2000, "label")
    ('1 label', '2,000 labels')
    """
    return f"{n:,} {word}{'' if n == 1 else 's'}"


def some(words: Sequence[str]) -> str:
    """The first few, and how many more."""
    return "; ".join(words[:SHOWN]) + (
        f"; and {len(words) - SHOWN:,} more" if len(words) > SHOWN else ""
    )
