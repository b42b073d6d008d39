"""The paper's claims that one method is better than another, tested on the measured cells."""

from dataclasses import dataclass
from math import hypot
from typing import Any

from fewlabels.evaluation.tables import Table, interval
from fewlabels.paper.figure3 import BOUND, CURVES, PREFERRED, Q1, imbalance_experiment
from fewlabels.paper.ledger import Experiment, Ledger, Measurement, make_experiment
from fewlabels.paper.library import FeatureSource, Library
from fewlabels.paper.provenance import BACKBONES, describe_making
from fewlabels.paper.published import DATASETS, SHOTS
from fewlabels.paper.report import Report, sources_here
from fewlabels.paper.timing import WRN_SOURCES

CLAIMS = (  # (better, worse) by variant, and where in the paper
    ("ncm", "ncm-raw", "Table 5"),
    ("kmeans", "ncm", "Table 5"),
    ("map", "kmeans", "Table 5"),
    ("map", "map-without-pt", "Table 6"),
)
SOURCES = tuple(
    source._replace(backbone=backbone)
    for source in WRN_SOURCES
    for backbone in ("wrn28-10", "resnet18", "resnet12")
)
TITLES = {
    "ncm-raw": "NCM",
    "ncm": "PT+NCM",
    "kmeans": "PT+K-Means",
    "map": "PT+MAP",
    "map-without-pt": "MAP without PT",
}
HOLDS, UNDECIDED, FAILS = "holds", "undecided", "FAILS"


@dataclass(frozen=True)
class Claim:
    """One method is better than another: in words, where in the paper, and what to measure."""

    words: str
    where: str
    better: Experiment
    worse: Experiment


class OrderingsExhibit:
    """The claims, each with the measured difference."""

    name, title = "orderings", "The paper's orderings"

    def sources(self) -> list[FeatureSource]:
        """See `Exhibit`."""
        return list(SOURCES)

    def experiments(self, library: Library) -> list[Experiment]:
        """See `Exhibit`."""
        claims = self.claims(library)
        return [each for claim in claims for each in (claim.better, claim.worse)]

    def claims(self, library: Library) -> list[Claim]:
        """The claims that can be tested with what is here."""
        found = []
        for source in (each for each in SOURCES if library.has(each)):
            for better, worse, where in CLAIMS:
                for n_shot in SHOTS:
                    words = f"{TITLES[better]} > {TITLES[worse]}"
                    place = f"{where}, {_name(source)}, {n_shot}-shot"
                    pair = (
                        make_experiment(source, each, n_shot=n_shot) for each in (better, worse)
                    )
                    found.append(Claim(words, place, *pair))
        source_of_curves = next((each for each in PREFERRED if library.has(each)), None)
        if source_of_curves is None:
            return found
        ncm, bound, truth = CURVES
        for q1 in Q1:
            where = f"Figure 3, {_name(source_of_curves)}, q1 = {q1}"
            at = {name: imbalance_experiment(source_of_curves, name, q1) for name in CURVES}
            pairs = [("sizes known > PT+NCM", truth, ncm)]
            if q1 >= BOUND:
                pairs = [
                    ("sizes known > at least 30", truth, bound),
                    ("at least 30 > PT+NCM", bound, ncm),
                ]
            found += [Claim(words, where, at[better], at[worse]) for words, better, worse in pairs]
        return found

    def report(self, ledger: Ledger) -> Report:
        """See `Exhibit`."""
        sections: dict[FeatureSource, list[tuple[str, ...]]] = {}
        data: list[dict[str, Any]] = []
        for claim in self.claims(ledger.library):
            better, worse = ledger.find(claim.better), ledger.find(claim.worse)
            if better is not None and worse is not None:
                gap, half = _gap(better, worse)
                verdict = HOLDS if gap > half else UNDECIDED if gap > -half else FAILS
                source = claim.better.source
                sections.setdefault(source, []).append(
                    (claim.words, claim.where, interval(gap, half, sign="+"), verdict)
                )
                said = {"claim": claim.words, "where": claim.where, "features": str(source)}
                data.append({**said, "difference": gap, "ci95": half, "verdict": verdict})
        header = ("claim", "where", "difference", "verdict")
        caption = (
            "difference of mean accuracies in points ± 95 % interval, as if the episodes were not "
            "shared (so wider than needed)"
        )
        table = Table(self.title, header, list(sections.values()), caption)
        notes = (_count(data), *_explain_exceptions(data, ledger.library))
        sources = sources_here(self.experiments(ledger.library), ledger.library)
        return Report(
            self.name, self.title, "Sections 4.3 and 4.4", table, notes, {"claims": data}, sources
        )


def _name(source: FeatureSource) -> str:
    return f"{DATASETS[source.dataset]} {BACKBONES[source.backbone]}"


def _gap(better: Measurement, worse: Measurement) -> tuple[float, float]:
    gap = better["accuracy"] - worse["accuracy"]
    return gap, hypot(better["ci95"] or 0.0, worse["ci95"] or 0.0)


def _count(data: list[dict[str, Any]]) -> str:
    counts = {
        verdict: sum(each["verdict"] == verdict for each in data)
        for verdict in (HOLDS, UNDECIDED, FAILS)
    }
    return (
        f"Of {len(data)} orderings {counts[HOLDS]} hold, {counts[UNDECIDED]} are undecided, "
        f"{counts[FAILS]} fail."
    )


def _explain_exceptions(data: list[dict[str, Any]], library: Library) -> list[str]:
    """The orderings that do not hold, and how the training of their backbones differs."""
    exceptions: dict[str, list[str]] = {}
    for each in data:
        if each["verdict"] != HOLDS:
            gap = f"{interval(each['difference'], each['ci95'], sign='+')}, {each['verdict']}"
            exceptions.setdefault(each["features"], []).append(
                f"{each['claim']} at {each['where'].rpartition(', ')[2]} ({gap})"
            )
    heads = {
        name: _head(library, name) for name in dict.fromkeys(each["features"] for each in data)
    }
    lines = []
    for name, said in exceptions.items():
        others = {head for other, head in heads.items() if other not in exceptions}
        own = heads[name]
        apart = own is not None and others and None not in others and own not in others
        reason = "a possible reason, which was not tested."
        why = f" Its backbone alone was trained with a {own} head: {reason}" if apart else ""
        lines.append(
            f"Exceptions on {_name(FeatureSource(*name.split('/')))}: {', '.join(said)}.{why}"
        )
    return lines


def _head(library: Library, name: str) -> str | None:
    """The head that a backbone was trained with, where it is recorded."""
    head = describe_making(library, FeatureSource(*name.split("/"))).get("training", {}).get("head")
    return None if head is None else str(head)
