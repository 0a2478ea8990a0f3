"""Teach an encoder to doubt what was corrupted.

Trained by the paper's objective alone, an encoder can be *surer* of clips that are full of noise, or cut
together from several videos, than of whole ones (docs/reproduce.md): it was never shown one, and the
certainty weight asks how well a video is told from others, not how far a clip may be off. Here the head of
the variance is learnt anew:

    three clips of a video, the first perhaps corrupted -> features -> Gaussians -> where is the last clip?

so that the variance of a clip becomes the squared distance at which another, whole clip of its video is to be
expected. Everything else stays as it is: videos keep their places, and no ranking by cosine changes. Since
variances change in size, the match curve is fitted again. An encoder that never learnt a variance, such as
one of the deterministic method, gets one this way.

Features are computed once; the head then learns from them in seconds.
"""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from provico.data.catalog import Catalog
from provico.data.corrupt import Spoiling, spoil
from provico.data.library import Library
from provico.data.loader import ClipLoader
from provico.data.transforms import AUGMENTATIONS
from provico.defaults import DOUBT_LOOKS, MAX_BROKEN_SHARE, NUM_SAMPLES
from provico.embedding.clips import clip_settings
from provico.errors import ConfigError
from provico.files import replace_text
from provico.models.backbones.registry import FEATURES
from provico.models.encoder import Encoder
from provico.models.heads import LogVarHead
from provico.models.inference import CLIPS_AT_ONCE, evaluating
from provico.probability.gaussian import Gaussian
from provico.probability.likelihood import negative_log_likelihood
from provico.probability.losses import pair_weights, soft_contrastive
from provico.probability.matching import match_log_probabilities
from provico.progress import Progress, silent

REPORT_NAME = "doubt.json"
"""What is written beside the weights."""
LEAST_VIDEOS = 15
"""Fewer cannot be mixed with each other, and some of them held back."""

_CLIPS = 3  # of a look: one that may be corrupted, one that is whole, and the one to be predicted
_SPOILT_SHARE = 0.75  # of the first clips; with the second, a little more than a third of all
_FIFTHS = 5  # three to learn from, one to know when to stop, one for the report alone
_VIDEOS_AT_ONCE = 32
_HIDDEN_DIM = 64
_BATCH_SIZE, _STEPS, _CHECK_EVERY = 128, 600, 20
_RATE, _WEIGHT_DECAY = 2e-3, 1.0
_CURVE_STEPS, _CURVE_RATE = 200, 0.1
_VARIANCE = "head.log_var."
_OLD_VARIANCE = (_VARIANCE, "head.landmarks.")
_ORDER: tuple[Spoiling, ...] = get_args(Spoiling)
_STREAM = 7  # what a random stream is for, so that no two share their numbers


@dataclass(frozen=True)
class SpoiltLevel:
    """Clips that were corrupted alike, of videos that were held back."""

    kind: Spoiling
    amount: int
    """Frames that are noise, or videos that a clip is mixed from."""
    num_clips: int
    distance: float
    """Mean squared distance, per coordinate, between the clip's mean and that of another of its video."""
    before: float
    """Mean variance of these clips, which should be that distance, as the encoder had it..."""
    after: float
    """...and as it learnt it."""


@dataclass(frozen=True)
class DoubtReport:
    """What was learnt from, and what changed in the videos that were held back."""

    num_videos: int
    """Videos that the head learnt from; a quarter of them for early stopping."""
    num_held_back: int
    failed: tuple[tuple[str, str], ...]
    """Ids of the videos that could not be read, with the reasons."""
    levels: tuple[SpoiltLevel, ...]
    nll_before: float
    """Mean negative log-likelihood, per coordinate, of another clip of the video."""
    nll_after: float

    def summary(self) -> dict[str, Any]:
        """As plain values, for JSON."""
        return dataclasses.asdict(self)

    def write(self, folder: Path) -> None:
        """Beside the weights of the encoder that it is about."""
        replace_text(folder / REPORT_NAME, json.dumps(self.summary(), indent=1) + "\n")


@dataclass(frozen=True)
class _Look:
    """Some videos, no two the same, as the backbone sees three clips of each."""

    features: Float[Tensor, "videos clips feature"]
    kinds: tuple[Spoiling, ...]
    """What was done to the first clip of each."""
    amounts: tuple[int, ...]


def learn_doubt(
    encoder: Encoder,
    catalog: Catalog,
    *,
    num_looks: int = DOUBT_LOOKS,
    seed: int = 0,
    num_workers: int = 0,
    max_broken_share: float = MAX_BROKEN_SHARE,
    device: torch.device | str | None = None,
    library: Library | None = None,
    progress: Progress = silent,
) -> tuple[Encoder, DoubtReport]:
    """A copy of the encoder whose variance grows where clips are corrupted, and what that changed.

    num_looks: how often a video is looked at, over all of them: small sets are gone through several times, of
        large ones a part is seen.
    """
    if len(catalog) < LEAST_VIDEOS:
        raise ConfigError(
            f"There are {len(catalog)} videos, but at least {LEAST_VIDEOS} are needed: clips are mixed from "
            "several of them, and some are held back to see what was learnt."
        )
    if num_looks < LEAST_VIDEOS:
        raise ConfigError(f"num_looks is {num_looks}, but it must be at least {LEAST_VIDEOS}.")
    if encoder.config.backbone == FEATURES:
        raise ConfigError(
            "The encoder was trained on features without their network, so it cannot see corrupted clips. "
            "Give an encoder that reads videos."
        )
    parts = [
        catalog.subset([number for number in range(len(catalog)) if number % _FIFTHS in fifths])
        for fifths in ((2, 3, 4), (1,), (0,))
    ]
    share = -(-num_looks // _FIFTHS)
    wanted = [num_looks - 2 * share, share, share]
    failed: dict[str, str] = {}
    looks: list[list[_Look]] = []
    for number, (part, num_wanted) in enumerate(zip(parts, wanted, strict=True)):
        loader = ClipLoader(
            part,
            dataclasses.replace(
                clip_settings(encoder.config, num_clips=_CLIPS),
                sampling="random",
                augmentation=AUGMENTATIONS["shift"],
            ),
            batch_size=min(_VIDEOS_AT_ONCE, len(part)),
            seed=seed,
            num_workers=num_workers,
            # The share is one of all videos, whichever part they fall into.
            max_broken_share=max_broken_share * len(catalog) / len(part),
            library=library,
        )
        rng = np.random.default_rng([seed, _STREAM, number])
        report = _shifted(progress, sum(wanted[:number]), num_looks)
        looks.append(_look(encoder, loader, num_wanted, rng, device, report))
        failed |= {part[broken].id: error.reason for broken, error in loader.broken.items()}
    train, check, held_back = looks
    taught = _with_variance(encoder, _learn_variance(encoder, train, check, seed=seed))
    _fit_curve(taught, train, seed=seed)
    return taught, DoubtReport(
        num_videos=len(parts[0]) + len(parts[1]),
        num_held_back=len(parts[2]),
        failed=tuple(sorted(failed.items())),
        levels=_levels(encoder, taught, held_back),
        nll_before=float(_foretold(_clips(encoder, held_back))),
        nll_after=float(_foretold(_clips(taught, held_back))),
    )


def _shifted(progress: Progress, done: int, total: int) -> Progress:
    return lambda now, _, note="", /: progress(done + now, total, note)


@torch.no_grad()
def _look(
    encoder: Encoder,
    loader: ClipLoader,
    num_wanted: int,
    rng: np.random.Generator,
    device: torch.device | str | None,
    progress: Progress,
) -> list[_Look]:
    """Batches of features, until enough videos were looked at."""
    looks: list[_Look] = []
    num_done = 0
    with evaluating(encoder, device) as place:
        while num_done < num_wanted:
            for batch in loader:
                if len(batch) < 2:
                    continue
                first = spoil(batch.pixels[:, 0].numpy(), rng, share=_SPOILT_SHARE)
                clips = torch.cat([torch.from_numpy(first.pixels).unsqueeze(1), batch.pixels[:, 1:]], dim=1)
                parts = torch.split(clips.flatten(0, 1), CLIPS_AT_ONCE)
                features = torch.cat([encoder.features(part.to(place)).cpu() for part in parts])
                looks.append(_Look(features.float().view(len(batch), _CLIPS, -1), first.kinds, first.amounts))
                num_done += len(batch)
                progress(min(num_done, num_wanted), num_wanted)
                if num_done >= num_wanted:
                    break
            if not looks:
                raise ConfigError("No two videos could be read together, so nothing can be learnt from them.")
    return looks


@torch.no_grad()
def _clips(encoder: Encoder, looks: list[_Look]) -> Gaussian:
    """The distributions "looks clips dim" of all clips."""
    features = torch.cat([look.features for look in looks]).to(encoder.device)
    clips = encoder.from_features(features).clips
    return Gaussian(clips.mean.cpu(), clips.log_var.cpu())


def _learn_variance(encoder: Encoder, looks: list[_Look], check: list[_Look], *, seed: int) -> LogVarHead:
    """A head that predicts how far the last clip of a look is from the others.

    With few videos it would soon know each of them by heart, so `check` says for how many steps to learn from
    `looks`; as many are then made with both.
    """
    both = looks + check
    features, means = _standardised(encoder, both), _clips(encoder, both).mean
    std, centre = torch.std_mean(features.flatten(0, 1), dim=0)
    std = torch.where(std > 0, std, 1.0)
    inputs = (features - centre) / std
    num_first = sum(len(look.features) for look in looks)
    _, num_steps = _fit(
        encoder,
        inputs[:num_first],
        means[:num_first],
        num_steps=_STEPS,
        seed=seed,
        check=(inputs[num_first:], means[num_first:]),
    )
    head, _ = _fit(encoder, inputs, means, num_steps=num_steps, seed=seed)
    # The encoder gives features as they are: let the first layer do what was done to them here.
    first = head.layers[0]
    assert isinstance(first, nn.Linear)
    with torch.no_grad():
        first.weight.div_(std)
        first.bias.sub_(first.weight @ centre)
    return head


def _fit(
    encoder: Encoder,
    inputs: Float[Tensor, "looks clips feature"],
    means: Float[Tensor, "looks clips dim"],
    *,
    num_steps: int,
    seed: int,
    check: tuple[Tensor, Tensor] | None = None,
) -> tuple[LogVarHead, int]:
    """A head after so many steps of a schedule of _STEPS, and the step at which it foretold `check` best."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        head = LogVarHead(
            inputs.shape[-1],
            encoder.config.dim,
            parametrisation=encoder.config.scale,
            hidden_dim=_HIDDEN_DIM,
        )
    # It begins as one variance for all clips.
    last = head.layers[-1]
    assert isinstance(last, nn.Linear)
    nn.init.zeros_(last.weight)
    with torch.no_grad():
        last.bias.copy_((means[:, :-1] - means[:, -1:]).square().mean(dim=(0, 1)).log())
    optimiser = torch.optim.AdamW(head.parameters(), lr=_RATE, weight_decay=_WEIGHT_DECAY)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, _STEPS)
    generator = torch.Generator().manual_seed(seed)
    best, best_step = float("inf"), 0
    for step in range(num_steps):
        if check is not None and step % _CHECK_EVERY == 0:
            with torch.no_grad():
                check_inputs, check_means = check
                score = float(_foretold(Gaussian(check_means, head(check_inputs))))
            if score < best:
                best, best_step = score, step
        rows = torch.randint(len(inputs), (min(_BATCH_SIZE, len(inputs)),), generator=generator)
        optimiser.zero_grad()
        torch.autograd.backward(_foretold(Gaussian(means[rows], head(inputs[rows]))))
        optimiser.step()
        schedule.step()
    return head, best_step


@torch.no_grad()
def _standardised(encoder: Encoder, looks: list[_Look]) -> Float[Tensor, "looks clips feature"]:
    """Features as the heads get them."""
    features = torch.cat([look.features for look in looks])
    standardised: Tensor = encoder.head.standardisation(features.to(encoder.device)).cpu()
    return standardised


def _foretold(clips: Gaussian) -> Float[Tensor, ""]:
    """How badly the last clips of looks "looks clips dim" are foretold by the others."""
    others = Gaussian(clips.mean[:, :-1], clips.log_var[:, :-1])
    return negative_log_likelihood(others, clips.mean[:, -1:].expand_as(others.mean)).mean()


def _with_variance(encoder: Encoder, head: LogVarHead) -> Encoder:
    """A copy of the encoder with another head for the variance."""
    config = dataclasses.replace(encoder.config, log_var_hidden_dim=_HIDDEN_DIM, num_landmarks=None)
    with torch.random.fork_rng(devices=[]):
        copy = Encoder(config)
    own = {f"{_VARIANCE}{name}": value for name, value in head.state_dict().items()}
    kept = {name: value for name, value in encoder.state_dict().items() if not name.startswith(_OLD_VARIANCE)}
    copy.load_state_dict(kept | own)
    return copy.eval().to(encoder.device)


def _fit_curve(encoder: Encoder, looks: list[_Look], *, seed: int) -> None:
    """Give the encoder the match curve that best tells one video from two, by clips that are whole."""
    scale = encoder.match_scale
    generator = torch.Generator(encoder.device).manual_seed(seed)
    optimiser = torch.optim.Adam(scale.parameters(), lr=_CURVE_RATE)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, _CURVE_STEPS)
    for step in range(_CURVE_STEPS):
        features = looks[step % len(looks)].features[:, 1:].to(encoder.device)
        with torch.no_grad():
            drawn = encoder.from_features(features).sample_clips(NUM_SAMPLES, generator=generator)
        log_probabilities = match_log_probabilities(
            drawn.samples, curve=scale(), self_pairs="across_clips", clip=drawn.clip
        )
        positive = torch.eye(len(features), dtype=torch.bool, device=encoder.device)
        weights = pair_weights(positive, reduction="balanced")
        loss = (weights * soft_contrastive(log_probabilities, positive)).sum()
        optimiser.zero_grad()
        torch.autograd.backward(loss)
        optimiser.step()
        schedule.step()


def _levels(before: Encoder, after: Encoder, looks: list[_Look]) -> tuple[SpoiltLevel, ...]:
    """The first clips of all looks, those that were corrupted alike together."""
    kinds = [kind for look in looks for kind in look.kinds]
    amounts = [amount for look in looks for amount in look.amounts]
    old, new = _clips(before, looks), _clips(after, looks)
    distances = (old.mean[:, 0] - old.mean[:, -1]).square().mean(dim=-1)
    rows: dict[tuple[Spoiling, int], list[int]] = {}
    for row, level in enumerate(zip(kinds, amounts, strict=True)):
        rows.setdefault(level, []).append(row)
    return tuple(
        SpoiltLevel(
            kind,
            amount,
            num_clips=len(some),
            distance=float(distances[some].mean()),
            before=float(old.var[some, 0].mean()),
            after=float(new.var[some, 0].mean()),
        )
        for (kind, amount), some in sorted(
            rows.items(), key=lambda item: (_ORDER.index(item[0][0]), item[0][1])
        )
    )
