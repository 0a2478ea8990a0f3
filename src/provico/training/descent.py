"""Optimisation common to all kinds of training: gradients, weight updates, learning rate schedule.

All randomness of a step follows from the seed and the number of the step, so that a resumed run repeats
exactly what an uninterrupted one would do.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from provico.probability import for_averaging
from provico.processes import Processes
from provico.training.embedder import Precision


def learning_rate_at(
    epoch: float, *, epochs: float, peak: float, warmup_epochs: float = 20, warmup_from: float = 1e-4
) -> float:
    """Cosine decay, peak (1 + cos(pi epoch / epochs)) / 2, after a linear warm-up.

    Time is counted in epochs, as in the paper, with fractions, so that the rate changes every step.

    The warm-up starts at `warmup_from` and ends on the cosine, so there is no jump.
    """
    if epoch >= warmup_epochs:
        return _cosine(epoch, epochs, peak)
    meeting = _cosine(warmup_epochs, epochs, peak)
    return warmup_from + (meeting - warmup_from) * epoch / warmup_epochs


def _cosine(epoch: float, epochs: float, peak: float) -> float:
    return 0.5 * peak * (1 + math.cos(math.pi * min(epoch / epochs, 1.0)))


_STREAM = 3  # a separate random stream for each purpose


class Descent(ABC):
    """An optimiser and its position in the schedule; subclasses define the training step."""

    def __init__(
        self,
        optimiser: torch.optim.Optimizer,
        parameters: Sequence[nn.Parameter],
        processes: Processes,
        *,
        num_steps: int,
        steps_per_epoch: int,
        max_norm: float | None,
        precision: Precision,
        seed: int,
    ) -> None:
        """Initialise; gradients of these parameters are clipped to `max_norm`, if given."""
        self.optimiser, self.processes = optimiser, processes
        self.num_steps, self.steps_per_epoch = num_steps, steps_per_epoch
        self.step = 0
        """Steps done."""
        self.rate_factor = 1.0
        """Halved by each rewind."""
        self.generator = torch.Generator(processes.device)
        """The random generator of the step."""
        self._parameters, self._max_norm, self._seed = parameters, max_norm, seed
        self._scaler = torch.amp.GradScaler(processes.device.type, enabled=precision == "fp16")

    @property
    def epoch(self) -> float:
        """Epochs done, with the fraction of the current one."""
        return self.step / self.steps_per_epoch

    @property
    def expects_overflow(self) -> bool:
        """Whether gradients may overflow, as in half precision: such steps are skipped."""
        return self._scaler.is_enabled()

    @abstractmethod
    def learning_rate(self) -> float:
        """The learning rate of the next step, before any rewind halved it."""

    def skip_step(self) -> None:
        """Skip a batch that cannot be trained on."""
        self.step += 1

    def begin_step(self) -> float:
        """Reset gradients, seed the generator, set the learning rate and return it."""
        rate = self.rate_factor * self.learning_rate()
        for group in self.optimiser.param_groups:
            group["lr"] = rate * group.get("factor", 1.0)
        self.generator.manual_seed(seed_of_step(self._seed, self.step))
        self.optimiser.zero_grad(set_to_none=True)
        return rate

    def backward(self, loss: Tensor) -> None:
        """Compute the gradient of a loss that is complete in every process."""
        torch.autograd.backward(self._scaler.scale(for_averaging(loss)))

    def end_step(self, check: Callable[[float], None]) -> float:
        """Update the weights and return the norm of the gradient; `check` may raise for that norm first."""
        self._scaler.unscale_(self.optimiser)
        limit = math.inf if self._max_norm is None else self._max_norm
        norm = float(nn.utils.clip_grad_norm_(self._parameters, limit))
        check(norm)
        self._scaler.step(self.optimiser)
        self._scaler.update()
        self.step += 1
        return norm

    def _descent_state(self) -> dict[str, Any]:
        return {
            "step": self.step,
            "rate_factor": self.rate_factor,
            "optimiser": self.optimiser.state_dict(),
            "scaler": self._scaler.state_dict(),
        }

    def _load_descent_state(self, state: dict[str, Any]) -> None:
        self.step, self.rate_factor = state["step"], state["rate_factor"]
        self.optimiser.load_state_dict(state["optimiser"])
        self._scaler.load_state_dict(state["scaler"])


def seed_of_step(seed: int, step: int) -> int:
    """The seed of a step, equal in all processes."""
    return int(np.random.SeedSequence([seed, _STREAM, step]).generate_state(1, np.uint64)[0] >> 1)
