"""COCO's JSON with one category per image and no boxes, in the layout of Datumaro's "coco".

images/SPLIT/picture, annotations/labels_SPLIT.json
"""

from pathlib import Path

from fewlabels.labeling.exports.base import (
    SHORT_SPLITS,
    Dataset,
    Format,
    picture_size,
    register,
    unique_names,
    write_json,
)


def write_coco(folder: Path, data: Dataset) -> None:
    """Write the pictures under their paths, and images, annotations and categories."""
    categories = [
        {"id": number, "name": name, "supercategory": ""}
        for number, name in enumerate(data.targets, start=1)
    ]
    for split in data.splits:
        short = SHORT_SPLITS.get(split, "default")
        images, annotations = [], []
        items = data.of(split)
        names = unique_names((item.path for item in items), folders=True)
        for number, (item, name) in enumerate(zip(items, names, strict=True), start=1):
            data.place(item, folder / "images" / short / name)
            width, height = picture_size(item)
            images.append({"id": number, "file_name": name, "width": width, "height": height})
            annotations.append(
                {
                    "id": number,
                    "image_id": number,
                    "category_id": data.numbers[item.label] + 1,
                    "score": item.confidence,
                }
            )
        content = {
            "info": {"description": data.title},
            "licenses": [],
            "images": images,
            "annotations": annotations,
            "categories": categories,
        }
        write_json(folder / "annotations" / f"labels_{short}.json", content)


register(
    Format(
        "coco",
        "COCO's JSON with a category per image and no boxes, and the pictures",
        write_coco,
        needs_pictures=True,
    )
)
