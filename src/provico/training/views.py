"""Views of the training videos with different errors, and the pairs of videos on which they agree.

A frozen network has several kinds of features: content, arrangement and change. Two videos of different
recordings that are near in two such views are often of one class. Pairs are determined once, before training,
from the features alone (`probability.mining.agree`). Parallel networks that are trained are views, too: they
mine in each step, as long as they agree beyond chance.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor

from provico.config import PretrainConfig
from provico.errors import ConfigError
from provico.models.encoder import Encoder
from provico.models.recordings import are_near, found_recordings
from provico.models.remembered import View
from provico.probability.mining import AgreedPairs, agree
from provico.training.data import TrainingData
from provico.training.memory import VideoMemory

LEAST_STANDARD_ERRORS = 3.0
"""Parallel networks mine if the number of pairs on which they agree exceeds chance by this much.

The surplus itself is small, since what the networks share counts as chance, classes included: .11 to .18
where .65 of the pairs are right (UCF101-5, 5 to 10 standard errors), at most .03 where .2 are (demo set, 1).
"""
_SIMILARITIES_AT_ONCE = 2**24


@torch.no_grad()
def agreed_pairs(
    encoder: Encoder, data: TrainingData, config: PretrainConfig, announce: Callable[[str], None]
) -> AgreedPairs | None:
    """The pairs on which views of the training videos agree, for `among="views"`."""
    mining = config.mining
    if mining.among != "views" or mining.mine_from is None:
        return None
    if data.features is None:
        raise ConfigError(
            f"--among views compares features of a frozen network, but {config.model.backbone} is trained. "
            "Use --among batch or --among all."
        )
    assert mining.mutual_top is not None  # checked earlier
    features = encoder.head.standardisation.cpu()(data.features).mean(dim=1)
    views = view_directions(features, encoder.config.backbone_spec.views)
    encoder.head.standardisation.to(encoder.device)
    recordings = recordings_of(views, [video.group for video in data.catalog])
    found = agree(views, recordings, num_nearest=mining.mutual_top, seed=config.run.seed)
    if found is None:
        announce("The features are of one kind, so no second view can confirm pairs: none are mined.")
    else:
        announce(
            f"Views agree on {len(found.pairs) // 2} pairs of videos, {found.beyond_chance:.0%} of them "
            f"beyond chance: they are {'' if found.are_trusted else 'not '}used."
        )
    return found


@torch.no_grad()
def agreement_of_streams(
    memory: VideoMemory, groups: Sequence[str | None], num_streams: int, *, num_nearest: int, seed: int
) -> float:
    """Share of the pairs on which parallel networks agree that chance does not explain; 0 if none is certain.

    The networks see motion and scenery and are trained with separate losses, so they are views with different
    errors. In a small collection, the nearest videos of both may be any videos.
    """
    names = [group for group, is_seen in zip(groups, memory.is_seen.tolist(), strict=True) if is_seen]
    means = memory.everyone.mean.cpu()
    views = view_directions(means, [means.shape[1] // num_streams] * num_streams)
    found = agree(views, recordings_of(views, names), num_nearest=num_nearest, seed=seed)
    if found is None or found.standard_errors < LEAST_STANDARD_ERRORS:
        return 0.0
    return found.beyond_chance


def view_directions(
    features: Float[Tensor, "videos feature"], blocks: Sequence[int]
) -> list[Float[Tensor, "videos axes"]]:
    """The direction of each video in each view, on softly whitened principal axes."""
    directions = []
    for part in torch.split(features, list(blocks), dim=1):
        view = View(part.shape[1], len(part))
        view.remember(part)
        directions.append(view.memory)
    return directions


def recordings_of(
    views: Sequence[Float[Tensor, "videos axes"]], names: Sequence[str | None]
) -> Int[Tensor, "videos"]:
    """The recording of each video, by its name or by similarity in all views."""
    num_videos = len(names)
    near = []
    for rows in torch.split(torch.arange(num_videos), max(1, _SIMILARITIES_AT_ONCE // num_videos)):
        alike = are_near(torch.stack([view[rows] @ view.T for view in views])).nonzero()
        near.append(torch.stack([rows[alike[:, 0]], alike[:, 1]], dim=1))
    return found_recordings(torch.cat(near), names)
