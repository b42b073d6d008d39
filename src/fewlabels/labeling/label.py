"""label_folder: all labels of a folder from a few, written in every form that is asked for."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from fewlabels.data.bursts import check_seconds
from fewlabels.data.video import check_every
from fewlabels.features.extraction import Progress
from fewlabels.features.store import FeatureStore
from fewlabels.io.files import check_apart, check_suffix, check_writable
from fewlabels.labeling.answer import DEFAULT_METHOD, check_method
from fewlabels.labeling.collection import Extraction
from fewlabels.labeling.inputs import files_read, identify, read_inputs
from fewlabels.labeling.labels_file import DEEPEST, check_truth
from fewlabels.labeling.outcome import Outcome, label_inputs
from fewlabels.labeling.outputs import (
    LABEL_STUDIO_PREFIX,
    LabelRow,
    check_abstain,
    check_class_folders,
    check_table,
    file_into_folders,
    write_label_studio,
    write_table,
)
from fewlabels.labeling.predict import check_model, check_repeatable, require_labels, save_model
from fewlabels.labeling.report import write_report
from fewlabels.labeling.subclasses import check_separator


def label_folder(
    photos: Any,
    labels: str | Path | None = None,
    *,
    output: str | Path | None = None,
    method: str = DEFAULT_METHOD,
    settings: Mapping[str, str] | None = None,
    backbone: str | None = None,
    abstain: float = 0.0,
    accuracy: float | None = None,
    none_of_these: bool = True,
    burst: float = 0.0,
    sub_classes: str = "",
    truth: str | Path | None = None,
    class_from: str = DEEPEST,
    columns: Mapping[str, str] | None = None,
    boxes: str | Path | None = None,
    every: float | None = None,
    classes: str | Path | None = None,
    report: str | Path | None = None,
    model: str | Path | None = None,
    copy_to: str | Path | None = None,
    link_to: str | Path | None = None,
    label_studio: str | Path | None = None,
    label_studio_prefix: str = LABEL_STUDIO_PREFIX,
    device: str = "auto",
    batch_size: int | None = None,
    n_workers: int | None = None,
    on_progress: Callable[[Progress], None] | None = None,
    command: str = "",
) -> Outcome:
    """Label a folder of images from a few labels, as `fewlabels label` does.

    Everything that can be refused is refused before the images are read.

    Args:
        photos: Folder of images, file of features, table of texts, or labelling project; or a
            FeatureSet, a pandas DataFrame of embeddings or texts, or a Hugging Face dataset of
            images, embeddings or texts.
        labels: CSV file with columns path and label, or folder with one sub-folder per class. If
            left out: sub-folders of `photos`, labels in the file, or decisions in the project.
        output: Where the labels are written: .csv or .parquet.
        method: Name of the method.
        settings: Values of its knobs other than the defaults, by name.
        backbone: "fast" (efficientnet-lite0, the default), "good" (efficientnet-lite2) or "best"
            (both side by side); or timm:NAME, hf:ORG/NAME, the path of a
            checkpoint, or several: "a+b". Of texts: minilm, wordllama, tfidf or st:ORG/NAME; by
            default the first of these that is installed.
        abstain: Confidence, 0 to 1, below which a label is left out; it stays as the guess.
        accuracy: Instead of `abstain`: as many labels are left out as it takes for this fraction of
            the others to be right, as expected from your own labels.
        none_of_these: Whether to compute the probability that an image belongs to no class.
        burst: Photographs that a camera took at most so many seconds after one another, by their
            EXIF times, get one label; 0 for none.
        sub_classes: What stands between class and sub-class, such as "/" in "animal/dog". Where the
            sub-class is doubtful and the class is sure, the label is the class; folders are nested.
        truth: True labels to compare with: a CSV file, or "folders" for the sub-folders.
        class_from: Which sub-folder names the class: "deepest"; "path" for all of them, as in
            "animal/dog"; or the number of a level, "1" for the first. Folders of cameras (DCIM,
            100CANON) and of splits (train, test) are passed over.
        columns: Of a table: which column is "name", "label", "embedding" or "text", where they have
            other names; and which has the paths of an "image" or of "audio" to show.
        boxes: Boxes in the images of a folder (CSV, COCO or MegaDetector JSON): each crop is an
            item, called IMAGE#BOX.
        every: Seconds between two frames of the videos of a folder: each frame is an item, called
            VIDEO#SECONDS. Needs the extra "video".
        classes: A text file of class names, one per line: with an encoder that knows images and
            words (backbone "clip:ORG/NAME"; of texts "minilm"), labels are found without any label,
            and the names count less as labels come.
        report: Where a report is written (.html).
        model: Where a model for `predict_images` is written (.safetensors).
        copy_to: Folder into which images are copied, one sub-folder per class.
        link_to: The same with links.
        label_studio: Where predictions for Label Studio are written (.json).
        label_studio_prefix: What Label Studio needs before each path.
        device: auto, cpu, cuda or mps.
        batch_size: Images per batch of the network.
        n_workers: Threads that read images; 0 for none.
        on_progress: Called while features and labels are computed.
        command: What the report says that it was made by.

    Returns:
        The labels as `rows`, probabilities as `answer.probabilities`, an estimate of the accuracy
        as `estimate`, and `remarks` about the images and labels.

    Example:
        >>> from tempfile import mkdtemp
        >>> from fewlabels import FeatureSet
        >>> vectors = [[9, 1, 0], [8, 2, 1], [9, 2, 0], [1, 9, 1], [0, 8, 2], [1, 8, 1]]
        >>> features = FeatureSet.from_arrays(vectors, ["leek", "", "", "plum", "", ""])
        >>> path = Path(mkdtemp()) / "features.safetensors"
        >>> features.save(path)
        >>> outcome = label_folder(path)
        >>> [row.label for row in outcome.rows]
        ['leek', 'leek', 'leek', 'plum', 'plum', 'plum']
    """
    named = identify(photos, columns)
    labels, output, report, model, copy_to, link_to, label_studio = (
        None if path is None else Path(path)
        for path in (labels, output, report, model, copy_to, link_to, label_studio)
    )
    truth = None if truth is None else str(truth)
    check_method(method, settings)
    check_abstain(abstain, accuracy)
    check_seconds(burst)
    check_every(every)
    check_separator(sub_classes)
    named.check_backbone(backbone)
    if output is not None:
        check_table(output)
    check_apart(
        {
            **files_read(named, labels=labels, truth=truth, backbone=backbone),
            "boxes": None if boxes is None else Path(boxes),
            "classes": None if classes is None else Path(classes),
        },
        {
            "output": output,
            "report": report,
            "label_studio": label_studio,
            "model": model,
            "copy_to": copy_to,
            "link_to": link_to,
        },
    )
    check_truth(truth)
    for argument, file, suffix in (
        ("report", report, ".html"),
        ("label_studio", label_studio, ".json"),
    ):
        if file is not None:
            check_writable(file)
            check_suffix(argument, file, [suffix])
    if model is not None:
        check_model(model)
        check_repeatable(named, backbone)
    folders = {"copy_to": copy_to, "link_to": link_to}
    for argument, folder in folders.items():
        if folder is not None:
            check_class_folders(argument, folder, None if boxes is not None else named.root)

    extraction = Extraction(backbone, device, batch_size, n_workers, FeatureStore(), on_progress)
    inputs = read_inputs(
        named,
        labels=labels,
        extraction=extraction,
        enough=True,
        truth=truth,
        class_from=class_from,
        columns=columns,
        boxes=None if boxes is None else Path(boxes),
        every=every,
        classes=None if classes is None else Path(classes),
    )
    if model is not None:
        require_labels(inputs)
    n_items, report_progress = len(inputs.collection), on_progress or (lambda _: None)
    report_progress(Progress("label", 0, n_items))
    outcome = label_inputs(
        inputs,
        method=method,
        settings=settings,
        abstain=abstain,
        accuracy=accuracy,
        none_of_these=none_of_these,
        burst=burst,
        sub_classes=sub_classes,
    )
    report_progress(Progress("label", n_items, n_items))

    remarks = []
    # Images that cannot be read get a row too, without a label.
    unread = [LabelRow(name, "", 0.0, "", 0.0, "") for name in inputs.unread]
    none = outcome.none_of_these
    all_none = None if none is None else [*none, *[0.0] * len(unread)]
    texts = inputs.collection.texts
    all_texts = None if texts is None else [*texts, *[""] * len(unread)]
    rows = [*outcome.rows, *unread]
    if output is not None and (kept := write_table(output, rows, all_none, all_texts)):
        remarks.append(
            f"{output} had labels of yours that are not among those given now: it was kept as "
            f"{kept}. To use them, give that file as labels."
        )
    if label_studio is not None:
        write_label_studio(label_studio, outcome.rows, prefix=label_studio_prefix)
    if model is not None:
        save_model(model, outcome)
    if report is not None:
        write_report(report, outcome, inputs.truth, command=command, table=output)
    for argument, folder in folders.items():
        if folder is None:
            continue
        link = argument == "link_to"
        if n_others := file_into_folders(
            folder, outcome.rows, inputs.collection, link=link, sub_classes=sub_classes
        ):
            remarks.append(
                f"{folder} holds {n_others:,} other files, perhaps of an earlier run: "
                "nothing was removed."
            )
    return replace(outcome, remarks=(*outcome.remarks, *outcome.similar, *remarks))
