"""Layers that all architectures share, and the initialization of weights."""

from torch import Tensor, nn


def convolution(
    n_in: int, n_out: int, kernel: int, *, stride: int = 1, groups: int = 1
) -> nn.Conv2d:
    """A convolution that keeps the image size at stride 1; a batch norm follows, so no bias."""
    padding = kernel // 2
    return nn.Conv2d(n_in, n_out, kernel, stride, padding, groups=groups, bias=False)


def norm_relu(channels: int) -> tuple[nn.Module, nn.Module]:
    """Batch norm, then ReLU."""
    return nn.BatchNorm2d(channels), nn.ReLU(inplace=True)


class GlobalAveragePool(nn.Module):
    """Means over all positions, (N, C, H, W) -> (N, C), for any H and W."""

    def forward(self, x: Tensor) -> Tensor:
        """Average over H and W."""
        return x.mean(dim=(2, 3))


def initialize(network: nn.Module, *, slope: float = 0.0) -> None:
    """Initialize in place: convolutions as He et al. 2015 (normal, fan out), batch norms at 1, 0.

    Args:
        slope: Of the leaky ReLUs after the convolutions; 0 is a plain ReLU.
    """
    if any(weight.is_meta for weight in network.parameters()):
        return  # there is no memory to fill, and torch would import its compiler
    for layer in network.modules():
        if isinstance(layer, nn.Conv2d):
            nn.init.kaiming_normal_(
                layer.weight, a=slope, mode="fan_out", nonlinearity="leaky_relu"
            )
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)
        elif isinstance(layer, nn.BatchNorm2d):
            layer.reset_parameters()
