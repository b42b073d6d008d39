"""Messages of a training: one line per epoch, and TensorBoard logs if requested."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from fewlabels.errors import MissingExtraError
from fewlabels.training.loop import Report
from fewlabels.training.systems import SYSTEMS

CURVES = ("loss", "lr", "images_per_second", "val_1shot", "val_5shot")


def describe_epoch(report: Report) -> str:
    """A report in one line.

    >>> rates = {"lr": 0.1, "loss": 2.5, "images_per_second": 11234.5, "seconds": 75}
    >>> accuracies = {"val_1shot": 70.25, "val_5shot": 81.0}
    >>> describe_epoch({"epoch": 5, "n_epochs": 90, "objective": "plain", **rates, **accuracies})
    'epoch  5/90  plain  loss 2.500  lr 0.1000  11,234 images/s  1:15  val PT+MAP 70.2 / 81.0'
    """
    width = len(str(report["n_epochs"]))
    minutes, seconds = divmod(int(report["seconds"]), 60)
    parts = [
        f"epoch {report['epoch']:{width}}/{report['n_epochs']}",
        report["objective"],
        f"loss {report['loss']:.3f}",
        f"lr {report['lr']:.4f}",
        f"{int(report['images_per_second']):,} images/s",
        f"{minutes}:{seconds:02}",
    ]
    validated = [name for name in ("val_1shot", "val_5shot") if name in report]
    if validated:
        judge = SYSTEMS[report["objective"]].title if report["objective"] in SYSTEMS else "PT+MAP"
        parts.append(f"val {judge} {' / '.join(f'{report[name]:.1f}' for name in validated)}")
    return "  ".join(parts)


@contextmanager
def reporting(
    output: Path, say: Callable[[str], object], *, tensorboard: bool
) -> Iterator[Callable[[Report], None]]:
    """A function to call with the report of each epoch."""
    if not tensorboard:

        def say_epoch(report: Report) -> None:
            say(describe_epoch(report))

        yield say_epoch
        return
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise MissingExtraError(
            "tensorboard", extra="tensorboard", purpose="Writing TensorBoard logs"
        ) from None
    with SummaryWriter(str(output / "tensorboard")) as writer:

        def report_epoch(report: Report) -> None:
            say(describe_epoch(report))
            for name in CURVES:
                if name in report:
                    writer.add_scalar(name, report[name], report["epoch"])

        yield report_epoch
