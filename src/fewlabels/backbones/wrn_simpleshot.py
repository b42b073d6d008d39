"""SimpleShot's WRN-28-10 (Wang et al. 2019; the paper's Table 7), with other blocks than wrn.py.

The second convolution of a block has the stride, not the first, and every shortcut starts from the
raw input. Its published convolutions have biases. A batch norm removes the shift of each bias, so a
network without biases gives the same features: `_fold_biases` moves the biases into the running
means.
"""

from torch import Tensor, nn

from fewlabels.backbones.backbone import Backbone
from fewlabels.backbones.layers import convolution
from fewlabels.backbones.layout import State, fold_bias, simpleshot_layout, stage_renames
from fewlabels.backbones.wrn import build_wrn

N_STAGES = 3


class SimpleShotBlock(nn.Module):
    """BN - ReLU - conv - dropout - BN - ReLU - conv, plus the input or a 1x1 convolution of it."""

    def __init__(self, n_in: int, n_out: int, *, stride: int, dropout: float) -> None:
        super().__init__()
        self.bn1 = nn.BatchNorm2d(n_in)
        self.conv1 = convolution(n_in, n_out, 3)
        self.dropout = nn.Dropout(dropout)
        self.bn2 = nn.BatchNorm2d(n_out)
        self.conv2 = convolution(n_out, n_out, 3, stride=stride)
        self.relu = nn.ReLU(inplace=True)
        same = n_in == n_out and stride == 1
        self.shortcut = None if same else convolution(n_in, n_out, 1, stride=stride)

    def forward(self, x: Tensor) -> Tensor:
        """(N, n_in, H, W) -> (N, n_out, H / stride, W / stride)."""
        residual = self.dropout(self.conv1(self.relu(self.bn1(x))))
        residual = self.conv2(self.relu(self.bn2(residual)))
        out: Tensor = residual + (x if self.shortcut is None else self.shortcut(x))
        return out


def build_wrn_simpleshot(*, depth: int = 28, width: int = 10, dropout: float = 0.0) -> Backbone:
    """WRN-`depth`-`width` with SimpleShot's blocks.

    >>> build_wrn_simpleshot(depth=10, width=1).feature_dim
    64
    """
    return build_wrn(depth=depth, width=width, dropout=dropout, block=SimpleShotBlock)


def _fold_biases(state: State) -> State:
    """Move all biases into the means of the batch norms after them.

    There is no batch norm between blocks, so shifts add up along the shortcuts: the shift of a
    block's input is part of the shift of its output, after the 1x1 convolution if there is one.
    """
    shift = state.pop("stem.bias")  # of the input of the next block, (C,)
    end = ".conv1.weight"
    blocks = [name.removesuffix(end) for name in state if name.endswith(end)]
    for block in sorted(blocks, key=lambda name: [int(part) for part in name.split(".")[1:]]):
        fold_bias(state, shift, norm=f"{block}.bn1")
        fold_bias(state, state.pop(f"{block}.conv1.bias"), norm=f"{block}.bn2")
        if f"{block}.shortcut.weight" in state:
            weight = state[f"{block}.shortcut.weight"][:, :, 0, 0]
            shift = weight @ shift + state.pop(f"{block}.shortcut.bias")
        shift = shift + state.pop(f"{block}.conv2.bias")
    fold_bias(state, shift, norm="head.0")
    return state


SIMPLESHOT = simpleshot_layout(
    ("^conv1[.]", "stem."),
    *stage_renames("layer{}", N_STAGES),
    ("[.]shortcut[.]0[.]", ".shortcut."),
    ("^bn1[.]", "head.0."),
    adapt=_fold_biases,
)
