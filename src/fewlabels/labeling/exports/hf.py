"""A dataset folder of Hugging Face (`datasets.load_dataset("imagefolder", data_dir=...)`).

README.md                     the card: classes, splits, counts
train/CLASS/picture           also validation/ and test/
train/metadata.csv            file_name, label, confidence, origin, person, source
"""

import csv
import io
from collections import Counter
from pathlib import Path

from fewlabels.labeling.exports.base import Dataset, Format, register
from fewlabels.labeling.exports.folders import place_in_folders
from fewlabels.labeling.outputs import folder_names

SIZES = ((1_000, "n<1K"), (10_000, "1K<n<10K"), (100_000, "10K<n<100K"), (1 << 60, "100K<n<1M"))


def write_hf(folder: Path, data: Dataset) -> None:
    """Write pictures, metadata and card."""
    for split in data.splits:
        items = data.of(split)
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(("file_name", "label", "confidence", "origin", "person", "source"))
        for item, name in zip(items, place_in_folders(folder / split, data, items), strict=True):
            about = (item.confidence, item.origin, item.person, item.path)
            writer.writerow((name, item.label, *about))
        (folder / split / "metadata.csv").write_bytes(text.getvalue().encode())
    (folder / "README.md").write_bytes(_card(data).encode())


def _card(data: Dataset) -> str:
    """The dataset card: a header that `datasets` reads, and a table for people."""
    n = len(data.items)
    size = next(words for most, words in SIZES if n < most)
    files = [f"  - split: {split}\n    path: {split}/**" for split in data.splits]
    counts = {split: Counter(item.label for item in data.of(split)) for split in data.splits}
    cells = [
        [name.replace("|", "\\|"), *(f"{counts[split][name]:,}" for split in data.splits)]
        for name in data.class_names
    ]
    table = [["class", *data.splits], [":--", *["--:"] * len(data.splits)], *cells]
    n_given = sum(not item.is_predicted for item in data.items)
    return "\n".join(
        [
            "---",
            "task_categories:\n- image-classification",
            f"size_categories:\n- {size}",
            "configs:\n- config_name: default\n  data_files:",
            *files,
            "---",
            f"# {data.title}",
            "",
            f"{n:,} images, {len(data.class_names):,} classes. {n_given:,} labels were given by "
            f"people, {n - n_given:,} found by fewlabels from them; `origin` and `confidence` tell "
            "which, `person` who decided, `source` is the path where the image came from. Labels "
            'are names; `load_dataset(...).class_encode_column("label")` numbers them.',
            "",
            *(f"| {' | '.join(cells)} |" for cells in table),
            "",
        ]
    )


register(
    Format(
        "hf",
        "a dataset folder of Hugging Face: pictures, metadata.csv and a card",
        write_hf,
        needs_pictures=True,
        always_split=True,
        rename=folder_names,
    )
)
