"""How others name the weights of an architecture, and what their images went through.

Each architecture's file has the layouts of its published weights beside it; `checkpoint` tries them.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from torch import Tensor

WRAPPERS = re.compile(r"^(?:module\.|feature\.)+")  # of DataParallel, and of S2M2's rotation stage
CLASSIFIERS = re.compile(
    r"^(?:linear|fc|classifier|logits|rotate\w*)\."
)  # heads: features end before them
S2M2_CONTAINER, SIMPLESHOT_CONTAINER = "state", "state_dict"
IMAGENET = (
    "normalize(0.485 0.456 0.406, 0.229 0.224 0.225)"  # mean and deviation of ImageNet's colors
)
S2M2_TRANSFORM = (
    f"square(96, bilinear) | crop(84) | {IMAGENET}"  # 96 = int(1.15 x 84); at 32 px it is 36 and 32
)
SIMPLESHOT_TRANSFORM = f"resize(84, bilinear) | crop(84) | {IMAGENET}"

State = dict[str, Tensor]


@dataclass(frozen=True)
class Layout:
    """One published form of an architecture's weights.

    >>> Layout("S2M2", (("^conv1[.]", "stem."),), S2M2_TRANSFORM, "state").translate({"module.conv1.weight": 1, "module.linear.bias": 2})
    {'stem.weight': 1}
    """

    source: str
    renames: tuple[
        tuple[str, str], ...
    ]  # a regular expression and what it becomes, applied in order
    transform: str
    container: str  # the entry of the file that holds the weights
    adapt: Callable[[State], State] = dict  # where names alone do not tell, on our names

    def translate(self, state: Mapping[str, Tensor]) -> State:
        """The weights under our names, without wrappers and classifiers."""
        bare = {WRAPPERS.sub("", name): tensor for name, tensor in state.items()}
        renamed = {
            self._rename(name): tensor
            for name, tensor in bare.items()
            if not CLASSIFIERS.match(name)
        }
        try:
            return self.adapt(dict(renamed))
        except (
            KeyError,
            RuntimeError,
        ):  # weights of another architecture: whoever compares names and shapes will say so
            return renamed

    def _rename(self, name: str) -> str:
        for pattern, ours in self.renames:
            name = re.sub(pattern, ours, name)
        return name


def stage_renames(foreign: str, n_stages: int) -> tuple[tuple[str, str], ...]:
    """Renames of stages that others count from 1: "layer{}" makes layer1. -> stages.0. and so on."""
    return tuple((rf"^{foreign.format(i + 1)}\.", f"stages.{i}.") for i in range(n_stages))


def fold_bias(state: State, bias: Tensor, *, norm: str) -> None:
    """Let the batch norm `norm` expect inputs without `bias`, in place: a shift of its input and of its mean cancel out."""
    state[f"{norm}.running_mean"] = state[f"{norm}.running_mean"] - bias
