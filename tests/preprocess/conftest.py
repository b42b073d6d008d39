"""Features like those of a backbone that ends in a ReLU: a third of them are exact zeros."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor


@pytest.fixture
def draw_features() -> Callable[..., Tensor]:
    def draw(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
        generator = torch.Generator().manual_seed(seed)
        return (
            (torch.randn(*shape, generator=generator, dtype=torch.float64) + 0.4)
            .clamp_min(0)
            .to(dtype)
        )

    return draw
