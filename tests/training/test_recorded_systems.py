"""The records of trained systems in artifacts/ are complete, and their weights give them again."""

import json
from pathlib import Path

import pytest
import torch

from fewlabels.data import read_benchmark
from fewlabels.training.episodic import EpisodicRecipe, recipe_from_dict
from fewlabels.training.judging import evaluate_system
from fewlabels.training.run import decode
from fewlabels.training.system_files import load_system
from fewlabels.training.tasks import represent

ARTIFACTS = Path(__file__).resolve().parents[2] / "artifacts"
IMAGES = ARTIFACTS.parents[1] / "shared" / "data" / "cifar-fs"
FOLDERS = sorted(path.parent for path in ARTIFACTS.glob("*/systems/*/evaluation.json"))


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_the_record_says_how_a_system_was_trained(folder):
    metrics = json.loads((folder / "metrics.json").read_text())
    log = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
    recipe = recipe_from_dict(metrics["recipe"])
    assert isinstance(recipe, EpisodicRecipe)
    assert metrics["dataset"] == folder.parts[-3]
    assert [report["epoch"] for report in log] == list(range(1, len(log) + 1))
    # MAML was stopped when the time on the GPU was over
    assert len(log) == recipe.n_epochs or (recipe.system == "maml" and len(log) < recipe.n_epochs)
    assert metrics["kept_epoch"] == log[metrics["kept_epoch"]["epoch"] - 1]
    stated = (ARTIFACTS / "README.md").read_text()
    for cell in json.loads((folder / "evaluation.json").read_text())["novel"].values():
        assert cell["method"] == recipe.system
        assert cell["settings"] == json.loads(json.dumps(recipe.to_dict()["settings"]))
        if cell["n_shot"] in recipe.shots or recipe.system == "baseline++":
            assert f"{cell['accuracy']:.2f}" in stated


@pytest.mark.skipif(not IMAGES.is_dir(), reason="the shared data is not here")
def test_the_kept_weights_give_the_recorded_accuracy():
    """Computed here in float32 and there with TF32 convolutions, so that a few labels differ."""
    folder = ARTIFACTS / "cifar-fs" / "systems" / "protonet-conv4-5shot"
    system, *_ = load_system(folder / "system.safetensors")
    images = decode(read_benchmark("cifar-fs", IMAGES, split="novel"), size=32, crop=32)
    subject = represent(system, torch.from_numpy(images.stack))
    recorded = json.loads((folder / "evaluation.json").read_text())["novel"]["5"]
    again = evaluate_system(subject, images.labels, n_shot=5)
    assert again.provenance["episode_hash"] == recorded["episode_hash"]
    assert again.accuracy == pytest.approx(recorded["accuracy"], abs=0.1)
