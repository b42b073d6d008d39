"""`fewlabels tune`: choose the knobs of a method on validation classes."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Argument, Option

from fewlabels.cli import console, options
from fewlabels.cli.console import print_table, progress_bar, require_features, say
from fewlabels.errors import InputError

NOVEL = "novel"  # as a FeatureSet's provenance calls the split
WARNING = (
    "These are novel classes, not validation classes: a demonstration only. "
    "Accuracies on novel classes of settings that were chosen on them must not be reported."
)


def tune_command(
    features: Annotated[
        Path | None,
        Argument(
            help=f"Features of validation classes: {options.FILES}. "
            "Default: the embedded set, as a demonstration.",
            metavar="VAL_FEATURES",
        ),
    ] = None,
    novel: Annotated[
        Path | None,
        Option(help="Features of novel classes: shown for reference, not used for selection."),
    ] = None,
    methods: Annotated[
        list[str] | None,
        Option(
            "--method",
            help="A method; the list is below. [map]",
            metavar="NAME",
            rich_help_panel=options.LABELS,
        ),
    ] = None,
    grid: Annotated[
        bool, Option("--grid", help="Try every combination instead of one knob after the other.")
    ] = False,
    shots: options.Shots = None,
    ways: options.Ways = 5,
    queries: Annotated[str, Option(help=f"{options.QUERIES}.")] = "15",
    episodes: options.Episodes = 1000,
    draws: options.Draws = "own",
    seed: options.Seed = 0,
    knobs: Annotated[
        list[str] | None,
        Option(
            "--set",
            help="Value to try of a knob; may be repeated. A knob that is not tuned takes one.",
            metavar="KNOB=VALUE",
        ),
    ] = None,
    beta: options.Beta = None,
    lam: options.Lam = None,
    alpha: options.Alpha = None,
    per_class: options.PerClass = None,
    engine: options.Engine = "auto",
    device: options.Device = "auto",
    dtype: options.Dtype = None,
    output: Annotated[
        Path,
        Option(
            "--output",
            "-o",
            help="Folder for settings.toml, tuning.json and the curves.",
            metavar="FOLDER",
            rich_help_panel=options.OUTPUTS,
        ),
    ] = Path("tuned"),
    force: options.Force = False,
    plot: Annotated[
        bool | None, Option(help="Draw the curves. [where matplotlib is installed]")
    ] = None,
    as_json: options.Json = False,
) -> None:
    """Choose the knobs of a method on validation classes (Figure 4).

    fewlabels tune val.npy --per-class 600 --novel novel.npy --output tuned

    fewlabels evaluate novel.npy --per-class 600 --settings tuned/settings.toml
    """
    method, *more = methods or ["map"]
    if more:
        listed = ", ".join([method, *more])
        raise InputError(f"--method must be given once, got {listed}. Tune one after the other.")
    require_features(features)
    require_features(novel)
    from fewlabels.evaluation.curves import Tuning
    from fewlabels.evaluation.folder import TUNING, open_folder, to_json
    from fewlabels.evaluation.plots import can_draw, draw_curves
    from fewlabels.evaluation.settings import SETTINGS, format_settings, read_settings
    from fewlabels.evaluation.tables import tabulate_tuning
    from fewlabels.evaluation.tuning import check_ranges, count_settings, split_knobs, tune
    from fewlabels.io.files import write_file

    drawing = can_draw(plot)
    feature_set, *others = console.load_several(
        [features] if novel is None else [features, novel], per_class=per_class
    )
    novel_set = others[0] if others else None
    warnings = [WARNING] if feature_set.provenance.get("split") == NOVEL else []
    about = console.describe_features(feature_set) + (" (demonstration)" if warnings else "")
    if features is None:
        say("No validation features given: tuning on the embedded set.")
    for warning in warnings:
        say(warning)
    given, rest = split_knobs(method, options.gather_knobs(knobs, beta=beta, lam=lam, alpha=alpha))
    tried = check_ranges(method, given, fixed=rest)
    n_settings = count_settings(tried, grid=grid, novel=novel is not None)
    folder = open_folder(output, fingerprint=feature_set.fingerprint, force=force)
    written = not force and (folder / SETTINGS).is_file()
    kept = read_settings(folder / SETTINGS) if written else {}  # of other methods
    kept.pop(method, None)
    kind: Any = {"n_way": ways, "queries": queries, "draws": draws, "seed": seed}
    how: Any = {"engine": engine, "device": device, "dtype": dtype, "n_episodes": episodes}
    how |= {"ranges": given, "grid": grid, "novel": novel_set, "settings": rest}
    tunings: list[Tuning] = []
    interrupted = False
    with progress_bar("tune", episodes * n_settings * len(set(shots or [1]))) as advance:
        try:
            for n_shot in dict.fromkeys(shots or [1]):
                kind["n_shot"] = n_shot
                tunings.append(tune(feature_set, method=method, **kind, **how, on_progress=advance))
                if tunings[-1].interrupted:
                    raise KeyboardInterrupt
        except KeyboardInterrupt:
            if not tunings:
                raise
            interrupted = True
    tuned = [each.to_dict() for each in tunings]
    command, fingerprint = console.command_line(), feature_set.fingerprint
    found = {"command": command, "fingerprint": fingerprint, "tunings": tuned}
    if as_json:
        typer.echo(json.dumps(found, indent=2))
    else:
        for each in tunings:
            print_table(tabulate_tuning(each, about=about))
            typer.echo(each.describe() + "\n")
    if interrupted:
        console.end_interrupted("this is what was done so far; nothing was written.")
    n_classes = f"{feature_set.n_classes} classes"
    origin = f"fingerprint {fingerprint}, {len(feature_set):,} vectors of {n_classes}"
    comments = [f"Written by: {command}", f"Features: {about}, {origin}", *warnings]
    comments += [each.describe() for each in tunings]
    chosen = {method: {each.n_shot: dict(each.chosen) for each in tunings}}
    if kept:
        comments.append(f"Kept as they were: {', '.join(kept)}")
        say(f"Settings of {', '.join(kept)} in {folder / SETTINGS} are kept.")
    chosen |= {name: dict(by_shots) for name, by_shots in kept.items()}
    write_file(folder / SETTINGS, format_settings(chosen, comments=comments).encode())
    write_file(folder / TUNING, to_json(found))
    files = [SETTINGS, TUNING]
    for each in tunings if drawing else []:
        for suffix, content in draw_curves(each, about=about).items():
            files.append(f"curves-{each.n_shot}-shot.{suffix}")
            write_file(folder / files[-1], content)
    say(f"Written to {folder}: {', '.join(files)}")
    if not drawing and plot is None:
        say("No curves drawn: that needs matplotlib, pip install 'fewlabels[plot]'")
