"""Backbone: a network from images to non-negative feature vectors, the result of stage 2."""

from collections.abc import Iterable

from torch import Tensor, nn


class Backbone(nn.Module):
    """A stem, stages and a head, from images to the penultimate features of the paper.

    The head ends in ReLU and an average over all positions, so features are never negative and the
    power transform of Eq. (1) applies. `forward` applies stem, stages and head in this order and
    nothing else; manifold mixup does the same to reach the tensors in between.
    """

    def __init__(
        self, *, stem: nn.Module, stages: Iterable[nn.Module], head: nn.Module, feature_dim: int
    ) -> None:
        super().__init__()
        self.stem = stem
        self.stages = nn.ModuleList(stages)
        self.head = head
        self.feature_dim = feature_dim

    def forward(self, images: Tensor) -> Tensor:
        """Features of images, (N, 3, H, W) -> (N, feature_dim)."""
        x = self.stem(images)
        for stage in self.stages:
            x = stage(x)
        features: Tensor = self.head(x)
        return features
