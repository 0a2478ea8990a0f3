"""The variance of a video from what speaks for it and against it.

    var_d  =  SHARE * |mu|^2 / D * ( BASE * relative * exp(GAIN * lack) + strange + conflict + damage_d )

`lack` is the sum of what is missing, each in standard deviations of what is usual:

- the **nearness** of the nearest video that was learnt from, by the cosine of the means;
- on a frozen network, the **support** by these videos. Each view of a video (each block of its features, and
  its mean) is compared with a memory of them. Where there are several blocks, a similarity s counts by how
  surprising it is, for the video and for the remembered one (symmetric score normalisation):

    z(s)  =  ( (s - mean_q) / std_q  +  (s - mean_m) / std_m ) / 2

  with the mean and the spread of the similarities of the video q, and of the remembered video m, with all
  others. The support is that of the best remembered video, by the mean of z over the views. So it is missing
  where nothing is near, where what is near is near to everything, and where the views contradict each other.
  With one block alone nothing can contradict, and s itself is taken. Networks that learn together soon know
  the same videos by heart, and their agreement says nothing;
- on a frozen network, the **unity** of the ten that support it most. Clusters of the remembered means, of
  several sizes, stand for kinds of videos. The entropy of the kinds among the ten is averaged over the sizes:

    disunity  =  mean over divisions of  - sum_k p_k log p_k / log(number of clusters)

  Where a video lies between kinds, its best match may be of either, however near it is. In a small memory any
  ten are of several kinds: it counts for nothing up to 100 videos, and in full from 200.

A remembered video supports only videos of *other* recordings: its own recording, and whatever looks like a
copy of it, would support every video that was learnt from. What is merely alike does support.

`relative` is the variance that the loss taught the head, as a multiple of what is usual, where the network
learns. On a frozen network a head learns a variance that means nothing for new videos, and it is 1. With a
single network that learns, the reverse holds, and `lack` is 0 (docs/log.md).

`strange` is the distance of the features to those of the nearest remembered video, as far as it exceeds what
is usual by more than two standard deviations: directions do not know how far away a video is, and this one
lies outside of all that was learnt from. For a network that learns, every new video is farther than those it
has learnt, and it is 0.

`conflict` is twice the spread of the clip means, as far as it exceeds two times what is usual (for ten clips;
more for fewer, whose spread is a matter of chance): the video shows several things. Clips of most videos
differ, and that says nothing. On a frozen network it must also lie nearer to the spread of different videos
than to what is usual: where clips are all but equal, twice as much is nothing, too.

`damage` is the squared distance by which corruption of this kind moves a mean, and the share of the clip that
is gone, as a small network predicts both from the features. It also sees some damage in whole clips of new
videos, so a clip passes a gate first: with r the mean damage over the coordinates, as a multiple of what is
tolerated, the share r^4 / (1 + r^4) of its damage counts.

The causes are added, so that none hides another.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from provico.models.heads import bounded
from provico.models.recordings import (
    NO_NAME,
    SAME_VIDEO,
    are_near,
    found_recordings,
    recording_names,
    whole_recordings,
)
from provico.models.remembered import Kinds, Usual, View
from provico.probability.gaussian import Gaussian
from provico.probability.precision import at_least_float32, autocast_off
from provico.probability.scale import Parametrisation

SHARE = 0.25
"""All variances are multiplied by this: a match is then decided by means first, and by chance less often."""
BASE = 0.12
"""Variance of a video with usual support, in the units of conflict and damage."""
GAIN = 0.25
"""Growth of the logarithm of that variance per standard deviation of support or nearness that is lacking."""
MOST = 3.0
"""Standard deviations beyond which support or nearness neither lacks nor helps any more."""
MOST_SPREAD = 1.5
"""Many clips may differ by this multiple of what is usual before that counts; few by more."""
CONFLICT = 2.0
"""Weight of the spread beyond that: damage that is only suspected must not hide it."""
MOST_FAR = 2.0
"""Standard deviations by which the nearest video may be farther than usual before that counts."""
HIDDEN_DIM = 64
"""Width of the network that predicts damage."""

_NO_DAMAGE = -30.0  # a bias at which softplus gives nothing
_LEAST_DISTANCE = 1e-6  # has a logarithm


class Evidence(nn.Module):
    """A memory of the videos that were learnt from, and a network that predicts damage.

    As built it knows nothing: every video has the variance SHARE * BASE, in units of |mu|^2 / D. `remember`
    fits the memory. Nothing here is learnt by the loss of the paper.
    """

    recording: Tensor
    name: Tensor
    directions: Tensor
    usual: Tensor
    usual_spread: Tensor
    halfway: Tensor
    tolerated: Tensor

    def __init__(
        self,
        blocks: Sequence[int],
        dim: int,
        *,
        num_videos: int,
        parametrisation: Parametrisation,
        is_frozen: bool = True,
    ) -> None:
        super().__init__()
        self.blocks = tuple(blocks)
        self.is_frozen = is_frozen
        self.views = nn.ModuleList(View(size, num_videos) for size in (*self.blocks, dim))
        self.register_buffer("recording", torch.arange(num_videos))
        self.register_buffer("name", torch.full((num_videos,), NO_NAME))
        self.register_buffer("directions", torch.zeros(num_videos, dim))
        self.kinds = Kinds(num_videos)
        self.support, self.nearness, self.disunity, self.distance = (Usual() for _ in range(4))
        self.register_buffer("usual", torch.zeros(()))
        self.register_buffer("usual_spread", torch.ones(()))
        self.register_buffer("halfway", torch.zeros(()))
        self.register_buffer("tolerated", torch.zeros(()))
        self.unit = parametrisation.mean_norm(dim) ** 2 / dim
        self.damage = self.new_damage()
        self.bounds = parametrisation.log_var_bounds(dim)

    @torch.no_grad()
    def remember(
        self,
        features: Float[Tensor, "videos clips feature"],
        clips: Gaussian,
        recordings: Sequence[str | None] | None = None,
    ) -> None:
        """Take these videos as the memory; where no recordings are named, videos that look alike are one.

        clips: what the heads make of the features.
        """
        self.usual.copy_(clips.log_uncertainty.mean())
        self.usual_spread.copy_(self.spread(clips.mean).median())
        if self.is_frozen:
            self.halfway.copy_((self.usual_spread + self.spread(clips.mean.mean(dim=-2))) / 2)
        looks = self._looks(features, clips.mean)
        for view, look in zip(self._views, looks, strict=True):
            view.remember(look)
        names = [None] * len(features) if recordings is None else list(recordings)
        self.name.copy_(recording_names(names))
        similarity = torch.stack([view.memory @ view.memory.T for view in self._views])
        self.recording.copy_(found_recordings(are_near(similarity).nonzero(), names))
        are_strangers = self.recording.unsqueeze(1) != self.recording
        for view in self._views:
            view.fit_nulls(are_strangers)
        is_own = self._is_own(looks, self.name, self.recording)
        self.directions.copy_(F.normalize(looks[-1], dim=-1))
        self.kinds.remember(self.directions)
        self.nearness.fit(self._best_cosine(looks, is_own))
        supports = self._supports(looks, is_own)
        self.support.fit(supports.amax(dim=-1))
        self.disunity.fit(self.kinds(supports))
        self.distance.fit(self._log_distance(looks, is_own))

    def forward(
        self,
        features: Float[Tensor, "*videos clips feature"],
        clips: Gaussian,
        names: Int[Tensor, "*videos"] | None = None,
    ) -> Float[Tensor, "*videos clips dim"]:
        """The log-variance of each clip.

        clips: what the heads make of the features.
        names: the recordings of the videos, as `recording_names` gives them; what the memory has of them does
            not count.
        """
        features = at_least_float32(features)
        with autocast_off(features):
            log_base = strange = torch.zeros_like(clips.mean[..., :1])
            if self.is_frozen or len(self.blocks) > 1:
                lack, remoteness = self.compare(features, clips.mean, names)
                log_base = log_base + GAIN * lack[..., None, None]
            if self.is_frozen:
                strange = (remoteness - MOST_FAR).clamp(min=0)[..., None, None]
            else:
                log_base = log_base + (clips.log_uncertainty - self.usual).unsqueeze(-1)
            most = tolerated_spread(clips.mean.shape[-2]) * self.usual_spread
            most = torch.maximum(most, self.halfway)
            conflict = CONFLICT * (self.spread(clips.mean) - most).clamp(min=0)
            damage = gated(F.softplus(self.damage(features)), self.tolerated)
            var = BASE * log_base.exp() + strange + conflict[..., None, None] + damage
            return bounded(math.log(SHARE * self.unit) + var.log(), *self.bounds)

    def spread(self, means: Float[Tensor, "*videos clips dim"]) -> Float[Tensor, "*videos"]:
        """Variance of the clip means in units of |mu|^2 / D, without bias by their number; 0 for one clip."""
        squares = (means - means.mean(dim=-2, keepdim=True)).square().mean(dim=-1).sum(dim=-1)
        return squares / max(1, means.shape[-2] - 1) / self.unit

    def compare(
        self,
        features: Float[Tensor, "*videos clips feature"],
        means: Float[Tensor, "*videos clips dim"],
        names: Int[Tensor, "*videos"] | None = None,
    ) -> tuple[Float[Tensor, "*videos"], Float[Tensor, "*videos"]]:
        """Lack of support, and remoteness, in standard deviations; 0 if there is no other recording."""
        looks = self._looks(features, means)
        is_own = self._is_own(looks, names)
        lack = -self.nearness(self._best_cosine(looks, is_own)).clamp(-MOST, MOST)
        if self.is_frozen:
            supports = self._supports(looks, is_own)
            lack = lack - self.support(supports.amax(dim=-1)).clamp(-MOST, MOST)
            lack = lack + self.kinds.weight * self.disunity(self.kinds(supports)).clamp(-MOST, MOST)
        return lack, self.distance(self._log_distance(looks, is_own))

    def new_damage(self, start: float = 0.0) -> nn.Sequential:
        """A network that predicts this damage for every clip, before softplus."""
        dim = self._views[-1].centre.shape[0]
        last = nn.Linear(HIDDEN_DIM, dim)
        nn.init.zeros_(last.weight)
        nn.init.constant_(last.bias, math.log(math.expm1(start)) if start > 0 else _NO_DAMAGE)
        return nn.Sequential(nn.Linear(sum(self.blocks), HIDDEN_DIM), nn.ReLU(), last)

    @property
    def _views(self) -> list[View]:
        return [view for view in self.views if isinstance(view, View)]

    def _looks(self, features: Tensor, means: Tensor) -> list[Tensor]:
        """A video in each view: the average of its clips."""
        return [*torch.split(features.mean(dim=-2), list(self.blocks), dim=-1), means.mean(dim=-2)]

    def _similarity(self, looks: list[Tensor]) -> Float[Tensor, "views *videos memory"]:
        return torch.stack(
            [view(look) @ view.memory.T for view, look in zip(self._views, looks, strict=True)]
        )

    def _is_own(
        self,
        looks: list[Tensor],
        names: Int[Tensor, "*videos"] | None = None,
        recordings: Int[Tensor, "*videos"] | None = None,
    ) -> Bool[Tensor, "*videos memory"]:
        """Which remembered videos are of a video's own recording, by name or as one of them is a copy of it.

        recordings: rows of the memory's own recordings, where the videos are the memory.
        """
        is_own = whole_recordings(are_near(self._similarity(looks), SAME_VIDEO), self.recording)
        if names is not None:
            is_named = (names != NO_NAME).unsqueeze(-1)
            is_own = is_own | ((names.unsqueeze(-1) == self.name) & is_named)
        if recordings is not None:
            is_own = is_own | (recordings.unsqueeze(-1) == self.recording)
        return is_own

    def _supports(
        self, looks: list[Tensor], is_own: Bool[Tensor, "*videos memory"]
    ) -> Float[Tensor, "*videos memory"]:
        """The support by each remembered video; -inf for those of the video's own recording."""
        support = self._similarity(looks)
        if len(self.blocks) > 1:
            support = torch.stack(
                [view.surprise(part) for view, part in zip(self._views, support, strict=True)]
            )
        return support.mean(dim=0).masked_fill(is_own, -math.inf)

    def _best_cosine(
        self, looks: list[Tensor], is_own: Bool[Tensor, "*videos memory"]
    ) -> Float[Tensor, "*videos"]:
        """Cosine of the mean with the nearest of another recording; -inf if there is none."""
        cosine = F.normalize(looks[-1], dim=-1) @ self.directions.T
        return cosine.masked_fill(is_own, -math.inf).amax(dim=-1)

    def _log_distance(
        self, looks: list[Tensor], is_own: Bool[Tensor, "*videos memory"]
    ) -> Float[Tensor, "*videos"]:
        """Logarithm of the distance to the nearest of another recording, averaged over blocks of features."""
        blocks = list(zip(self._views, looks, strict=True))[:-1]
        nearest = [view.distances(look).masked_fill(is_own, math.inf).amin(dim=-1) for view, look in blocks]
        return torch.stack([distance.clamp(min=_LEAST_DISTANCE).log() for distance in nearest]).mean(dim=0)


def gated(damage: Float[Tensor, "*clips dim"], tolerated: Float[Tensor, ""]) -> Float[Tensor, "*clips dim"]:
    """What counts of the damage of a clip: half if it is just tolerated, less below, all far above."""
    mean = damage.mean(dim=-1, keepdim=True)
    # r^4 / (1 + r^4) without a division by what may be 0
    return damage * torch.sigmoid(4 * (mean.log() - tolerated.log()))


def tolerated_spread(num_clips: int) -> float:
    """By which multiple of what is usual so many clips may differ: 2 for ten, as few tell little."""
    return MOST_SPREAD * (1 + 1 / math.sqrt(max(1, num_clips - 1)))
