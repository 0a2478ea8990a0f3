"""The linear probe: a linear classifier on the features of a frozen encoder.

    stored features -> [heads] -> mixture of two clips -> K samples -> classifier -> averaged probability

The backbone is never in training mode, so its weights and batch statistics do not change. Several learning
rates are trained side by side on the same batches.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from provico.config.evaluation import LinearSettings
from provico.embedding.features import ClipFeatures
from provico.errors import UnhealthyRunError
from provico.models.encoder import Encoder
from provico.models.heads import GaussianHead
from provico.probability.gaussian import Gaussian
from provico.probability.mixture import Mixture
from provico.probability.seeded_samples import seeded_samples
from provico.progress import Progress, silent
from provico.training.classifier import (
    average_over_mixtures,
    averaged_cross_entropy,
    log_mean_probability,
    neighbouring_clips,
)
from provico.training.descent import learning_rate_at
from provico.training.loop import train

VIDEOS_AT_ONCE = 1024
"""Number of videos that are classified together in the test."""


@dataclass(frozen=True, eq=False)
class LabelledFeatures:
    """The features of the clips of some videos, and the class of each video."""

    ids: tuple[str, ...]
    features: Float[Tensor, "videos clips feature"]
    labels: Int[Tensor, "videos"]

    @classmethod
    def of(cls, found: ClipFeatures) -> LabelledFeatures:
        """The features of a catalog's readable, labelled videos."""
        ids = tuple(video.id for video in found.catalog)
        return cls(ids, found.features, torch.tensor(found.catalog.labels))

    def rows(self, indices: list[int]) -> LabelledFeatures:
        """A selection of the videos."""
        ids = tuple(self.ids[index] for index in indices)
        return LabelledFeatures(ids, self.features[indices], self.labels[indices])

    def __len__(self) -> int:
        return len(self.ids)


class Probe(nn.Module):
    """A probe from stored features to the logits of each sample.

    On samples: heads, frozen unless `train_heads` is set, then a linear layer in units of the training set.
    On pooled features: a linear layer on standardised features, with one clip as a sample.
    """

    shift: Tensor
    scale: Tensor

    def __init__(self, head: GaussianHead | None, num_classes: int, train: LabelledFeatures) -> None:
        super().__init__()
        self.head = head
        with torch.no_grad():
            rows = train.features.flatten(0, 1)
            if head is not None:
                rows = head(rows).mean
                # One scale for all coordinates, which keeps their relative sizes.
                scale = (rows - rows.mean(dim=0)).square().mean().sqrt().expand(rows.shape[1])
            else:
                scale = rows.std(dim=0, correction=0)
        self.register_buffer("shift", rows.mean(dim=0))
        self.register_buffer("scale", scale.clamp(min=1e-6).clone())
        self.linear = nn.Linear(rows.shape[1], num_classes)
        # Training starts from equal probabilities, independent of the random seed.
        nn.init.zeros_(self.linear.weight)
        nn.init.zeros_(self.linear.bias)

    def gaussians(self, features: Float[Tensor, "videos clips feature"]) -> Gaussian:
        """The clips' distributions, for a probe on samples."""
        assert self.head is not None
        gaussian: Gaussian = self.head(features)
        return gaussian

    def forward(
        self, samples: Float[Tensor, "videos samples dim"]
    ) -> Float[Tensor, "videos samples classes"]:
        """Logits of each sample."""
        logits: Tensor = self.linear((samples - self.shift) / self.scale)
        return logits


@dataclass(frozen=True, eq=False)
class ProbeBatch:
    """Videos of a step, and the clips of each."""

    rows: Int[Tensor, "videos"]
    clips: Int[Tensor, "videos clips"]

    def __len__(self) -> int:
        return len(self.rows)


class ProbeTrainer:
    """Probes with one learning rate each, trained on the same batches."""

    def __init__(
        self,
        probes: Sequence[Probe],
        train: LabelledFeatures,
        learning_rates: Sequence[float],
        settings: LinearSettings,
        generator: torch.Generator,
    ) -> None:
        self.probes, self.settings = probes, settings
        self.step = 0
        """Steps done."""
        self.steps_per_epoch = math.ceil(len(train) / settings.batch_size)
        self.num_steps = settings.epochs * self.steps_per_epoch
        self._train, self._learning_rates, self._generator = train, learning_rates, generator
        self._optimiser = torch.optim.SGD(
            [
                {"params": [p for p in each.parameters() if p.requires_grad], "peak": rate}
                for each, rate in zip(probes, learning_rates, strict=True)
            ],
            lr=0.0,
            momentum=settings.momentum,
            weight_decay=settings.weight_decay,
        )
        self._fixed: Gaussian | None = None
        if settings.features == "samples" and not settings.train_heads:
            with torch.no_grad():
                self._fixed = probes[0].gaussians(train.features)

    def train_step(self, batch: ProbeBatch) -> float:
        """Train every probe on a batch; return the lowest loss."""
        epoch, part = divmod(self.step, self.steps_per_epoch)
        for group in self._optimiser.param_groups:
            group["lr"] = learning_rate_at(
                epoch + part / self.steps_per_epoch,
                epochs=self.settings.epochs,
                peak=group["peak"],
                warmup_epochs=0,
            )
        labels = self._train.labels[batch.rows]
        losses = [
            averaged_cross_entropy(each(samples), labels)
            for each, samples in zip(self.probes, self._samples(batch), strict=True)
        ]
        loss = torch.stack(losses).sum()
        if not bool(loss.isfinite()):
            raise UnhealthyRunError(
                f"The loss of the linear probe is no longer finite in epoch {epoch + 1}. Lower the "
                f"largest of --learning-rates, which are {', '.join(map(str, self._learning_rates))}."
            )
        self._optimiser.zero_grad(set_to_none=True)
        torch.autograd.backward(loss)
        self._optimiser.step()
        self.step += 1
        return min(float(each.detach()) for each in losses)

    def skip_step(self) -> None:
        """Never called: no batch is empty."""
        self.step += 1

    def _samples(self, batch: ProbeBatch) -> list[Tensor]:
        """The input of each probe: shared samples, unless the heads are trained and differ."""
        chosen = (batch.rows.unsqueeze(1), batch.clips)
        features, num_samples = self._train.features, self.settings.num_samples
        if self.settings.features == "pooled":
            return [features[chosen]] * len(self.probes)
        if self._fixed is not None:
            mixtures = Mixture(self._fixed[chosen])
            samples = mixtures.moment_matched.sample(num_samples, generator=self._generator)
            return [samples] * len(self.probes)
        return [
            Mixture(each.gaussians(features[chosen])).moment_matched.sample(
                num_samples, generator=self._generator
            )
            for each in self.probes
        ]


def fit(
    encoder: Encoder,
    videos: LabelledFeatures,
    num_classes: int,
    learning_rates: tuple[float, ...],
    settings: LinearSettings,
    progress: Progress = silent,
) -> list[Probe]:
    """One probe for each learning rate, all trained on the same batches."""
    torch.manual_seed(settings.seed)
    probes = [Probe(_head(encoder, settings), num_classes, videos) for _ in learning_rates]
    generator = torch.Generator().manual_seed(settings.seed)
    trainer = ProbeTrainer(probes, videos, learning_rates, settings, generator)

    def after_step(loss: float) -> None:
        epoch, rest = divmod(trainer.step, trainer.steps_per_epoch)
        if rest == 0:
            progress(epoch, settings.epochs, f"loss {loss:.3g}")

    train(trainer, lambda: _batches(videos, settings, generator), after_step=after_step)
    return probes


@torch.no_grad()
def log_probabilities(
    probe: Probe, test: LabelledFeatures, settings: LinearSettings
) -> Float[Tensor, "videos classes"]:
    """Log-probabilities of each video, averaged over all clips, or over all samples of all mixtures.

    A video's samples depend only on its id and the seed, not on the other videos.
    """
    parts = []
    for first in range(0, len(test), VIDEOS_AT_ONCE):
        features = test.features[first : first + VIDEOS_AT_ONCE]
        ids = test.ids[first : first + VIDEOS_AT_ONCE]
        if settings.features == "pooled":
            parts.append(log_mean_probability(probe(features)))
            continue
        mixtures = neighbouring_clips(probe.gaussians(features), settings.num_train_clips)
        num_mixtures = len(mixtures.mean) // len(ids)
        samples = seeded_samples(
            [f"{name} {number}" for name in ids for number in range(num_mixtures)],
            mixtures,
            num_samples=settings.num_samples,
            seed=settings.seed,
        )
        parts.append(average_over_mixtures(probe(samples), len(ids)))
    return torch.cat(parts)


def _head(encoder: Encoder, settings: LinearSettings) -> GaussianHead | None:
    """A copy of the heads on the CPU, or none; the encoder itself is never changed."""
    if settings.features == "pooled":
        return None
    head = copy.deepcopy(encoder.head).cpu()
    return head.requires_grad_(settings.train_heads)


def _batches(
    videos: LabelledFeatures, settings: LinearSettings, generator: torch.Generator
) -> list[ProbeBatch]:
    """The batches of an epoch."""
    num_clips = 1 if settings.features == "pooled" else settings.num_train_clips
    order = torch.randperm(len(videos), generator=generator)
    keys = torch.rand(len(videos), videos.features.shape[1], generator=generator)
    clips = keys.argsort(dim=1)[:, :num_clips]
    return [ProbeBatch(rows, clips[rows]) for rows in torch.split(order, settings.batch_size)]
