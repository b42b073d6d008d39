"""Table 1, the parameters, and Figure 1, the method: the paper's words beside this package's."""

from itertools import groupby
from typing import Any

from fewlabels import configure
from fewlabels.evaluation.settings import knobs_shown
from fewlabels.evaluation.tables import Table
from fewlabels.paper.figure2 import describe_distributions
from fewlabels.paper.figure3 import PREFERRED
from fewlabels.paper.ledger import Experiment, Ledger
from fewlabels.paper.library import FeatureSource, Library
from fewlabels.paper.published import SHOTS, read_published
from fewlabels.paper.report import Report

EPISODES = {"n_way": "5", "n_shot": "1 and 5", "queries": "15"}  # of Tables 2 to 8


class ParametersExhibit:
    """Table 1, with the arguments of this package and the values that were used."""

    name = "table1"

    def __init__(self) -> None:
        self._paper = read_published().parameters
        self.title = self._paper["title"]

    def sources(self) -> list[FeatureSource]:
        """See `Exhibit`."""
        return []

    def experiments(self, library: Library) -> list[Experiment]:  # noqa: ARG002 - measures nothing
        """See `Exhibit`."""
        return []

    def report(self, ledger: Ledger) -> Report:  # noqa: ARG002 - measures nothing
        """See `Exhibit`."""
        used = {**EPISODES, **{knob: _used(knob) for knob in ("beta", "lam", "alpha")}}
        sections = [
            [
                (
                    *(row[key] for key in ("notation", "description", "value", "argument")),
                    used[row["argument"]],
                )
                for row in rows
            ]
            for _, rows in groupby(self._paper["rows"], key=lambda row: row["part"])
        ]
        header = ("notation", "description", "paper", "argument", "used in Tables 2 to 8")
        table = Table(f"Table 1: {self.title}", header, sections, "argument: of this package")
        notes = (
            "alpha: 0.4 at 1 shot, 0.3 on CIFAR-FS and tieredImageNet, and 0.2 at 5 shots "
            "(Sections 4.2 and 4.3); n_steps: 30 at 1 shot and 20 at 5.",
            "lam multiplies the distances, as in the authors' script; Eq. (3) divides by it.",
        )
        return Report(self.name, self.title, self._paper["caption"], table, notes)


def _used(knob: str) -> str:
    """The values of a knob of PT+MAP by shots and dataset, the largest first."""
    chosen = [
        configure("map", n_shot=n, dataset=name) for n in SHOTS for name in (None, "cifar-fs")
    ]
    values = {knobs_shown(str(each.pipeline), each.settings)[knob] for each in chosen}
    return ", ".join(sorted(values, reverse=True))


class MethodExhibit:
    """Figure 1, with the modules of this package."""

    name = "figure1"

    def __init__(self) -> None:
        self._paper = read_published().illustration
        self.title = self._paper["title"]

    def sources(self) -> list[FeatureSource]:
        """See `Exhibit`."""
        return list(PREFERRED)

    def experiments(self, library: Library) -> list[Experiment]:  # noqa: ARG002 - uses the features themselves
        """See `Exhibit`."""
        return []

    def report(self, ledger: Ledger) -> Report:
        """See `Exhibit`."""
        rows = [
            tuple(step[key] for key in ("name", "symbols", "words", "code"))
            for step in self._paper["steps"]
        ]
        header = ("step", "symbols", "what", "where")
        table = Table(f"Figure 1: {self.title}", header, [rows], "where: module of this package")
        source = next((each for each in PREFERRED if ledger.library.has(each)), None)
        data: dict[str, Any] = {"dataset": None, "histograms": []}
        if source is not None:
            found = describe_distributions(ledger.library.load(source), seed=ledger.seed)
            kept = {key: found[key] for key in ("histograms", "feature")}
            data = {"dataset": source.dataset, **kept}
        sources = (source,) if source else ()
        return Report(
            self.name, self.title, self._paper["caption"], table, data=data, sources=sources
        )
