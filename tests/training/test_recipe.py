import dataclasses
import tomllib

import pytest

from fewlabels.data.transforms import ImageTransform
from fewlabels.errors import FileFormatError, InputError
from fewlabels.training.recipe import Recipe, Stage, list_recipes
from fewlabels.training.systems import SYSTEMS

CLASSIFICATION = ["dct", "modern", "s2m2", "simpleshot"]


@pytest.mark.parametrize("name", CLASSIFICATION)
def test_every_recipe_of_the_package_loads_and_survives_a_round_trip(name):
    recipe = Recipe.load(name)
    assert Recipe.from_dict(recipe.to_dict()) == recipe
    assert str(ImageTransform.parse(recipe.transform)) == recipe.transform


def test_the_package_has_the_authors_recipe_a_modern_one_and_simpleshots():
    assert list_recipes() == sorted([*CLASSIFICATION, *SYSTEMS])
    authors = Recipe.load("s2m2")
    assert [stage.objective for stage in authors.stages] == ["rotation", "mixup+rotation"]
    assert (
        authors.optimizer.name,
        authors.optimizer.lr,
        authors.optimizer.schedule,
        authors.dropout,
    ) == ("adam", 1e-3, "constant", 0.5)
    assert [stage.objective for stage in Recipe.load("simpleshot").stages] == ["plain"]


def test_the_recipe_for_dct_coefficients_is_the_modern_one_on_larger_images():
    ours, modern = Recipe.load("dct"), Recipe.load("modern", ["dropout=0.3"])
    assert [stage.image_size for stage in ours.stages] == [32, 0]
    same = dataclasses.replace(
        ours,
        backbone=modern.backbone,
        image_size=modern.image_size,
        stages=modern.stages,
        keep=modern.keep,
    )
    assert same == modern


def test_stages_follow_one_another():
    recipe = Recipe(backbone="conv4", stages=(Stage("rotation", 2), Stage("plain", 3)))
    assert [recipe.stage_of(epoch).objective for epoch in range(recipe.n_epochs)] == [
        "rotation"
    ] * 2 + ["plain"] * 3
    with pytest.raises(InputError, match="below 5"):
        recipe.stage_of(5)


def test_changes_reach_any_depth():
    recipe = Recipe.load(
        "modern",
        [
            "backbone=resnet12",
            "optimizer.lr=0.5",
            "stages.0.epochs=7",
            "augment.crop_area=[0.5, 1]",
        ],
    )
    assert recipe.backbone == "resnet12"
    assert (recipe.optimizer.lr, recipe.stages[0].epochs, recipe.augment.crop_area) == (
        0.5,
        7,
        (0.5, 1.0),
    )
    assert (
        dataclasses.replace(recipe, backbone="wrn28-10").backbone == Recipe.load("modern").backbone
    )


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("lr", "NAME=VALUE"),
        ("speed=3", "a setting of the recipe must be one of"),
        ("optimizer.speed=3", "a setting of 'optimizer' of the recipe must be one of"),
        (
            "optimizer.lr=fast",
            "'lr' of 'optimizer' of the recipe must be of type float, got 'fast'",
        ),
        ("optimizer.lr=-1", "lr must be positive, got -1"),
        ("stages.5.epochs=1", "no 'stages.5.epochs'"),
        ("stages=[]", "at least one stage"),
        ("stages.0.objective=guess", "objective must be one of plain, rotation"),
        ("stages.0.image_size=4", "image_size of a stage must be 0 or at least 8, got 4"),
        ("stages.0.epochs=0", "epochs must be at least 1"),
        ("batch_size=true", "must be of type int, got True"),
        ("n_shards=3", "multiple of n_shards"),
        ("head=big", "head must be one of cosine, linear"),
        ("augment.crop_area=[0.9, 0.1]", "crop_area must be two fractions"),
        ("augment.crop_area=[0.9]", "must be a list of 2"),
        ("augment.jitter=1", "jitter must be"),
        ("ema=1", "ema must be"),
        ("keep=worst", "keep must be one of best, last"),
        ("optimizer.lowest_lr=1", "lowest_lr must be from 0 to lr"),
        ("rotated_share=0", "rotated_share must be"),
        ("stored_size=4", "stored_size must be 0 or at least image_size"),
        ("test_sizes=[[32]]", "must be a list of 2, got [32]"),
        ("test_sizes=[[32, 40]]", "a crop of at most it and at least 8, got [32, 40]"),
        ("optimizer=fast", "must be a table"),
    ],
)
def test_wrong_settings_are_named(change, words):
    with pytest.raises(InputError, match=r"recipe modern|NAME=VALUE|no 'stages") as caught:
        Recipe.load("modern", [change])
    assert words in str(caught.value)


def test_an_unknown_recipe_lists_the_known(tmp_path):
    with pytest.raises(InputError, match=r"baseline.*, dct, .*, modern, .* or a TOML file"):
        Recipe.load("moderm")
    broken = tmp_path / "mine.toml"
    broken.write_text("backbone = ")
    with pytest.raises(FileFormatError, match="not TOML"):
        Recipe.load(broken)
    broken.write_text('stages = [{objective = "plain", epochs = 1}]')
    with pytest.raises(InputError, match="must have 'backbone'"):
        Recipe.load(broken)
    assert tomllib.loads(broken.read_text())
