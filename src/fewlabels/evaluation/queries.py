"""The number of queries per class of an episode, as one word.

"15", "30,10,5", "dirichlet:2:75" or "present:2:75"; see `QuerySpec`.
"""

from dataclasses import dataclass
from typing import Self

from fewlabels.errors import InputError


@dataclass(frozen=True)
class QuerySpec:
    """Query counts of the ways of an episode.

    - "15": this number of each class.
    - "30,10,5": these numbers, way by way.
    - "dirichlet:A:N": N queries in total, class proportions drawn from a symmetric Dirichlet(A)
      for each episode.
    - "present:K:N": N queries in total, evenly of K randomly chosen ways and none of the others.
    - "present:A-B:N": the same with K drawn from A, A + 1, ..., B for each episode.
    """

    kind: str  # "each", "counts", "dirichlet", "present"
    numbers: tuple[float, ...]  # of "present": fewest ways, total, and most ways where they vary

    @classmethod
    def parse(cls, text: "str | int | QuerySpec") -> Self:
        """Read a spec from its word."""
        if isinstance(text, QuerySpec):
            return cls(text.kind, text.numbers)
        try:
            return cls._parse(str(text).strip())
        except (ValueError, IndexError):
            raise InputError(
                "queries must be N, N,N,..., dirichlet:A:N, present:K:N or present:A-B:N, "
                "with N at least 1 (in a list, in one place), A above 0 in dirichlet, and K, or A "
                f"below B, from 1 to N in present, got '{text}'."
            ) from None

    @classmethod
    def _parse(cls, text: str) -> Self:
        kind, *rest = text.split(":")
        if kind == "dirichlet":
            concentration, total = float(rest[0]), int(rest[1])
            spec = cls(kind, (concentration, total))
            valid = len(rest) == 2 and 0 < concentration < float("inf") and total > 0
        elif kind == "present":
            (fewest, *most), total = rest[0].split("-"), int(rest[1])
            spec = cls(kind, (int(fewest), total, *map(int, most)))
            valid = len(rest) == 2 and len(most) < 2 and 0 < int(fewest) <= total
            valid = valid and all(int(fewest) < int(number) <= total for number in most)
        elif "," in text:
            spec = cls("counts", tuple(int(number) for number in text.split(",")))
            valid = min(spec.numbers) >= 0 and sum(spec.numbers) > 0
        else:
            spec = cls("each", (int(text),))
            valid = spec.numbers[0] > 0
        if not valid:
            raise ValueError
        return spec

    def __str__(self) -> str:
        numbers = [str(int(each)) if each == int(each) else repr(each) for each in self.numbers]
        if self.kind == "present":
            fewest, total, *most = numbers
            return f"present:{'-'.join([fewest, *most])}:{total}"
        plain = self.kind in ("each", "counts")
        return ",".join(numbers) if plain else ":".join([self.kind, *numbers])

    def total(self, n_way: int) -> int:
        """Queries of one episode."""
        if self.kind == "counts" and len(self.numbers) != n_way:
            raise InputError(
                f"queries must hold one number for each of the {n_way} ways, "
                f"got {len(self.numbers)} in '{self}'."
            )
        if self.kind == "present" and self.most_present > n_way:
            raise InputError(
                f"queries must have at most {n_way} ways present, "
                f"got {self.most_present} in '{self}'."
            )
        if self.kind == "each":
            return n_way * int(self.numbers[0])
        return int(sum(self.numbers)) if self.kind == "counts" else int(self.numbers[1])

    @property
    def most_present(self) -> int:
        """The most ways that are present, of the kind "present"."""
        return int(self.numbers[2] if len(self.numbers) > 2 else self.numbers[0])

    def most_of_a_class(self, n_way: int) -> int:
        """The most queries that one class must be able to give."""
        if self.kind == "present":
            return -(-self.total(n_way) // int(self.numbers[0]))
        # Dirichlet counts are cut to the class sizes
        return 0 if self.kind == "dirichlet" else int(max(self.numbers))
