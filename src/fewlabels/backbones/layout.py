"""Layout: names of the weights in files of other projects, and the transform of their images.

The file of each architecture has the layouts of its published weights; `published` tries them.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from torch import Tensor

WRAPPERS = re.compile(r"^(?:module\.|feature\.)+")  # of DataParallel and S2M2's rotation stage
CLASSIFIERS = re.compile(r"^(?:linear|fc|classifier|logits|rotate\w*)\.")  # not part of a backbone
S2M2_CONTAINER, SIMPLESHOT_CONTAINER = "state", "state_dict"
# Means and standard deviations of the colors of ImageNet.
IMAGENET = "normalize(0.485 0.456 0.406, 0.229 0.224 0.225)"
# 96 = int(1.15 x 84); S2M2's code has 36 and 32 for images of 32 px.
S2M2_TRANSFORM = f"square(96, bilinear) | crop(84) | {IMAGENET}"
SIMPLESHOT_TRANSFORM = f"resize(84, bilinear) | crop(84) | {IMAGENET}"

State = dict[str, Tensor]


@dataclass(frozen=True)
class Layout:
    """One published form of an architecture's weights.

    >>> layout = Layout("S2M2", (("^conv1[.]", "stem."),), S2M2_TRANSFORM, "state")
    >>> layout.translate({"module.conv1.weight": 1, "module.linear.bias": 2})
    {'stem.weight': 1}
    """

    source: str
    renames: tuple[tuple[str, str], ...]  # regular expression and replacement, applied in order
    transform: str
    container: str  # the entry of the file that holds the weights
    adapt: Callable[[State], State] = dict  # changes of values, after renaming

    def translate(self, state: Mapping[str, Tensor]) -> State:
        """The weights under our names, without wrappers and classifiers."""
        bare = {WRAPPERS.sub("", name): tensor for name, tensor in state.items()}
        backbone = {name: each for name, each in bare.items() if not CLASSIFIERS.match(name)}
        renamed = {self._rename(name): tensor for name, tensor in backbone.items()}
        try:
            return self.adapt(dict(renamed))
        except (KeyError, RuntimeError):  # weights of another architecture: `published` reports it
            return renamed

    def _rename(self, name: str) -> str:
        for pattern, ours in self.renames:
            name = re.sub(pattern, ours, name)
        return name


def s2m2_layout(source: str, *renames: tuple[str, str]) -> Layout:
    """The layout of weights in files like those of S2M2."""
    return Layout(source, renames, S2M2_TRANSFORM, S2M2_CONTAINER)


def simpleshot_layout(*renames: tuple[str, str], adapt: Callable[[State], State] = dict) -> Layout:
    """The layout of weights that SimpleShot published."""
    return Layout("SimpleShot", renames, SIMPLESHOT_TRANSFORM, SIMPLESHOT_CONTAINER, adapt)


def stage_renames(foreign: str, n_stages: int) -> tuple[tuple[str, str], ...]:
    """Renames of stages that others count from 1: for "layer{}", layer1. -> stages.0. and so on."""
    return tuple((rf"^{foreign.format(i + 1)}\.", f"stages.{i}.") for i in range(n_stages))


def fold_bias(state: State, bias: Tensor, *, norm: str) -> None:
    """Remove `bias` from the input of the batch norm `norm`, in place, by shifting its mean."""
    state[f"{norm}.running_mean"] = state[f"{norm}.running_mean"] - bias
