"""Inference: in evaluation mode, a bounded number of clips at a time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn

CLIPS_AT_ONCE = 16
"""Clips per forward pass: all clips of several videos would take gigabytes."""


@contextmanager
def evaluating(network: nn.Module, device: torch.device | str | None = None) -> Iterator[torch.device]:
    """Switch a network to evaluation mode on a device; restore modes and device afterwards."""
    home = next(network.parameters()).device
    place = home if device is None else torch.device(device)
    # Modes are saved per module: batch statistics may be frozen in a network that is being trained.
    modes = [(module, module.training) for module in network.modules()]
    try:
        network.eval().to(place)
        yield place
    finally:
        for module, training in modes:
            module.training = training
        network.to(home)
