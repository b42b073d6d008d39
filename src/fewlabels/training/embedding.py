"""Features of images that are already on the device, for validation during training."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fewlabels.features.views import VIEWS
from fewlabels.training.augment import normalize, to_float

BATCH = 512  # images per forward pass; changes only the time


@torch.inference_mode()
def embed(
    backbone: nn.Module, stack: Tensor, *, views: str = "center", bf16: bool = False
) -> NDArray[np.float32]:
    """Features of images stored at the network's size, (N, S, S, 3) uint8 -> (N, D)."""
    done = []
    for start in range(0, len(stack), BATCH):
        images = VIEWS[views](normalize(to_float(stack[start : start + BATCH])))
        with torch.autocast(stack.device.type, dtype=torch.bfloat16, enabled=bf16):
            ordered = (view.contiguous(memory_format=torch.channels_last) for view in images)
            seen = [backbone(view).float() for view in ordered]
        done.append(torch.stack(seen).mean(dim=0))
    stacked: NDArray[np.float32] = torch.cat(done).cpu().numpy()
    return stacked
