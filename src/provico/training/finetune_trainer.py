"""One finetuning run's state and its steps: what a checkpoint holds, and what happens to it in a step.

    batch -> clip Gaussians -> those of all processes -> K samples of each video -> classifier -> loss -> SGD

Each process has the loss of the whole batch, as in pretraining, so the mean over videos stays right where one
of them had to skip a broken video. Everything random in a step follows from the seed and the number of the
step, so that a run goes on from a checkpoint exactly as it would have gone on without it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from provico.data.loader import ClipBatch
from provico.errors import UnhealthyRunError
from provico.models.weights import load_into
from provico.probability import for_averaging, gather_mixture, gather_videos, shared_parameter
from provico.processes import Processes, synchronise_batch_norm
from provico.training.classification import averaged_cross_entropy, log_mean_probability
from provico.training.classifier import Classifier
from provico.training.embedder import Embedder, SharedEmbedder
from provico.training.schedule import learning_rate_at
from provico.training.trainer import seed_of_step

WARMUP_FROM = 0.01
"""The share of the learning rate that a warm-up starts from."""


@dataclass(frozen=True)
class FinetuneStep:
    """What a step did, over the videos of all processes."""

    loss: float
    accuracy: float
    """The share of the batch whose most probable class was right, before the step."""
    gradient_norm: float
    learning_rate: float


class FinetuneTrainer:
    """Classifier, optimiser and place in the schedule."""

    def __init__(
        self, classifier: Classifier, labels: Tensor, processes: Processes, *, steps_per_epoch: int
    ) -> None:
        """Get ready to train; `labels` has the class of each video of the catalog."""
        self.classifier, self.settings, self.processes = classifier, classifier.settings, processes
        self.steps_per_epoch = steps_per_epoch
        self.step = 0
        """Steps done."""
        classifier.to(processes.device).train()
        synchronise_batch_norm(classifier.encoder.backbone, processes)
        embedder = Embedder(classifier.encoder, self.settings.precision)
        self._embedder = SharedEmbedder(embedder, processes)
        self._labels = labels.to(processes.device)
        # The match curve is no part of a classifier: it would only decay.
        self._parameters = [*embedder.parameters(), *classifier.linear.parameters()]
        matrices = [p for p in self._parameters if p.ndim > 1]
        vectors = [p for p in self._parameters if p.ndim <= 1]
        groups: list[dict[str, Any]] = [{"params": matrices}, {"params": vectors, "weight_decay": 0.0}]
        self._optimiser = torch.optim.SGD(
            groups,
            lr=self.settings.learning_rate,
            momentum=self.settings.momentum,
            weight_decay=self.settings.weight_decay,
        )
        self._scaler = torch.amp.GradScaler(processes.device.type, enabled=self.settings.precision == "fp16")
        self._generator = torch.Generator(processes.device)

    @property
    def num_steps(self) -> int:
        """Steps of the whole run."""
        return self.settings.epochs * self.steps_per_epoch

    @property
    def epoch(self) -> float:
        """Epochs done, with the fraction of the present one."""
        return self.step / self.steps_per_epoch

    def train_step(self, batch: ClipBatch) -> FinetuneStep:
        """Learn from one batch."""
        rate = self._set_learning_rate()
        self._generator.manual_seed(seed_of_step(self.settings.seed, self.step))
        self._optimiser.zero_grad(set_to_none=True)
        device = self.processes.device
        videos = gather_mixture(self._embedder(batch.pixels.to(device, non_blocking=True)))
        labels = self._labels[gather_videos(batch.videos.to(device))]
        samples = videos.moment_matched.sample(self.settings.num_samples, generator=self._generator)
        layer = self.classifier.linear
        logits = F.linear(
            samples / self.classifier.unit, shared_parameter(layer.weight), shared_parameter(layer.bias)
        )
        loss = averaged_cross_entropy(logits, labels)
        torch.autograd.backward(self._scaler.scale(for_averaging(loss)))
        norm = self._update(float(loss.detach()))
        self.step += 1
        right = torch.eq(log_mean_probability(logits.detach()).argmax(dim=1), labels)
        return FinetuneStep(float(loss.detach()), float(right.double().mean()), norm, rate)

    def skip_step(self) -> None:
        """Let a batch go by from which nothing can be learnt."""
        self.step += 1

    def state_dict(self) -> dict[str, Any]:
        """All that the next step depends on besides settings and data; tensors and plain values."""
        return {
            "step": self.step,
            "encoder": self.classifier.encoder.own_state_dict(),
            "classifier": self.classifier.linear.state_dict(),
            "optimiser": self._optimiser.state_dict(),
            "scaler": self._scaler.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go back to such a state."""
        self.step = state["step"]
        self.classifier.encoder.load_own_state_dict(state["encoder"])
        load_into(self.classifier.linear, state["classifier"], source="the state")
        self._optimiser.load_state_dict(state["optimiser"])
        self._scaler.load_state_dict(state["scaler"])

    def _update(self, loss: float) -> float:
        """Change the weights, unless something is not finite; return the norm of the gradient."""
        self._scaler.unscale_(self._optimiser)
        limit = self.settings.clip_norm
        norm = float(nn.utils.clip_grad_norm_(self._parameters, math.inf if limit is None else limit))
        # In half precision single overflows are expected: the scaler then skips the step and scales less.
        if not math.isfinite(loss) or not (math.isfinite(norm) or self._scaler.is_enabled()):
            raise UnhealthyRunError(
                f"At step {self.step} the loss is {loss:.4g} and the norm of its gradient {norm:.4g}, but "
                f"both must be finite. Lower --learning-rate from {self.settings.learning_rate:g}, reach it "
                "by --warmup-epochs, cut gradients with --clip-norm 2, or compute with --precision fp32."
            )
        self._scaler.step(self._optimiser)
        self._scaler.update()
        return norm

    def _set_learning_rate(self) -> float:
        peak = self.settings.learning_rate
        rate = learning_rate_at(
            self.epoch,
            epochs=self.settings.epochs,
            peak=peak,
            warmup_epochs=self.settings.warmup_epochs,
            warmup_from=WARMUP_FROM * peak,
        )
        for group in self._optimiser.param_groups:
            group["lr"] = rate
        return rate
