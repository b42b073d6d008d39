"""FiftyOneImageClassificationDataset: [split/]data/NAME.jpg and [split/]labels.json."""

from pathlib import Path

from fewlabels.labeling.exports.base import Dataset, Format, register, unique_names, write_json


def write_fiftyone(folder: Path, data: Dataset) -> None:
    """Write the pictures under different names, and the class number of each name."""
    for split in data.splits:
        items = data.of(split)
        numbers = {}
        # labels.json names pictures without their suffix.
        names = unique_names((item.path for item in items), stems=True)
        for item, name in zip(items, names, strict=True):
            data.place(item, folder / split / "data" / name)
            numbers[Path(name).stem] = data.numbers[item.label]
        write_json(folder / split / "labels.json", {"classes": data.targets, "labels": numbers})


register(
    Format(
        "fiftyone",
        "FiftyOneImageClassificationDataset: data/ and labels.json, one of each per split",
        write_fiftyone,
        needs_pictures=True,
    )
)
