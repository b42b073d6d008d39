"""LEO, latent embedding optimization (Rusu et al., ICLR 2019, arXiv:1807.05960).

On features x of a backbone that is not trained, scaled to unit length:

    h = dropout(x) A                               encoder
    (m_j, s_j) = mean of relation([h_i; h_k]) over i in class j and all k,  z_j ~ N(m_j, e^(2 s_j))
    (m'_j, s'_j) = z_j B,  w_j ~ N(m'_j, e^(2 (s'_j - 3)))   decoder: the weights of class j
    logit_j(x) = scale * x · w_j
    inner_steps times:  z <- z - inner_lr * gradient of CE(support), and w from the new z
    tuning_steps times: w <- w - tuning_lr * gradient of CE(support)
    loss = CE(queries) + kl * KL(N(m, e^(2 s)) | N(0, 1)) + latent * |stop(z') - z|²

Both rates are learned; z' is z after its steps. Tests take means instead of samples. The published
penalty on the decoder's correlations is left to weight decay.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from fewlabels.errors import InputError
from fewlabels.training.systems.base import SYSTEMS, Shape, System, query_loss, split_rows

LEAST_LOG_STD = -6.0
WEIGHT_LOG_STD = -3.0  # of class weights at the start: unit features, so noise must be small


@dataclass(frozen=True)
class LeoSettings:
    """Settings of LEO."""

    latent_dim: int = 64
    dropout: float = 0.3
    scale: float = 10.0
    inner_lr: float = 1.0
    inner_steps: int = 5
    tuning_lr: float = 0.01
    tuning_steps: int = 5
    kl: float = 1e-3
    latent: float = 1e-2

    def __post_init__(self) -> None:
        if self.latent_dim < 1:
            raise InputError(f"latent_dim must be at least 1, got {self.latent_dim}.")
        if not 0 <= self.dropout < 1:
            raise InputError(f"dropout must be from 0 to below 1, got {self.dropout}.")
        if min(self.scale, self.inner_lr, self.tuning_lr) <= 0:
            raise InputError("scale, inner_lr and tuning_lr must be positive.")
        if min(self.inner_steps, self.tuning_steps, self.kl, self.latent) < 0:
            raise InputError("inner_steps, tuning_steps, kl and latent must not be negative.")


@SYSTEMS.register
class LatentOptimization(System):
    """Class weights decoded from a latent code, which is fitted to the support."""

    name, title = "leo", "LEO"
    reference = "Rusu et al. 2019, Meta-learning with latent embedding optimization"
    Settings = LeoSettings
    frozen = True
    gives_features = False

    def __init__(self, *arguments: object, **options: object) -> None:
        super().__init__(*arguments, **options)  # type: ignore[arg-type]
        dim, wide = self.settings.latent_dim, 2 * self.settings.latent_dim
        self.encode = nn.Linear(self.feature_dim, dim, bias=False)
        layers = [nn.Linear(wide, wide, bias=False) for _ in range(3)]
        self.relate = nn.Sequential(layers[0], nn.ReLU(), layers[1], nn.ReLU(), layers[2])
        self.decode = nn.Linear(dim, 2 * self.feature_dim, bias=False)
        self.inner_lr = nn.Parameter(torch.tensor(self.settings.inner_lr))
        self.tuning_lr = nn.Parameter(torch.tensor(self.settings.tuning_lr))

    def represent(self, images: Tensor) -> Tensor:
        """Unit features, (N, D) features -> (N, D)."""
        return F.normalize(images.float(), dim=-1)

    def answer(self, support: Tensor, query: Tensor) -> Tensor:
        """(E, W, K, D) and (E, Q, D) -> (E, Q, W)."""
        return self._solve(support, query)[0]

    def forward(self, images: Tensor, labels: Tensor, shape: Shape) -> Tensor:  # noqa: ARG002
        """Training loss with the penalties."""
        rows = self.represent(images)
        with torch.autocast(rows.device.type, enabled=False):
            logits, mean, log_std, moved = self._solve(*split_rows(rows, shape))
        kl = (mean.square() + (2 * log_std).exp() - 1 - 2 * log_std).mean() / 2
        penalty: Tensor = self.settings.kl * kl + self.settings.latent * moved
        return query_loss(logits, shape) + penalty

    def _solve(self, support: Tensor, query: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Logits of the queries, mean and log std of the codes, how far the codes moved."""
        n_episodes, n_way, n_shot = support.shape[:3]
        rows = support.flatten(1, 2)
        ways = torch.arange(n_way, device=rows.device).repeat_interleave(n_shot).repeat(n_episodes)

        def support_loss(weights: Tensor) -> Tensor:
            logits = self.settings.scale * rows @ weights.mT
            return F.cross_entropy(logits.flatten(0, 1), ways) * n_episodes

        with torch.enable_grad():  # the steps need gradients in tests too
            mean, log_std = self._encode(support)
            start = codes = self._sample(mean, log_std)
            # the same noise in every step: the decoder is one function of the code
            noise = torch.randn_like(support[:, :, 0]) if self.training else None
            for _ in range(self.settings.inner_steps):
                loss = support_loss(self._decode(codes, noise))
                [gradient] = torch.autograd.grad(loss, codes, create_graph=self.training)
                codes = codes - self.inner_lr * gradient
            weights = self._decode(codes, noise)
            for _ in range(self.settings.tuning_steps):
                [gradient] = torch.autograd.grad(
                    support_loss(weights), weights, create_graph=self.training
                )
                weights = weights - self.tuning_lr * gradient
            logits = self.settings.scale * query @ weights.mT
            moved = (codes.detach() - start).square().mean()
        if not self.training:
            logits = logits.detach()
        return logits, mean, log_std, moved

    def _encode(self, support: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and log std of the codes, (E, W, K, D) -> (E, W, H) twice."""
        n_way, n_shot = support.shape[1:3]
        coded = self.encode(F.dropout(support, self.settings.dropout, self.training)).flatten(1, 2)
        n_rows = n_way * n_shot
        pairs = torch.cat(
            [
                coded.unsqueeze(2).expand(-1, -1, n_rows, -1),
                coded.unsqueeze(1).expand(-1, n_rows, -1, -1),
            ],
            dim=-1,
        )  # (E, S, S, 2 H)
        related = self.relate(pairs).mean(dim=2)  # (E, S, 2 H)
        related = related.view(-1, n_way, n_shot, related.shape[-1]).mean(dim=2)
        mean, log_std = related.chunk(2, dim=-1)
        return mean, log_std.clamp(min=LEAST_LOG_STD)

    def _sample(self, mean: Tensor, log_std: Tensor) -> Tensor:
        return mean + torch.randn_like(mean) * log_std.exp() if self.training else mean

    def _decode(self, codes: Tensor, noise: Tensor | None) -> Tensor:
        decoded: Tensor = self.decode(codes)
        mean, log_std = decoded.chunk(2, dim=-1)
        if noise is None:
            return mean
        return mean + noise * (log_std + WEIGHT_LOG_STD).clamp(min=LEAST_LOG_STD).exp()
