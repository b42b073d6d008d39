"""How many queries of each class an episode has, said in one word: "15", "30,10,5", "dirichlet:2:75", "present:2:75"."""

from dataclasses import dataclass
from typing import Self

from fewlabels.errors import InputError


@dataclass(frozen=True)
class QuerySpec:
    """Query counts of an episode's ways.

    - "15": as many of each class.
    - "30,10,5": these numbers, way by way.
    - "dirichlet:A:N": N queries in all, class proportions drawn from a symmetric Dirichlet(A) for each episode.
    - "present:K:N": N queries in all, spread evenly over K randomly chosen ways; the others get none.
    """

    kind: str  # "each", "counts", "dirichlet", "present"
    numbers: tuple[float, ...]

    @classmethod
    def parse(cls, text: "str | int | QuerySpec") -> Self:
        """Read a spec from its word."""
        if isinstance(text, QuerySpec):
            return cls(text.kind, text.numbers)
        try:
            return cls._parse(str(text).strip())
        except (ValueError, IndexError):
            raise InputError(
                f"queries must be N, N,N,..., dirichlet:A:N or present:K:N, with N at least 1, got '{text}'."
            ) from None

    @classmethod
    def _parse(cls, text: str) -> Self:
        kind, *rest = text.split(":")
        if kind == "dirichlet":
            concentration, total = float(rest[0]), int(rest[1])
            spec = cls(kind, (concentration, total))
            valid = len(rest) == 2 and 0 < concentration < float("inf") and total > 0
        elif kind == "present":
            present, total = (int(number) for number in rest)
            spec = cls(kind, (present, total))
            valid = 0 < present <= total
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
        numbers = [
            str(int(number)) if number == int(number) else repr(number) for number in self.numbers
        ]
        return (
            ",".join(numbers)
            if self.kind in ("each", "counts")
            else ":".join([self.kind, *numbers])
        )

    def total(self, n_way: int) -> int:
        """Queries of one episode."""
        if self.kind == "counts" and len(self.numbers) != n_way:
            raise InputError(
                f"queries '{self}' must give one number for each of the {n_way} ways, got {len(self.numbers)}."
            )
        if self.kind == "present" and self.numbers[0] > n_way:
            raise InputError(
                f"queries '{self}': at most {n_way} ways can be present, got {self.numbers[0]:g}."
            )
        if self.kind == "each":
            return n_way * int(self.numbers[0])
        return int(sum(self.numbers)) if self.kind == "counts" else int(self.numbers[1])

    def most_of_a_class(self, n_way: int) -> int:
        """The most queries that one class must be able to give."""
        if self.kind == "present":
            return -(-self.total(n_way) // int(self.numbers[0]))
        return (
            int(max(self.numbers)) if self.kind != "dirichlet" else 0
        )  # dirichlet counts give way to class sizes
