"""`ptmap evaluate`: accuracy of methods over many episodes of a feature file."""

import json
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from ptmap.evaluation import EvaluationResult

Features = Annotated[
    Path | None,
    typer.Argument(
        help="Features: .safetensors, .npz (features, labels), .npy (with --per-class), .parquet, .pt or .plk. "
        "Default: the embedded CIFAR-FS set.",
        show_default=False,
    ),
]


def evaluate_command(
    features: Features = None,
    method: Annotated[list[str], typer.Option(help="ncm-raw, ncm, kmeans, soft-kmeans or map; may be repeated.")] = ["map"],  # noqa: B006
    shots: Annotated[list[int], typer.Option(help="Labelled rows per class; may be repeated.")] = [1],  # noqa: B006
    ways: Annotated[int, typer.Option(help="Classes per episode.")] = 5,
    queries: Annotated[str, typer.Option(help="Queries per class, or N,N,... or dirichlet:A:N or present:K:N.")] = "15",
    episodes: Annotated[int, typer.Option(help="Episodes per result.")] = 1000,
    draws: Annotated[str, typer.Option(help="own, or authors for those of the published script.")] = "own",
    seed: Annotated[int, typer.Option(help="Of the draws.")] = 0,
    beta: Annotated[float | None, typer.Option(help="Power of the transform. [the paper's 0.5]", show_default=False)] = None,
    lam: Annotated[float | None, typer.Option(help="Sharpness of MAP. [the paper's 10]", show_default=False)] = None,
    alpha: Annotated[float | None, typer.Option(help="Step size of the centers. [the paper's]", show_default=False)] = None,
    n_steps: Annotated[int | None, typer.Option(help="Steps of MAP. [the paper's]", show_default=False)] = None,
    pipeline: Annotated[str | None, typer.Option(help="Another preprocessing, e.g. 'unit | center | unit'.", show_default=False)] = None,
    mean_of: Annotated[Path | None, typer.Option(help="Features whose mean center(mean) subtracts.", show_default=False)] = None,
    per_class: Annotated[int | None, typer.Option(help="Rows per class of an .npy file, in blocks.", show_default=False)] = None,
    engine: Annotated[str, typer.Option(help="auto, torch or numba.")] = "auto",
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or mps.")] = "auto",
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of a table.")] = False,
) -> None:
    """Accuracy of few-shot methods, mean and 95 % confidence interval.

    ptmap evaluate --method ncm --method map --shots 1 --shots 5 --episodes 10000
    """
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from ptmap.evaluation import evaluate
    from ptmap.features import load_embedded, read_features
    from ptmap.methods import configure

    talk = Console(stderr=True)
    feature_set = load_embedded() if features is None else read_features(features, per_class=per_class)
    mean_features = None if mean_of is None else read_features(mean_of, per_class=per_class)
    results: list[EvaluationResult] = []
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("episodes"), TimeRemainingColumn())
    with Progress(*columns, console=talk, transient=True) as progress:
        for n_shot in shots:
            methods = [
                configure(
                    name,
                    n_shot=n_shot,
                    dataset=feature_set.provenance.get("dataset"),
                    beta=beta,
                    pipeline=pipeline,
                    lam=lam,
                    alpha=alpha,
                    n_steps=n_steps,
                )
                for name in method
            ]
            task = progress.add_task(f"{n_shot}-shot", total=episodes * len(methods))
            results += evaluate(
                feature_set,
                methods,
                n_way=ways,
                n_shot=n_shot,
                queries=queries,
                n_episodes=episodes,
                draws=draws,
                seed=seed,
                engine=engine,
                device=device,
                mean_features=mean_features,
                on_progress=partial(progress.advance, task),
            )
            if results[-1].interrupted:
                break
    if as_json:
        typer.echo(json.dumps({"results": [result.to_dict() for result in results]}, indent=2))
    else:
        _print_table(results, len(feature_set), feature_set.n_classes, feature_set.provenance)
    if any(result.interrupted for result in results):
        talk.print("Interrupted: the table covers the episodes done so far.")
        raise typer.Exit(130)


def _print_table(results: "list[EvaluationResult]", n_rows: int, n_classes: int, provenance: dict[str, str]) -> None:
    from rich.console import Console
    from rich.table import Table

    first = results[0]
    what = " ".join(provenance[key] for key in ("dataset", "backbone", "split") if key in provenance)
    table = Table(
        title=f"{first.n_way}-way, {first.queries} queries" + (f", {what}" if what else ""),
        caption=f"{n_rows:,} vectors of {n_classes} classes; {first.provenance['draws']} draws, seed {first.provenance['seed']}; "
        "accuracy in %, mean ± 95 % interval",
    )
    for name in ("method", "shots", "accuracy", "episodes", "seconds"):
        table.add_column(name, justify="left" if name == "method" else "right")
    for result in results:
        interval = f"{result.accuracy:.2f} ± {result.ci95:.2f}"
        table.add_row(result.title, str(result.n_shot), interval, f"{result.n_episodes:,}", f"{result.seconds:.1f}")
    Console().print(table)
