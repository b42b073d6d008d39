"""Conv4 (Vinyals et al., "Matching networks", 2016): four layers, 0.11 M parameters.

Each layer is a 3x3 convolution, BN, ReLU and max pooling. "conv4" averages over the positions, 64
features. "conv4-flat" keeps all positions, as SimpleShot does (the paper's Table 7): 1600 features
at 84 px; such a network works at one image size only. "conv4-32-flat" has 32 channels (MAML).
"""

from collections.abc import Sequence
from itertools import pairwise

from torch import nn

from fewlabels.backbones.backbone import Backbone
from fewlabels.backbones.layers import GlobalAveragePool, convolution, initialize, norm_relu
from fewlabels.backbones.layout import State, fold_bias, simpleshot_layout, stage_renames

CHANNELS = (64, 64, 64, 64)


def _fold_biases(state: State) -> State:
    """SimpleShot's convolutions have a bias before a batch norm; ours have none."""
    for stage in range(len(CHANNELS)):
        fold_bias(state, state.pop(f"stages.{stage}.0.bias"), norm=f"stages.{stage}.1")
    return state


SIMPLESHOT = simpleshot_layout(*stage_renames("conv{}", len(CHANNELS)), adapt=_fold_biases)


def build_conv4(*, channels: Sequence[int] = CHANNELS) -> Backbone:
    """Conv4 with global average pooling; its stages are the four layers, its stem is the identity.

    >>> build_conv4(channels=(2, 3, 4, 5)).feature_dim
    5
    """
    return _build(channels, GlobalAveragePool(), n_positions=1)


def build_conv4_flat(*, image_size: int, channels: Sequence[int] = CHANNELS) -> Backbone:
    """Conv4 whose features are the concatenated values at all positions of the last layer.

    >>> build_conv4_flat(image_size=84, channels=(2, 3, 4, 64)).feature_dim
    1600
    """
    side = image_size // 2 ** len(channels)
    return _build(channels, nn.Flatten(), n_positions=side * side)


def _build(channels: Sequence[int], head: nn.Module, *, n_positions: int) -> Backbone:
    stages = [
        nn.Sequential(convolution(n_in, n_out, 3), *norm_relu(n_out), nn.MaxPool2d(2))
        for n_in, n_out in pairwise((3, *channels))
    ]
    dim = channels[-1] * n_positions
    backbone = Backbone(stem=nn.Identity(), stages=stages, head=head, feature_dim=dim)
    initialize(backbone)
    return backbone
