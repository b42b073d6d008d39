import dataclasses
import json
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch

from fewlabels.backbones import build_backbone
from fewlabels.errors import FewLabelsError, FileFormatError, InputError
from fewlabels.training.embedding import embed
from fewlabels.training.loop import train
from fewlabels.training.processes import Processes
from fewlabels.training.recipe import Optimizer, Stage
from fewlabels.training.state import read_state, write_state
from fewlabels.training.validation import validate

HERE = Path(__file__).resolve().parent


def run(base, recipe, folder, alone, **options):
    return train(
        base, recipe, output=folder, processes=alone, fingerprint="colored blocks", **options
    )


def weights(trained):
    return torch.cat([value.flatten().double() for value in trained.backbone.state_dict().values()])


def test_training_learns_the_classes(base, recipe, tmp_path, alone):
    recipe = dataclasses.replace(recipe, stages=(Stage("plain", 8),))
    trained = run(base, recipe, tmp_path, alone)
    losses = [report["loss"] for report in trained.reports]
    assert losses[-1] < losses[0] / 2
    assert [
        json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()
    ] == trained.reports


def test_a_stage_may_train_on_crops_of_another_size(base, recipe, tmp_path, alone):
    """Crops of 20 px instead of 16 in the first stage: its loss differs, the network fits both."""
    losses = {}
    for size in (0, 20, 16):
        stages = (Stage("plain", 1, image_size=size), Stage("plain", 1))
        folder = tmp_path / str(size)
        folder.mkdir()
        changed = dataclasses.replace(recipe, stages=stages)
        losses[size] = [report["loss"] for report in run(base, changed, folder, alone).reports]
    assert losses[0] == losses[16]
    assert losses[20][0] != losses[0][0]


def test_validation_happens_when_asked_and_at_the_end(base, val, recipe, tmp_path, alone):
    trained = run(
        base,
        recipe,
        tmp_path,
        alone,
        val=val,
        validate=lambda x, y: validate(x, y, n_episodes=5),
        validate_every=2,
    )
    assert [
        sorted(name for name in report if name.startswith("val")) for report in trained.reports
    ] == [
        [],
        ["val_1shot", "val_5shot"],
        ["val_1shot", "val_5shot"],
    ]
    assert 0 <= trained.reports[-1]["val_1shot"] <= 100


def test_the_weights_that_validated_best_are_kept(base, val, recipe, tmp_path, alone):
    """Scores are dictated, so the best epoch is known; a halt in between loses nothing."""
    seen = []

    def score(features, labels):
        seen.append(features)
        return {"val_1shot": [50.0, 70.0, 60.0][len(seen) - 1]}

    for _ in range(3):
        trained = run(
            base, recipe, tmp_path, alone, val=val, validate=score, validate_every=1, stop_after=0
        )
    assert trained.epoch == 2
    np.testing.assert_array_equal(embed(trained.backbone, torch.from_numpy(val.stack)), seen[1])
    assert not np.array_equal(seen[1], seen[2])
    seen.clear()
    (tmp_path / "last").mkdir()
    trained = run(
        base,
        dataclasses.replace(recipe, keep="last"),
        tmp_path / "last",
        alone,
        val=val,
        validate=score,
        validate_every=1,
    )
    assert trained.epoch == 3
    np.testing.assert_array_equal(embed(trained.backbone, torch.from_numpy(val.stack)), seen[2])


def test_stopping_and_going_on_changes_no_bit(base, recipe, tmp_path, alone):
    (tmp_path / "straight").mkdir()
    (tmp_path / "halting").mkdir()
    straight = run(base, recipe, tmp_path / "straight", alone)
    parts = [
        run(base, recipe, tmp_path / "halting", alone, stop_after=0) for _ in range(recipe.n_epochs)
    ]
    assert [part.finished for part in parts] == [False, False, True]
    assert torch.equal(weights(parts[-1]), weights(straight))
    assert [report["loss"] for report in parts[-1].reports] == [
        report["loss"] for report in straight.reports
    ]
    assert len((tmp_path / "halting" / "log.jsonl").read_text().splitlines()) == recipe.n_epochs


def test_kill_nine_at_any_point_then_the_same_weights(recipe, tmp_path, alone, base):
    """A process that is killed at random moments ends with the weights of an undisturbed one."""
    script = tmp_path / "victim.py"
    script.write_text(
        f"import sys; sys.path.insert(0, {str(HERE)!r})\n"
        "import torch; torch.set_num_threads(1)\n"
        "from pathlib import Path\n"
        "from conftest import make_images, Processes\n"
        "from fewlabels.training.loop import train\n"
        "from fewlabels.training.recipe import Recipe\n"
        "import json\n"
        f"recipe = Recipe.from_dict(json.loads({json.dumps(json.dumps(recipe.to_dict()))}))\n"
        f"output = Path({str(tmp_path)!r})\n"
        "processes = Processes(0, 1, torch.device('cpu'))\n"
        "train(make_images(4, 10, seed=0), recipe, output=output, processes=processes,\n"
        "      fingerprint='colored blocks',\n"
        "      on_epoch=lambda report: print(report['epoch'], flush=True))\n"
        "print('done', flush=True)\n"
    )
    rng = np.random.default_rng(0)
    lines = []
    for attempt in range(12):
        victim = subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, text=True)
        assert victim.stdout is not None
        lines.append(victim.stdout.readline())  # after its first epoch of this attempt
        if attempt < 8 and "done" not in lines[-1]:
            time.sleep(rng.uniform(0, 0.05))
            victim.send_signal(signal.SIGKILL)
            victim.communicate()
            continue
        rest, _ = victim.communicate(timeout=600)
        assert "done" in lines[-1] + rest
        break
    (tmp_path / "straight").mkdir()
    straight = run(base, recipe, tmp_path / "straight", alone)
    again = run(base, recipe, tmp_path, alone)  # nothing left to do: reads what the victims left
    assert torch.equal(weights(again), weights(straight))


def test_what_a_killed_process_left_is_removed_at_the_next_start(base, recipe, tmp_path, alone):
    left = tmp_path / ".state.pt.0a1b2c3d"
    left.write_bytes(b"half a checkpoint")
    mine = tmp_path / ".state.pt.mine"
    mine.touch()
    run(base, recipe, tmp_path, alone, stop_after=0)
    assert not left.exists()
    assert mine.exists()


def test_several_shards_are_several_small_batches(base, recipe, tmp_path, alone):
    """One step over two shards moves the weights as the mean of the two gradients does."""
    recipe = dataclasses.replace(recipe, n_shards=2, stages=(Stage("mixup+rotation", 1),))
    trained = run(base, recipe, tmp_path, alone)
    assert trained.finished
    with pytest.raises(
        InputError, match=r"multiple of the number of processes, 3, got 2\. Set n_shards=3"
    ):
        Processes(0, 3, torch.device("cpu")).shards(2)


def test_two_processes_do_what_one_does(base, recipe, tmp_path, alone):
    """torchrun with two gloo processes: the losses of one process on the same batches."""
    recipe = dataclasses.replace(recipe, n_shards=2)
    script = tmp_path / "worker.py"
    script.write_text(
        f"import sys; sys.path.insert(0, {str(HERE)!r})\n"
        "import json, torch; torch.set_num_threads(1)\n"
        "from pathlib import Path\n"
        "from conftest import make_images\n"
        "from fewlabels.training.loop import train\n"
        "from fewlabels.training.processes import join_processes\n"
        "from fewlabels.training.recipe import Recipe\n"
        f"recipe = Recipe.from_dict(json.loads({json.dumps(json.dumps(recipe.to_dict()))}))\n"
        "with join_processes('cpu') as processes:\n"
        f"    output = Path({str(tmp_path / 'two')!r})\n"
        "    train(make_images(4, 10, seed=0), recipe, output=output, processes=processes,\n"
        "          fingerprint='colored blocks')\n"
        # A thread of the group that is left could end the process by a signal.
        "names = [path.read_text() for path in Path('/proc/self/task').glob('*/comm')]\n"
        "assert not any('gloo' in name for name in names), names\n"
    )
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    launcher = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node=2",
        str(script),
    ]
    done = subprocess.run(
        launcher,
        capture_output=True,
        text=True,
        timeout=600,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    together = [
        json.loads(line)["loss"]
        for line in (tmp_path / "two" / "log.jsonl").read_text().splitlines()
    ]
    single = [report["loss"] for report in run(base, recipe, tmp_path / "one", alone).reports]
    np.testing.assert_allclose(together, single, rtol=1e-5)


def test_a_full_disk_keeps_the_last_good_checkpoint(tmp_path):
    path = tmp_path / "state.pt"
    write_state(path, {"step": 1, "recipe": {}, "images": "x", "reports": []})
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(
        resource.RLIMIT_FSIZE, (100_000, hard)
    )  # a file cannot grow beyond this, as on a full disk
    try:
        with pytest.raises(
            FewLabelsError, match=r"state\.pt cannot be written .* last good one is unchanged"
        ):
            write_state(
                path,
                {
                    "step": 2,
                    "recipe": {},
                    "images": "x",
                    "reports": [],
                    "weights": torch.zeros(100_000),
                },
            )
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert read_state(path, recipe={}, fingerprint="x")["step"] == 1
    assert [entry.name for entry in tmp_path.iterdir()] == ["state.pt"]


def test_a_checkpoint_of_another_training_is_refused(base, recipe, tmp_path, alone):
    run(base, dataclasses.replace(recipe, stages=(Stage("plain", 1),)), tmp_path, alone)
    with pytest.raises(InputError, match=r"another recipe \(stages was"):
        run(base, recipe, tmp_path, alone)
    with pytest.raises(InputError, match="other images"):
        read_state(tmp_path / "state.pt", recipe={}, fingerprint="others")
    (tmp_path / "state.pt").write_bytes((tmp_path / "state.pt").read_bytes()[:1000])
    with pytest.raises(FileFormatError, match="cannot be read as a checkpoint"):
        run(base, recipe, tmp_path, alone)


def test_a_loss_that_explodes_is_said(base, recipe, tmp_path, alone):
    wild = dataclasses.replace(recipe, head="linear", optimizer=Optimizer(lr=1e30, warmup_epochs=0))
    with pytest.raises(InputError, match=r"loss became nan in step \d, which is in epoch 1\. No"):
        run(base, wild, tmp_path, alone)


def test_a_batch_larger_than_the_data_is_said(base, recipe, tmp_path, alone):
    with pytest.raises(
        InputError, match="batch_size must be at most the number of base images, 40, got 64"
    ):
        run(base, dataclasses.replace(recipe, batch_size=64), tmp_path, alone)


def test_features_are_those_of_the_network(base):
    backbone = build_backbone("conv4", image_size=16).eval()
    stack = torch.from_numpy(base.stack)
    plain, both = embed(backbone, stack), embed(backbone, stack, views="flip")
    means, stds = np.array([0.485, 0.456, 0.406]), np.array([0.229, 0.224, 0.225])
    image = torch.from_numpy(((base.stack[3] / 255 - means) / stds).transpose(2, 0, 1)).float()[
        None
    ]
    with torch.inference_mode():
        np.testing.assert_allclose(plain[3], backbone(image)[0].numpy(), rtol=1e-4, atol=1e-5)
        mirrored = (backbone(image) + backbone(image.flip(3)))[0].numpy() / 2
    np.testing.assert_allclose(both[3], mirrored, rtol=1e-4, atol=1e-5)
