"""All tables and figures that can be regenerated, by name."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from fewlabels.errors import unknown_choice
from fewlabels.evaluation.tables import Table
from fewlabels.io.files import write_file
from fewlabels.paper.draw_distributions import describe_distribution, draw_distributions
from fewlabels.paper.draw_figures import (
    describe_imbalance,
    describe_knobs,
    draw_imbalance,
    draw_knobs,
)
from fewlabels.paper.draw_method import describe_method, draw_method
from fewlabels.paper.draw_tables import describe_table, draw_table
from fewlabels.paper.figure2 import DistributionExhibit
from fewlabels.paper.figure3 import ImbalanceExhibit
from fewlabels.paper.figure4 import KnobsExhibit
from fewlabels.paper.ledger import Experiment, Ledger
from fewlabels.paper.library import Library
from fewlabels.paper.method import MethodExhibit, ParametersExhibit
from fewlabels.paper.orderings import OrderingsExhibit
from fewlabels.paper.page import write_page
from fewlabels.paper.provenance import annotate
from fewlabels.paper.published import read_published
from fewlabels.paper.report import Exhibit, Report, read_reports, write_report
from fewlabels.paper.tables import PaperTableExhibit
from fewlabels.paper.timing import TimeExhibit

ALL, PAGE = "all", "index.html"
DRAWINGS = {  # what draws an exhibit, and what describes the drawing; lists need none
    "figure1": (draw_method, describe_method),
    "figure2": (draw_distributions, describe_distribution),
    "figure3": (draw_imbalance, describe_imbalance),
    "figure4": (draw_knobs, describe_knobs),
    **dict.fromkeys(read_published().tables, (draw_table, describe_table)),
}


def make_exhibits() -> dict[str, Exhibit]:
    """All exhibits by name, in the order of the paper."""
    tables = [PaperTableExhibit(name) for name in read_published().tables]
    figures = (MethodExhibit(), DistributionExhibit(), ImbalanceExhibit(), KnobsExhibit())
    exhibits: list[Exhibit] = [ParametersExhibit(), *tables, *figures]
    exhibits += [TimeExhibit(), OrderingsExhibit()]
    return {exhibit.name: exhibit for exhibit in exhibits}


def choose_exhibits(names: Sequence[str]) -> list[Exhibit]:
    """Exhibits by name; "all" stands for every one."""
    known = make_exhibits()
    for name in names:
        if name != ALL and name not in known:
            raise unknown_choice("what to reproduce", name, (*known, ALL))
    return [exhibit for name, exhibit in known.items() if name in names or ALL in names]


def list_exhibits(library: Library) -> Table:
    """What can be reproduced, which features it needs, and whether they are here."""
    rows = []
    for exhibit in make_exhibits().values():
        parts = list(dict.fromkeys(part for source in exhibit.sources() for part in source.parts))
        here = [part for part in parts if library.has(part)]
        state = "all here" if len(here) == len(parts) else f"{len(here)} of {len(parts)} here"
        state = state if parts else "needs none"
        by_dataset: dict[str, list[str]] = {}
        for part in parts:
            by_dataset.setdefault(part.dataset, []).append(part.backbone)
        needs = "; ".join(
            f"{dataset}: {', '.join(dict.fromkeys(backbones))}"
            for dataset, backbones in by_dataset.items()
        )
        rows.append((exhibit.name, exhibit.title, state, needs))
    caption = (
        f"features are read from {library.artifacts}/DATASET/BACKBONE/{{val,novel}}.safetensors, "
        "or named one by one"
    )
    return Table("fewlabels reproduce NAME", ("name", "what", "features", "needs"), [rows], caption)


def all_experiments(exhibits: Iterable[Exhibit], library: Library) -> list[Experiment]:
    """What several exhibits measure, in their order."""
    return [experiment for exhibit in exhibits for experiment in exhibit.experiments(library)]


def publish(
    exhibits: Iterable[Exhibit], ledger: Ledger, *, drawing: bool, command: str
) -> list[Report]:
    """Write the files of exhibits, and the page of all in the folder; `ledger` has measured."""
    reports = []
    for exhibit in exhibits:
        report = annotate(exhibit.report(ledger), ledger.library)
        pictures = {}
        if drawing and report.name in DRAWINGS:
            draw, describe = DRAWINGS[report.name]
            pictures, report = draw(report), replace(report, picture=describe(report))
        write_report(ledger.folder, report, pictures, command=command)
        reports.append(report)
    write_folder_page(ledger.folder)
    return reports


def write_folder_page(folder: Path) -> None:
    """One page of all exhibits of a folder."""
    found = read_reports(folder, list(make_exhibits()))
    pictures = {
        each["name"]: path.read_bytes()
        for each in found
        if (path := folder / f"{each['name']}.svg").is_file()
    }
    files = sorted(path.name for path in folder.iterdir())
    write_file(folder / PAGE, write_page(found, pictures, files).encode())
