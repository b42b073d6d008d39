"""Figure 3: two classes, 100 queries, of which q1 are of the first."""

from typing import Any

from fewlabels import AtLeast
from fewlabels.evaluation.tables import NONE, Table
from fewlabels.paper.ledger import Experiment, Ledger, make_experiment
from fewlabels.paper.library import FeatureSource, Library
from fewlabels.paper.published import DATASETS, read_published
from fewlabels.paper.report import Report, describe_run, sources_here, words_of
from fewlabels.paper.timing import WRN_SOURCES

TOTAL = 100
Q1 = (1, 10, 20, 30, 40, 50)
BOUND = 30
PREFERRED = tuple(WRN_SOURCES[i] for i in (0, 2, 1))  # the paper's dataset first
CURVES: dict[str, tuple[str, Any]] = {  # name in published.toml: (variant, prior)
    "PT+NCM": ("ncm", None),
    "PT+MAP, at least 30 of each": ("map", AtLeast((BOUND, BOUND))),
    "PT+MAP, sizes known": ("map", "truth"),
}


class ImbalanceExhibit:
    """Accuracy against the imbalance of the queries."""

    name = "figure3"

    def __init__(self) -> None:
        self._paper = read_published().figures[self.name]
        self.title = self._paper.title

    def sources(self) -> list[FeatureSource]:
        """See `Exhibit`."""
        return list(PREFERRED)

    def experiments(self, library: Library) -> list[Experiment]:
        """See `Exhibit`."""
        source = next((each for each in PREFERRED if library.has(each)), None)
        cells = [(name, q1) for name in CURVES for q1 in Q1]
        return [imbalance_experiment(source, *cell) for cell in cells] if source else []

    def report(self, ledger: Ledger) -> Report:
        """See `Exhibit`."""
        source = next((each for each in PREFERRED if ledger.library.has(each)), None)
        sections, curves = [], []
        for name in CURVES:
            published = dict(self._paper.find("q1", name).points)
            ours = {
                q1: ledger.find(imbalance_experiment(source, name, q1)) if source else None
                for q1 in Q1
            }
            said = {q1: f"{published[q1]:.2f}" if q1 in published else NONE for q1 in Q1}
            sections.append([(name, str(q1), said[q1], words_of(ours[q1])) for q1 in Q1])
            points = {"published": sorted(published.items()), "ours": list(map(list, ours.items()))}
            curves.append({"name": name, **points})
        where = DATASETS[source.dataset] if source else "no features here"
        header = ("method", "q1", "paper (miniImageNet)", f"ours ({where})")
        notes = [
            f"'At least {BOUND} of each' is true from q1 = {BOUND} on; below it the bound is "
            "wrong, and the paper shows no points."
        ]
        if source is None:
            notes.append(f"Published only: {ledger.library.how_to_get(PREFERRED[0])}")
        elif source.dataset != "mini-imagenet":
            notes.append(
                "Paper and ours are of different datasets: compare the order and the shape of the "
                "curves, not their height."
            )
        run = describe_run(ledger, draws="own")
        caption = f"2-way 1-shot, {TOTAL} queries, q1 of them of class 1; {run}"
        dataset = source.dataset if source else None
        data = {"dataset": dataset, "curves": curves, "n_episodes": ledger.n_episodes}
        table = Table(f"Figure 3: {self.title}", header, sections, caption)
        sources = sources_here(self.experiments(ledger.library), ledger.library)
        paper = self._paper.caption
        return Report(self.name, self.title, paper, table, tuple(notes), data, sources)


def imbalance_experiment(source: FeatureSource, name: str, q1: int) -> Experiment:
    """The cell of a curve at q1."""
    variant, prior = CURVES[name]
    return make_experiment(
        source, variant, queries=f"{q1},{TOTAL - q1}", n_way=2, draws="own", prior=prior
    )
