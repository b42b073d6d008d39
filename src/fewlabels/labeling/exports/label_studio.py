"""Label Studio's tasks: labels of people as annotations, those of the model as predictions."""

from pathlib import Path

from fewlabels.labeling.exports.base import Dataset, Format, register
from fewlabels.labeling.outputs import LabelRow, to_label_studio


def write_tasks(folder: Path, data: Dataset) -> None:
    """Write tasks.json, one task per item, those without a label included."""
    rows = []
    for item in data.items:
        row = LabelRow(item.path, item.label, item.confidence, "", 0.0, item.origin)
        rows.append(row._replace(guess=item.guess, person=item.person))
    (folder / "tasks.json").write_bytes(to_label_studio(rows, prefix=data.prefix))


register(
    Format(
        "label-studio",
        "tasks.json for Label Studio: annotations of people, predictions of the model",
        write_tasks,
        names_pictures=True,
        lists_unlabelled=True,
    )
)
