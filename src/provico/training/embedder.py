"""The part of an encoder that is trained on clips, in a given precision, in one or several processes.

The match curve is not in it: it enters the loss once for the whole batch, equally in all processes.
"""

from __future__ import annotations

import contextlib
from typing import Literal

import torch
from torch import Tensor, nn

from provico.models.encoder import Encoder
from provico.probability import Gaussian, Mixture
from provico.processes import Processes

Precision = Literal["fp32", "bf16", "fp16"]
_DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}


class Embedder(nn.Module):
    """uint8 pixels "videos clips time height width 3", or features "videos clips feature", to clip Gaussians.

    Returns bare tensors, since DistributedDataParallel searches a module's outputs for them.
    """

    def __init__(self, encoder: Encoder, precision: Precision) -> None:
        super().__init__()
        self.normalisation, self.backbone, self.head = encoder.normalisation, encoder.backbone, encoder.head
        self.precision = precision

    def forward(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and log-variance of every clip."""
        if not inputs.is_floating_point():
            videos, clips = inputs.shape[:2]
            with self._autocast(inputs.device):
                inputs = self.backbone(self.normalisation(inputs.flatten(0, 1))).view(videos, clips, -1)
        gaussian: Gaussian = self.head(inputs)
        return gaussian.mean, gaussian.log_var

    def _autocast(self, device: torch.device) -> contextlib.AbstractContextManager[object]:
        if self.precision == "fp32":
            return contextlib.nullcontext()
        return torch.autocast(device.type, dtype=_DTYPES[self.precision])


class SharedEmbedder:
    """An embedder that is synchronised with those of other processes, if any."""

    def __init__(self, embedder: Embedder, processes: Processes) -> None:
        self._module: nn.Module = embedder
        self._parallel: nn.parallel.DistributedDataParallel | None = None
        if processes.world_size > 1:
            self._parallel = nn.parallel.DistributedDataParallel(
                embedder,
                device_ids=[processes.device] if processes.device.type == "cuda" else None,
                # Running statistics are equal already, since batch normalisation is synchronised.
                broadcast_buffers=False,
            )

    def __call__(self, inputs: Tensor) -> Mixture:
        """The videos of this process as mixtures of their clips."""
        return Mixture(Gaussian(*(self._parallel or self._module)(inputs)))

    @torch.no_grad()
    def without_gradient(self, inputs: Tensor) -> Mixture:
        """The forward pass without a graph and without synchronising processes."""
        return Mixture(Gaussian(*self._module(inputs)))

    def backward(self, inputs: Tensor, gradient: Gaussian, *, is_last: bool) -> None:
        """Encode again and backpropagate the loss; processes exchange gradients after the last part."""
        pending = self._parallel is not None and not is_last
        with self._parallel.no_sync() if pending and self._parallel else contextlib.nullcontext():
            clips = self(inputs).clips
            torch.autograd.backward([clips.mean, clips.log_var], [gradient.mean, gradient.log_var])
