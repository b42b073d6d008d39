"""Training on episodes: recipes, draws, resuming, bad input, files and evaluation of systems."""

import dataclasses
import json

import numpy as np
import pytest
import torch

from fewlabels.backbones import build_backbone, load_backbone, save_backbone
from fewlabels.errors import FileFormatError, InputError
from fewlabels.evaluation.run import evaluate
from fewlabels.features import FeatureSet
from fewlabels.training.embedding import embed
from fewlabels.training.episodic import EpisodicRecipe, load_recipe, recipe_from_dict
from fewlabels.training.judging import evaluate_system, validate_system
from fewlabels.training.loop import train
from fewlabels.training.recipe import Optimizer, Recipe, Stage
from fewlabels.training.state import read_state
from fewlabels.training.system_files import load_system, save_system
from fewlabels.training.system_run import train_system
from fewlabels.training.systems import SYSTEMS
from fewlabels.training.tasks import EpisodeTask, represent

from .conftest import SIZE
from .test_run import image_set

SMALL = {  # settings that keep tests fast
    "maml": {"inner_steps": 1, "test_steps": 1},
    "leo": {"latent_dim": 4, "inner_steps": 1, "tuning_steps": 1},
    "baseline++": {"fit_steps": 2},
    "mct": {"test_steps": 2},
    "matching": {"full_context": True, "n_reads": 1},
}


def make_recipe(system="protonet", **changes):
    values = {
        "system": system,
        "backbone": "conv4",
        "n_epochs": 3,
        "n_way": 3,
        "shots": [1, 2],
        "n_query": 2,
        "episodes_per_step": 2,
        "steps_per_epoch": 3,
        "image_size": SIZE,
        "ema": 0.9,
        "precision": "float32",
        "optimizer": {"name": "sgd", "lr": 0.01, "warmup_epochs": 0, "clip_norm": 1.0},
        "settings": SMALL.get(system, {}),
    }
    return EpisodicRecipe.from_dict({**values, **changes})


@pytest.fixture(scope="module")
def start(tmp_path_factory):
    """The file of a backbone to start from."""
    path = tmp_path_factory.mktemp("start") / "backbone.safetensors"
    recipe = make_recipe()
    save_backbone(
        path,
        build_backbone("conv4", image_size=SIZE, seed=3),
        name="conv4",
        options={"dropout": 0.0, "image_size": SIZE},
        transform=recipe.transform,
        provenance={},
    )
    return str(path)


@pytest.fixture(scope="module")
def sets():
    return {
        split: image_set(n, each, seed=seed, split=split)
        for seed, (split, n, each) in enumerate([("base", 4, 10), ("val", 5, 8), ("novel", 5, 20)])
    }


def run(base, recipe, folder, alone, **options):
    folder.mkdir(exist_ok=True)
    return train(
        base, recipe, output=folder, processes=alone, fingerprint="colored blocks", **options
    )


def weights(trained):
    return torch.cat([value.flatten().double() for value in trained.kept.state_dict().values()])


def frozen(images):
    """Features in place of pixels, as a frozen system takes them."""
    pixels = images.stack.reshape(len(images.labels), -1)[:, :64]
    return images._replace(stack=pixels.astype(np.float32))


@pytest.mark.parametrize("name", sorted(SYSTEMS))
def test_recipes_of_the_package_load_and_survive_a_round_trip(name):
    recipe = load_recipe(name, ["start=somewhere.safetensors"])
    assert isinstance(recipe, EpisodicRecipe)
    assert recipe.system == name
    assert recipe_from_dict(json.loads(json.dumps(recipe.to_dict()))) == recipe


@pytest.mark.parametrize("system", sorted(SYSTEMS))
def test_stopping_and_going_on_changes_no_bit(system, base, start, tmp_path, alone):
    recipe = make_recipe(system, start=start)
    base = frozen(base) if recipe.kind.frozen else base
    straight = run(base, recipe, tmp_path / "straight", alone)
    parts = [run(base, recipe, tmp_path / "halting", alone, stop_after=0) for _ in range(3)]
    assert [part.finished for part in parts] == [False, False, True]
    assert torch.equal(weights(parts[-1]), weights(straight))
    losses = [[report["loss"] for report in each.reports] for each in (parts[-1], straight)]
    assert losses[0] == losses[1]
    assert len(set(losses[0])) == 3


def test_training_on_episodes_learns(base, val, tmp_path, alone):
    recipe = make_recipe(n_epochs=8, steps_per_epoch=5, ema=0.5)
    trained = run(
        base,
        recipe,
        tmp_path / "run",
        alone,
        val=val,
        validate=lambda subject, labels: validate_system(subject, labels, n_episodes=5),
        validate_every=4,
    )
    losses = [report["loss"] for report in trained.reports]
    assert losses[-1] < losses[0] / 2
    assert {"val_1shot", "val_5shot"} <= trained.reports[3].keys()
    assert trained.reports[0]["objective"] == "protonet"


def test_the_shots_of_training_decide_which_epoch_is_kept(sets, tmp_path):
    """Those that are tested; Baseline++ does not train on shots."""
    assert make_recipe(shots=[5]).validation_shots == (5,)
    assert make_recipe(shots=[5, 1, 3]).validation_shots == (1, 5)
    assert make_recipe(shots=[2]).validation_shots == (1, 5)
    assert make_recipe("baseline++", shots=[1]).validation_shots == (1, 5)
    recipe = make_recipe(shots=[1], n_epochs=1)
    trained = train_system(sets["base"], recipe, output=tmp_path, val=sets["val"], device="cpu")
    assert {name for name in trained.reports[0] if name.startswith("val")} == {"val_1shot"}


def test_several_shards_split_the_episodes_of_a_step(base, tmp_path, alone):
    assert run(base, make_recipe(n_shards=2), tmp_path / "run", alone).finished
    with pytest.raises(InputError, match="episodes_per_step must be a multiple of n_shards"):
        make_recipe(n_shards=3)


def test_a_training_starts_from_the_named_backbone(base, start, tmp_path, alone):
    recipe = make_recipe(start=start)
    learner = EpisodeTask(base.labels, 0, recipe).build_learner()
    expected = load_backbone(start).backbone.state_dict()
    assert all(
        torch.equal(value, expected[name]) for name, value in learner.backbone.state_dict().items()
    )
    with pytest.raises(FileFormatError, match="must hold a backbone resnet10, but holds conv4"):
        run(base, make_recipe(start=start, backbone="resnet10"), tmp_path / "run", alone)


def test_a_step_has_episodes_of_different_images_in_turn_of_shots(base):
    task = EpisodeTask(base.labels, 0, make_recipe())
    for step, n_each in ((0, 3), (1, 4), (2, 3)):
        rows = task.draw(step).reshape(2, 3, n_each)
        assert len(np.unique(rows[0])) == rows[0].size
        classes = base.labels[rows]
        assert (classes == classes[:, :, :1]).all()
        assert all(len(np.unique(each)) == 3 for each in classes[:, :, 0])
        np.testing.assert_array_equal(task.draw(step), rows.flatten())
    assert not np.array_equal(task.draw(0), task.draw(2))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"n_way": 5}, "n_way must be at most the number of base classes, 4, got 5"),
        ({"n_query": 9}, "smallest base class, 10, got 2 \\+ 9"),
        ({"shots": [1, 9]}, "smallest base class, 10, got 9 \\+ 2"),
    ],
)
def test_episodes_larger_than_the_classes_are_refused(base, tmp_path, alone, changes, words):
    with pytest.raises(InputError, match=words):
        run(base, make_recipe(**changes), tmp_path / "run", alone)


@pytest.mark.parametrize(
    ("recipe", "change", "words"),
    [
        ("protonet", "stages=[]", "'stages' is a setting of recipes for classification"),
        ("protonet", "batch_size=8", "'batch_size' is a setting of recipes for classification"),
        ("modern", "n_way=5", "'n_way' is a setting of recipes for episodes"),
        ("modern", "settings.inner_lr=1", "'settings' is a setting of recipes for episodes"),
        ("protonet", "speed=1", "a setting of the recipe must be one of"),
        ("protonet", "settings.inner_lr=1", "for system protonet must be one of temperature"),
        ("maml", "settings.inner_lr=fast", "must be of type float, got 'fast'"),
        ("maml", "compile=true", "compile must be false for system maml"),
        ("protonet", "system=proto", "system must be one of"),
        ("protonet", "shots=[]", "shots must hold at least one number"),
        ("protonet", "shots=[0]", "shots at least 1"),
        ("protonet", "n_way=1", "n_way must be at least 2"),
        ("protonet", "n_query=0", "n_query must be at least 1, got 0"),
        ("protonet", "n_epochs=0", "n_epochs must be at least 1, got 0"),
        ("protonet", "keep=worst", "keep must be one of"),
        ("protonet", "precision=half", "precision must be one of"),
        ("protonet", "ema=1", "ema must be"),
        ("protonet", "image_size=4", "image_size must be at least 8"),
        ("protonet", "stored_size=16", "stored_size must be 0 or at least image_size"),
        ("leo", "n_way=5", "start must name the file of a trained backbone for system leo"),
    ],
)
def test_wrong_keys_are_named(recipe, change, words):
    with pytest.raises(InputError, match=f"recipe {recipe}: ") as caught:
        load_recipe(recipe, [change])
    assert words in str(caught.value)


def test_a_checkpoint_of_another_recipe_is_refused(base, tmp_path, alone):
    """Of another system, of other settings, and of the other kind of recipe."""
    run(base, make_recipe(n_epochs=1), tmp_path / "run", alone)
    before = (tmp_path / "run" / "state.pt").read_bytes()
    classifier = Recipe(
        backbone="conv4",
        stages=(Stage("plain", 1),),
        image_size=SIZE,
        batch_size=8,
        precision="float32",
        compile=False,
    )
    for other, words in (
        (make_recipe("dsn", n_epochs=1), "system was 'protonet', now 'dsn'"),
        (make_recipe(n_epochs=1, settings={"temperature": 2}), "settings was {'temperature': 1.0}"),
        (classifier, "stages was None"),
    ):
        with pytest.raises(InputError, match=words):
            run(base, other, tmp_path / "run", alone)
    assert (tmp_path / "run" / "state.pt").read_bytes() == before


def test_a_loss_that_is_not_a_number_names_the_step_and_keeps_the_last_good_state(
    base, tmp_path, alone
):
    """Images turn into NaN features from the second epoch on, as after a diverged step."""
    recipe = make_recipe("leo", start="unused", settings=SMALL["leo"])
    features = frozen(base)
    run(features, recipe, tmp_path / "run", alone, stop_after=0)
    before = read_state(tmp_path / "run" / "state.pt", recipe={}, fingerprint="colored blocks")
    bad = EpisodeTask(base.labels, 64, recipe).draw(4)  # step 5 of 9, the second of epoch 2
    first = EpisodeTask(base.labels, 64, recipe).draw(3)
    rows = [row for row in bad if row not in first]
    features.stack[rows[0]] = np.nan
    with pytest.raises(
        InputError,
        match=r"the loss became nan in step 5, which is in epoch 2\. state\.pt keeps the last good",
    ):
        run(features, recipe, tmp_path / "run", alone)
    after = read_state(tmp_path / "run" / "state.pt", recipe={}, fingerprint="colored blocks")
    assert after["step"] == before["step"] == 3
    assert all(
        torch.equal(after["learner"][name], value) for name, value in before["learner"].items()
    )


def test_weights_that_overflow_in_the_last_step_are_not_saved(base, tmp_path, alone):
    wild = make_recipe(
        n_epochs=1, steps_per_epoch=1, optimizer={"name": "sgd", "lr": 1e38, "warmup_epochs": 0}
    )
    with pytest.raises(InputError, match=r"in step 1, which is in epoch 1\. No state is kept"):
        run(base, wild, tmp_path / "run", alone)
    assert not (tmp_path / "run" / "state.pt").exists()


@pytest.mark.parametrize("system", sorted(SYSTEMS))
def test_a_folder_with_system_log_metrics_and_evaluation(system, sets, start, tmp_path):
    recipe = make_recipe(system, start=start, n_way=4, n_epochs=1)
    trained = train_system(
        sets["base"],
        recipe,
        output=tmp_path,
        val=None if system == "maml" else sets["val"],  # 600 episodes of it take long
        evaluate=[sets["novel"]],
        n_episodes=20,
        device="cpu",
    )
    assert trained.finished
    metrics = json.loads((tmp_path / "metrics.json").read_text())
    assert recipe_from_dict(metrics["recipe"]) == recipe
    found = json.loads((tmp_path / "evaluation.json").read_text())["novel"]
    assert [found[shots]["n_episodes"] for shots in ("1", "5")] == [20, 20]
    loaded, made_with, about = load_system(tmp_path / "system.safetensors")
    assert (made_with, about["dataset"]) == (recipe, "blocks")
    assert (tmp_path / "backbone.safetensors").exists() == recipe.kind.gives_features
    stack = torch.from_numpy(sets["novel"].stack(SIZE))
    if recipe.kind.frozen:
        stack = torch.from_numpy(embed(load_backbone(start).backbone.eval(), stack))
    again = evaluate_system(
        represent(loaded, stack),
        sets["novel"].labels,
        n_way=found["5"]["n_way"],
        n_shot=5,
        n_episodes=20,
    )
    assert round(again.accuracy, 4) == found["5"]["accuracy"]
    assert again.provenance["episode_hash"] == found["5"]["episode_hash"]


def test_protonet_answers_as_the_nearest_class_mean_of_its_features(sets):
    """On the authors' draws, `fewlabels evaluate` of the backbone's features by plain NCM."""
    system = SYSTEMS["protonet"](
        build_backbone("conv4", image_size=SIZE).eval(),
        SYSTEMS["protonet"].Settings(),
        feature_dim=64,
        n_way=5,
        n_classes=4,
    ).eval()
    stack, labels = torch.from_numpy(sets["novel"].stack(SIZE)), sets["novel"].labels
    ours = evaluate_system(represent(system, stack), labels, n_shot=2, n_query=10, n_episodes=50)
    features = FeatureSet.from_arrays(embed(system.backbone, stack), labels)
    [expected] = evaluate(
        "ncm-raw", features, n_shot=2, queries=10, n_episodes=50, draws="authors", engine="torch"
    )
    np.testing.assert_allclose(ours.accuracies, expected.accuracies, atol=0.03)
    assert ours.accuracies.mean() == pytest.approx(expected.accuracies.mean(), abs=2e-3)
    assert ours.provenance["episode_hash"] == expected.provenance["episode_hash"]


def test_a_system_with_an_output_per_way_refuses_other_episodes(sets):
    system = SYSTEMS["maml"](
        build_backbone("conv4", image_size=SIZE),
        SYSTEMS["maml"].Settings(),
        feature_dim=64,
        n_way=3,
        n_classes=4,
    )
    subject = represent(system, torch.from_numpy(sets["novel"].stack(SIZE)))
    with pytest.raises(InputError, match="n_way must be 3 for a MAML trained with it, got 5"):
        evaluate_system(subject, sets["novel"].labels, n_episodes=2)
    assert validate_system(subject, sets["novel"].labels, n_episodes=2).keys() == {
        "val_1shot",
        "val_5shot",
    }


def test_a_damaged_file_of_a_system_is_said(sets, tmp_path):
    recipe = make_recipe()
    system = SYSTEMS["protonet"](
        build_backbone("conv4", image_size=SIZE),
        SYSTEMS["protonet"].Settings(),
        feature_dim=64,
        n_way=3,
        n_classes=4,
    )
    path = tmp_path / "system.safetensors"
    save_system(path, system, recipe, provenance={})
    other = dataclasses.replace(recipe, backbone="conv4-32-flat", optimizer=Optimizer())
    save_system(tmp_path / "other.safetensors", system, other, provenance={})
    with pytest.raises(
        FileFormatError, match=r"does not hold the system .* 64x3x3x3 instead of 32"
    ):
        load_system(tmp_path / "other.safetensors")
    path.write_bytes(path.read_bytes()[:500])
    with pytest.raises(FileFormatError, match="system that save_system wrote"):
        load_system(path)


def test_weights_in_files_are_half_precision_and_so_is_what_is_evaluated(tmp_path):
    system = SYSTEMS["protonet"](
        build_backbone("conv4", image_size=SIZE),
        SYSTEMS["protonet"].Settings(),
        feature_dim=64,
        n_way=3,
        n_classes=4,
    )
    path = tmp_path / "system.safetensors"
    save_system(path, system, make_recipe(), provenance={})
    loaded, *_ = load_system(path)
    for name, value in system.state_dict().items():
        assert torch.equal(loaded.state_dict()[name], value), name
    assert (
        path.stat().st_size < 2.2 * sum(weight.numel() for weight in system.parameters()) + 20_000
    )
