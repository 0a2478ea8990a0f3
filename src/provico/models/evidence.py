"""The variance of a video, computed from evidence for and against it.

    var_d  =  SHARE * |mu|^2 / D * ( BASE * relative * exp(GAIN * lack) + strange + conflict + damage_d )

`lack` is the sum of two or three deficits, each in standard deviations of its usual value:

- the **nearness** of the nearest training video, by the cosine of the means;
- on a frozen network, the **support** by the training videos. Each view of a video (each block of its
  features, and its mean) is compared with a memory of them. With several blocks, a similarity s counts by how
  surprising it is, for the video and for the remembered one (symmetric score normalisation):

      z(s)  =  ( (s - mean_q) / std_q  +  (s - mean_m) / std_m ) / 2

  with the mean and the standard deviation of the similarities of the video q, and of the remembered video m,
  to all others. The support is that of the best remembered video, by the mean of z over the views. So it is
  low if nothing is near, if the near videos are near to everything, and if the views contradict each other. A
  single block cannot be contradicted, so s itself is used. Networks that are trained together soon memorise
  the same videos, so their agreement is no evidence;
- on a frozen network, the **unity** of the ten videos with the highest support. Clusters of the remembered
  means, of several sizes, represent kinds of videos. The entropy of the kinds among the ten is averaged:

      disunity  =  mean over divisions of  - sum_k p_k log p_k / log(number of clusters)

  For a video between kinds, the best match may be of either kind, however near it is. In a small memory any
  ten videos are of several kinds: unity is ignored up to 100 videos, and has its full weight from 200.

A remembered video supports only videos of *other* recordings: its own recording and its near-duplicates
would support every training video. Videos that are merely similar do support each other.

`relative` is the variance that the head learnt from the loss, as a multiple of its usual value, for a network
that is trained. On a frozen network the variance that a head learns is meaningless for new videos, so it is
1. For a single trained network, the reverse holds: `lack` is 0 (docs/log.md).

`strange` is the distance of the features to those of the nearest remembered video, as far as it exceeds the
usual distance by more than two standard deviations: directions do not show how far away a video is, and such
a video is outside of the training distribution. For a trained network every new video is farther away than
the training videos, so it is 0.

`conflict` is twice the spread of the clip means, as far as it exceeds two times the usual spread (for ten
clips; more for fewer, whose spread is noisier): the video shows several things. The clips of most videos
differ, and that means nothing. On a frozen network the spread must also be nearer to that of different videos
than to the usual one: if clips are nearly equal, twice the usual spread means nothing either.

`damage` is the squared distance by which corruption of this kind moves a mean, and the share of the clip that
is lost. A small network predicts both from the features. It also finds some damage in intact clips of new
videos, so the prediction is gated: with r the mean damage over the coordinates, as a multiple of the
tolerated damage, the share r^4 / (1 + r^4) of it counts.

The causes are added, so that none hides another.

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
"""A factor on all variances: a match is then decided by the means, and less often by sampling noise."""
BASE = 0.12
"""The variance of a video with the usual support, in the units of conflict and damage."""
GAIN = 0.25
"""Growth of the logarithm of that variance per standard deviation of missing support or nearness."""
MOST = 3.0
"""Deficits and surpluses are clamped to this many standard deviations."""
MOST_SPREAD = 1.5
"""Tolerated spread of many clips, as a multiple of the usual spread; higher for few clips."""
CONFLICT = 2.0
"""Weight of the spread beyond that, so that merely suspected damage does not hide it."""
MOST_FAR = 2.0
"""Tolerated excess of the distance to the nearest video, in standard deviations."""
HIDDEN_DIM = 64
"""Width of the network that predicts damage."""

_NO_DAMAGE = -30.0  # a bias at which softplus is zero
_LEAST_DISTANCE = 1e-6  # avoids the logarithm of zero


class Evidence(nn.Module):
    """A memory of the training videos, and a network that predicts damage.

    Initially it is empty: every video has the variance SHARE * BASE, in units of |mu|^2 / D. `remember` fits
    the memory. Nothing here is trained by the loss of the paper.
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
        """Fit the memory to these videos. Without `recordings`, near-duplicates are one recording.

        clips: the output of the heads for these features.
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

        clips: the output of the heads for these features.
        names: the recordings of the videos, as `recording_names` returns them; remembered videos of the same
            recording are ignored.
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
        """Variance of the clip means in units of |mu|^2 / D, unbiased by their number; 0 for one clip."""
        squares = (means - means.mean(dim=-2, keepdim=True)).square().mean(dim=-1).sum(dim=-1)
        return squares / max(1, means.shape[-2] - 1) / self.unit

    def compare(
        self,
        features: Float[Tensor, "*videos clips feature"],
        means: Float[Tensor, "*videos clips dim"],
        names: Int[Tensor, "*videos"] | None = None,
    ) -> tuple[Float[Tensor, "*videos"], Float[Tensor, "*videos"]]:
        """Missing support, and excess distance, in standard deviations; 0 if there is no other recording."""
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
        """Which remembered videos are of a video's own recording, by name or as near-duplicates.

        recordings: rows of the memory's own recordings, if the videos are the memory.
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
        """Cosine of the mean to the nearest video of another recording; -inf if there is none."""
        cosine = F.normalize(looks[-1], dim=-1) @ self.directions.T
        return cosine.masked_fill(is_own, -math.inf).amax(dim=-1)

    def _log_distance(
        self, looks: list[Tensor], is_own: Bool[Tensor, "*videos memory"]
    ) -> Float[Tensor, "*videos"]:
        """Log-distance to the nearest video of another recording, averaged over blocks of features."""
        blocks = list(zip(self._views, looks, strict=True))[:-1]
        nearest = [view.distances(look).masked_fill(is_own, math.inf).amin(dim=-1) for view, look in blocks]
        return torch.stack([distance.clamp(min=_LEAST_DISTANCE).log() for distance in nearest]).mean(dim=0)


def gated(damage: Float[Tensor, "*clips dim"], tolerated: Float[Tensor, ""]) -> Float[Tensor, "*clips dim"]:
    """The counted damage of a clip: half at the tolerated level, less below, all far above."""
    mean = damage.mean(dim=-1, keepdim=True)
    # r^4 / (1 + r^4) without a division by zero
    return damage * torch.sigmoid(4 * (mean.log() - tolerated.log()))


def tolerated_spread(num_clips: int) -> float:
    """Tolerated spread of this many clips, as a multiple of the usual one: 2 for ten, more for fewer."""
    return MOST_SPREAD * (1 + 1 / math.sqrt(max(1, num_clips - 1)))
