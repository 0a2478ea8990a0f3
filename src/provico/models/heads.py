"""The heads from a feature vector to a Gaussian: g_mu for the mean, g_sigma for the log-variance.

    mean      FC -> LayerNorm -> l2, then scaled to the length of the parametrisation
    log_var   FC, kept within bounds

They run in float32 even under autocast: the loss weighs pairs by 1 / sigma^4, which overflows in half
precision.
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
"""How much the initial head equalises the variance of the principal axes: 0 not at all, 1 completely. The
axes of largest variance are mostly scenery (docs/log.md)."""
_RANK = 1e-5  # axes with less than this share of the largest spread are rounding errors
LOG_VAR_GAIN = 0.2
"""Gain of the last layer of the log-variance head: small, so that clips start equally uncertain."""


def _layers(in_features: int, hidden_dim: int | None, out_features: int) -> nn.Sequential:
    """One linear layer, or two with a ReLU between them."""
    if hidden_dim is None:
        return nn.Sequential(nn.Linear(in_features, out_features))
    return nn.Sequential(
        nn.Linear(in_features, hidden_dim), nn.ReLU(inplace=True), nn.Linear(hidden_dim, out_features)
    )


class FeatureStandardisation(nn.Module):
    """Standardisation of features by mean and scale, fitted once on the training videos.

    Initially it is the identity, which is right for a backbone that is trained: only the features of a frozen
    one are known beforehand, and those of external networks can have any scale.
    """

    shift: Tensor
    scale: Tensor

    def __init__(self, feature_dim: int) -> None:
        super().__init__()
        self.register_buffer("shift", torch.zeros(feature_dim))
        self.register_buffer("scale", torch.ones(feature_dim))

    @torch.no_grad()
    def fit(self, features: Float[Tensor, "videos feature"], *, blocks: Sequence[int] | None = None) -> None:
        """Fit mean and scale. `blocks` are the sizes of consecutive groups of features.

        A block has one scale, so its geometry is preserved: small coordinates are not amplified. All blocks
        get the same total variance, and a coordinate 1 on average. A constant block stays zero.
        """
        blocks = [features.shape[1]] if blocks is None else blocks
        var, shift = torch.var_mean(features.double(), dim=0)
        share = features.shape[1] / len(blocks)
        totals = [block.sum() for block in torch.split(var, list(blocks))]
        scales = [(share / total).sqrt() if total > 0 else total.new_ones(()) for total in totals]
        self.shift.copy_(shift)
        self.scale.copy_(torch.cat([scale.expand(size) for scale, size in zip(scales, blocks, strict=True)]))

    def forward(self, features: Float[Tensor, "*batch feature"]) -> Float[Tensor, "*batch feature"]:
        """The standardised features."""
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
        """Initialise a head without a hidden layer with the softly whitened principal axes of these features.

        It then starts with nearly all the information of the features, unlike a random projection. With fewer
        features or videos than D, the missing axes are zero.
        """
        (layer,) = self.layers
        assert isinstance(layer, nn.Linear)
        centre = features.mean(dim=0)
        axes = soft_whitening(features - centre)[: layer.out_features]
        # The sign of an axis is arbitrary: make its largest coordinate positive.
        largest = axes.abs().argmax(dim=1, keepdim=True)
        axes = (axes * axes.gather(1, largest).sign()).to(layer.weight)
        spread = ((features - centre) @ axes.T).std()
        layer.weight.zero_()
        layer.weight[: len(axes)] = axes / spread
        layer.bias.copy_(-layer.weight @ centre)

    @torch.no_grad()
    def pass_on(self) -> None:
        """Make a head without a hidden layer, with as many outputs as features, the identity."""
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
    """g_mu of parallel networks: each has its own, for its own part of the features and of the mean."""

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
        """The concatenated means, of constant norm."""
        parts = features.chunk(len(self.streams), dim=-1)
        return torch.cat([head(part) for head, part in zip(self.streams, parts, strict=True)], dim=-1)


class LogVarHead(nn.Module):
    """g_sigma: the logarithm of the variance, which starts at the value of the parametrisation.

    This start, and the bounds, decide into which basin of the loss training falls: without a lower bound the
    loss has no minimum.
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
        """Give all clips the same uncertainty, for heads that were not trained."""
        last = self.layers[-1]
        assert isinstance(last, nn.Linear)
        nn.init.zeros_(last.weight)

    def forward(self, features: Float[Tensor, "*batch feature"]) -> Float[Tensor, "*batch dim"]:
        """The log-variance, within its bounds."""
        return bounded(self.layers(features), *self.bounds)


def bounded(values: Float[Tensor, "*shape"], low: float, high: float) -> Float[Tensor, "*shape"]:
    """Clamp to [low, high] with a gradient that lets values return from outside.

    The gradient of a plain clamp is zero outside, so values outside never return; a smooth bound only slows
    that down, and distorts the values inside. Here a gradient that moves a value back inside passes
    unchanged, and one that moves it further out is stopped.
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
        # Descent goes against the gradient, so a positive gradient lowers the value.
        outward = ((values < ctx.low) & (grad > 0)) | ((values > ctx.high) & (grad < 0))
        return grad.masked_fill(outward, 0.0), None, None


class GaussianHead(nn.Module):
    """Both heads: features to clip Gaussians."""

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
    """Two more layers on g_mu and g_sigma, to Gaussians that can be plotted (in 3-D in the paper).

    The mean is not normalised again: in three dimensions that would leave a surface, while the plots show the
    volume and how the prior fills it.
    """

    def __init__(self, dim: int, out_dim: int = 3, *, parametrisation: Parametrisation) -> None:
        super().__init__()
        self.mean = nn.Linear(dim, out_dim)
        self.log_var = LogVarHead(dim, out_dim, parametrisation=parametrisation)
        self.start = parametrisation.initial_log_var(dim)

    def forward(self, clips: Gaussian) -> Gaussian:
        """The Gaussians in `out_dim` dimensions."""
        with autocast_off(clips.mean):
            # Centred, so that the projected variance also starts at the value of the parametrisation.
            return Gaussian(self.mean(clips.mean), self.log_var(clips.log_var - self.start))


class MatchScale(nn.Module):
    """The learnable a and b of the match probability; a is positive because its logarithm is trained."""

    def __init__(self, dim: int, *, parametrisation: Parametrisation) -> None:
        super().__init__()
        self.log_a = nn.Parameter(torch.tensor(math.log(parametrisation.initial_a(dim))))
        self.b = nn.Parameter(torch.tensor(float(parametrisation.initial_b(dim))))
        self.sigmoid_scale = parametrisation.sigmoid_scale

    def forward(self) -> MatchCurve:
        """The current curve."""
        return MatchCurve.from_raw(self.log_a, self.b, sigmoid_scale=self.sigmoid_scale)
