"""Samples of a video that depend only on its id and a seed, so that a search is exactly reproducible."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from provico.probability.gaussian import Gaussian
from provico.probability.mixture import Mixture

Draw = Literal["moments", "clips"]
"""Samples of the Gaussian with the video's mean and variance, as in the paper, or of the mixture itself."""


def seeded_samples(
    ids: Sequence[str],
    videos: Mixture,
    *,
    num_samples: int,
    seed: int,
    draw: Draw = "moments",
    stream: str = "",
) -> Float[Tensor, "videos samples dim"]:
    """K samples of each video that depend only on its id, the seed and the stream.

    Two streams give a video two independent sets of samples.
    """
    source = videos.moment_matched if draw == "moments" else videos.clips
    # One allocation: thousands of small ones between what others keep would not give their memory back.
    samples = source.mean.new_empty(len(ids), num_samples, source.dim)
    for row, (name, mean, log_var) in enumerate(zip(ids, source.mean, source.log_var, strict=True)):
        digest = hashlib.blake2b(f"{seed} {stream} {name}".encode(errors="surrogateescape"), digest_size=8)
        generator = torch.Generator().manual_seed(int.from_bytes(digest.digest(), "big"))
        if draw == "moments":
            samples[row] = Gaussian(mean, log_var).sample(num_samples, generator=generator)
        else:
            one = Mixture(Gaussian(mean, log_var))
            samples[row] = one.sample_clips(num_samples, generator=generator).samples
    return samples
