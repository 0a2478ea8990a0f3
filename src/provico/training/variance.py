"""The last step of a pretraining run: a variance that is based on evidence (`models.evidence`).

    1. the memory      the training videos, in each view, with their recordings
    2. the damage   clips of these videos are corrupted: how far do their means move, and how much is lost?
    3. the curve    the match curve is fitted to the new variances

The means do not change, so no ranking by cosine changes. An encoder without a trained variance, such as one
of the deterministic method, gets one by this step alone.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from provico.data.catalog import Catalog
from provico.data.corrupt import spoil
from provico.data.library import Library
from provico.data.loader import ClipLoader
from provico.defaults import MAX_BROKEN_SHARE
from provico.embedding.clips import clip_settings
from provico.embedding.features import clip_features, network_features
from provico.errors import TooManyBrokenError
from provico.models.backbones.registry import FEATURES
from provico.models.encoder import Encoder
from provico.models.evidence import Evidence
from provico.models.inference import evaluating
from provico.probability.losses import pair_weights, soft_contrastive
from provico.probability.matching import match_log_probabilities
from provico.progress import Progress, silent

MOST_REMEMBERED = 2048
"""Maximum number of videos in the memory; of more, a random sample is used."""
CLIPS_REMEMBERED = 8
"""Clips per video in the memory."""
NUM_LOOKS = 512
"""Total number of corrupted clips for a frozen network."""
NUM_LOOKS_LEARNT = 1024
"""Total number for a trained network, which detects damage less clearly and is faster."""
TOLERATED = 0.75
"""A predicted damage that occurs in one of four intact clips of unseen videos counts by half; smaller ones
count less. The threshold is not lower because up to a quarter of a collection may be damaged junk."""

_VIDEOS_AT_ONCE = 16
_BATCH_SIZE, _STEPS, _RATE, _WEIGHT_DECAY = 128, 2000, 1e-3, 0.1
_SOFTENING = 0.1  # damage below this, in units of the variance, is negligible
_CURVE_STEPS, _CURVE_RATE, _CURVE_VIDEOS, _CURVE_SAMPLES = 200, 0.1, 128, 4
_STREAM = 7  # a separate random stream for each purpose


def learn_variance(
    encoder: Encoder,
    catalog: Catalog,
    *,
    features: Float[Tensor, "videos clips feature"] | None = None,
    num_looks: int | None = None,
    seed: int = 0,
    num_workers: int = 0,
    max_broken_share: float = MAX_BROKEN_SHARE,
    device: torch.device | str | None = None,
    library: Library | None = None,
    progress: Progress = silent,
) -> Encoder:
    """A copy of the encoder with a variance that is based on evidence from these videos.

    features: the features of the catalog's videos, if known.
    num_looks: number of clips to corrupt; by default NUM_LOOKS or NUM_LOOKS_LEARNT, 0 for none. Encoders of
        stored features have no pixels to corrupt.
    """
    if num_looks is None:
        num_looks = NUM_LOOKS if encoder.config.backbone_spec.is_frozen else NUM_LOOKS_LEARNT
    rows = _drawn(len(catalog), MOST_REMEMBERED, seed)
    catalog = catalog.subset(rows.tolist())
    if features is None:
        found = clip_features(
            encoder,
            catalog,
            num_clips=CLIPS_REMEMBERED,
            num_workers=num_workers,
            max_broken_share=max_broken_share,
            library=library,
        )
        catalog, features = found.catalog, found.features
    else:
        features = features[rows]
    recordings = [video.group for video in catalog]
    learnt = with_evidence(encoder, num_remembered=len(features))
    with evaluating(learnt, device) as place, torch.no_grad():
        assert learnt.evidence is not None
        features = features.to(place)
        whole = learnt.head.standardisation(features)
        learnt.evidence.remember(whole, learnt.head(features), recordings)
    if num_looks and encoder.config.backbone != FEATURES:
        looks = _look(learnt, catalog, num_looks, seed, num_workers, device, library, progress)
        _learn_damage(learnt, looks, whole.cpu(), seed=seed)
    _fit_curve(learnt, features, recordings, seed=seed)
    return learnt.eval()


def with_evidence(encoder: Encoder, *, num_remembered: int | None) -> Encoder:
    """A copy of the encoder with an empty memory for this many videos, or without one for None."""
    config = dataclasses.replace(encoder.config, num_remembered=num_remembered)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        is_frozen = config.backbone_spec.is_frozen  # then it is shared, not read again
        copy = Encoder(config, backbone=encoder.backbone if is_frozen else None)
    kept = {name: value for name, value in encoder.state_dict().items() if not name.startswith("evidence.")}
    own = {name: value for name, value in copy.state_dict().items() if name.startswith("evidence.")}
    copy.load_state_dict(kept | own)
    return copy.eval().to(encoder.device)


def _drawn(num_videos: int, most: int, seed: int) -> Tensor:
    order = torch.randperm(num_videos, generator=torch.Generator().manual_seed(seed))
    return order[:most].sort().values


@dataclass(frozen=True)
class _Looks:
    """Features of corrupted clips, and their damage."""

    inputs: Float[Tensor, "looks feature"]
    damage: Float[Tensor, "looks dim"]
    """Squared displacement of the means in units of |mu|^2 / D, plus the share of the clip that is lost. The
    second term is needed because displacement saturates: pure noise would look no worse than half."""


@torch.no_grad()
def _look(
    encoder: Encoder,
    catalog: Catalog,
    num_looks: int,
    seed: int,
    num_workers: int,
    device: torch.device | str | None,
    library: Library | None,
    progress: Progress,
) -> _Looks:
    """Corrupt clips of random videos until there are enough."""
    loader = ClipLoader(
        catalog,
        dataclasses.replace(clip_settings(encoder.config, num_clips=1), sampling="random"),
        batch_size=min(_VIDEOS_AT_ONCE, len(catalog)),
        seed=seed,
        num_workers=num_workers,
        max_broken_share=1.0,
        drop_last=False,
        library=library,
    )
    assert encoder.evidence is not None
    rng = np.random.default_rng([seed, _STREAM])
    inputs, damage = [], []
    num_done = 0
    with evaluating(encoder, device) as place:

        def features(pixels: Tensor) -> Tensor:
            return torch.cat(list(network_features(encoder, [pixels]))).to(place)

        while num_done < num_looks:
            before = num_done
            for batch in loader:
                if not len(batch):
                    continue
                clips = batch.pixels[:, 0]
                corrupted = spoil(clips.numpy(), rng, share=1.0)
                spoilt = features(torch.from_numpy(corrupted.pixels))
                means = encoder.head(torch.stack([features(clips), spoilt])).mean
                moved = ((means[1] - means[0]).square() / encoder.evidence.unit).cpu()
                damage.append(moved + torch.tensor(corrupted.lost).unsqueeze(1))
                inputs.append(encoder.head.standardisation(spoilt).cpu())
                num_done += len(batch)
                progress(min(num_done, num_looks), num_looks)
                if num_done >= num_looks:
                    break
            if num_done == before:
                raise TooManyBrokenError("No video can be read any more, so no clip can be corrupted.")
    return _Looks(torch.cat(inputs), torch.cat(damage))


def _learn_damage(
    encoder: Encoder, looks: _Looks, whole: Float[Tensor, "videos clips feature"], *, seed: int
) -> None:
    """Fit the network that predicts damage, and store its predictions for unseen intact clips.

    These come from cross-fitting: two further networks, each trained on one half of the recordings.
    """
    evidence = encoder.evidence
    assert evidence is not None
    evidence.damage.load_state_dict(_fitted(evidence, looks, whole, seed=seed).state_dict())
    is_first = halves(evidence.recording.cpu())
    unseen = []
    for part in (is_first, ~is_first):
        if part.any() and not part.all():
            network = _fitted(evidence, looks, whole[part], seed=seed)
            unseen.append(F.softplus(network(whole[~part])).mean(dim=-1).flatten())
    if unseen:
        evidence.tolerated.copy_(torch.quantile(torch.cat(unseen), TOLERATED))


def halves(recording: Int[Tensor, "videos"]) -> Bool[Tensor, "videos"]:
    """Every second recording."""
    place: Tensor = torch.unique(recording, return_inverse=True)[1]
    return place % 2 == 0


def _fitted(
    evidence: Evidence, looks: _Looks, whole: Float[Tensor, "videos clips feature"], *, seed: int
) -> nn.Sequential:
    """Train a network to predict the damage of corrupted clips, and none for intact ones.

    Half of the features are dropped at each step: otherwise it would memorise the videos.
    """
    clips = whole.flatten(0, 1)
    std, centre = torch.std_mean(torch.cat([looks.inputs, clips]), dim=0)
    std = torch.where(std > 0, std, 1.0)
    spoilt, others = (looks.inputs - centre) / std, (clips - centre) / std
    with torch.random.fork_rng(devices=[]), torch.enable_grad():
        torch.manual_seed(seed)
        network = evidence.new_damage(float(looks.damage.mean()))
        optimiser = torch.optim.AdamW(network.parameters(), lr=_RATE, weight_decay=_WEIGHT_DECAY)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, _STEPS)
        num_spoilt = _BATCH_SIZE // 4
        nothing = torch.zeros(_BATCH_SIZE - num_spoilt, looks.damage.shape[1])
        for _ in range(_STEPS):
            rows = torch.randint(len(spoilt), (num_spoilt,))
            seen = torch.cat([spoilt[rows], others[torch.randint(len(others), (len(nothing),))]])
            predicted = network(F.dropout(seen))
            optimiser.zero_grad()
            torch.autograd.backward(_damage_loss(predicted, torch.cat([looks.damage[rows], nothing])))
            optimiser.step()
            schedule.step()
    # The heads pass raw features: fold the standardisation into the first layer.
    first = network[0]
    assert isinstance(first, nn.Linear)
    with torch.no_grad():
        first.weight.div_(std)
        first.bias.sub_(first.weight @ centre)
    return network.requires_grad_(False)


def _damage_loss(predicted: Float[Tensor, "clips dim"], damage: Float[Tensor, "clips dim"]) -> Tensor:
    """Loss whose minimum is reached if softplus of the prediction equals the mean damage of similar clips."""
    expected = F.softplus(predicted) + _SOFTENING
    return (expected.log() + (damage + _SOFTENING) / expected).mean()


def _fit_curve(
    encoder: Encoder,
    features: Float[Tensor, "videos clips feature"],
    recordings: list[str | None],
    *,
    seed: int,
) -> None:
    """Fit the match curve that best separates same from different videos, by halves of their clips."""
    num_videos, num_clips = features.shape[:2]
    if num_videos < 2 or num_clips < 2:
        return
    scale = encoder.match_scale.requires_grad_(True)
    generator = torch.Generator(encoder.device).manual_seed(seed)
    optimiser = torch.optim.Adam(scale.parameters(), lr=_CURVE_RATE)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, _CURVE_STEPS)
    with torch.no_grad():
        videos = encoder.from_features(features.to(encoder.device), recordings)
    for _ in range(_CURVE_STEPS):
        rows = torch.randperm(num_videos, generator=generator, device=encoder.device)[:_CURVE_VIDEOS]
        drawn = videos[rows].sample_clips(_CURVE_SAMPLES, generator=generator)
        log_probabilities = match_log_probabilities(
            drawn.samples, curve=scale(), self_pairs="across_clips", clip=drawn.clip
        )
        positive = torch.eye(len(rows), dtype=torch.bool, device=encoder.device)
        weights = pair_weights(positive, reduction="balanced")
        loss = (weights * soft_contrastive(log_probabilities, positive)).sum()
        optimiser.zero_grad()
        torch.autograd.backward(loss)
        optimiser.step()
        schedule.step()
