"""The training loop, from images to a checkpoint."""

import copy
import json
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from fewlabels.backbones import Backbone
from fewlabels.errors import InputError
from fewlabels.io.files import remove_temporaries, write_file
from fewlabels.training.augment import augment
from fewlabels.training.episodic import AnyRecipe
from fewlabels.training.processes import Processes
from fewlabels.training.recipe import Optimizer
from fewlabels.training.schedule import learning_rate, shard_streams
from fewlabels.training.state import read_state, write_state
from fewlabels.training.tasks import make_task

STATE = "state.pt"
LOG = "log.jsonl"
MOST_VARIANTS = 64  # of a compiled block: kinds of blocks times sizes of crops

Report = dict[str, Any]


class DecodedImages(NamedTuple):
    """Pixels, (N, S, S, 3) uint8, and class numbers, (N,); features, (N, D), if frozen."""

    stack: NDArray[Any]
    labels: NDArray[np.int64]


class Best(NamedTuple):
    """The weights with the best validation so far."""

    epoch: int
    score: float  # sum of the validation accuracies
    weights: dict[str, Tensor]


class Trained(NamedTuple):
    """What was trained, as it was after `epoch`; not `finished` if the time was over."""

    kept: Any  # Backbone, or System for a recipe of episodes
    epoch: int
    reports: list[Report]
    finished: bool

    @property
    def backbone(self) -> Backbone:
        """The backbone, in eval mode."""
        found: Backbone = self.kept if isinstance(self.kept, Backbone) else self.kept.backbone
        return found


def train(
    base: DecodedImages,
    recipe: AnyRecipe,
    *,
    output: Path,
    processes: Processes,
    fingerprint: str,
    val: DecodedImages | None = None,
    validate: Callable[[Any, NDArray[np.int64]], dict[str, float]] | None = None,
    validate_every: int = 5,
    checkpoint_every: int = 1,
    stop_after: float | None = None,
    on_epoch: Callable[[Report], object] | None = None,
) -> Trained:
    """Train a backbone or a system on the base classes; resume from `output`/state.pt if it exists.

    The images, augmentation and learning rate of a step depend only on the recipe and on the number
    of the step. So a killed and resumed training gives the same weights as an undisturbed one, and
    n processes with n shards give the same as one process with n shards.

    Args:
        output: Existing folder for state.pt and log.jsonl.
        fingerprint: Names the images, so that a checkpoint is not resumed with other images.
        validate: A function from features (for a system, `Represented`) and labels of `val` to
            accuracies by name.
        validate_every: Epochs between validations; the last epoch is always validated.
        stop_after: Seconds after which to write a checkpoint and return, at the end of an epoch.
        on_epoch: Called with the report of each epoch, in the first process.
    """
    started = time.perf_counter()
    device, shards = processes.device, processes.shards(recipe.n_shards)
    task = make_task(base.labels, base.stack.shape[-1], recipe)
    steps_per_epoch = task.steps_per_epoch
    n_steps = steps_per_epoch * recipe.n_epochs
    bf16 = recipe.precision == "bf16"

    learner: Any = task.build_learner()
    learner.to(device, memory_format=torch.channels_last)
    # The running average of the learner's weights is validated and kept.
    average = copy.deepcopy(learner.kept).eval()
    averaged, current = _floats(average), _floats(learner.kept)  # updated in place below
    optimizer = make_optimizer(learner, recipe.optimizer)
    step, reports = 0, []
    best: Best | None = None
    state_path, log_path = output / STATE, output / LOG
    if state_path.exists():
        state = read_state(state_path, recipe=recipe.to_dict(), fingerprint=fingerprint)
        learner.load_state_dict(state["learner"])
        average.load_state_dict(state["average"])
        optimizer.load_state_dict(state["optimizer"])
        step, reports = state["step"], state["reports"]
        best = None if state["best"] is None else Best(*state["best"])
        del state
    if processes.first:
        remove_temporaries(output, STATE)  # of a killed process
        # The log may have lines of epochs after the last checkpoint.
        write_file(log_path, "".join(json.dumps(report) + "\n" for report in reports).encode())
    if recipe.compile and not task.frozen:
        # A block is compiled once per kind and size of crops; at torch's limit of 8 the rest would
        # run uncompiled: 5,006 instead of 5,420 images per second in the second stage of `dct`.
        dynamo = torch._dynamo.config
        dynamo.recompile_limit = max(dynamo.recompile_limit, MOST_VARIANTS)
        backbone = learner.backbone
        for part in (backbone.stem, *backbone.stages, backbone.head):
            part.compile(dynamic=False)
    model = processes.wrap(learner)
    if device.type == "cuda":
        torch.backends.cudnn.benchmark = True

    pixels = torch.from_numpy(base.stack).to(device)
    labels = torch.from_numpy(base.labels).to(device)
    val_pixels = None if val is None else torch.from_numpy(val.stack).to(device)
    for epoch in range(step // steps_per_epoch, recipe.n_epochs):
        epoch_started = time.perf_counter()
        stage = recipe.stage_of(epoch)
        learner.train()
        losses, n_rows = torch.zeros(steps_per_epoch, device=device), 0
        for number, batch in enumerate(task.batches(epoch, device)):
            shard_size = len(batch) // recipe.n_shards
            at = {"step": step, "n_steps": n_steps, "steps_per_epoch": steps_per_epoch}
            lr = learning_rate(recipe.optimizer, **at)
            for group in optimizer.param_groups:
                group["lr"] = lr
            optimizer.zero_grad(set_to_none=True)
            for shard in shards:
                rng, generator = shard_streams(recipe.seed, step, shard, device)
                if task.random:
                    torch.manual_seed(int(rng.integers(2**62)))  # dropout uses the global stream
                rows = batch[shard * shard_size : (shard + 1) * shard_size]
                images = pixels[rows]
                if not task.frozen:
                    size = stage.image_size or recipe.image_size
                    images = augment(images, recipe.augment, size=size, generator=generator)
                seen = (model, images, labels[rows])
                with _averaging(model, last=shard == shards[-1]):
                    with torch.autocast(device.type, dtype=torch.bfloat16, enabled=bf16):
                        loss, rows_seen = task.loss(*seen, step, stage.objective, rng)
                    (loss / len(shards)).backward()  # type: ignore[no-untyped-call]
                losses[number] += loss.detach() / len(shards)
                n_rows += rows_seen
            if recipe.optimizer.clip_norm:
                nn.utils.clip_grad_norm_(learner.parameters(), recipe.optimizer.clip_norm)
            optimizer.step()
            # A smaller decay in the first steps, so that the random initial weights have no
            # influence; the formula is that of TensorFlow's ExponentialMovingAverage.
            decay = min(recipe.ema, (1 + step) / (10 + step))
            torch._foreach_lerp_(averaged, current, 1 - decay)
            step += 1

        report: Report = {
            "epoch": epoch + 1,
            "n_epochs": recipe.n_epochs,
            "objective": stage.objective,
            "lr": lr,
            "loss": processes.mean(losses.mean()),
            "images_per_second": n_rows * processes.world / (time.perf_counter() - epoch_started),
        }
        if not (np.isfinite(report["loss"]) and _finite(averaged)):
            raise _diverged(losses, epoch, state_path)
        last = epoch + 1 == recipe.n_epochs
        time_is_up = False
        if stop_after is not None:
            spent = torch.tensor(time.perf_counter() - started)
            time_is_up = processes.mean(spent) > stop_after
        due = last or (epoch + 1) % validate_every == 0
        if processes.first and val is not None and validate is not None and due:
            assert val_pixels is not None
            accuracies = validate(task.subject(average, val_pixels, bf16=bf16), val.labels)
            report |= accuracies
            score = sum(accuracies.values())
            if recipe.keep == "best" and (best is None or score > best.score):
                weights = average.state_dict().items()
                kept = {name: value.detach().cpu().clone() for name, value in weights}
                best = Best(epoch + 1, score, kept)
        before = reports[-1]["seconds"] if reports else 0.0
        report["seconds"] = before + time.perf_counter() - epoch_started
        reports.append(report)
        if processes.first:
            with log_path.open("a", encoding="utf-8") as log:
                log.write(json.dumps(report) + "\n")
            if on_epoch is not None:
                on_epoch(report)
            if last or time_is_up or (epoch + 1) % checkpoint_every == 0:
                state = {
                    **{"step": step, "recipe": recipe.to_dict(), "images": fingerprint},
                    "reports": reports,
                    "learner": learner.state_dict(),
                    "average": average.state_dict(),
                    "best": None if best is None else tuple(best),
                    "optimizer": optimizer.state_dict(),
                }
                write_state(state_path, state)
        processes.wait()
        if time_is_up and not last:
            return Trained(average, epoch + 1, reports, finished=False)
    if best is None:
        return Trained(average, recipe.n_epochs, reports, finished=True)
    average.load_state_dict(best.weights)
    return Trained(average, best.epoch, reports, finished=True)


def make_optimizer(learner: nn.Module, settings: Optimizer) -> torch.optim.Optimizer:
    """SGD with Nesterov momentum, or Adam; `decay_norms` says if norms and biases are decayed."""
    small = [weight for weight in learner.parameters() if weight.ndim < 2]
    free = [] if settings.decay_norms else small
    known = {id(weight) for weight in free}
    decayed = [weight for weight in learner.parameters() if id(weight) not in known]
    parts = ((decayed, settings.weight_decay), (free, 0.0))
    groups = [{"params": part, "weight_decay": decay} for part, decay in parts if part]
    if settings.name == "adam":
        return torch.optim.Adam(groups, lr=settings.lr)
    nesterov = settings.momentum > 0
    return torch.optim.SGD(groups, settings.lr, settings.momentum, nesterov=nesterov)


def _floats(module: nn.Module) -> list[Tensor]:
    """Weights and statistics of a module, without its counters."""
    return [value for value in module.state_dict().values() if value.is_floating_point()]


def _finite(values: list[Tensor]) -> bool:
    return all(bool(torch.isfinite(value).all()) for value in values)


def _diverged(losses: Tensor, epoch: int, state_path: Path) -> InputError:
    """The error for losses of an epoch that are not all finite, or for such weights after it."""
    bad = torch.nonzero(~torch.isfinite(losses)).flatten().tolist()
    number = bad[0] if bad else len(losses) - 1
    what = f"the loss became {float(losses[number])}" if bad else "the weights became infinite"
    kept = (
        f"{state_path.name} keeps the last good state"
        if state_path.exists()
        else "No state is kept"
    )
    return InputError(
        f"{what} in step {epoch * len(losses) + number + 1}, which is in epoch {epoch + 1}. "
        f"{kept}. Lower optimizer.lr, or set optimizer.clip_norm, and train in another output "
        "folder."
    )


def _averaging(model: nn.Module, *, last: bool) -> Any:
    """Gradients of shards are summed locally; processes average them once, with the last shard."""
    return (
        model.no_sync()
        if isinstance(model, DistributedDataParallel) and not last
        else nullcontext()
    )
