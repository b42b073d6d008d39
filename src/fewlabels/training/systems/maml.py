"""MAML, model-agnostic meta-learning (Finn, Abbeel and Levine, ICML 2017, arXiv:1703.03400).

    w_0 = w,   w_(t+1) = w_t - inner_lr * gradient of CE(support; w_t),   t = 0 .. inner_steps - 1
    loss(w) = CE(queries; w_T)

w are the weights of the backbone and of a linear head with n_way outputs, which starts at zero.
The gradient of the loss goes through the inner gradients (second order) or takes them as constants
(`first_order`). Batch norms use the statistics of their batch, in training and in tests: the
support's in the inner steps, the queries' at the end. So queries of an episode are labelled
together.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from fewlabels.errors import InputError
from fewlabels.training.systems.base import SYSTEMS, Shape, System


@dataclass(frozen=True)
class MamlSettings:
    """Settings of MAML."""

    inner_lr: float = 0.01
    inner_steps: int = 5  # in training
    test_steps: int = 10
    first_order: bool = False
    at_once: int = 0  # episodes whose steps are computed together; 0 for all. Changes only the time
    # On a GPU, record a training step and replay it: 21 instead of 76 ms (Conv4, 4 episodes, H200).
    # Seen working with one number of shots; ResNet10 with two could not be recorded.
    record: bool = False

    def __post_init__(self) -> None:
        if self.inner_lr <= 0:
            raise InputError(f"inner_lr must be positive, got {self.inner_lr}.")
        if min(self.inner_steps, self.test_steps) < 1:
            raise InputError(
                "inner_steps and test_steps must be at least 1, "
                f"got {self.inner_steps} and {self.test_steps}."
            )
        if self.at_once < 0:
            raise InputError(f"at_once must not be negative, got {self.at_once}.")


class BatchStatisticsNorm(nn.Module):
    """Batch norm by the statistics of the batch, without running ones.

    Written in plain operations: torch 2.13's own batch norm has wrong second derivatives under vmap
    (by 0.3 % for Conv4; tests/training/test_systems.py has the comparison that shows it).
    """

    def __init__(self, norm: nn.BatchNorm2d) -> None:
        super().__init__()
        self.weight, self.bias, self.eps = norm.weight, norm.bias, norm.eps

    def forward(self, x: Tensor) -> Tensor:
        """(N, C, H, W) of the same shape."""
        variance, mean = torch.var_mean(x, dim=(0, 2, 3), correction=0, keepdim=True)
        scale = self.weight.view(-1, 1, 1) * (variance + self.eps).rsqrt()
        return (x - mean) * scale + self.bias.view(-1, 1, 1)


class RecordedStep:
    """Loss and gradients of a training step as one CUDA graph.

    A step has thousands of small kernels, and to launch them one by one takes most of the time.
    """

    def __init__(
        self, compute: Callable[[Tensor], Tensor], weights: list[Tensor], images: Tensor
    ) -> None:
        self.images = images.clone()
        stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):  # lets libraries choose their kernels before the recording
            for _ in range(3):
                torch.autograd.grad(compute(self.images), weights)
        torch.cuda.current_stream().wait_stream(stream)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            loss = compute(self.images)
            self.gradients = torch.autograd.grad(loss, weights)
            self.loss = loss.detach()

    def replay(self, images: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
        """The loss and its gradients, which the next call overwrites."""
        self.images.copy_(images)
        self.graph.replay()
        return self.loss.clone(), self.gradients


class Replay(torch.autograd.Function):
    """A recorded step as a function of the weights, for `backward`."""

    @staticmethod
    def forward(ctx: Any, step: RecordedStep, images: Tensor, *weights: Tensor) -> Tensor:  # noqa: ARG004
        """The loss."""
        loss, ctx.gradients = step.replay(images)
        return loss

    @staticmethod
    def backward(ctx: Any, weight: Tensor) -> Any:
        """The gradients of the weights."""
        return (None, None, *(weight * gradient for gradient in ctx.gradients))


@SYSTEMS.register
class Maml(System):
    """Weights from which a few gradient steps on the support lead to a good classifier."""

    name, title = "maml", "MAML"
    reference = "Finn et al. 2017, Model-agnostic meta-learning for fast adaptation"
    Settings = MamlSettings
    fixed_n_way = True
    gives_features = False

    def __init__(self, *arguments: object, **options: object) -> None:
        super().__init__(*arguments, **options)  # type: ignore[arg-type]
        assert self.backbone is not None
        for parent in list(self.backbone.modules()):
            for name, layer in parent.named_children():
                if isinstance(layer, nn.BatchNorm2d):
                    setattr(parent, name, BatchStatisticsNorm(layer))
        self.head = nn.Linear(self.feature_dim, self.n_way)
        # The order of an episode's classes is arbitrary, so no output starts ahead of the others
        # (Ye and Chao, "How to train your MAML to excel in few-shot classification", ICLR 2022).
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)
        self._recorded: dict[tuple[int, ...], RecordedStep] = {}

    def represent(self, images: Tensor) -> Tensor:
        """The images themselves: every episode has weights of its own."""
        return images

    def forward(self, images: Tensor, labels: Tensor, shape: Shape) -> Tensor:
        """Training loss, from a recorded step where there is a GPU."""

        def compute(images: Tensor) -> Tensor:
            return System.forward(self, images, labels, shape)

        if not (self.settings.record and images.is_cuda and self.training):
            return compute(images)
        key, weights = (len(images), *shape), list(self.parameters())
        if key not in self._recorded:
            self._recorded[key] = RecordedStep(compute, list(weights), images)
        loss: Tensor = Replay.apply(self._recorded[key], images, *weights)  # type: ignore[no-untyped-call]
        return loss

    def answer(self, support: Tensor, query: Tensor) -> Tensor:
        """(E, W, K, 3, S, S) and (E, Q, 3, S, S) -> (E, Q, W)."""
        weights = dict(self.named_parameters())
        n_way, n_shot = support.shape[1:3]
        ways = torch.arange(n_way, device=support.device).repeat_interleave(n_shot)
        n_steps = self.settings.inner_steps if self.training else self.settings.test_steps

        def support_loss(weights: dict[str, Tensor], images: Tensor) -> Tensor:
            return F.cross_entropy(self._classify(weights, images), ways)

        def adapt_and_classify(support: Tensor, query: Tensor) -> Tensor:
            adapted: dict[str, Tensor] = dict(weights)
            for _ in range(n_steps):
                gradients = grad(support_loss)(adapted, support)
                if self.settings.first_order:
                    gradients = {name: value.detach() for name, value in gradients.items()}
                adapted = {
                    name: value - self.settings.inner_lr * gradients[name]
                    for name, value in adapted.items()
                }
            return self._classify(adapted, query)

        answers: Any = vmap(adapt_and_classify, chunk_size=self.settings.at_once or None)
        logits: Tensor = answers(support.flatten(1, 2), query)
        return logits

    def _classify(self, weights: dict[str, Tensor], images: Tensor) -> Tensor:
        assert self.backbone is not None
        inside = {name.removeprefix("backbone."): value for name, value in weights.items()}
        features = functional_call(
            self.backbone,
            {name: inside[name] for name, _ in self.backbone.named_parameters()},
            images,
        )
        return F.linear(features, weights["head.weight"], weights["head.bias"])
