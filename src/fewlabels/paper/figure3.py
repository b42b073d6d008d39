"""Figure 3: two classes, 100 queries, of which q1 are of the first."""

from typing import Any

from fewlabels.evaluation.tables import Table
from fewlabels.paper.ledger import Entry, Ledger, make_entry
from fewlabels.paper.library import Library, Source
from fewlabels.paper.published import DATASETS, read_published
from fewlabels.paper.report import Report, describe_run, sources_here, words_of
from fewlabels.paper.timing import BENCHMARKS
from fewlabels.transport.prior import AtLeast

TOTAL = 100
Q1 = (1, 10, 20, 30, 40, 50)
BOUND = 30
PREFERRED = (
    BENCHMARKS[0],
    BENCHMARKS[2],
    BENCHMARKS[1],
)  # the paper's dataset, else the first that is here
CURVES: dict[str, tuple[str, Any]] = {  # name in published.toml: (recipe, proportions)
    "PT+NCM": ("ncm", None),
    "PT+MAP, at least 30 of each": ("map", AtLeast((BOUND, BOUND))),
    "PT+MAP, sizes known": ("map", "truth"),
}


class ImbalanceExhibit:
    """Accuracy against the unevenness of the queries."""

    name = "figure3"

    def __init__(self) -> None:
        self._paper = read_published().figures[self.name]
        self.title = self._paper.title

    def sources(self) -> list[Source]:
        """See `Exhibit`."""
        return list(PREFERRED)

    def entries(self, library: Library) -> list[Entry]:
        """See `Exhibit`."""
        source = next((each for each in PREFERRED if library.has(each)), None)
        return (
            []
            if source is None
            else [imbalance_entry(source, name, q1) for name in CURVES for q1 in Q1]
        )

    def report(self, ledger: Ledger) -> Report:
        """See `Exhibit`."""
        source = next((each for each in PREFERRED if ledger.library.has(each)), None)
        sections, curves = [], []
        for name in CURVES:
            published = dict(self._paper.find("q1", name).points)
            ours = {
                q1: ledger.find(imbalance_entry(source, name, q1)) if source else None for q1 in Q1
            }
            rows = [
                (
                    name,
                    str(q1),
                    f"{published[q1]:.2f}" if q1 in published else "–",
                    words_of(ours[q1]),
                )
                for q1 in Q1
            ]
            sections.append(rows)
            curves.append(
                {
                    "name": name,
                    "published": sorted(published.items()),
                    "ours": [[q1, ours[q1]] for q1 in Q1],
                }
            )
        where = DATASETS[source.dataset] if source else "no features here"
        header = ("method", "q1", "paper (miniImageNet)", f"ours ({where})")
        notes = [
            f"'At least {BOUND} of each' is true from q1 = {BOUND} on; below it the bound is wrong, and the paper shows no points."
        ]
        if source is None:
            notes.append(f"Published only: {ledger.library.how_to_get(PREFERRED[0])}")
        elif source.dataset != "mini-imagenet":
            notes.append(
                "Paper and ours are of different datasets: compare the order and the shape of the curves, not their height."
            )
        caption = f"2-way 1-shot, {TOTAL} queries, q1 of them of class 1; {describe_run(ledger, draws='own')}"
        data = {
            "dataset": source.dataset if source else None,
            "curves": curves,
            "n_episodes": ledger.n_episodes,
        }
        table = Table(f"Figure 3: {self.title}", header, sections, caption)
        sources = sources_here(self.entries(ledger.library), ledger.library)
        return Report(
            self.name, self.title, self._paper.caption, table, tuple(notes), data, sources
        )

    def draw(self, report: Report) -> dict[str, bytes]:
        """See `Exhibit`."""
        from fewlabels.paper.draw_figures import draw_imbalance

        return draw_imbalance(report)


def imbalance_entry(source: Source, name: str, q1: int) -> Entry:
    """The cell of a curve at q1."""
    recipe, proportions = CURVES[name]
    return make_entry(
        source, recipe, queries=f"{q1},{TOTAL - q1}", n_way=2, draws="own", proportions=proportions
    )
