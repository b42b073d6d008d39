"""The paper's "0.002 s per run", and our time."""

from fewlabels.evaluation.tables import Table
from fewlabels.paper.ledger import Experiment, Ledger, make_experiment
from fewlabels.paper.library import FeatureSource, Library
from fewlabels.paper.published import DATASETS, SHOTS, read_published
from fewlabels.paper.report import Report, sources_here

WRN_SOURCES = tuple(
    FeatureSource(dataset, "wrn28-10") for dataset in ("mini-imagenet", "cub", "cifar-fs")
)


class TimeExhibit:
    """Seconds of one run (an episode) of PT+MAP, from features to labels."""

    name, title = "time", "Time of a run"

    def sources(self) -> list[FeatureSource]:
        """See `Exhibit`."""
        return list(WRN_SOURCES)

    def experiments(self, library: Library) -> list[Experiment]:
        """See `Exhibit`."""
        here = [source for source in WRN_SOURCES if library.has(source)]
        return [make_experiment(source, "map", n_shot=n) for source in here for n in SHOTS]

    def report(self, ledger: Ledger) -> Report:
        """See `Exhibit`."""
        paper = read_published()
        rows = [("paper", "PT+MAP", f"{1000 * paper.seconds:.3f}", "", "machine not stated")]
        times = []
        for experiment in self.experiments(ledger.library):
            cell = ledger.find(experiment)
            if cell is not None:
                seconds = cell["seconds"] / cell["n_episodes"]
                which = {"features": str(experiment.source), "n_shot": experiment.n_shot}
                times.append({**which, "seconds": seconds, "cell": cell})
                what = f"PT+MAP, {experiment.n_shot}-shot, {DATASETS[experiment.source.dataset]}"
                how = f"{cell['engine']} on {cell['device']}, {cell['machine']}"
                ours, factor = f"{1000 * seconds:.3f}", f"{paper.seconds / seconds:.1f}"
                rows.append(("ours", what, ours, factor, how))
        table = Table(
            f"Time: {self.title}",
            ("", "method", "ms per run", "times as fast", "where"),
            [rows[:1], rows[1:]] if rows[1:] else [rows],
            f"wall-clock time, mean over {ledger.n_episodes:,} episodes in one call; "
            "without drawing them and without extracting features",
        )
        data = {"published_seconds": paper.seconds, "ours": times}
        note = (
            "The machines differ, and other programs on ours slow it down: this shows what a run "
            "costs now, not how much better the code is."
        )
        sources = sources_here(self.experiments(ledger.library), ledger.library)
        return Report(self.name, self.title, paper.time_caption, table, (note,), data, sources)
