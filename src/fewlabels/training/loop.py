"""The training loop, from top to bottom: images in, checkpoint out."""

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

from fewlabels.backbones import Backbone, build_backbone
from fewlabels.errors import InputError
from fewlabels.training.augment import augment
from fewlabels.training.embedding import embed
from fewlabels.training.objectives import Learner, compute_loss
from fewlabels.training.processes import Processes
from fewlabels.training.recipe import Optimizer, Recipe
from fewlabels.training.schedule import epoch_order, learning_rate, shard_streams
from fewlabels.training.state import read_state, write_state

STATE = "state.pt"
LOG = "log.jsonl"

Report = dict[str, Any]


class Images(NamedTuple):
    """Images of some classes, decoded: (N, S', S', 3) uint8 and (N,) class numbers."""

    stack: NDArray[np.uint8]
    labels: NDArray[np.int64]


class Best(NamedTuple):
    """The weights that validated best so far."""

    epoch: int
    score: float  # sum of the validation accuracies
    weights: dict[str, Tensor]


class Trained(NamedTuple):
    """A trained backbone, in eval mode, as it was after `epoch`; `finished` is False where the time was up before the last epoch."""

    backbone: Backbone
    epoch: int
    reports: list[Report]
    finished: bool


def train(
    base: Images,
    recipe: Recipe,
    *,
    output: Path,
    processes: Processes,
    fingerprint: str,
    val: Images | None = None,
    validate: Callable[[NDArray[np.float32], NDArray[np.int64]], dict[str, float]] | None = None,
    validate_every: int = 5,
    checkpoint_every: int = 1,
    stop_after: float | None = None,
    on_epoch: Callable[[Report], object] | None = None,
) -> Trained:
    """Train a backbone on the base classes; go on from `output`/state.pt where it is there.

    A step's images, variations and learning rate depend on the recipe and on the number of the step alone, so a training
    that was killed goes on to the same weights, and n processes with n shards do what one process with n shards does.

    Args:
        base: Images of the base classes, stored at the recipe's image_size or larger.
        recipe: All settings.
        output: Existing folder for state.pt and log.jsonl.
        processes: From `join_processes`.
        fingerprint: Names the images, so that a checkpoint is not resumed with others.
        val: Images of the validation classes, stored at the recipe's image_size.
        validate: Features and labels of `val` to named accuracies.
        validate_every: Epochs between validations; the last epoch is always validated.
        checkpoint_every: Epochs between checkpoints.
        stop_after: Seconds after which to write a checkpoint and return, at the end of an epoch.
        on_epoch: Called with each epoch's report, in the first process.
    """
    started = time.perf_counter()
    device, shards = processes.device, processes.shards(recipe.n_shards)
    steps_an_epoch = len(base.labels) // recipe.batch_size
    if steps_an_epoch < 1:
        raise InputError(
            f"batch_size must be at most the {len(base.labels)} base images, got {recipe.batch_size}."
        )
    n_classes = int(base.labels.max()) + 1
    n_steps = steps_an_epoch * recipe.n_epochs
    shard_size = recipe.batch_size // recipe.n_shards
    bf16 = recipe.precision == "bf16"

    backbone = build_backbone(
        recipe.backbone, dropout=recipe.dropout, image_size=recipe.image_size, seed=recipe.seed
    )
    torch.manual_seed(recipe.seed)  # first weights of the heads; the same in every process
    learner = Learner(backbone, n_classes=n_classes, recipe=recipe).to(
        device, memory_format=torch.channels_last
    )  # type: ignore[call-overload]
    average = copy.deepcopy(
        learner.backbone
    ).eval()  # what is validated and kept; its weights follow the learner's
    averaged, current = (
        _floats(average),
        _floats(learner.backbone),
    )  # the same tensors as long as the modules live
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
    if processes.first:  # a kill may have left lines of epochs that the checkpoint does not know
        log_path.write_text(
            "".join(json.dumps(report) + "\n" for report in reports), encoding="utf-8"
        )
    if recipe.compile:
        for part in (backbone.stem, *backbone.stages, backbone.head):
            part.compile(dynamic=False)
    model = processes.wrap(learner)
    if device.type == "cuda":
        torch.backends.cudnn.benchmark = True

    pixels, labels = (
        torch.from_numpy(base.stack).to(device),
        torch.from_numpy(base.labels).to(device),
    )
    val_pixels = None if val is None else torch.from_numpy(val.stack).to(device)
    for epoch in range(step // steps_an_epoch, recipe.n_epochs):
        epoch_started = time.perf_counter()
        stage = recipe.stage_of(epoch)
        order = torch.from_numpy(epoch_order(recipe.seed, epoch, len(base.labels))).to(device)
        learner.train()
        loss_sum, n_rows = torch.zeros((), device=device), 0
        for batch in order[: steps_an_epoch * recipe.batch_size].view(
            steps_an_epoch, recipe.batch_size
        ):
            lr = learning_rate(
                recipe.optimizer, step=step, n_steps=n_steps, steps_an_epoch=steps_an_epoch
            )
            for group in optimizer.param_groups:
                group["lr"] = lr
            optimizer.zero_grad(set_to_none=True)
            for shard in shards:
                rng, generator = shard_streams(recipe.seed, step, shard, device)
                if recipe.dropout:
                    torch.manual_seed(
                        int(rng.integers(2**62))
                    )  # dropout knows only the global stream
                rows = batch[shard * shard_size : (shard + 1) * shard_size]
                images = augment(
                    pixels[rows], recipe.augment, size=recipe.image_size, generator=generator
                )
                with _averaging(model, last=shard == shards[-1]):
                    with torch.autocast(device.type, dtype=torch.bfloat16, enabled=bf16):
                        loss, rows_seen = compute_loss(
                            model,
                            images,
                            labels[rows],
                            objective=stage.objective,
                            recipe=recipe,
                            rng=rng,
                        )
                    (loss / len(shards)).backward()  # type: ignore[no-untyped-call]
                loss_sum += loss.detach() / len(shards)
                n_rows += rows_seen
            if recipe.optimizer.clip_norm:
                nn.utils.clip_grad_norm_(learner.parameters(), recipe.optimizer.clip_norm)
            optimizer.step()
            decay = min(
                recipe.ema, (1 + step) / (10 + step)
            )  # a young average forgets its random beginning sooner
            torch._foreach_lerp_(averaged, current, 1 - decay)
            step += 1

        report: Report = {
            "epoch": epoch + 1,
            "n_epochs": recipe.n_epochs,
            "objective": stage.objective,
            "lr": lr,
            "loss": processes.mean(loss_sum / steps_an_epoch),
            "images_per_second": n_rows * processes.world / (time.perf_counter() - epoch_started),
        }
        if not np.isfinite(report["loss"]):
            raise InputError(
                f"the loss became {report['loss']} in epoch {epoch + 1}. Lower optimizer.lr, or set optimizer.clip_norm, and resume "
                f"in another output folder."
            )
        last = epoch + 1 == recipe.n_epochs
        time_is_up = (
            stop_after is not None
            and processes.mean(torch.tensor(time.perf_counter() - started)) > stop_after
        )
        if (
            processes.first
            and val is not None
            and validate is not None
            and (last or (epoch + 1) % validate_every == 0)
        ):
            assert val_pixels is not None
            accuracies = validate(embed(average, val_pixels, bf16=bf16), val.labels)
            report |= accuracies
            score = sum(accuracies.values())
            if recipe.keep == "best" and (best is None or score > best.score):
                best = Best(
                    epoch + 1,
                    score,
                    {
                        name: value.detach().cpu().clone()
                        for name, value in average.state_dict().items()
                    },
                )
        report["seconds"] = (
            (reports[-1]["seconds"] if reports else 0.0) + time.perf_counter() - epoch_started
        )
        reports.append(report)
        if processes.first:
            with log_path.open("a", encoding="utf-8") as log:
                log.write(json.dumps(report) + "\n")
            if on_epoch is not None:
                on_epoch(report)
            if last or time_is_up or (epoch + 1) % checkpoint_every == 0:
                write_state(
                    state_path,
                    {
                        "step": step,
                        "recipe": recipe.to_dict(),
                        "images": fingerprint,
                        "reports": reports,
                        "learner": learner.state_dict(),
                        "average": average.state_dict(),
                        "best": None if best is None else tuple(best),
                        "optimizer": optimizer.state_dict(),
                    },
                )
        processes.wait()
        if time_is_up and not last:
            return Trained(average, epoch + 1, reports, finished=False)
    if best is None:
        return Trained(average, recipe.n_epochs, reports, finished=True)
    average.load_state_dict(best.weights)
    return Trained(average, best.epoch, reports, finished=True)


def make_optimizer(learner: nn.Module, settings: Optimizer) -> torch.optim.Optimizer:
    """SGD with Nesterov momentum, or Adam; norms and biases are decayed only where the settings say so."""
    free = (
        []
        if settings.decay_norms
        else [weight for weight in learner.parameters() if weight.ndim < 2]
    )
    known = {id(weight) for weight in free}
    groups = [
        {
            "params": [weight for weight in learner.parameters() if id(weight) not in known],
            "weight_decay": settings.weight_decay,
        },
        {"params": free, "weight_decay": 0.0},
    ]
    groups = [group for group in groups if group["params"]]
    if settings.name == "adam":
        return torch.optim.Adam(groups, lr=settings.lr)
    return torch.optim.SGD(
        groups, lr=settings.lr, momentum=settings.momentum, nesterov=settings.momentum > 0
    )


def _floats(module: nn.Module) -> list[Tensor]:
    """Weights and statistics of a module, not its counters."""
    return [value for value in module.state_dict().values() if value.is_floating_point()]


def _averaging(model: nn.Module, *, last: bool) -> Any:
    """Gradients of several shards are added up here and averaged over the processes once, with the last."""
    return (
        model.no_sync()
        if isinstance(model, DistributedDataParallel) and not last
        else nullcontext()
    )
