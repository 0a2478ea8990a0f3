"""One finetuning run's state and its steps: what a checkpoint holds, and what happens to it in a step.

    batch -> clip Gaussians -> those of all processes -> K samples of each video -> classifier -> loss -> SGD

Each process has the loss of the whole batch, as in pretraining, so the mean over videos stays right where one
of them had to skip a broken video.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from provico.data.loader import ClipBatch
from provico.errors import UnhealthyRunError
from provico.models.weights import load_into
from provico.probability import gather_mixture, gather_videos, shared_parameter
from provico.processes import Processes, synchronise_batch_norm
from provico.training.classifier import Classifier, averaged_cross_entropy, log_mean_probability
from provico.training.descent import Descent, learning_rate_at
from provico.training.embedder import Embedder, SharedEmbedder

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


class FinetuneTrainer(Descent):
    """Classifier, optimiser and place in the schedule."""

    def __init__(
        self, classifier: Classifier, labels: Tensor, processes: Processes, *, steps_per_epoch: int
    ) -> None:
        """Get ready to train; `labels` has the class of each video of the catalog."""
        self.classifier, self.settings = classifier, classifier.settings
        classifier.to(processes.device).train()
        synchronise_batch_norm(classifier.encoder.backbone, processes)
        embedder = Embedder(classifier.encoder, self.settings.precision)
        self._embedder = SharedEmbedder(embedder, processes)
        self._labels = labels.to(processes.device)
        # The match curve is no part of a classifier: it would only decay.
        parameters = [*embedder.parameters(), *classifier.linear.parameters()]
        matrices = [p for p in parameters if p.ndim > 1]
        vectors = [p for p in parameters if p.ndim <= 1]
        groups: list[dict[str, Any]] = [{"params": matrices}, {"params": vectors, "weight_decay": 0.0}]
        optimiser = torch.optim.SGD(
            groups,
            lr=self.settings.learning_rate,
            momentum=self.settings.momentum,
            weight_decay=self.settings.weight_decay,
        )
        super().__init__(
            optimiser,
            parameters,
            processes,
            num_steps=self.settings.epochs * steps_per_epoch,
            steps_per_epoch=steps_per_epoch,
            max_norm=self.settings.max_gradient_norm,
            precision=self.settings.precision,
            seed=self.settings.seed,
        )

    def train_step(self, batch: ClipBatch) -> FinetuneStep:
        """Learn from one batch."""
        rate = self.begin_step()
        device = self.processes.device
        videos = gather_mixture(self._embedder(batch.pixels.to(device, non_blocking=True)))
        labels = self._labels[gather_videos(batch.videos.to(device))]
        samples = videos.moment_matched.sample(self.settings.num_samples, generator=self.generator)
        layer = self.classifier.linear
        logits = F.linear(
            samples / self.classifier.unit, shared_parameter(layer.weight), shared_parameter(layer.bias)
        )
        loss = averaged_cross_entropy(logits, labels)
        self.backward(loss)
        norm = self.end_step(lambda norm: self._check_finite(float(loss.detach()), norm))
        right = torch.eq(log_mean_probability(logits.detach()).argmax(dim=1), labels)
        return FinetuneStep(float(loss.detach()), float(right.double().mean()), norm, rate)

    def learning_rate(self) -> float:
        """Half a period of cosine, after a warm-up if there is one."""
        peak = self.settings.learning_rate
        return learning_rate_at(
            self.epoch,
            epochs=self.settings.epochs,
            peak=peak,
            warmup_epochs=self.settings.warmup_epochs,
            warmup_from=WARMUP_FROM * peak,
        )

    def state_dict(self) -> dict[str, Any]:
        """All that the next step depends on besides settings and data; tensors and plain values."""
        return self._descent_state() | {
            "encoder": self.classifier.encoder.own_state_dict(),
            "classifier": self.classifier.linear.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go back to such a state."""
        self._load_descent_state(state)
        self.classifier.encoder.load_own_state_dict(state["encoder"])
        load_into(self.classifier.linear, state["classifier"], source="the state")

    def _check_finite(self, loss: float, norm: float) -> None:
        if not math.isfinite(loss) or not (math.isfinite(norm) or self.expects_overflow):
            raise UnhealthyRunError(
                f"At step {self.step} the loss is {loss:.4g} and the norm of its gradient {norm:.4g}, but "
                f"both must be finite. Lower --learning-rate from {self.settings.learning_rate:g}, reach it "
                "by --warmup-epochs, cut gradients with --max-gradient-norm 2, or compute with --precision "
                "fp32."
            )
