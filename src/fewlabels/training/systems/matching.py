"""Matching networks (Vinyals et al., NeurIPS 2016, arXiv:1606.04080).

    a_i(x) = softmax_i(scale * cos(f(x), g(x_i))) over all support rows i
    P(j | x) = sum of a_i(x) over the support rows of class j

The scale is learned. Without full context embeddings f and g are the backbone. With them,

    g(x_i) = x_i + forward and backward states of an LSTM over the support rows
    f(x) = h_K of  h_k = LSTM([x; r_(k-1)], h_(k-1)) + x,   r_k = sum_i softmax_i(h_k · g_i) g_i
"""

from dataclasses import dataclass
from math import log

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from fewlabels.errors import InputError
from fewlabels.training.systems.base import SYSTEMS, System


@dataclass(frozen=True)
class MatchingSettings:
    """Settings of matching networks."""

    scale: float = 10.0  # initial value
    full_context: bool = False
    n_reads: int = 5  # K, the steps of the queries' LSTM

    def __post_init__(self) -> None:
        if self.scale <= 0:
            raise InputError(f"scale must be positive, got {self.scale}.")
        if self.n_reads < 1:
            raise InputError(f"n_reads must be at least 1, got {self.n_reads}.")


@SYSTEMS.register
class MatchingNetworks(System):
    """Attention over the support rows."""

    name, title = "matching", "Matching Networks"
    reference = "Vinyals et al. 2016, Matching networks for one shot learning"
    Settings = MatchingSettings

    def __init__(self, *arguments: object, **options: object) -> None:
        super().__init__(*arguments, **options)  # type: ignore[arg-type]
        self.log_scale = nn.Parameter(torch.tensor(log(self.settings.scale)))
        if self.settings.full_context:
            dim = self.feature_dim
            self.read_support = nn.LSTM(dim, dim, batch_first=True, bidirectional=True)
            self.read_query = nn.LSTMCell(2 * dim, dim)

    def answer(self, support: Tensor, query: Tensor) -> Tensor:
        """(E, W, K, D) and (E, Q, D) -> (E, Q, W), logarithms of probabilities."""
        n_way, n_shot = support.shape[1:3]
        rows = support.flatten(1, 2)
        if self.settings.full_context:
            rows, query = self._embed_fully(rows, query)
        cosines = F.normalize(query, dim=-1) @ F.normalize(rows, dim=-1).mT  # (E, Q, W * K)
        attention = (self.log_scale.exp() * cosines).log_softmax(dim=-1)
        return attention.view(*attention.shape[:2], n_way, n_shot).logsumexp(dim=-1)

    def _embed_fully(self, rows: Tensor, query: Tensor) -> tuple[Tensor, Tensor]:
        """G and f of this module's text, (E, S, D) and (E, Q, D) of the same shapes."""
        ahead, back = self.read_support(rows)[0].chunk(2, dim=-1)
        rows = rows + ahead + back
        flat = query.flatten(0, 1)
        h, c, read = flat, torch.zeros_like(flat), torch.zeros_like(flat)
        for _ in range(self.settings.n_reads):
            h, c = self.read_query(torch.cat([flat, read], dim=-1), (h, c))
            h = h + flat
            attention = (h.view_as(query) @ rows.mT).softmax(dim=-1)  # (E, Q, S)
            read = (attention @ rows).flatten(0, 1)
        return rows, h.view_as(query)
