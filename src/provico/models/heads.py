"""From a feature vector to a Gaussian: g_mu gives the mean, g_sigma the log-variance.

    mean      FC -> LayerNorm -> l2, then scaled to the length that the parametrisation asks for
    log_var   FC, kept within bounds

They run in float32 whatever surrounds them: the loss weighs pairs by 1 / sigma^4, where half precision
overflows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from provico.probability.gaussian import Gaussian
from provico.probability.matching import MatchCurve
from provico.probability.precision import at_least_float32, autocast_off
from provico.probability.scale import Parametrisation

WHITENING = 0.35
"""How far the start of a head evens out the spread of the principal axes: 0 not at all, 1 wholly. The axes
of the largest spread are mostly scenery (docs/log.md)."""
_RANK = 1e-5  # an axis with less than this share of the largest spread is rounding
LOG_VAR_GAIN = 0.2
"""Gain of the last layer of the log-variance head: small, so that all clips start about equally unsure."""


def _layers(in_features: int, hidden_dim: int | None, out_features: int) -> nn.Sequential:
    """One linear layer, or two with a ReLU between them."""
    if hidden_dim is None:
        return nn.Sequential(nn.Linear(in_features, out_features))
    return nn.Sequential(
        nn.Linear(in_features, hidden_dim), nn.ReLU(inplace=True), nn.Linear(hidden_dim, out_features)
    )


class FeatureStandardisation(nn.Module):
    """Features less their mean, in units of their spread, as fitted once on the training videos.

    As built it changes nothing, which is right for a backbone that learns: only for a frozen one are the
    features known beforehand, and those of other people's networks can have any size.
    """

    shift: Tensor
    scale: Tensor

    def __init__(self, feature_dim: int) -> None:
        super().__init__()
        self.register_buffer("shift", torch.zeros(feature_dim))
        self.register_buffer("scale", torch.ones(feature_dim))

    @torch.no_grad()
    def fit(self, features: Float[Tensor, "videos feature"], *, blocks: Sequence[int] | None = None) -> None:
        """Take mean and spread of these. `blocks` says how many features belong together, in their order.

        A block has one scale, so its geometry stays as it is: what hardly varies is not blown up. All blocks
        get the same total variance, and a coordinate one on average. A block that never changes stays zero.
        """
        blocks = [features.shape[1]] if blocks is None else blocks
        var, shift = torch.var_mean(features.double(), dim=0)
        share = features.shape[1] / len(blocks)
        totals = [block.sum() for block in torch.split(var, list(blocks))]
        scales = [(share / total).sqrt() if total > 0 else total.new_ones(()) for total in totals]
        self.shift.copy_(shift)
        self.scale.copy_(torch.cat([scale.expand(size) for scale, size in zip(scales, blocks, strict=True)]))

    def forward(self, features: Float[Tensor, "*batch feature"]) -> Float[Tensor, "*batch feature"]:
        """The features in these units."""
        return (features - self.shift) * self.scale


class MeanHead(nn.Module):
    """g_mu: the mean of the clip's Gaussian, on a sphere."""

    def __init__(self, feature_dim: int, dim: int, *, length: float, hidden_dim: int | None = None) -> None:
        super().__init__()
        self.layers = _layers(feature_dim, hidden_dim, dim)
        self.norm = nn.LayerNorm(dim)
        self.length = length

    @torch.no_grad()
    def start_at_principal_axes(self, features: Float[Tensor, "videos feature"]) -> None:
        """Let a head without a hidden layer begin as the principal axes of these features, softly whitened.

        It then begins with nearly all that the features know, where a random projection begins with less.
        Axes that do not exist, where features or videos are fewer than D, are zero.
        """
        (layer,) = self.layers
        assert isinstance(layer, nn.Linear)
        centre = features.mean(dim=0)
        axes = soft_whitening(features - centre)[: layer.out_features]
        # The sign of an axis is a matter of chance: make its largest coordinate positive.
        largest = axes.abs().argmax(dim=1, keepdim=True)
        axes = (axes * axes.gather(1, largest).sign()).to(layer.weight)
        spread = ((features - centre) @ axes.T).std()
        layer.weight.zero_()
        layer.weight[: len(axes)] = axes / spread
        layer.bias.copy_(-layer.weight @ centre)

    @torch.no_grad()
    def pass_on(self) -> None:
        """Let a head without a hidden layer, of as many coordinates as features, leave them as they are."""
        (layer,) = self.layers
        assert isinstance(layer, nn.Linear)
        nn.init.eye_(layer.weight)
        nn.init.zeros_(layer.bias)

    def forward(self, features: Float[Tensor, "*batch feature"]) -> Float[Tensor, "*batch dim"]:
        """The mean, of constant norm."""
        mean: Tensor = F.normalize(self.norm(self.layers(features)), dim=-1)
        return self.length * mean


def soft_whitening(centred: Float[Tensor, "videos feature"]) -> Float[Tensor, "axes feature"]:
    """Principal axes in float64, the largest first, each divided by its spread to the power WHITENING."""
    _, spread, axes = torch.linalg.svd(centred.double(), full_matrices=False)
    exists = spread > _RANK * spread[:1].clamp(min=torch.finfo(spread.dtype).tiny)
    weight = torch.where(exists, spread, spread[:1]).div(spread[:1]).pow(-WHITENING)
    whitened: Tensor = torch.where(exists, weight, 0.0).unsqueeze(1) * axes
    return whitened


class StreamMeans(nn.Module):
    """g_mu of networks side by side: each has its own, on its own part of the features and of the mean."""

    def __init__(
        self,
        feature_dim: int,
        dim: int,
        *,
        length: float,
        hidden_dim: int | None,
        streams: Sequence[float],
    ) -> None:
        super().__init__()
        num_streams = len(streams)
        self.streams = nn.ModuleList(
            MeanHead(
                feature_dim // num_streams,
                dim // num_streams,
                length=length * math.sqrt(share / sum(streams)),
                hidden_dim=hidden_dim,
            )
            for share in streams
        )

    def forward(self, features: Float[Tensor, "*batch feature"]) -> Float[Tensor, "*batch dim"]:
        """The means side by side, together of constant norm."""
        parts = features.chunk(len(self.streams), dim=-1)
        return torch.cat([head(part) for head, part in zip(self.streams, parts, strict=True)], dim=-1)


class LogVarHead(nn.Module):
    """g_sigma: the logarithm of the variance, which starts where the parametrisation says.

    Which of the loss's two basins training falls into depends on that start, and on the bounds: without a
    lower one the loss has no minimum.
    """

    def __init__(
        self, feature_dim: int, dim: int, *, parametrisation: Parametrisation, hidden_dim: int | None = None
    ) -> None:
        super().__init__()
        self.layers = _layers(feature_dim, hidden_dim, dim)
        self.bounds = parametrisation.log_var_bounds(dim)
        last = self.layers[-1]
        assert isinstance(last, nn.Linear)
        nn.init.xavier_normal_(last.weight, gain=LOG_VAR_GAIN)
        nn.init.constant_(last.bias, parametrisation.initial_log_var(dim))

    @torch.no_grad()
    def start_alike(self) -> None:
        """Let all clips be equally unsure, where nothing was learnt of that."""
        last = self.layers[-1]
        assert isinstance(last, nn.Linear)
        nn.init.zeros_(last.weight)

    def forward(self, features: Float[Tensor, "*batch feature"]) -> Float[Tensor, "*batch dim"]:
        """The log-variance, within its bounds."""
        return bounded(self.layers(features), *self.bounds)


def bounded(values: Float[Tensor, "*shape"], low: float, high: float) -> Float[Tensor, "*shape"]:
    """Clamp to [low, high], such that a value outside can always come back.

    The gradient of a plain clamp is zero outside, so whatever has left never returns; a smooth bound only
    slows that down, and bends the values inside. Here a gradient that pulls a value back inside passes
    unchanged, and only one that pushes it further out is stopped.
    """
    if torch.compiler.is_compiling():
        return values.clamp(low, high)
    clamped: Tensor = _Bounded.apply(values, low, high)  # type: ignore[no-untyped-call]
    return clamped


class _Bounded(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, values: Tensor, low: float, high: float) -> Tensor:
        ctx.save_for_backward(values)
        ctx.low, ctx.high = low, high
        return values.clamp(low, high)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        (values,) = ctx.saved_tensors
        # Descent moves against the gradient, so a positive one lowers the value.
        outward = ((values < ctx.low) & (grad > 0)) | ((values > ctx.high) & (grad < 0))
        return grad.masked_fill(outward, 0.0), None, None


class GaussianHead(nn.Module):
    """Both heads side by side: features to clip Gaussians."""

    def __init__(
        self,
        feature_dim: int,
        dim: int,
        *,
        parametrisation: Parametrisation,
        hidden_dim: int | None = None,
        log_var_hidden_dim: int | None = None,
        streams: Sequence[float] = (1.0,),
    ) -> None:
        super().__init__()
        self.feature_dim = feature_dim
        self.standardisation = FeatureStandardisation(feature_dim)
        length = parametrisation.mean_norm(dim)
        self.mean: MeanHead | StreamMeans = (
            MeanHead(feature_dim, dim, length=length, hidden_dim=hidden_dim)
            if len(streams) == 1
            else StreamMeans(feature_dim, dim, length=length, hidden_dim=hidden_dim, streams=streams)
        )
        self.log_var = LogVarHead(
            feature_dim,
            dim,
            parametrisation=parametrisation,
            hidden_dim=log_var_hidden_dim or hidden_dim,
        )

    def forward(self, features: Float[Tensor, "*batch feature"]) -> Gaussian:
        """p(z|c) for each feature vector."""
        features = at_least_float32(features)
        with autocast_off(features):
            features = self.standardisation(features)
            return Gaussian(self.mean(features), self.log_var(features))


class LowDimProjection(nn.Module):
    """Two more layers, on top of g_mu and of g_sigma, to Gaussians that can be drawn (in 3-D in the paper).

    The mean is not put back on a sphere: in three dimensions that would leave a surface, while the pictures
    are of the volume and of how the prior fills it.
    """

    def __init__(self, dim: int, out_dim: int = 3, *, parametrisation: Parametrisation) -> None:
        super().__init__()
        self.mean = nn.Linear(dim, out_dim)
        self.log_var = LogVarHead(dim, out_dim, parametrisation=parametrisation)
        self.start = parametrisation.initial_log_var(dim)

    def forward(self, clips: Gaussian) -> Gaussian:
        """The Gaussians in `out_dim` dimensions."""
        with autocast_off(clips.mean):
            # Centred, so that the projected variance too starts where the parametrisation says.
            return Gaussian(self.mean(clips.mean), self.log_var(clips.log_var - self.start))


class MatchScale(nn.Module):
    """The learnable a and b of the match probability; a is kept positive by learning its logarithm."""

    def __init__(self, dim: int, *, parametrisation: Parametrisation) -> None:
        super().__init__()
        self.log_a = nn.Parameter(torch.tensor(math.log(parametrisation.initial_a(dim))))
        self.b = nn.Parameter(torch.tensor(float(parametrisation.initial_b(dim))))
        self.sigmoid_scale = parametrisation.sigmoid_scale

    def forward(self) -> MatchCurve:
        """The curve as it stands."""
        return MatchCurve.from_raw(self.log_a, self.b, sigmoid_scale=self.sigmoid_scale)
