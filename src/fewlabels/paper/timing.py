"""The paper's "0.002 s per run", beside the time of ours."""

from fewlabels.evaluation.tables import Table
from fewlabels.paper.ledger import Entry, Ledger, make_entry
from fewlabels.paper.library import Library, Source
from fewlabels.paper.published import DATASETS, SHOTS, read_published
from fewlabels.paper.report import Report, sources_here

BENCHMARKS = tuple(Source(dataset, "wrn28-10") for dataset in ("mini-imagenet", "cub", "cifar-fs"))


class TimeExhibit:
    """Seconds of one run (an episode) of PT+MAP, preprocessing to labels, features at hand."""

    name, title = "time", "Time of a run"

    def sources(self) -> list[Source]:
        """See `Exhibit`."""
        return list(BENCHMARKS)

    def entries(self, library: Library) -> list[Entry]:
        """See `Exhibit`."""
        return [
            make_entry(source, "map", n_shot=n_shot)
            for source in BENCHMARKS
            if library.has(source)
            for n_shot in SHOTS
        ]

    def report(self, ledger: Ledger) -> Report:
        """See `Exhibit`."""
        paper = read_published()
        rows = [("paper", "PT+MAP", f"{1000 * paper.seconds:.3f}", "", "machine not stated")]
        times = []
        for entry in self.entries(ledger.library):
            cell = ledger.find(entry)
            if cell is not None:
                seconds = cell["seconds"] / cell["n_episodes"]
                times.append(
                    {
                        "features": str(entry.source),
                        "n_shot": entry.n_shot,
                        "seconds": seconds,
                        "cell": cell,
                    }
                )
                what = f"PT+MAP, {entry.n_shot}-shot, {DATASETS[entry.source.dataset]}"
                how = f"{cell['engine']} on {cell['device']}, {cell['machine']}"
                rows.append(
                    ("ours", what, f"{1000 * seconds:.3f}", f"{paper.seconds / seconds:.1f}", how)
                )
        table = Table(
            f"Time: {self.title}",
            ("", "method", "ms a run", "times as fast", "where"),
            [rows[:1], rows[1:]] if rows[1:] else [rows],
            f"wall-clock, mean over {ledger.n_episodes:,} episodes run in one go; without drawing them and without extracting features",
        )
        data = {"published_seconds": paper.seconds, "ours": times}
        note = (
            "The machines differ, and other work on ours at the time counts too: this shows what a run costs now, not how much better "
            "the code is."
        )
        sources = sources_here(self.entries(ledger.library), ledger.library)
        return Report(self.name, self.title, paper.time_caption, table, (note,), data, sources)

    def draw(self, report: Report) -> dict[str, bytes]:  # noqa: ARG002 - two numbers need no picture
        """See `Exhibit`."""
        return {}
