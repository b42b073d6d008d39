"""One training in several processes (torchrun): who I am, and what all of us average."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from fewlabels.devices import choose_device
from fewlabels.errors import InputError


class Processes(NamedTuple):
    """The processes of this training: which one this is, of how many, on which device."""

    rank: int
    world: int
    device: torch.device

    @property
    def first(self) -> bool:
        """Whether this process writes files and talks."""
        return self.rank == 0

    def shards(self, n_shards: int) -> range:
        """The shards of each batch that fall to this process."""
        if n_shards % self.world:
            raise InputError(
                f"n_shards must be a multiple of the {self.world} processes, got {n_shards}. Give --set n_shards={self.world}."
            )
        each = n_shards // self.world
        return range(self.rank * each, (self.rank + 1) * each)

    def wrap(self, model: nn.Module) -> nn.Module:
        """The model, averaging gradients over the processes where there are several."""
        if self.world == 1:
            return model
        return DistributedDataParallel(
            model, device_ids=[self.device] if self.device.type == "cuda" else None
        )

    def mean(self, value: torch.Tensor) -> float:
        """A number averaged over the processes."""
        total = (
            value.detach().double().cpu() if self.device.type == "cpu" else value.detach().double()
        )
        if self.world > 1:
            dist.all_reduce(total)
        return float(total) / self.world

    def wait(self) -> None:
        """Until all processes are here."""
        if self.world > 1:
            dist.barrier()


@contextmanager
def join_processes(device: str) -> Iterator[Processes]:
    """Join the processes that torchrun started, or be alone.

    Args:
        device: "auto", "cpu", "cuda" or "mps"; with several processes each takes the GPU of its local rank.
    """
    kind = choose_device(device)
    world = int(os.environ.get("WORLD_SIZE", "1"))
    if world == 1:
        yield Processes(0, 1, torch.device(kind))
        return
    local = (
        torch.device(kind, int(os.environ["LOCAL_RANK"])) if kind == "cuda" else torch.device(kind)
    )
    if kind == "cuda":
        torch.cuda.set_device(local)
    dist.init_process_group("nccl" if kind == "cuda" else "gloo")
    try:
        yield Processes(dist.get_rank(), world, local)
    finally:
        dist.destroy_process_group()
