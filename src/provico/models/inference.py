"""Running a network without learning: in evaluation mode, a bounded number of rows at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from provico.probability.gaussian import Gaussian

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


@torch.no_grad()
def in_parts(
    network: Callable[[Tensor], Gaussian], inputs: Tensor, *, size: int, device: torch.device
) -> Gaussian:
    """What the network makes of the inputs, some rows at a time, on the CPU."""
    parts = [network(part.to(device)) for part in torch.split(inputs, size)]
    return Gaussian(
        torch.cat([part.mean.cpu() for part in parts]), torch.cat([part.log_var.cpu() for part in parts])
    )
