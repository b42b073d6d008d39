"""merge_projects: the decisions of another project of the same photographs, taken into this one.

All decisions of the other project are kept aside, with their times and people. Then, item by item:

    only one project has a decision     this one counts
    both have the same                  it stays
    one was made with the other in      the later one counts, as in one project: the project was
    the same project, before it         copied or merged before, and the person saw the other's
    one has a label of a file           the person's decision counts, as in one project
    one was skipped                     the other's decision counts
    else                                nobody's: the item is marked as a conflict, without a label

So merging twice changes nothing, and a conflict that was settled stays settled.
"""

from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from fewlabels.errors import InputError
from fewlabels.io.words import count, listing
from fewlabels.labeling.agreement import check_person
from fewlabels.labeling.journal import CONFLICT, IMPORT, MODEL, PERSON, SKIP, Record
from fewlabels.labeling.moved import UNREAD
from fewlabels.labeling.project import Project
from fewlabels.labeling.text_copy import Decision

MOST_SHOWN = 8  # paths that a line names


class Merged(NamedTuple):
    """What a merge did."""

    n_matched: int  # items that are in both projects
    n_other: int  # items of the other project
    n_decisions: int  # decisions that were new
    n_labels: int  # items whose label or mark changed
    conflicts: list[str]  # items that were decided differently, and now wait for a person
    elsewhere: list[str]  # decided items whose photographs this project does not have

    def describe(self) -> str:
        """A few lines.

        >>> print(Merged(9, 10, 5, 3, ["a.jpg"], []).describe())
        9 of 10 items are in both projects: 5 new decisions, 3 items changed.
        1 item decided differently, left for a person: a.jpg.
        """
        lines = [
            f"{self.n_matched:,} of {count(self.n_other, 'item')} are in both projects: "
            f"{count(self.n_decisions, 'new decision')}, {count(self.n_labels, 'item')} changed."
        ]
        for names, words in (
            (self.conflicts, "decided differently, left for a person"),
            (self.elsewhere, "not in this project, decisions kept for when they are"),
        ):
            if names:
                shown = listing(names, most=MOST_SHOWN)
                lines.append(f"{count(len(names), 'item')} {words}: {shown}.")
        return "\n".join(lines)


def merge_projects(project: str | Path, other: str | Path, *, person: str = "") -> Merged:
    """Take the decisions of another project of the same photographs into a project.

    Photographs are matched by content where both projects know it, otherwise by name. The other
    project is only read.

    Args:
        project: Folder of the project that gets the decisions.
        other: Folder of the other project.
        person: Who made the decisions in `other` that have no name. If left out, the name of the
            folder.
    """
    project, other = Path(project), Path(other)
    person = check_person(person) or check_person(other.resolve().stem[:60])
    if project.resolve() == other.resolve():
        raise InputError(f"other must be another project than {project}, got the same.")
    with Project.open(other) as theirs:
        records, stamps = theirs.journal.records, theirs.journal.stamps
    with Project.open(project, write=True) as ours:
        names = match_items(ours.journal.stamps, stamps)
        matched = len(names)
        if not matched:
            raise InputError(
                f"other must be a project of the same items as {project}, got {other}, which has "
                "none of them, by content or by name."
            )
        decided = dict.fromkeys(each.decision.item for each in records)
        elsewhere = [name for name in decided if name not in names]
        taken = set(ours.journal.stamps)
        for name in elsewhere:
            names[name] = _free(name, taken)
            taken.add(names[name])
        renamed = [
            each._replace(decision=_translate(each.decision, names, person)) for each in records
        ]
        own = ours.journal.records
        known = {_key(each) for each in own}
        new = [each for each in renamed if _key(each) not in known]
        decisions = _decide(own, renamed)
        if new or decisions:
            # As not read: features are computed if the photographs come.
            missing = {
                names[name]: UNREAD + stamps.get(name, "").removeprefix(UNREAD)
                for name in elsewhere
                if names[name] not in ours.journal.stamps
            }
            ours.journal.add_items(missing)
            ours.journal.take_over(_batches(new), decisions)
    return Merged(
        matched,
        len(stamps),
        len(new),
        len(decisions),
        [each.item for each in decisions if each.mark == CONFLICT],
        elsewhere,
    )


def match_items(ours: Mapping[str, str], theirs: Mapping[str, str]) -> dict[str, str]:
    """The name of our item by the name of theirs, from the stamps of both (moved.py).

    >>> match_items({"a": "1 9 x", "b": "1 9 y", "c": ""}, {"b": "1 8 x", "c": "2 8 z", "d": ""})
    {'c': 'c', 'b': 'a'}
    """
    digests = {name: _digest(stamp) for name, stamp in ours.items()}
    by_digest: dict[str, list[str]] = {}
    for name, digest in digests.items():
        by_digest.setdefault(digest, []).append(name)
    found = {
        name: name
        for name, stamp in theirs.items()
        if name in ours and not (_digest(stamp) and digests[name] not in ("", _digest(stamp)))
    }
    free = set(ours) - set(found)
    for name in sorted(theirs.keys() - found.keys()):
        alike = by_digest.get(_digest(theirs[name]), []) if _digest(theirs[name]) else []
        file = PurePosixPath(name).name
        if candidates := [each for each in alike if each in free]:
            ours_too = min(candidates, key=lambda each: (PurePosixPath(each).name != file, each))
            found[name] = ours_too
            free.remove(ours_too)
    return found


def _digest(stamp: str) -> str:
    """The digest of a stamp, "" where it has none."""
    return "".join(stamp.removeprefix(UNREAD).split()[2:3])


def _free(name: str, taken: set[str]) -> str:
    """A name that no item has."""
    number, free = 2, name
    while free in taken:
        number, free = number + 1, f"{name} ({number})"
    return free


def _translate(decision: Decision, names: Mapping[str, str], person: str) -> Decision:
    """A decision of the other project in our names."""
    who = decision.person or (person if decision.origin != IMPORT else "")
    return decision._replace(item=names[decision.item], person=who)


def _key(record: Record) -> tuple[str, ...]:
    """What tells a decision from all others; the person may have got a name later."""
    item, label, origin, mark, *_ = record.decision
    return (item, label or "", origin, mark or "", record.time)


def _current(records: list[Record]) -> dict[str, Record]:
    """The decision that counts for each item."""
    return {
        each.decision.item: each
        for each in records
        if each.undone is None and not each.decision.aside
    }


def _decide(own: list[Record], others: list[Record]) -> list[Decision]:
    """The decisions that follow from those of the other project, as the top of this file says."""
    ours, theirs = _current(own), _current(others)
    known, known_to_them = ({_key(each): each.place for each in all_} for all_ in (own, others))
    of_item: dict[str, list[Record]] = {}
    for each in own:
        if each.undone is None and each.decision.mark != CONFLICT:
            of_item.setdefault(each.decision.item, []).append(each)

    def follows(
        later: Record, earlier: list[Record], places: Mapping[tuple[str, ...], int]
    ) -> bool:
        """Whether a decision was made in a journal that had all of the earlier ones."""
        return all(places.get(_key(each), later.place + 1) <= later.place for each in earlier)

    made = []
    for item, record in theirs.items():
        new, mine = record.decision, ours.get(item)
        if not _is_decided(new) or new.origin == MODEL:
            continue
        if mine is None:
            made.append(new)
            continue
        old = mine.decision
        seen = of_item.get(item, []) if old.mark == CONFLICT else [mine]
        same = (old.label, old.mark) == (new.label, new.mark)
        if follows(mine, [record], known) or (same and _rank(new) <= _rank(old)):
            continue
        if not _is_decided(old) or _rank(new) > _rank(old) or follows(record, seen, known_to_them):
            made.append(new)
        elif old.mark != CONFLICT and _rank(new) == _rank(old):
            made.append(Decision(item, None, PERSON, CONFLICT, None))
    return made


def _is_decided(decision: Decision) -> bool:
    return decision.label is not None or decision.mark is not None


def _rank(decision: Decision) -> int:
    """A person's decision counts more than a file's, and more than "I cannot tell"."""
    if decision.mark == SKIP:
        return 0
    return 1 if decision.origin == IMPORT else 2


def _batches(new: list[Record]) -> list[tuple[str, str | None, list[Decision]]]:
    """New decisions in the batches in which they were made."""
    found: dict[int, tuple[str, str | None, list[Decision]]] = {}
    for each in new:
        batch = found.setdefault(each.batch, (each.time, each.undone, []))
        batch[2].append(each.decision)
    return list(found.values())
