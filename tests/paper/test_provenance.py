"""How features were made is shown where it is recorded, and not invented."""

import json
from dataclasses import replace

import pytest

from fewlabels.features import FeatureSet
from fewlabels.paper.exhibits import choose_exhibits, publish
from fewlabels.paper.ledger import Ledger
from fewlabels.paper.library import FeatureSource, Library
from fewlabels.paper.provenance import describe_making

NOVEL = FeatureSource("cifar-fs", "wrn28-10")
METRICS = {
    "dataset": "cifar-fs",
    "backbone": "wrn28-10",
    "device": "Abacus 7",
    "recipe": {"head": "cosine"},
    "kept_epoch": {"epoch": 12, "seconds": 540.0},
    "views": {"chosen": "ten", "center": {"val_1shot": 70.0}, "ten": {"val_1shot": 71.25}},
}


@pytest.fixture
def folder(tmp_path, make_benchmark):
    """Features of ten views, with a record of the training beside them."""
    place = tmp_path / "cifar-fs" / "wrn28-10"
    place.mkdir(parents=True)
    made = make_benchmark()
    FeatureSet(
        made.features, made.labels, made.class_names, {**made.provenance, "views": "ten"}
    ).save(place / "novel.safetensors")
    (place / "metrics.json").write_text(json.dumps(METRICS))
    return tmp_path


def test_what_is_recorded_is_shown(folder):
    assert describe_making(Library(folder), NOVEL) == {
        "views": "ten",
        "training": {"epochs": 12, "minutes": 9.0, "device": "Abacus 7", "head": "cosine"},
        "gain_of_views": 1.25,
    }


def test_a_folder_may_name_the_size_of_the_training_images(folder):
    place = (folder / "cifar-fs" / "wrn28-10").rename(folder / "cifar-fs" / "wrn28-10-48")
    made = FeatureSet.load(place / "novel.safetensors")
    known = {**made.provenance, "backbone": "wrn28-10-48"}
    replace(made, provenance=known).save(place / "novel.safetensors")
    source, library = NOVEL._replace(backbone="wrn28-10-48"), Library(folder)
    assert "training" not in describe_making(library, source)
    sized = {**METRICS, "recipe": {"head": "cosine", "image_size": 48}}
    (place / "metrics.json").write_text(json.dumps(sized))
    assert describe_making(library, source)["training"]["epochs"] == 12


@pytest.mark.parametrize(
    "content",
    [
        "{",
        "[]",
        "{}",
        json.dumps({**METRICS, "backbone": "resnet12"}),
        json.dumps({**METRICS, "kept_epoch": 3}),
    ],
)
def test_a_record_of_another_backbone_or_none_is_not_used(folder, content):
    (folder / "cifar-fs" / "wrn28-10" / "metrics.json").write_text(content)
    assert describe_making(Library(folder), NOVEL) == {"views": "ten"}


def test_every_form_of_an_exhibit_shows_it(folder, tmp_path):
    ledger = Ledger(tmp_path, Library(folder), n_episodes=3)
    exhibits = choose_exhibits(["table2", "figure2"])
    ledger.measure(
        experiment for exhibit in exhibits for experiment in exhibit.experiments(ledger.library)
    )
    for report in publish(
        exhibits, ledger, drawing=False, command="fewlabels reproduce table2 figure2"
    ):
        short = (
            "ours: backbones trained by this project, "
            "features averaged over ten views of each image"
        )
        long = (
            "Ours, CIFAR-FS WRN: trained by this project, 12 epochs in 9 minutes on Abacus 7; "
            "features averaged over ten views of each image where the paper takes one, which gains "
            "+1.2 points at 1-shot PT+MAP on validation classes."
        )
        assert report.table.caption.endswith(short)
        assert report.notes[-1] == long
        assert (
            json.loads((tmp_path / f"{report.name}.json").read_text())["data"]["features"][
                "cifar-fs/wrn28-10/novel"
            ]["views"]
            == "ten"
        )
        for name in (f"{report.name}.md", "index.html"):
            assert short in (tmp_path / name).read_text()
            assert long in (tmp_path / name).read_text()


def test_what_is_not_recorded_is_named(artifacts, tmp_path):
    ledger = Ledger(tmp_path, Library(artifacts), n_episodes=3)
    (report,) = publish(choose_exhibits(["time"]), ledger, drawing=False, command="")
    assert (
        report.notes[-1]
        == "Ours, CIFAR-FS WRN: how its backbone was trained is not recorded beside the features."
    )
    assert "views" not in report.table.caption
    assert report.data["features"] == {"cifar-fs/wrn28-10/novel": {"views": "unknown"}}


def test_backbones_side_by_side_keep_what_they_share(tmp_path, make_benchmark):
    for backbone, views in (("a", "ten"), ("b", "ten"), ("c", "center")):
        (tmp_path / "cifar-fs" / backbone).mkdir(parents=True)
        made = make_benchmark(backbone=backbone)
        about = {**made.provenance, "views": views}
        FeatureSet(made.features, made.labels, made.class_names, about).save(
            tmp_path / "cifar-fs" / backbone / "novel.safetensors"
        )
    library = Library(tmp_path)
    assert library.load(FeatureSource("cifar-fs", "a+b")).provenance["views"] == "ten"
    assert "views" not in library.load(FeatureSource("cifar-fs", "a+c")).provenance
