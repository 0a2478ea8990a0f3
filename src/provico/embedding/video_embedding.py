"""What an encoder says of one video file: its distribution, and the clips that it was seen through."""

from __future__ import annotations

from dataclasses import dataclass

from provico.data.clips import Clip
from provico.probability.gaussian import Gaussian
from provico.probability.mixture import Mixture


@dataclass(frozen=True, eq=False)
class VideoEmbedding:
    """A video as a distribution, and where in the video each of its clips lies."""

    clips: tuple[Clip, ...]
    """Which frames, and when."""
    mixture: Mixture
    """p(z|V), with p(z|c) "clips dim" of each clip inside."""

    def __post_init__(self) -> None:
        found = tuple(self.gaussians.mean.shape)
        if len(found) != 2 or found[0] != len(self.clips):
            raise ValueError(
                f"The clip means have shape {found}, but ({len(self.clips)}, dim) is needed, one row a clip."
            )

    @property
    def gaussians(self) -> Gaussian:
        """p(z|c) of each clip."""
        return self.mixture.clips

    @property
    def distribution(self) -> Gaussian:
        """The Gaussian with the mean and variance of the mixture."""
        return self.mixture.moment_matched

    @property
    def uncertainty(self) -> float:
        """How unsure the encoder is of the video: `ambiguity` + `disagreement`."""
        return float(self.mixture.uncertainty)

    @property
    def ambiguity(self) -> float:
        """What the uncertainty would be if the clips agreed."""
        return float(self.mixture.ambiguity)

    @property
    def disagreement(self) -> float:
        """What the differences between the clips add to it."""
        return float(self.mixture.disagreement)
