"""The health of a run, measured without labels, and when to stop it.

A healthy run in three numbers: the *noise* (total variance of a video) is smaller than the *signal*
(squared distance between the means of two videos), the means span many directions, and few pairs are mined.
The objective has a second, useless minimum in which the noise dominates the signal and all pairs look alike;
a run that falls into it does not recover, so `HealthGuard` stops it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass

import torch

from provico.errors import UnhealthyRunError
from provico.metrics import alignment, effective_rank, mean_squared_distance, uniformity
from provico.probability import Gaussian, Mixture

FEWEST_DIRECTIONS = 4
"""If fewer directions are possible, a low effective rank is no sign of collapse."""
MIN_EFFECTIVE_RANK = 1.5
MAX_UNIFORMITY = -0.04
"""The value for directions 1 % as far apart as orthogonal ones, which have |x - y|^2 = 2: for small distances
uniformity is -2 |x - y|^2."""
MAX_NOISE_TO_SIGNAL = 5.0
MAX_MINED_SHARE = 0.5

SYMPTOMS = ("runaway", "collapse", "noise")
"""Causes before effects, since the first one is reported: mining all pairs makes the means collapse, and
collapsed means leave no signal."""


@dataclass(frozen=True)
class Health:
    """Statistics of a batch of videos that describe the encoder, without labels."""

    uncertainty_median: float
    uncertainty_low: float
    """The 10 % quantile over the videos of the batch."""
    uncertainty_high: float
    """The 90 % quantile."""
    noise: float
    """Median over the videos of the total variance, the sum over coordinates: D s^2."""
    signal: float
    """Mean squared distance between the means of two different videos."""
    noise_to_signal: float
    effective_rank: float
    """The effective number of directions of the video means."""
    alignment: float
    """Mean squared distance of two clips of one video, on the unit sphere; nan if videos have one clip."""
    uniformity: float
    """log mean exp(-2 d^2) over clips of different videos, on the unit sphere: 0 if all coincide."""

    def record(self) -> dict[str, float]:
        """The values by their names in metrics.jsonl."""
        return {f"health/{name}": value for name, value in asdict(self).items()}


@torch.no_grad()
def examine(videos: Mixture) -> Health:
    """Compute the health of an encoder from a batch [videos, clips, dim] of its embeddings.

    Everything is computed in float64: signals near collapse are differences of nearly equal values.
    """
    shape = tuple(videos.clips.mean.shape)
    if len(shape) != 3 or shape[0] < 2:
        raise ValueError(
            f"The clip means have shape {shape}, but health compares different videos. "
            "Give clips shaped (videos, clips, dim) of at least two videos."
        )
    videos = Mixture(Gaussian(videos.clips.mean.double(), videos.clips.log_var.double()))
    gaussian = videos.moment_matched
    levels = torch.tensor([0.1, 0.5, 0.9], dtype=torch.float64, device=gaussian.mean.device)
    low, median, high = torch.quantile(gaussian.uncertainty, levels).tolist()
    noise = torch.quantile(gaussian.var.sum(dim=1), 0.5).item()
    signal = mean_squared_distance(gaussian.mean).item()
    return Health(
        uncertainty_median=median,
        uncertainty_low=low,
        uncertainty_high=high,
        noise=noise,
        signal=signal,
        noise_to_signal=noise / signal if signal > 0 else math.inf,
        effective_rank=effective_rank(gaussian.mean),
        alignment=alignment(videos.clips.mean),
        uniformity=uniformity(videos.clips.mean),
    )


PATIENCE = 5
"""A symptom stops a run after this many consecutive records."""


class HealthGuard:
    """Monitors a run and stops it with a message that says what happened and what to change.

    A value that is not finite stops it at once. A symptom stops it after `PATIENCE` consecutive records, the
    first of them `warmup_steps` steps apart: a new network looks collapsed, and one batch proves nothing.

    The bounds lie between observed values of healthy and failed runs. Noise to signal was about 0.3 in
    healthy runs and nearly 7 or more in failed ones. Mining either stays at a few per cent or takes all pairs
    within some fifty steps.
    """

    def __init__(
        self,
        *,
        warmup_steps: int,
        num_directions: int | None = None,
        judge_noise: bool = True,
    ) -> None:
        """Initialise without symptoms.

        `num_directions` is the largest possible number of directions of the means, min(videos - 1, D) of a
        batch; if it is tiny, the rank is not judged. `judge_noise` is for methods that learn a variance.
        """
        self.warmup_steps = warmup_steps
        self.judge_rank = num_directions is None or num_directions >= FEWEST_DIRECTIONS
        self.judge_noise = judge_noise
        self._in_a_row = dict.fromkeys(SYMPTOMS, 0)

    def check_finite(
        self, step: int, loss: float, gradient_norm: float, parts: Mapping[str, float] | None = None
    ) -> None:
        """Raise immediately if the loss, a term of it, or the gradient is not finite."""
        bad = [f"{name} is {value}" for name, value in (parts or {}).items() if not math.isfinite(value)]
        if bad or not math.isfinite(loss):
            found = " and ".join(bad) if bad else f"it is {loss}"
            raise UnhealthyRunError(
                f"The loss is not finite at step {step}: {found}. {_TO_CHANGE['not finite']}"
            )
        if not math.isfinite(gradient_norm):
            raise UnhealthyRunError(
                f"The loss is {loss:.4g} at step {step}, but the norm of its gradient is {gradient_norm}. "
                f"{_TO_CHANGE['not finite']}"
            )

    def check(self, step: int, health: Health, mined_share: float = 0.0) -> None:
        """Raise if this is the last of `PATIENCE` consecutive records with the same symptom."""
        if step < self.warmup_steps:
            return
        # The tests ask whether a value is good, so that nan counts as bad.
        narrow = self.judge_rank and not health.effective_rank >= MIN_EFFECTIVE_RANK
        together = not health.uniformity <= MAX_UNIFORMITY
        found = {
            "runaway": not mined_share < MAX_MINED_SHARE,
            "collapse": narrow or together,
            "noise": self.judge_noise and not health.noise_to_signal <= MAX_NOISE_TO_SIGNAL,
        }
        for symptom, is_bad in found.items():
            self._in_a_row[symptom] = self._in_a_row[symptom] + 1 if is_bad else 0
        lasting = [symptom for symptom, count in self._in_a_row.items() if count >= PATIENCE]
        if not lasting:
            return
        symptom = lasting[0]
        said = {
            "collapse": (
                f"the means have collapsed: they span {health.effective_rank:.1f} directions, and the "
                f"squared distance between two videos is {health.signal:.3g} (uniformity "
                f"{health.uniformity:.3g}, where 0 is one single point)"
            ),
            "noise": (
                f"the noise dominates the signal: the total variance of a video is {health.noise:.3g}, "
                f"{health.noise_to_signal:.3g} times the squared distance {health.signal:.3g} between two "
                f"videos, and {MAX_NOISE_TO_SIGNAL:g} times is the limit"
            ),
            "runaway": f"mining has run away: {mined_share:.0%} of all pairs of videos are mined as positive",
        }
        raise UnhealthyRunError(
            f"At step {step}, and for {self._in_a_row[symptom]} records in a row, {said[symptom]}. "
            f"{_TO_CHANGE[symptom]}"
        )

    def state_dict(self) -> dict[str, int]:
        """Number of consecutive records with each symptom."""
        return dict(self._in_a_row)

    def load_state_dict(self, state: Mapping[str, int]) -> None:
        """Restore such counts."""
        self._in_a_row = {symptom: state[symptom] for symptom in self._in_a_row}


_REWIND = "With --on-unhealthy rewind a run returns to its last checkpoint automatically."

_TO_CHANGE = {
    "not finite": (
        "Lower --learning-rate, or compute in full precision with --precision fp32; if the "
        f"variances have diverged, raise --kl-weight. {_REWIND}"
    ),
    "collapse": (
        "Lower --learning-rate, mine fewer pairs with a smaller --mutual-top or "
        f"--threshold, or use another --parametrisation. {_REWIND}"
    ),
    "noise": (
        "Use --parametrisation sqrt_dim, whose variances start small, and a --kl-weight that "
        f"does not push them to one; a smaller --mutual-top helps if it began with mining. {_REWIND}"
    ),
    "runaway": (
        f"Set or lower --mutual-top, or lower --threshold, and start mining later with --mine-from. {_REWIND}"
    ),
}
