"""Make the class lists of the package: python tests/data/make_splits.py ../shared [OUT].

They come from the split files of the few-shot literature (shared/data/splits), the super-classes of
CIFAR-100 and the folder names of CUB-200-2011.
"""

import base64
import csv
import json
import sys
from collections import defaultdict
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
OUT = ROOT / "src" / "fewlabels" / "data" / "splits"
FILES = {"base": "train", "val": "val", "novel": "test"}  # the literature's names of the splits
LARGEST = 1300  # images in the largest classes of ILSVRC-2012

ABOUT = {
    "cifar-fs": {
        "title": "CIFAR-FS",
        "cite": "Bertinetto et al. 2019; images of CIFAR-100, Krizhevsky 2009",
        "obtain": "cifar-100-python.tar.gz, from the CIFAR-100 page of the University of Toronto",
        "per_class": 600,
    },
    "fc100": {
        "title": "FC100",
        "cite": "Oreshkin et al. 2018; images of CIFAR-100, Krizhevsky 2009",
        "obtain": "cifar-100-python.tar.gz, from the CIFAR-100 page of the University of Toronto",
        "per_class": 600,
    },
    "mini-imagenet": {
        "title": "miniImageNet",
        "cite": "Vinyals et al. 2016, in the split of Ravi and Larochelle 2017; "
        "images of ILSVRC-2012",
        "obtain": "the training images of ILSVRC-2012, from image-net.org after registration, "
        "or a ready-made copy",
        "per_class": 600,
    },
    "tiered-imagenet": {
        "title": "tieredImageNet",
        "cite": "Ren et al. 2018; images of ILSVRC-2012",
        "obtain": "the training images of ILSVRC-2012, from image-net.org after registration, "
        "or the pickles of Ren et al.",
        "images": {"base": 448_695, "val": 124_261, "novel": 206_209},
    },
    "cub": {
        "title": "CUB",
        "cite": "Wah et al. 2011 (CUB-200-2011), in the split of Chen et al. 2019",
        "obtain": "CUB_200_2011.tgz, from the CUB-200-2011 page of Caltech",
    },
}


def class_lists(shared: Path) -> dict[str, dict[str, list[str]]]:
    splits, data = shared / "data" / "splits", shared / "data"
    superclasses = {
        name: about["superclass"]
        for name, about in json.loads((data / "cifar-fs/index.json").read_text())["classes"].items()
    }
    birds = sorted(path.name for path in (data / "cub-96").iterdir() if path.is_dir())

    def read_json(folder: str, file: str) -> list:
        return json.loads((splits / folder / f"{file}.json").read_text())

    def read_column(folder: str, file: str, column: int) -> list[str]:
        with (splits / folder / f"{file}.csv").open(newline="") as lines:
            return list(
                dict.fromkeys(row[column] for row in csv.reader(lines) if row[column] != "label")
            )

    return {
        "cifar-fs": {
            split: [name for _, name in read_json("cifar_fs", file)]
            for split, file in FILES.items()
        },
        "fc100": {
            split: [
                name
                for group in read_json("fc100", file)
                for name in sorted(superclasses)
                if superclasses[name] == group
            ]
            for split, file in FILES.items()
        },
        "mini-imagenet": {
            split: read_column("mini_ravi", file, 1) for split, file in FILES.items()
        },
        "tiered-imagenet": {split: read_column("tiered", file, 0) for split, file in FILES.items()},
        "cub": {"base": birds[::2], "val": birds[1::4], "novel": birds[3::4]},
    }


def image_counts(shared: Path, name: str, classes: dict[str, list[str]]) -> dict[str, int]:
    if name == "cub":
        folder = shared / "data" / "cub-96"
        return {
            split: sum(len(list((folder / bird).iterdir())) for bird in birds)
            for split, birds in classes.items()
        }
    return ABOUT[name].get("images") or {
        split: ABOUT[name]["per_class"] * len(names) for split, names in classes.items()
    }


def write_lists(shared: Path, out: Path) -> None:
    for name, classes in class_lists(shared).items():
        about = ABOUT[name]
        lines = [
            "# Written by tests/data/make_splits.py",
            *(
                f"{key} = {json.dumps(about[key])}"
                for key in ("title", "cite", "obtain", "per_class")
                if key in about
            ),
            "",
            "[images]",
            *(f"{split} = {count}" for split, count in image_counts(shared, name, classes).items()),
            "",
            "[classes]",
            *(f"{split} = {json.dumps(names)}" for split, names in classes.items()),
        ]
        (out / f"{name}.toml").write_text("\n".join(lines) + "\n", encoding="utf-8")


def write_mini_images(shared: Path, out: Path) -> None:
    """Which images of each ILSVRC class are miniImageNet's: one bit for each, in base 64."""
    chosen = defaultdict(list)
    for file in FILES.values():
        with (shared / "data/splits/mini_ravi" / f"{file}.csv").open(newline="") as lines:
            for image, wnid in list(csv.reader(lines))[1:]:
                chosen[wnid].append(
                    int(image.removeprefix(wnid).removesuffix(".jpg"))
                )  # n0153282900000005.jpg is the fifth
    rows = []
    for wnid, numbers in chosen.items():
        bits = np.zeros(LARGEST, np.uint8)
        bits[np.array(numbers) - 1] = 1
        rows.append(f'{wnid} = "{base64.b64encode(np.packbits(bits)).decode()}"')
    heading = (
        "# Written by tests/data/make_splits.py: "
        "bit k of a class is its k-th image in the order of ILSVRC's numbers"
    )
    (out / "mini-imagenet-images.toml").write_text(
        "\n".join([heading, *rows]) + "\n", encoding="utf-8"
    )


if __name__ == "__main__":
    shared, out = Path(sys.argv[1]), Path(sys.argv[2]) if len(sys.argv) > 2 else OUT
    write_lists(shared, out)
    write_mini_images(shared, out)
