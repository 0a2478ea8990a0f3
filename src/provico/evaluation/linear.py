"""The linear probe: how far a linear classifier gets on what a frozen encoder gives.

    stored features -> [heads] -> mixture of two clips -> K samples -> classifier -> averaged probability

The backbone is never run in training mode, so its weights and its batch statistics stay as they are. Several
learning rates are trained side by side on the same batches; the best on videos held out of the *training*
set is then trained on all of it. The test set is looked at once.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import asdict, dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from provico.config.evaluation import LinearSettings, check_clips
from provico.embedding.features import ClipFeatures, reasons
from provico.errors import UnhealthyRunError
from provico.evaluation.accuracy import accuracies, listed
from provico.evaluation.card import make_card
from provico.evaluation.result import Result
from provico.evaluation.sets import Sets, divide
from provico.models.encoder import Encoder
from provico.models.heads import GaussianHead
from provico.probability.gaussian import Gaussian
from provico.probability.mixture import Mixture
from provico.probability.seeded_samples import seeded_samples
from provico.progress import Progress, silent
from provico.training.classification import (
    average_over_mixtures,
    averaged_cross_entropy,
    log_mean_probability,
    neighbouring_clips,
    top_k_correct,
)
from provico.training.predictions import Predictions
from provico.training.schedule import learning_rate_at

VIDEOS_AT_ONCE = 1024
"""How many videos are classified together in the test."""


@dataclass(frozen=True, eq=False)
class LabelledFeatures:
    """The features of the clips of some videos, and the class of each video."""

    ids: tuple[str, ...]
    features: Float[Tensor, "videos clips feature"]
    labels: Int[Tensor, "videos"]

    @classmethod
    def of(cls, found: ClipFeatures) -> LabelledFeatures:
        """Those of a catalog that could be read."""
        ids = tuple(video.id for video in found.catalog)
        return cls(ids, found.features, torch.tensor(found.catalog.labels))

    def __len__(self) -> int:
        return len(self.ids)


class Probe(nn.Module):
    """From stored features to the logits of each sample: what learns, and what stands before it.

    On samples: heads, frozen unless they learn too, then one linear layer in units of the training set. On
    pooled features: one linear layer on standardised features, with one clip for a sample.
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
                # One number for all coordinates: what the encoder says of their sizes is kept.
                scale = (rows - rows.mean(dim=0)).square().mean().sqrt().expand(rows.shape[1])
            else:
                scale = rows.std(dim=0, correction=0)
        self.register_buffer("shift", rows.mean(dim=0))
        self.register_buffer("scale", scale.clamp(min=1e-6).clone())
        self.linear = nn.Linear(rows.shape[1], num_classes)
        # Every class equally likely: where the probe starts does not depend on luck.
        nn.init.zeros_(self.linear.weight)
        nn.init.zeros_(self.linear.bias)

    def gaussians(self, features: Float[Tensor, "videos clips feature"]) -> Gaussian:
        """The clips' distributions, where the probe works on them."""
        assert self.head is not None
        gaussian: Gaussian = self.head(features)
        return gaussian

    def forward(
        self, samples: Float[Tensor, "videos samples dim"]
    ) -> Float[Tensor, "videos samples classes"]:
        """Logits of each sample."""
        logits: Tensor = self.linear((samples - self.shift) / self.scale)
        return logits


def probe(
    encoder: Encoder,
    sets: Sets,
    train: ClipFeatures,
    test: ClipFeatures,
    *,
    settings: LinearSettings,
    progress: Progress = silent,
) -> Result:
    """Train and test the probe on features of both sets, which `clip_features` computes."""
    check_clips(test.features.shape[1], settings.num_train_clips)  # stored features may have fewer
    classes = sets.train.classes
    kept, held = divide(train.catalog, settings.held_out, seed=settings.seed)
    everything, tested = LabelledFeatures.of(train), LabelledFeatures.of(test)
    place = {video: number for number, video in enumerate(everything.ids)}
    for_fitting, for_choosing = (
        _rows(everything, [place[video.id] for video in part]) for part in (kept, held)
    )
    total = 2 * settings.epochs
    candidates = fit(
        encoder, for_fitting, len(classes), settings.learning_rates, settings, _shifted(progress, 0, total)
    )
    marks = [
        _mark(log_probabilities(candidate, for_choosing, settings), for_choosing.labels)
        for candidate in candidates
    ]
    best = max(range(len(marks)), key=lambda number: marks[number])
    rate = settings.learning_rates[best]
    (final,) = fit(
        encoder, everything, len(classes), (rate,), settings, _shifted(progress, settings.epochs, total)
    )
    said = Predictions(classes, test.catalog.videos, log_probabilities(final, tested, settings))
    failed = tuple(reasons(train.broken | test.broken).items())
    return Result(
        card=make_card(
            "linear",
            encoder,
            sets,
            num_failed=len(failed),
            num_clips=test.features.shape[1],
            seed=settings.seed,
            settings=asdict(settings),
        ),
        scores=accuracies(said),
        classes=classes,
        predictions=listed(said),
        failed=failed,
        notes={
            "learning rate": rate,
            "top-1 on held-out training videos": round(marks[best][0], 4),
            "held-out training videos": len(held),
        },
    )


def fit(
    encoder: Encoder,
    train: LabelledFeatures,
    num_classes: int,
    learning_rates: tuple[float, ...],
    settings: LinearSettings,
    progress: Progress = silent,
) -> list[Probe]:
    """One probe for each learning rate, all trained on the same batches."""
    torch.manual_seed(settings.seed)
    probes = [Probe(_head(encoder, settings), num_classes, train) for _ in learning_rates]
    optimiser = torch.optim.SGD(
        [
            {"params": [p for p in each.parameters() if p.requires_grad], "peak": rate}
            for each, rate in zip(probes, learning_rates, strict=True)
        ],
        lr=0.0,
        momentum=settings.momentum,
        weight_decay=settings.weight_decay,
    )
    fixed = None
    if settings.features == "samples" and not settings.train_heads:
        with torch.no_grad():
            fixed = probes[0].gaussians(train.features)
    generator = torch.Generator().manual_seed(settings.seed)
    for epoch, batches in enumerate(_batches(train, settings, generator)):
        for part, (rows, clips) in enumerate(batches):
            for group in optimiser.param_groups:
                group["lr"] = learning_rate_at(
                    epoch + part / len(batches), epochs=settings.epochs, peak=group["peak"], warmup_epochs=0
                )
            labels = train.labels[rows]
            losses = [
                averaged_cross_entropy(each(samples), labels)
                for each, samples in zip(
                    probes, _samples(probes, train, fixed, rows, clips, settings, generator), strict=True
                )
            ]
            loss = torch.stack(losses).sum()
            if not bool(loss.isfinite()):
                raise UnhealthyRunError(
                    f"The loss of the linear probe is no longer finite in epoch {epoch + 1}. Lower the "
                    f"largest of --learning-rates, which are {', '.join(map(str, learning_rates))}."
                )
            optimiser.zero_grad(set_to_none=True)
            torch.autograd.backward(loss)
            optimiser.step()
        progress(epoch + 1, settings.epochs, f"loss {min(float(each.detach()) for each in losses):.3g}")
    return probes


@torch.no_grad()
def log_probabilities(
    probe: Probe, test: LabelledFeatures, settings: LinearSettings
) -> Float[Tensor, "videos classes"]:
    """What the probe says of each video: over all clips, or over all samples of all mixtures of neighbours.

    A video's samples follow from its id and the seed, so they do not depend on the other videos.
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
    train: LabelledFeatures, settings: LinearSettings, generator: torch.Generator
) -> Iterator[list[tuple[Tensor, Tensor]]]:
    """For each epoch, the rows of each batch and the clips of each row."""
    num_clips = 1 if settings.features == "pooled" else settings.num_train_clips
    for _ in range(settings.epochs):
        order = torch.randperm(len(train), generator=generator)
        keys = torch.rand(len(train), train.features.shape[1], generator=generator)
        clips = keys.argsort(dim=1)[:, :num_clips]
        yield [(rows, clips[rows]) for rows in torch.split(order, settings.batch_size)]


def _samples(
    probes: list[Probe],
    train: LabelledFeatures,
    fixed: Gaussian | None,
    rows: Tensor,
    clips: Tensor,
    settings: LinearSettings,
    generator: torch.Generator,
) -> list[Tensor]:
    """What each probe is given: the same samples for all, unless their heads have come to differ."""
    chosen = (rows.unsqueeze(1), clips)
    if settings.features == "pooled":
        return [train.features[chosen]] * len(probes)
    if fixed is not None:
        mixtures = Mixture(Gaussian(fixed.mean[chosen], fixed.log_var[chosen]))
        samples = mixtures.moment_matched.sample(settings.num_samples, generator=generator)
        return [samples] * len(probes)
    return [
        Mixture(each.gaussians(train.features[chosen])).moment_matched.sample(
            settings.num_samples, generator=generator
        )
        for each in probes
    ]


def _rows(features: LabelledFeatures, numbers: list[int]) -> LabelledFeatures:
    ids = tuple(features.ids[number] for number in numbers)
    return LabelledFeatures(ids, features.features[numbers], features.labels[numbers])


def _mark(log_p: Tensor, labels: Tensor) -> tuple[float, float]:
    """What decides between learning rates: the share that is right, then the likelihood."""
    right = float(top_k_correct(log_p, labels, 1).double().mean())
    return right, float(log_p.gather(1, labels.unsqueeze(1)).mean())


def _shifted(progress: Progress, done: int, total: int) -> Progress:
    """The progress of one of several parts, as progress of the whole."""
    return lambda now, _, text="": progress(done + now, total, text)
