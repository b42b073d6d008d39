"""DFMN-MCT, meta-learned confidence for transduction (Kye et al. 2020, arXiv:2002.12017).

    u(x) = f(x) / |f(x)| * exp(g(f(x))),  g: a small network, learned
    p_j(x) = softmax_j(-|u_v(x) - u(c_vj)|²), mean over the views v (the image, its mirror image)
    c_vj = (sum of support + sum over queries of p_j(x) f_v(x)) / (K + sum of p_j(x)), repeated

The classes of the queries are p after the last step: one step in training, ten in tests. The
confidence p is learned because g is trained through the steps. To the cross-entropy of the queries
training adds that of the base class at every position of the last feature map (dense features).
"""

from dataclasses import dataclass
from math import log

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from fewlabels.backbones.layers import GlobalAveragePool
from fewlabels.errors import InputError
from fewlabels.training.systems.base import (
    SYSTEMS,
    Shape,
    System,
    both_views,
    pair_views,
    query_loss,
    split_rows,
    squared_distances,
    widen,
)

HIDDEN = 64  # units of g


@dataclass(frozen=True)
class MctSettings:
    """Settings of DFMN-MCT."""

    scale: float = 7.5  # initial squared length of u
    train_steps: int = 1
    test_steps: int = 10
    dense: float = 1.0  # weight of the base classes' cross-entropy

    def __post_init__(self) -> None:
        if self.scale <= 0:
            raise InputError(f"scale must be positive, got {self.scale}.")
        if min(self.train_steps, self.test_steps, self.dense) < 0:
            raise InputError("train_steps, test_steps and dense must not be negative.")


@SYSTEMS.register
class ConfidenceNetwork(System):
    """Prototypes with queries, weighted by a learned confidence."""

    name, title = "mct", "DFMN-MCT"
    reference = "Kye et al. 2020, Meta-learned confidence for few-shot learning"
    Settings = MctSettings

    def __init__(self, *arguments: object, **options: object) -> None:
        super().__init__(*arguments, **options)  # type: ignore[arg-type]
        assert self.backbone is not None
        if not isinstance(self.backbone.head, GlobalAveragePool):
            raise InputError(
                "backbone must end in a mean over positions for system mct. Use conv4, resnet10, "
                "resnet12 or resnet18."
            )
        last = nn.Linear(HIDDEN, 1)
        nn.init.zeros_(last.weight)
        nn.init.constant_(last.bias, log(self.settings.scale) / 2)
        self.length = nn.Sequential(nn.Linear(self.feature_dim, HIDDEN), nn.ReLU(), last)
        self.classify_base = nn.Linear(self.feature_dim, self.n_classes)

    def represent(self, images: Tensor) -> Tensor:
        """Features of both views, (N, 3, S, S) -> (N, 2, D)."""
        return pair_views(super().represent(both_views(images)))

    def answer(self, support: Tensor, query: Tensor) -> Tensor:
        """(E, W, K, 2, D) and (E, Q, 2, D) -> (E, Q, W), logarithms of probabilities."""
        given, rows = support.sum(dim=2).transpose(1, 2), query.transpose(1, 2)  # (E, 2, W or Q, D)
        scaled = self._scale(rows)
        centers = given / support.shape[2]
        for _ in range(self.settings.train_steps if self.training else self.settings.test_steps):
            p = self._confidence(scaled, centers).exp().unsqueeze(1)  # (E, 1, Q, W)
            total = support.shape[2] + p.sum(dim=2)  # (E, 1, W)
            centers = (given + p.mT @ rows) / total.unsqueeze(-1)
        return self._confidence(scaled, centers)

    def forward(self, images: Tensor, labels: Tensor, shape: Shape) -> Tensor:
        """Training loss with the base classes of all positions."""
        assert self.backbone is not None
        maps = self.backbone.stem(both_views(images))
        for stage in self.backbone.stages:
            maps = stage(maps)
        features = widen(self.backbone.head(maps))  # (2 N, D)
        with torch.autocast(images.device.type, enabled=False):
            loss = query_loss(self.answer(*split_rows(pair_views(features), shape)), shape)
            if not self.settings.dense:
                return loss
            positions = widen(maps).flatten(2).mT  # (2 N, positions, D)
            base = self.classify_base(positions).flatten(0, 1)
            wanted = labels.repeat(2).repeat_interleave(positions.shape[1])
            total: Tensor = loss + self.settings.dense * F.cross_entropy(base, wanted)
            return total

    def _scale(self, rows: Tensor) -> Tensor:
        """U of this module's text, of the same shape."""
        lengths: Tensor = self.length(rows).exp()
        return F.normalize(rows, dim=-1) * lengths

    def _confidence(self, scaled: Tensor, centers: Tensor) -> Tensor:
        """Log p, (E, V, Q, D) and (E, V, W, D) -> (E, Q, W)."""
        views = (-squared_distances(scaled, self._scale(centers))).log_softmax(dim=-1)
        return views.logsumexp(dim=1) - log(views.shape[1])
