"""Views of the training videos with different errors, and the pairs of videos on which they agree.

A frozen network has several kinds of features: content, arrangement and change. Two videos of different
recordings that are near in two such views are often of one class. Pairs are determined once, before training,
from the features alone (`probability.mining.agree`).
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
