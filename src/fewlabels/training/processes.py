"""One training in several processes (torchrun): ranks, devices, averages."""

import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import NamedTuple

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from fewlabels.devices import choose_device
from fewlabels.errors import InputError


class Processes(NamedTuple):
    """This process: its rank, the number of processes, its device."""

    rank: int
    world: int
    device: torch.device

    @property
    def first(self) -> bool:
        """Whether this process writes files and messages."""
        return self.rank == 0

    def shards(self, n_shards: int) -> range:
        """The shards of each batch that this process computes."""
        if n_shards % self.world:
            raise InputError(
                f"n_shards must be a multiple of the number of processes, {self.world}, "
                f"got {n_shards}. Set n_shards={self.world} in the recipe."
            )
        each = n_shards // self.world
        return range(self.rank * each, (self.rank + 1) * each)

    def wrap(self, model: nn.Module) -> nn.Module:
        """The model; with several processes, gradients are averaged over them."""
        if self.world == 1:
            return model
        devices = [self.device] if self.device.type == "cuda" else None
        return DistributedDataParallel(model, device_ids=devices)

    def mean(self, value: torch.Tensor) -> float:
        """A number averaged over the processes."""
        total = value.detach().double()
        total = total.cpu() if self.device.type == "cpu" else total
        if self.world > 1:
            dist.all_reduce(total)
        return float(total) / self.world

    def wait(self) -> None:
        """Wait until all processes have called it."""
        if self.world > 1:
            dist.barrier()


@contextmanager
def join_processes(device: str) -> Iterator[Processes]:
    """Join the processes that torchrun started; without torchrun, this is the only one.

    Args:
        device: "auto", "cpu", "cuda" or "mps"; each process uses the GPU of its local rank.
    """
    kind = choose_device(device)
    world = int(os.environ.get("WORLD_SIZE", "1"))
    if world == 1:
        yield Processes(0, 1, torch.device(kind))
        return
    local = torch.device(kind)
    if kind == "cuda":
        local = torch.device(kind, int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(local)
    # Its functions take the group of this moment as default: none yet. Imported later, as wrapping
    # a model does, they would hold the group, whose threads could then end the process by a signal
    # when the interpreter ends.
    import_module("torch.distributed.nn")
    dist.init_process_group("nccl" if kind == "cuda" else "gloo")
    joined = Processes(dist.get_rank(), world, local)
    try:
        yield joined
        joined.wait()  # one that leaves while others still talk may end by a signal
    finally:
        gc.collect()  # wrapped models, which hold the group
        dist.destroy_process_group()
