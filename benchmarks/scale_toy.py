"""Which units should the embedding have? A toy training that takes seconds and shows both basins.

264 synthetic videos of 11 classes. A clip is its video's signal (class + video + clip jitter, whose size
differs from video to video) hidden by a linear mixing with three times as many coordinates of strong noise,
fresh in each clip. Only an encoder that learns what the clips of one video share can tell videos apart.

    python benchmarks/scale_toy.py                      every candidate, D = 16, 128, 512, 3 seeds: 20 minutes
    python benchmarks/scale_toy.py --names sqrt_dim rms --dims 128 --steps 600 --mining mutual
"""

from __future__ import annotations

import argparse
import math
import time
from dataclasses import dataclass, replace
from statistics import mean
from typing import Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from provico.probability import (
    PARAMETRISATIONS,
    Gaussian,
    MatchCurve,
    Mixture,
    Moments,
    Parametrisation,
    Reduction,
    Sampled,
    SelfPairs,
    find_distance,
    first_stage_pairs,
    log_match_probability,
    match_log_probabilities,
    mine_pairs,
    provico_loss,
    score_mining,
)

NUM_CLASSES, VIDEOS_PER_CLASS, VIDEOS_PER_CLASS_IN_BATCH = 11, 24, 8
SIGNAL_DIM, NUISANCE_DIM, NUISANCE_STD = 16, 48, 2.0

PAPER_LITERAL = Parametrisation(
    mean_length="unit",
    variance_unit="absolute",
    initial_variance=1.0,
    variance_bounds=(math.exp(-40.0), math.exp(40.0)),
    curve_slope=5.0,
    curve_offset=5.0,
)
"""The printed text taken literally. With all K^2 pairs of a video's samples kept, it collapses, already at
D = 16."""
PCME = Parametrisation(
    mean_length="unit",
    variance_unit="relative",
    initial_variance=0.1,
    variance_bounds=(1e-3, math.exp(2.0)),
    curve_slope=15.0,
    curve_offset=15.0,
    sigmoid_scale=2.0,
)
"""Unit means with the constants of PCME (COCO) and a cloud that starts small enough to see past."""
RMS = Parametrisation(
    mean_length="sqrt_dim",
    variance_unit="relative",
    initial_variance=0.1,
    variance_bounds=(1e-3, math.exp(2.0)),
    curve_slope=5.0,
    curve_offset=5.0,
)
"""Unit means in root-mean-square units with the constants of PCME (CUB): as `sqrt_dim`, flatter."""
SQRT_DIM = PARAMETRISATIONS["sqrt_dim"]

CANDIDATES: dict[str, tuple[Parametrisation, SelfPairs]] = {
    **{name: (scale, "drop") for name, scale in PARAMETRISATIONS.items()},
    # One step at a time from the paper's words to the default.
    "paper_literal": (PAPER_LITERAL, "keep"),
    "literal_small": (replace(PAPER_LITERAL, variance_unit="relative", initial_variance=0.1), "drop"),
    "pcme": (PCME, "drop"),
    "pcme_keep": (PCME, "keep"),
    "rms": (RMS, "drop"),
    "sqrt_dim_keep": (SQRT_DIM, "keep"),
    "sqrt_dim_wide": (replace(SQRT_DIM, initial_variance=1.0), "drop"),
    "sqrt_dim_steep": (replace(SQRT_DIM, curve_slope=30.0, curve_offset=30.0), "drop"),
    "sqrt_dim_across": (SQRT_DIM, "across_clips"),
}


class SyntheticVideos:
    """Videos whose clips can be drawn afresh, with known labels and known noise."""

    def __init__(self, generator: torch.Generator) -> None:
        num_videos = NUM_CLASSES * VIDEOS_PER_CLASS
        self.generator = generator
        self.labels: Int[Tensor, "videos"] = torch.arange(num_videos) // VIDEOS_PER_CLASS
        centres = torch.randn(NUM_CLASSES, SIGNAL_DIM, generator=generator)
        self.signal = centres[self.labels] + 0.5 * torch.randn(num_videos, SIGNAL_DIM, generator=generator)
        self.noise_std: Float[Tensor, "videos"] = 0.1 + 0.9 * torch.rand(num_videos, generator=generator)
        total = SIGNAL_DIM + NUISANCE_DIM
        self.mixing = torch.linalg.qr(torch.randn(total, total, generator=generator)).Q

    def clips(
        self, videos: Int[Tensor, "videos"], num_clips: int = 2
    ) -> Float[Tensor, "videos clips features"]:
        """Fresh clips of the videos."""
        jitter = torch.randn(len(videos), num_clips, SIGNAL_DIM, generator=self.generator)
        nuisance = torch.randn(len(videos), num_clips, NUISANCE_DIM, generator=self.generator)
        signal = self.signal[videos].unsqueeze(1) + self.noise_std[videos, None, None] * jitter
        return torch.cat([signal, NUISANCE_STD * nuisance], dim=-1) @ self.mixing

    def balanced_batch(self) -> Int[Tensor, "videos"]:
        """Eight videos of each class, as in the paper's toy: 88 videos, 308 pairs of one class."""
        order = torch.rand(NUM_CLASSES, VIDEOS_PER_CLASS, generator=self.generator).argsort(dim=1)
        chosen = order[:, :VIDEOS_PER_CLASS_IN_BATCH]
        return (torch.arange(NUM_CLASSES).unsqueeze(1) * VIDEOS_PER_CLASS + chosen).flatten()


class ToyEncoder(nn.Module):
    """Two layers and the two heads, in the units of a parametrisation."""

    def __init__(self, dim: int, scale: Parametrisation) -> None:
        super().__init__()
        self.norm, self.bounds = scale.mean_norm(dim), scale.log_var_bounds(dim)
        self.trunk = nn.Sequential(
            nn.Linear(SIGNAL_DIM + NUISANCE_DIM, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU()
        )
        self.mean_head = nn.Sequential(nn.Linear(128, dim), nn.LayerNorm(dim))
        self.log_var_head = nn.Linear(128, dim)
        nn.init.xavier_uniform_(self.log_var_head.weight, gain=0.2)
        nn.init.constant_(self.log_var_head.bias, scale.initial_log_var(dim))
        self.log_a = nn.Parameter(torch.tensor(scale.initial_a(dim)).log())
        self.b = nn.Parameter(torch.tensor(scale.initial_b(dim)))
        self.sigmoid_scale = scale.sigmoid_scale

    def forward(self, clips: Tensor) -> Mixture:
        """The distribution of each video, from the features of its clips."""
        features = self.trunk(clips)
        unit_mean = F.normalize(self.mean_head(features), dim=-1)
        return Mixture(Gaussian(self.norm * unit_mean, self.log_var_head(features).clamp(*self.bounds)))

    @property
    def curve(self) -> MatchCurve:
        """The match curve as learnt so far."""
        return MatchCurve.from_raw(self.log_a, self.b, sigmoid_scale=self.sigmoid_scale)


@dataclass(frozen=True)
class ToyResult:
    """What a toy training came to. Recall at 1 is about 0.09 by chance."""

    match_recall: float
    cosine_recall: float
    variance: float
    relative_noise: float
    noise_correlation: float
    mined_share: float
    mined_precision: float
    seconds: float


def train(
    scale: Parametrisation,
    *,
    self_pairs: SelfPairs = "drop",
    dim: int,
    seed: int,
    num_steps: int = 300,
    num_samples: int = 6,
    mining: Literal["off", "threshold", "mutual"] = "off",
    distance: str = "bhattacharyya_sampled",
    reduction: Reduction = "mean",
    kl_weight: float = 1e-4,
    learning_rate: float = 1e-3,
) -> ToyResult:
    """Train the toy encoder, with mining (if any) in the second half, and measure it on fresh clips."""
    start = time.perf_counter()
    torch.manual_seed(seed)
    videos = SyntheticVideos(torch.Generator().manual_seed(seed))
    encoder = ToyEncoder(dim, scale)
    curve_parameters = [encoder.log_a, encoder.b]
    network = [p for p in encoder.parameters() if all(p is not q for q in curve_parameters)]
    optimiser = torch.optim.Adam(
        [{"params": network}, {"params": curve_parameters, "lr": 10 * learning_rate}], lr=learning_rate
    )
    mined_share, mined_precision = 0.0, float("nan")
    for step in range(num_steps):
        batch = videos.balanced_batch()
        mixture = encoder(videos.clips(batch))
        video = mixture.moment_matched
        if self_pairs == "across_clips":
            drawn = mixture.sample_clips(num_samples)
            samples, clip = drawn.samples, drawn.clip
        else:
            samples, clip = video.sample(num_samples), None
        if mining == "off" or step < num_steps // 2:
            pairs = first_stage_pairs(len(batch))
        else:
            sampled = Sampled(video, Moments.of_samples(samples))
            distances = find_distance(distance)(sampled, sampled)
            mutual_top = 3 if mining == "mutual" else None
            pairs = mine_pairs(distances, threshold=0.15, mutual_top=mutual_top, max_share=None)
        score = score_mining(pairs.positive, videos.labels[batch])
        mined_share, mined_precision = pairs.mined_share, score.precision
        loss = provico_loss(
            match_log_probabilities(samples, curve=encoder.curve, self_pairs=self_pairs, clip=clip),
            pairs.positive,
            log_uncertainty=video.log_uncertainty,
            kl=video.kl_to_unit(),
            kl_weight=kl_weight,
            reduction=reduction,
        )
        optimiser.zero_grad()
        loss.total.backward()
        nn.utils.clip_grad_norm_(encoder.parameters(), 2.0)
        optimiser.step()
    return replace(
        evaluate(encoder, videos),
        mined_share=mined_share,
        mined_precision=mined_precision,
        seconds=time.perf_counter() - start,
    )


@torch.no_grad()
def evaluate(encoder: ToyEncoder, videos: SyntheticVideos) -> ToyResult:
    """Recall at 1 among the other videos, and whether the uncertainty follows the true noise."""
    everything = torch.arange(len(videos.labels))
    video = encoder(videos.clips(everything)).moment_matched
    samples = video.sample(10)
    directions = F.normalize(video.mean, dim=1)
    noise = torch.stack([video.log_uncertainty, videos.noise_std])
    return ToyResult(
        match_recall=_recall(log_match_probability(samples, samples, curve=encoder.curve), videos.labels),
        cosine_recall=_recall(directions @ directions.T, videos.labels),
        variance=float(video.uncertainty.median()),
        relative_noise=float((video.var.sum(dim=1) / encoder.norm**2).median()),
        noise_correlation=float(torch.corrcoef(noise)[0, 1]),
        mined_share=0.0,
        mined_precision=float("nan"),
        seconds=0.0,
    )


def _recall(similarity: Float[Tensor, "videos videos"], labels: Int[Tensor, "videos"]) -> float:
    nearest = similarity.fill_diagonal_(-torch.inf).argmax(dim=1)
    return float((labels[nearest] == labels).float().mean())


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--names", nargs="+", default=list(CANDIDATES), choices=list(CANDIDATES))
    parser.add_argument("--dims", nargs="+", type=int, default=[16, 128, 512])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--kl-weight", type=float, default=1e-4)
    parser.add_argument("--mining", default="off", choices=["off", "threshold", "mutual"])
    parser.add_argument("--distance", default="bhattacharyya_sampled")
    parser.add_argument("--reduction", default="mean", choices=["mean", "balanced"])
    options = parser.parse_args()
    torch.set_num_threads(1)
    columns = ["R@1 match", "R@1 cosine", "sigma^2", "noise", "corr", "mined", "precision", "s"]
    print(f"{'parametrisation':<20}{'D':>5}  {'(each seed)':<18}" + "".join(f"{c:>11}" for c in columns))
    for dim in options.dims:
        for name in options.names:
            scale, self_pairs = CANDIDATES[name]
            results = [
                train(
                    scale,
                    self_pairs=self_pairs,
                    dim=dim,
                    seed=seed,
                    num_steps=options.steps,
                    kl_weight=options.kl_weight,
                    mining=options.mining,
                    distance=options.distance,
                    reduction=options.reduction,
                )
                for seed in range(options.seeds)
            ]
            rows = [list(vars(result).values()) for result in results]
            averages = "".join(f"{mean(column):>11.3g}" for column in zip(*rows, strict=True))
            each = " ".join(f"{result.match_recall:.2f}" for result in results)
            print(f"{name:<20}{dim:>5}  {each:<18}{averages}", flush=True)


if __name__ == "__main__":
    main()
