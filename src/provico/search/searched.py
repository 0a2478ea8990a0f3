"""An index as calibration sees it: its own videos are queries of its own search."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from provico.probability.gaussian import Gaussian
from provico.probability.mixture import Mixture
from provico.probability.seeded_samples import seeded_samples
from provico.search.exact.scoring import exact_log_probabilities
from provico.search.query import Asked
from provico.search.ranking import rank
from provico.search.snapshot import Snapshot


@dataclass(frozen=True, eq=False)
class SearchedSnapshot:
    """One version of an index; see `provico.search.calibrate.Searched`."""

    snapshot: Snapshot

    @property
    def labels(self) -> Sequence[str | None]:
        """The label of each video."""
        return list(self.snapshot.words["label"])

    @property
    def groups(self) -> Sequence[str | None]:
        """The recording that each video was cut from."""
        return list(self.snapshot.words["group"])

    def clips(self, numbers: Int[Tensor, "some"]) -> Gaussian:
        """The clips of some videos."""
        rows = self.snapshot.read(("clip_mean", "clip_log_var"), numbers.tolist())
        return Gaussian(torch.from_numpy(rows["clip_mean"]), torch.from_numpy(rows["clip_log_var"]))

    def nearest(
        self, numbers: Int[Tensor, "some"], clips: Gaussian, *, k: int, allowed: Bool[Tensor, "videos"]
    ) -> list[tuple[Float[Tensor, "found"], Int[Tensor, "found"]]]:
        """The best videos of other groups for each query."""
        asked = self._asked(numbers, clips)
        found = rank(asked, self.snapshot, metric="match", k=k, allowed=allowed, exclude_same="group")
        return [(one.scores.double(), one.numbers) for one in found]

    def between(
        self,
        numbers: Int[Tensor, "some"],
        ours: Gaussian,
        other_numbers: Int[Tensor, "some"],
        theirs: Gaussian,
    ) -> Float[Tensor, "some"]:
        """Log match probabilities of queries and others, pair by pair."""
        settings = self.snapshot.settings
        return exact_log_probabilities(
            torch.cat([one.samples(settings) for one in self._asked(numbers, ours)]),
            seeded_samples(
                [self.snapshot.id_of(number) for number in other_numbers.tolist()],
                Mixture(theirs),
                num_samples=settings.num_samples,
                seed=settings.seed,
                stream="gallery",
            ),
            curve=settings.curve,
        )

    def _asked(self, numbers: Int[Tensor, "some"], clips: Gaussian) -> list[Asked]:
        no_times = torch.empty(clips.mean.shape[1], 2, dtype=torch.float64)
        return [
            Asked(self.snapshot.id_of(number), None, number, Gaussian(mean, log_var), no_times)
            for number, mean, log_var in zip(numbers.tolist(), clips.mean, clips.log_var, strict=True)
        ]
