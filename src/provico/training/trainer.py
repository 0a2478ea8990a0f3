"""The state of a pretraining run, which a checkpoint stores, and its training step.

A step, from the batch to the new weights:

    batch -> clip Gaussians -> those of all processes -> objective -> gradients -> Adam
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from provico.config import OptimiserSettings, PretrainConfig
from provico.data.loader import ClipBatch
from provico.models.encoder import Encoder, check_network
from provico.models.encoder_config import EncoderConfig
from provico.probability import (
    AgreedPairs,
    Gaussian,
    MatchCurve,
    Mixture,
    gather_mixture,
    gather_videos,
    shared_parameter,
)
from provico.processes import Processes, synchronise_batch_norm
from provico.training.data import FeatureBatch
from provico.training.descent import Descent, learning_rate_at
from provico.training.embedder import Embedder, SharedEmbedder
from provico.training.health import HealthGuard
from provico.training.memory import VideoMemory
from provico.training.objective import Objective, Outcome, StepContext, find_objective
from provico.training.views import agreement_of_streams

MAX_GRADIENT_NORM = 2.0
"""Gradients are clipped to this norm."""


@dataclass(frozen=True)
class Step:
    """The result of a step."""

    outcome: Outcome
    videos: Mixture
    """The batch of all processes, without gradient."""
    indices: Tensor
    """Their indices in the catalog."""
    loss: float
    gradient_norm: float
    learning_rate: float


class Trainer(Descent):
    """Encoder, optimiser and position in the schedule."""

    def __init__(
        self,
        encoder: Encoder,
        config: PretrainConfig,
        processes: Processes,
        *,
        steps_per_epoch: int,
        groups: Sequence[str | None],
        agreed: AgreedPairs | None = None,
    ) -> None:
        self.encoder, self.config = encoder, config
        self.agreed = agreed
        """Pairs on which views of a frozen network agree, reliable or not."""
        self.groups = groups
        """The group of each video of the catalog."""
        self.estimated_precision = None if agreed is None else agreed.beyond_chance
        """A lower estimate of the precision of mined pairs, from the agreement of views or streams."""
        self.objective = find_objective(config.objective.method)
        settings = config.optimiser
        num_steps = settings.epochs * steps_per_epoch
        if settings.max_steps is not None:
            num_steps = min(num_steps, settings.max_steps)
        self.guard = HealthGuard(
            warmup_steps=min(100, num_steps // 10),
            num_directions=min(settings.batch_size - 1, config.model.dim),
            # Without a trained variance, its size means nothing.
            judge_noise=self.objective.learns_variance,
        )
        # Unused weights must not decay.
        for part in (encoder.head.log_var, encoder.match_scale):
            part.requires_grad_(self.objective.learns_variance)
        encoder.to(processes.device).train()
        synchronise_batch_norm(encoder.backbone, processes)
        self.embedder = SharedEmbedder(Embedder(encoder, config.run.precision), processes)
        optimiser = _optimiser(encoder, self.objective, settings)
        super().__init__(
            optimiser,
            [p for group in optimiser.param_groups for p in group["params"]],
            processes,
            num_steps=num_steps,
            steps_per_epoch=steps_per_epoch,
            max_norm=MAX_GRADIENT_NORM,
            precision=config.run.precision,
            seed=config.run.seed,
        )
        self._memory: VideoMemory | None = None
        if config.mining.among == "all":
            self._memory = VideoMemory(len(groups), config.model.dim, device=processes.device)

    def train_step(self, batch: ClipBatch | FeatureBatch) -> Step:
        """Train on one batch."""
        rate = self.begin_step()
        inputs = batch.features if isinstance(batch, FeatureBatch) else batch.pixels
        inputs = inputs.to(self.processes.device, non_blocking=True)
        indices = gather_videos(batch.videos.to(self.processes.device))
        if self.config.optimiser.num_parts == 1:
            outcome, videos = self._backward_at_once(inputs, indices)
        else:
            outcome, videos = self._backward_in_parts(inputs, indices)
        loss = float(outcome.loss.detach())
        # A mean over no pair is nan, which is harmless; nan in a term of the loss is not.
        parts = {name: float(outcome.parts[name]) for name in _SUMMANDS if name in outcome.parts}
        norm = self.end_step(
            lambda norm: self.guard.check_finite(
                self.step, loss, 0.0 if self.expects_overflow else norm, parts
            )
        )
        return Step(
            outcome=outcome,
            videos=_detached(videos),
            indices=indices,
            loss=loss,
            gradient_norm=norm,
            learning_rate=rate,
        )

    def learning_rate(self) -> float:
        """Cosine decay after a warm-up."""
        settings = self.config.optimiser
        return learning_rate_at(
            self.epoch,
            epochs=self.num_steps / self.steps_per_epoch,
            peak=settings.learning_rate,
            warmup_epochs=settings.warmup_epochs,
            warmup_from=settings.warmup_from,
        )

    def match_curve(self) -> MatchCurve:
        """The curve, with gradients that are correct after averaging over processes."""
        scale = self.encoder.match_scale
        return MatchCurve.from_raw(
            shared_parameter(scale.log_a), shared_parameter(scale.b), sigmoid_scale=scale.sigmoid_scale
        )

    def state_dict(self) -> dict[str, Any]:
        """The full state besides config and data, as tensors and plain values."""
        return self._descent_state() | {
            "encoder": self.encoder.own_state_dict(),
            "encoder_config": self.encoder.config.to_json(),
            "guard": self.guard.state_dict(),
            "memory": None if self._memory is None else self._memory.state_dict(),
            "estimated_precision": self.estimated_precision,
            # Steps do not use it, but a user's own network may.
            "random": torch.get_rng_state(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore such a state."""
        check_network(
            EncoderConfig.from_json(state["encoder_config"]), self.encoder.config, what="The checkpoint"
        )
        self._load_descent_state(state)
        self.encoder.load_own_state_dict(state["encoder"])
        self.guard.load_state_dict(state["guard"])
        if self._memory is not None:
            self._memory.load_state_dict(state["memory"])
            self.estimated_precision = state["estimated_precision"]
        torch.set_rng_state(state["random"])

    def _loss(self, videos: Mixture, indices: Tensor) -> Outcome:
        remembered = None
        if self._memory is not None:
            remembered = self._memory.see(indices, videos)
            self._compare_streams(self._memory)
            if self.estimated_precision == 0:
                remembered = None
        step = StepContext(
            settings=self.config.objective,
            mining=self.config.mining,
            curve=self.match_curve(),
            epoch=self.step // self.steps_per_epoch,
            generator=self.generator,
            indices=indices,
            agreed=self.agreed if self.agreed is not None and self.agreed.are_trusted else None,
            remembered=remembered,
            num_streams=self.encoder.config.backbone_spec.num_streams,
        )
        return self.objective.loss(videos, step)

    def _compare_streams(self, memory: VideoMemory) -> None:
        """At the start of each epoch of mining, estimate how many of the pairs will be right."""
        mining, num_streams = self.config.mining, self.encoder.config.backbone_spec.num_streams
        epoch, place = divmod(self.step, self.steps_per_epoch)
        is_due = mining.mine_from is not None and epoch >= mining.mine_from and place == 0
        if num_streams > 1 and mining.mutual_top is not None and is_due:
            self.estimated_precision = agreement_of_streams(
                memory, self.groups, num_streams, num_nearest=mining.mutual_top, seed=self.config.run.seed
            )

    def _backward_at_once(self, inputs: Tensor, indices: Tensor) -> tuple[Outcome, Mixture]:
        videos = gather_mixture(self.embedder(inputs))
        outcome = self._loss(videos, indices)
        self.backward(outcome.loss)
        return outcome, videos

    def _backward_in_parts(self, inputs: Tensor, indices: Tensor) -> tuple[Outcome, Mixture]:
        """Gradient of the whole batch's loss, with the memory of a part of it.

        Summing the losses of parts would omit the pairs between them. Instead, all parts are embedded without
        gradient, the loss of all pairs gives the gradient of every embedding, and each part is embedded again
        to backpropagate it. This is exact except for batch normalisation, which sees a part.
        """
        parts = inputs.chunk(self.config.optimiser.num_parts)
        clips = [self.embedder.without_gradient(part).clips for part in parts]
        whole = Gaussian(
            torch.cat([part.mean for part in clips]).requires_grad_(),
            torch.cat([part.log_var for part in clips]).requires_grad_(),
        )
        videos = gather_mixture(Mixture(whole))
        outcome = self._loss(videos, indices)
        self.backward(outcome.loss)
        gradients = [
            torch.zeros_like(leaf) if leaf.grad is None else leaf.grad for leaf in (whole.mean, whole.log_var)
        ]
        sizes = [len(part) for part in parts]
        shares = zip(*(torch.split(gradient, sizes) for gradient in gradients), strict=True)
        for number, (part, share) in enumerate(zip(parts, shares, strict=True), start=1):
            self.embedder.backward(part, Gaussian(*share), is_last=number == len(parts))
        return outcome, videos


_SUMMANDS = ("loss/attenuated_soft", "loss/regulariser", "loss/kl")


def _optimiser(encoder: Encoder, objective: Objective, settings: OptimiserSettings) -> torch.optim.Optimizer:
    """AdamW, which equals Adam without weight decay, with separate rates for match curve and variances."""
    curve = [p for p in encoder.match_scale.parameters() if p.requires_grad]
    variance = [p for p in encoder.head.log_var.parameters() if p.requires_grad]
    special = {id(p) for p in [*encoder.match_scale.parameters(), *encoder.head.log_var.parameters()]}
    others = [p for p in encoder.parameters() if p.requires_grad and id(p) not in special]
    groups = [{"params": curve, "factor": objective.curve_factor, "weight_decay": 0.0}]
    for parameters, factor in ((others, 1.0), (variance, objective.log_var_factor)):
        matrices, vectors = [p for p in parameters if p.ndim > 1], [p for p in parameters if p.ndim <= 1]
        groups.append({"params": matrices, "factor": factor, "weight_decay": settings.weight_decay})
        groups.append({"params": vectors, "factor": factor, "weight_decay": 0.0})
    return torch.optim.AdamW([group for group in groups if group["params"]], lr=settings.learning_rate)


def _detached(videos: Mixture) -> Mixture:
    return Mixture(Gaussian(videos.clips.mean.detach(), videos.clips.log_var.detach()))
