"""Running a network without learning: in evaluation mode, a bounded number of clips at a time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn

CLIPS_AT_ONCE = 16
"""How many clips go through the network together: ten clips of several videos would take gigabytes."""


@contextmanager
def evaluating(network: nn.Module, device: torch.device | str | None = None) -> Iterator[torch.device]:
    """Evaluation mode on a device; afterwards every module is as it was and where it was."""
    home = next(network.parameters()).device
    place = home if device is None else torch.device(device)
    # Each module's own mode: batch statistics may be frozen in a network that is being trained.
    modes = [(module, module.training) for module in network.modules()]
    try:
        network.eval().to(place)
        yield place
    finally:
        for module, training in modes:
            module.training = training
        network.to(home)
