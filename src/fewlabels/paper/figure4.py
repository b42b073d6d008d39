"""Figure 4: accuracy against the number of queries, and against beta, lam and alpha."""

from typing import Any

from fewlabels.evaluation.tables import NONE, Table
from fewlabels.paper.ledger import Experiment, Ledger, make_experiment
from fewlabels.paper.library import FeatureSource, Library
from fewlabels.paper.peaks import SPLITS, describe_peak, describe_plateau, explain_beta, gain_of
from fewlabels.paper.published import DATASETS, read_published
from fewlabels.paper.report import Report, describe_run, sources_here, words_of
from fewlabels.paper.timing import WRN_SOURCES

WAYS = 5
BETWEEN = {"beta": (0.3, 0.7), "lam": (7.0,), "alpha": ()}  # values that the paper leaves out
CHOSEN = {"beta": 0.5, "lam": 10.0, "alpha": 0.4}  # the paper's dashed lines
KNOBS = tuple(CHOSEN)
PREFERRED = (WRN_SOURCES[0].dataset, "cifar-fs", "cub")


class KnobsExhibit:
    """Four panels of curves."""

    name = "figure4"

    def __init__(self) -> None:
        self._paper = read_published().figures[self.name]
        self.title = self._paper.title

    def sources(self) -> list[FeatureSource]:
        """See `Exhibit`."""
        return [*WRN_SOURCES, *(FeatureSource(dataset, "wrn28-10", "val") for dataset in PREFERRED)]

    def experiments(self, library: Library) -> list[Experiment]:
        """See `Exhibit`."""
        here = [source for source in WRN_SOURCES if library.has(source)]
        sizes = [x for x, _ in self._paper.find("queries", "cifar-fs").points]
        by_queries = [_by_queries(source, size) for source in here for size in sizes]
        dataset = _dataset(library)
        if dataset is None:
            return by_queries
        moved = [(knob, x) for knob in KNOBS for x in self.values(knob)]
        return by_queries + [_at(dataset, split, *at) for at in moved for split in SPLITS]

    def values(self, knob: str) -> list[float]:
        """The paper's values of a knob, and ours between them."""
        return sorted({*(x for x, _ in self._paper.find(knob, "novel").points), *BETWEEN[knob]})

    def report(self, ledger: Ledger) -> Report:
        """See `Exhibit`."""
        dataset = _dataset(ledger.library)
        sections: list[list[tuple[str, ...]]] = []
        queries, knobs = [], []
        for source in WRN_SOURCES:
            published = dict(self._paper.find("queries", source.dataset).points)
            ours = [(size, ledger.find(_by_queries(source, size))) for size in published]
            queries.append(
                {"dataset": source.dataset, "published": list(published.items()), "ours": ours}
            )
            name = f"5q, {DATASETS[source.dataset]}"
            sections.append(
                [
                    (name, f"{x:g}", NONE, f"{published[x]:.2f}", NONE, words_of(cell), "")
                    for x, cell in ours
                ]
            )
        for knob in KNOBS:
            curve = self._knob(knob, dataset, ledger)
            knobs.append(curve)
            sections.append(_knob_rows(curve))
        where = DATASETS[dataset] if dataset else "no features here"
        header = ("knob", "value", "val paper", "novel paper", "val ours", "novel ours", "")
        about = f"5-way 1-shot, WRN; knobs: paper on miniImageNet, ours on {where}"
        caption = f"{about}; {describe_run(ledger)}"
        table = Table(f"Figure 4: {self.title}", header, sections, caption)
        curves = {"dataset": dataset, "queries": queries, "knobs": knobs}
        data = {**curves, "n_episodes": ledger.n_episodes}
        sources = sources_here(self.experiments(ledger.library), ledger.library)
        notes = tuple(self._notes(ledger, dataset, knobs))
        return Report(self.name, self.title, self._paper.caption, table, notes, data, sources)

    def _knob(self, knob: str, dataset: str | None, ledger: Ledger) -> dict[str, Any]:
        """Points of the curves of a knob, published and ours, and the peaks of ours."""
        published = {split: list(self._paper.find(knob, split).points) for split in SPLITS}
        values = self.values(knob)
        ours = {
            split: [
                [x, ledger.find(_at(dataset, split, knob, x)) if dataset else None] for x in values
            ]
            for split in SPLITS
        }
        peaks = {split: _peak(points) for split, points in ours.items()}
        peak, choice = peaks["val"], CHOSEN[knob]
        gains = {
            split: None if peak is None else gain_of(points, peak, choice)
            for split, points in ours.items()
        }
        found = {"paper_choice": choice, "peaks": peaks, "gains": gains}
        return {"knob": knob, "published": published, "ours": ours, **found}

    def _notes(self, ledger: Ledger, dataset: str | None, knobs: list[dict[str, Any]]) -> list[str]:
        here = ledger.library
        lines = [
            f"Published only, {DATASETS[source.dataset]}: {here.how_to_get(source)}"
            for source in WRN_SOURCES
            if not here.has(source)
        ]
        if dataset is None:
            val = FeatureSource(PREFERRED[1], "wrn28-10", "val")
            missing = "no novel features" if here.has(val) else here.how_to_get(val)
            return [*lines, f"Curves of knobs published only: {missing}"]
        for curve in knobs:
            if curve["peaks"]["val"] is not None:
                lines += [describe_peak(curve), describe_plateau(curve)]
        novel, peak = here.load(FeatureSource(dataset, "wrn28-10")), knobs[0]["peaks"]["val"]
        return [*lines, *explain_beta(novel, CHOSEN["beta"], peak)]


def _dataset(library: Library) -> str | None:
    """The dataset of the curves of knobs: the first with validation and novel features."""
    for name in PREFERRED:
        if all(library.has(FeatureSource(name, "wrn28-10", split)) for split in SPLITS):
            return name
    return None


def _by_queries(source: FeatureSource, size: float) -> Experiment:
    return make_experiment(source, "map", queries=str(int(size) // WAYS))


def _at(dataset: str, split: str, knob: str, value: float) -> Experiment:
    """One knob moved, the others at the paper's values for the dataset."""
    moved: dict[str, Any] = {knob: value}
    return make_experiment(FeatureSource(dataset, "wrn28-10", split), "map", **moved)


def _peak(points: list[list[Any]]) -> float | None:
    measured = [(cell["accuracy"], x) for x, cell in points if cell is not None]
    return max(measured)[1] if measured else None


def _knob_rows(curve: dict[str, Any]) -> list[tuple[str, ...]]:
    published = {split: dict(points) for split, points in curve["published"].items()}
    rows = []
    for (x, val), (_, novel) in zip(curve["ours"]["val"], curve["ours"]["novel"], strict=True):
        said = (f"{published[split][x]:.2f}" if x in published[split] else NONE for split in SPLITS)
        places = {"paper's choice": curve["paper_choice"], "our peak on val": curve["peaks"]["val"]}
        marks = ", ".join(word for word, at in places.items() if x == at)
        rows.append((curve["knob"], f"{x:g}", *said, words_of(val), words_of(novel), marks))
    return rows
