"""Several people: who decided how much, where they disagree, and Cohen's kappa of each pair.

An opinion is the last decision of a person about an item that was not undone: a class, or none of
the classes. A skipped image is no opinion. Agreement tells how well people agree only where each
decided without seeing the other's labels, as in two projects that are merged later.
"""

import unicodedata
from collections import Counter
from collections.abc import Sequence
from itertools import combinations
from typing import NamedTuple

from fewlabels.errors import InputError
from fewlabels.io.words import count, percent
from fewlabels.labeling.journal import CONFLICT, NONE, Journal

NO_CLASS = "none of these"  # the opinion that an item belongs to no class
NO_NAME = "(no name)"  # of decisions without a name
LONGEST_NAME = 60  # characters


class Pair(NamedTuple):
    """How well two people agree."""

    first: str
    second: str
    n: int  # items that both decided
    n_same: int
    kappa: float | None  # None where it is not defined

    def describe(self) -> str:
        """One line.

        >>> Pair("anna", "ben", 40, 36, 0.85).describe()
        "anna and ben: 40 items decided by both, 90 % equal, Cohen's kappa 0.85"
        """
        kappa = "not defined" if self.kappa is None else f"{self.kappa:.2f}"
        return (
            f"{self.first} and {self.second}: {count(self.n, 'item')} decided by both, "
            f"{percent(self.n_same / self.n)} equal, Cohen's kappa {kappa}"
        )


class Disagreement(NamedTuple):
    """An item about which people think differently."""

    path: str
    opinions: dict[str, str]  # by person
    label: str  # the label it has now, "" while it has none
    is_open: bool  # it was merged, and nobody has decided since


class Agreement(NamedTuple):
    """All that is known of several people."""

    n_decided: dict[str, int]  # items by person
    pairs: list[Pair]
    disagreements: list[Disagreement]  # open ones first


def check_person(name: str) -> str:
    """A person's name without spaces around it; refused if too long or not one line of text.

    >>> check_person(" Anna ")
    'Anna'
    """
    name = unicodedata.normalize("NFC", name.strip())
    if len(name) > LONGEST_NAME or any(unicodedata.category(each) in ("Cc", "Cs") for each in name):
        raise InputError(
            f"person must be one line of at most {LONGEST_NAME} characters, got {name[:80]!r}."
        )
    return name


def cohen_kappa(first: Sequence[str], second: Sequence[str]) -> float | None:
    """Agreement of two lists of labels beyond chance (Cohen 1960).

    kappa = (p - e) / (1 - e), where p is the fraction of equal labels and e the fraction expected
    if both drew their labels at random in their own proportions. None where e is 1, or without
    labels.

    >>> cohen_kappa(["leek", "leek", "plum", "plum"], ["leek", "leek", "plum", "leek"])
    0.5
    """
    n = len(first)
    if not n:
        return None
    ours, theirs = Counter(first), Counter(second)
    by_chance = sum(ours[label] * theirs[label] for label in ours)
    if by_chance == n * n:
        return None
    same = sum(one == other for one, other in zip(first, second, strict=True))
    return (n * same - by_chance) / (n * n - by_chance)


def find_opinions(journal: Journal) -> dict[str, dict[str, str]]:
    """The opinion of each person about each item, by item and person."""
    found: dict[str, dict[str, str]] = {}
    for item, by_person in journal.opinions.items():
        for person, (label, mark) in by_person.items():
            if label is not None or mark == NONE:
                found.setdefault(item, {})[person or NO_NAME] = label or NO_CLASS
    return found


def find_agreement(journal: Journal) -> Agreement:
    """Who decided how much, how well each pair agrees, and where they do not."""
    opinions = find_opinions(journal)
    n_decided = Counter(person for each in opinions.values() for person in each)
    pairs = []
    for first, second in combinations(sorted(n_decided), 2):
        both = [each for each in opinions.values() if first in each and second in each]
        if both:
            ours, theirs = [each[first] for each in both], [each[second] for each in both]
            n_same = sum(one == other for one, other in zip(ours, theirs, strict=True))
            pairs.append(Pair(first, second, len(both), n_same, cohen_kappa(ours, theirs)))
    standing = journal.standing
    differing = []
    for item, each in opinions.items():
        is_open = standing.marks.get(item) == CONFLICT
        if is_open or len(set(each.values())) > 1:
            label = standing.labels[item].label if item in standing.labels else ""
            if standing.marks.get(item) == NONE:
                label = NO_CLASS
            differing.append(Disagreement(item, each, label, is_open))
    differing.sort(key=lambda each: (not each.is_open, each.path))
    return Agreement(dict(sorted(n_decided.items())), pairs, differing)
