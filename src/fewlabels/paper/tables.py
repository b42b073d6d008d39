"""Tables 2 to 8: each published row, and ours where the features are here."""

from dataclasses import replace
from itertools import groupby
from typing import Any

from fewlabels.evaluation.tables import NONE, Table
from fewlabels.paper.ledger import Experiment, Ledger, Measurement, make_experiment
from fewlabels.paper.library import FeatureSource, Library
from fewlabels.paper.published import DATASETS, SHOTS, Row, read_published
from fewlabels.paper.report import Report, describe_run, difference, label, sources_here, words_of
from fewlabels.paper.systems import describe_systems, find_recorded

ABSENT = "no features"  # our number could be measured if its features were here
RIVAL_SHARE = 10  # methods of other papers take up to 40 ms per episode: one of ten is measured
BEYOND = {"table6": ("cub", "cifar-fs")}  # datasets that are not in the paper's table


class PaperTableExhibit:
    """A table of the paper."""

    def __init__(self, name: str) -> None:
        self._paper = read_published().tables[name]
        self.name, self.title = name, self._paper.title

    def rows(self, library: Library) -> list[Row]:
        """The paper's rows, then those of datasets beyond the paper whose features are here."""
        rows = list(self._paper.rows)
        for dataset in BEYOND.get(self.name, ()):
            for row in self._paper.rows:
                features = f"{dataset}/{_source(row).backbone}"
                moved = replace(row, dataset=dataset, features=features, published={})
                if library.has(_source(moved)):
                    rows.append(moved)
        return rows

    def sources(self) -> list[FeatureSource]:
        """See `Exhibit`."""
        own = [_source(row) for row in self._paper.rows if row.features]
        others = (each._replace(dataset=name) for name in BEYOND.get(self.name, ()) for each in own)
        return list(dict.fromkeys([*own, *others]))

    def experiments(self, library: Library) -> list[Experiment]:
        """See `Exhibit`."""
        return [
            _entry(row, n_shot) for row in self.rows(library) if row.features for n_shot in SHOTS
        ]

    def report(self, ledger: Ledger) -> Report:
        """See `Exhibit`."""
        rows = self.rows(ledger.library)
        among_rivals = any(row.variant is None for row in rows)
        several = len({row.method for row in rows}) > 1

        def kind(row: Row) -> tuple[str, str | None]:
            return row.dataset, row.setting if among_rivals else row.features if several else ""

        shots = (word for n in SHOTS for word in (f"{n}-shot paper", "ours", "difference"))
        with_setting = len({row.setting for row in rows}) > 1
        setting = ("setting",) if with_setting else ()
        header = ("dataset", *setting, "method", "backbone", *shots)
        sections = [
            [_words(row, ledger, with_setting=with_setting) for row in same]
            for _, same in groupby(rows, key=kind)
        ]
        sources = sources_here(self.experiments(ledger.library), ledger.library)
        run = describe_run(ledger) if sources else "published only, no features here"
        caption = f"{run}; {NONE}: a method of another paper, or no such row in the paper"
        table = Table(f"{label(self.name)}: {self.title}", header, sections, caption)
        notes = tuple(_notes(rows, ledger))
        data = {"rows": [_data(row, ledger) for row in rows], "n_episodes": ledger.n_episodes}
        return Report(self.name, self.title, self._paper.caption, table, notes, data, sources)


def _source(row: Row) -> FeatureSource:
    dataset, backbone = str(row.features).split("/")
    return FeatureSource(dataset, backbone)


def _entry(row: Row, n_shot: int) -> Experiment:
    if row.rival:
        return make_experiment(_source(row), row.rival, n_shot=n_shot, share=RIVAL_SHARE)
    return make_experiment(_source(row), str(row.variant), n_shot=n_shot)


def _ours(row: Row, n_shot: int, ledger: Ledger) -> Measurement | None:
    """Our number: measured on features, or recorded when a system was trained."""
    if row.features:
        return ledger.find(_entry(row, n_shot))
    return find_recorded(ledger.library.artifacts, row, n_shot)


def _words(row: Row, ledger: Ledger, *, with_setting: bool) -> tuple[str, ...]:
    cells = [DATASETS[row.dataset], *([row.setting] if with_setting else [])]
    cells += [row.method, row.backbone]
    for n_shot in SHOTS:
        published = row.published.get(n_shot)
        ours = _ours(row, n_shot, ledger)
        absent = ABSENT if row.features else NONE
        cells += [words_of(published), words_of(ours, absent=absent), difference(ours, published)]
    return tuple(cells)


def _data(row: Row, ledger: Ledger) -> dict[str, Any]:
    kept = ("dataset", "setting", "method", "backbone", "variant", "rival", "features", "system")
    ours = {str(n): _ours(row, n, ledger) for n in SHOTS}
    return {
        **{name: getattr(row, name) for name in kept},
        "published": {str(n): list(accuracy) for n, accuracy in row.published.items()},
        "ours": ours if row.features or all(ours.values()) else None,
    }


def _notes(rows: list[Row], ledger: Ledger) -> list[str]:
    """The settings that were used, and how to get features that are not here."""
    notes = []
    for n_shot in SHOTS:
        used: dict[str, list[str]] = {}
        for row in rows:
            if row.features and (cell := ledger.find(experiment := _entry(row, n_shot))):
                method = experiment.method
                used_knobs = [(name, at) for name, at in method.settings.items() if name != "prior"]
                knobs = "".join(f", {name} {at:g}" for name, at in used_knobs)
                line = f"{row.method} = {method.name} after '{method.pipeline}'{knobs}"
                if row.rival:
                    line += f", n = {cell['n_episodes']:,} episodes"
                used.setdefault(line, []).append(DATASETS[row.dataset])
        notes += [
            f"{n_shot}-shot {line} ({', '.join(dict.fromkeys(datasets))})"
            for line, datasets in used.items()
        ]
    here = ledger.library
    sources = dict.fromkeys(
        part for row in rows if row.features for part in here.missing(_source(row))
    )
    notes += describe_systems(here.artifacts, rows)
    return notes + [
        f"Published only, no features of {source}: {here.how_to_get(source)}" for source in sources
    ]
