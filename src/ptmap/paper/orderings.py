"""What the paper claims to be better than what, tested on the cells that are here."""

from dataclasses import dataclass
from math import hypot

from ptmap.evaluation.tables import Table, interval
from ptmap.paper.figure3 import BOUND, CURVES, PREFERRED, Q1, imbalance_entry
from ptmap.paper.ledger import Cell, Entry, Ledger, make_entry
from ptmap.paper.library import Library, Source
from ptmap.paper.published import DATASETS, SHOTS
from ptmap.paper.report import Report
from ptmap.paper.timing import BENCHMARKS

CLAIMS = (  # (better, worse) by recipe, and where the paper says so
    ("ncm", "ncm-raw", "Table 5"),
    ("kmeans", "ncm", "Table 5"),
    ("map", "kmeans", "Table 5"),
    ("map", "map-without-pt", "Table 6"),
)
TITLES = {"ncm-raw": "NCM", "ncm": "PT+NCM", "kmeans": "PT+K-Means", "map": "PT+MAP", "map-without-pt": "MAP without PT"}


@dataclass(frozen=True)
class Claim:
    """Better and worse, where it is said, and the two cells to measure."""

    words: str
    where: str
    better: Entry
    worse: Entry


class OrderingsExhibit:
    """The claims, each with the measured difference."""

    name, title = "orderings", "The paper's orderings"

    def sources(self) -> list[Source]:
        """See `Exhibit`."""
        return list(BENCHMARKS)

    def entries(self, library: Library) -> list[Entry]:
        """See `Exhibit`."""
        return [entry for claim in self.claims(library) for entry in (claim.better, claim.worse)]

    def claims(self, library: Library) -> list[Claim]:
        """The claims that can be tested with what is here."""
        found = []
        for source in (each for each in BENCHMARKS if library.has(each)):
            for better, worse, where in CLAIMS:
                for n_shot in SHOTS:
                    words = f"{TITLES[better]} > {TITLES[worse]}"
                    entries = (make_entry(source, recipe, n_shot=n_shot) for recipe in (better, worse))
                    found.append(Claim(words, f"{where}, {DATASETS[source.dataset]}, {n_shot}-shot", *entries))
        source_of_curves = next((each for each in PREFERRED if library.has(each)), None)
        if source_of_curves is None:
            return found
        ncm, bound, truth = CURVES
        for q1 in Q1:
            where = f"Figure 3, {DATASETS[source_of_curves.dataset]}, q1 = {q1}"
            at = {name: imbalance_entry(source_of_curves, name, q1) for name in CURVES}
            pairs = [("sizes known > PT+NCM", truth, ncm)]
            if q1 >= BOUND:
                pairs = [("sizes known > at least 30", truth, bound), ("at least 30 > PT+NCM", bound, ncm)]
            found += [Claim(words, where, at[better], at[worse]) for words, better, worse in pairs]
        return found

    def report(self, ledger: Ledger) -> Report:
        """See `Exhibit`."""
        rows, data = [], []
        for claim in self.claims(ledger.library):
            better, worse = ledger.find(claim.better), ledger.find(claim.worse)
            if better is not None and worse is not None:
                gap, half = _gap(better, worse)
                verdict = "holds" if gap > half else "undecided" if gap > -half else "FAILS"
                rows.append((claim.words, claim.where, interval(gap, half, sign="+"), verdict))
                data.append({"claim": claim.words, "where": claim.where, "difference": gap, "ci95": half, "verdict": verdict})
        header = ("claim", "where", "difference", "verdict")
        caption = "difference of mean accuracies in points ± 95 % interval, as if the episodes were not shared (so wider than needed)"
        table = Table(self.title, header, [rows], caption)
        counts = {word: sum(each["verdict"] == word for each in data) for word in ("holds", "undecided", "FAILS")}
        note = f"Of {len(data)} orderings {counts['holds']} hold, {counts['undecided']} are undecided, {counts['FAILS']} fail."
        return Report(self.name, self.title, "Sections 4.3 and 4.4", table, (note,), {"claims": data})

    def draw(self, report: Report) -> dict[str, bytes]:  # noqa: ARG002 - a list of verdicts needs no picture
        """See `Exhibit`."""
        return {}


def _gap(better: Cell, worse: Cell) -> tuple[float, float]:
    return better["accuracy"] - worse["accuracy"], hypot(better["ci95"] or 0.0, worse["ci95"] or 0.0)
