"""How our features were made, shown wherever our numbers are beside the published ones."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from fewlabels.paper.library import FeatureSource, Library
from fewlabels.paper.published import DATASETS
from fewlabels.paper.report import Report

METRICS = "metrics.json"  # beside the features: what `fewlabels train` recorded
VIEWS = {"flip": "two views", "ten": "ten views"}  # averaged per image; the paper has one view
BACKBONES = {  # as the paper spells them
    "wrn28-10": "WRN",
    "wrn28-10-dct": "WRN on DCT coefficients",
    "resnet18": "ResNet18",
    "resnet18-112": "ResNet18 at 112 px",
    "resnet12": "ResNet12",
    "conv4": "Conv4",
}


def describe_making(library: Library, source: FeatureSource) -> dict[str, Any]:
    """What is known about the features of one backbone: views, and training (metrics.json)."""
    known = library.load(source).provenance
    metrics = _read_metrics(library.path(source).parent / METRICS, source)
    found: dict[str, Any] = {"views": known.get("views", "unknown")}
    if metrics is not None:
        kept, views = metrics["kept_epoch"], metrics.get("views", {})
        head = metrics.get("recipe", {}).get("head")
        found["training"] = {
            "epochs": kept["epoch"],
            "minutes": round(kept["seconds"] / 60, 1),
            "device": metrics["device"],
            "head": head,
        }
        one, these = (views.get(name, {}).get("val_1shot") for name in ("center", found["views"]))
        if found["views"] in VIEWS and one is not None and these is not None:
            # in points: PT+MAP, 1-shot, validation classes
            found["gain_of_views"] = round(these - one, 2)
    return found


def annotate(report: Report, library: Library) -> Report:
    """The report with how its features were made, in the caption, the notes and the data."""
    parts = list(dict.fromkeys(part for source in report.sources for part in source.parts))
    if not parts:
        return report
    made = {part: describe_making(library, part) for part in parts}
    short = _short(list(made.values()))
    table = replace(report.table, caption="; ".join(filter(None, [report.table.caption, short])))
    features = {str(part): each for part, each in made.items()}
    data = {**report.data, "features": features, "features_note": short}
    # validation and novel features are of one training
    by_backbone = {(part.dataset, part.backbone): each for part, each in made.items()}
    notes = tuple(
        _sentence(dataset, backbone, each) for (dataset, backbone), each in by_backbone.items()
    )
    return replace(report, table=table, notes=(*report.notes, *notes), data=data)


def _short(made: Sequence[dict[str, Any]]) -> str:
    """For captions: what all features of a table or figure have in common, or that they differ.

    >>> _short([{"views": "ten", "training": {}}])
    'ours: backbones trained by this project, features averaged over ten views of each image'
    """
    ours = all("training" in each for each in made)
    words = ["backbones trained by this project"] if ours else []
    views = {each["views"] for each in made}
    if views & VIEWS.keys():
        many = VIEWS[next(iter(views))] if len(views) == 1 else "several views"
        some = "" if len(views) == 1 else " for some backbones"
        words.append(f"features averaged over {many} of each image{some}")
    return f"ours: {', '.join(words)}" if words else ""


def _sentence(dataset: str, backbone: str, made: dict[str, Any]) -> str:
    """How one backbone's features were made, for the notes."""
    name = f"Ours, {DATASETS[dataset]} {BACKBONES.get(backbone, backbone)}"
    training = made.get("training")
    if training is None:
        first = "how its backbone was trained is not recorded beside the features"
    else:
        first = (
            f"trained by this project, {training['epochs']} epochs in "
            f"{training['minutes']:.0f} minutes on {training['device']}"
        )
    if made["views"] not in VIEWS:
        return f"{name}: {first}."
    gain = ""
    if "gain_of_views" in made:
        points = f"{made['gain_of_views']:+.1f} points at 1-shot PT+MAP on validation classes"
        gain = f", which gains {points}"
    views = f"{VIEWS[made['views']]} of each image where the paper takes one"
    return f"{name}: {first}; features averaged over {views}{gain}."


def _read_metrics(path: Path, source: FeatureSource) -> dict[str, Any] | None:
    """The record of the training of the backbone; None where there is none."""
    try:
        metrics: dict[str, Any] = json.loads(path.read_bytes())
        known = {"epoch", "seconds"} <= metrics["kept_epoch"].keys() and "device" in metrics
        name = metrics["backbone"]
        size = metrics.get("recipe", {}).get("image_size")
        # A folder has the name of its backbone, or also the size of its training images.
        same = metrics["dataset"] == source.dataset and source.backbone in (name, f"{name}-{size}")
        return metrics if known and same else None
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
