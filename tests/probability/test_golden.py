"""Numbers that must not change unnoticed: `pytest tests/probability --update-golden` writes them anew."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from provico.probability import (
    DISTANCES,
    PARAMETRISATIONS,
    Gaussian,
    MatchCurve,
    Mixture,
    Moments,
    Sampled,
    info_nce,
    match_log_probabilities,
    mine_pairs,
    provico_loss,
    self_distances,
)

Golden = Callable[[str, dict[str, list[float]]], None]


def waves(*shape: int, pitch: float) -> Tensor:
    """Numbers without a random generator, which may change from one release of PyTorch to the next."""
    count = torch.Size(shape).numel()
    return torch.sin(pitch * torch.arange(1, count + 1, dtype=torch.float64)).reshape(shape)


MIXTURE = Mixture(Gaussian(waves(3, 2, 4, pitch=1.7), waves(3, 2, 4, pitch=2.3) - 1))
SAMPLES = MIXTURE.mean.unsqueeze(1) + waves(3, 5, 4, pitch=3.1)


def test_distances(golden: Golden) -> None:
    videos = Sampled(MIXTURE.moment_matched, Moments.of_samples(SAMPLES))
    values = {name: distance(videos, videos).flatten().tolist() for name, distance in DISTANCES.items()}
    own = self_distances(DISTANCES["bhattacharyya_sampled"], videos, num_samples=5)
    golden("distances", values | {"self_distances": own.tolist()})


def test_losses(golden: Golden) -> None:
    curve = MatchCurve(torch.tensor(1.5).double(), torch.tensor(2.0).double(), 2.0)
    log_probabilities = match_log_probabilities(SAMPLES, curve=curve)
    video = MIXTURE.moment_matched
    videos = Sampled(video, Moments.of_samples(SAMPLES))
    pairs = mine_pairs(DISTANCES["bhattacharyya_sampled"](videos, videos), threshold=0.4)
    kl = video.kl_to_unit()
    parts = provico_loss(log_probabilities, pairs.positive, log_uncertainty=video.log_uncertainty, kl=kl)
    first, second = MIXTURE.clips.mean.unbind(dim=1)
    values = {
        "log_match": log_probabilities.match.flatten().tolist(),
        "log_non_match": log_probabilities.non_match.flatten().tolist(),
        "positive": pairs.positive.flatten().double().tolist(),
        "kl": kl.tolist(),
        "info_nce": [info_nce(first, second).item()],
    }
    golden("losses", values | {name: [value.item()] for name, value in vars(parts).items()})


def test_scales(golden: Golden) -> None:
    values = {
        f"{name} {dim}": [
            scale.mean_norm(dim),
            scale.initial_log_var(dim),
            *scale.log_var_bounds(dim),
            scale.initial_a(dim),
            scale.initial_b(dim),
            scale.sigmoid_scale,
        ]
        for name, scale in PARAMETRISATIONS.items()
        for dim in (16, 128, 512)
    }
    golden("scales", values)
