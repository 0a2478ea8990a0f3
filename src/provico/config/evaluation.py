"""Settings of evaluations. The defaults follow the paper's protocol where it states one."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from provico.defaults import MAX_BROKEN_SHARE, NUM_SAMPLES, TEST_CLIPS
from provico.errors import ConfigError

RECALL_RANKS = (1, 5, 10, 20, 50)
"""The k of R@k; the paper reports the first four."""


def check_at_least_one(settings: object, *names: str) -> None:
    """Raise ConfigError if one of these settings is below 1."""
    for name in names:
        if (value := getattr(settings, name)) < 1:
            raise ConfigError(f"--{name.replace('_', '-')} is {value}, but it must be at least 1.")


def check_clips(num_clips: int, num_train_clips: int) -> None:
    """Raise ConfigError unless the test clips divide into mixtures of the size used in training."""
    if num_train_clips < 1 or num_clips < num_train_clips or num_clips % num_train_clips:
        raise ConfigError(
            f"--num-clips is {num_clips}, but it must be a multiple of --num-train-clips, which is "
            f"{num_train_clips}: the paper tests with 5 mixtures of 2 clips, 10 in all."
        )


@dataclass(frozen=True, kw_only=True)
class SetsChoice:
    """Which videos to train on and to test on."""

    data: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="DATA")]
    """A dataset in a known layout, class folders, a list or a manifest. The videos need labels."""
    layout: str = "auto"
    """ucf101, hmdb51, kinetics, list, manifest or class-folders; auto recognises it."""
    splits: tuple[int, ...] = (1,)
    """Official splits of UCF101 (1-3) or HMDB51 (1-3); each is evaluated, and the mean is reported."""
    test_data: Path | None = None
    """Another dataset to test on; its classes must have the same names."""
    hold_out: float | None = None
    """Test on this share of the videos, by whole groups, if the dataset has no test set of its own."""
    allow_missing: bool = False
    """Continue when listed videos are missing; their number is always reported."""


@dataclass(frozen=True, kw_only=True)
class FeatureReading:
    """How videos are read."""

    max_broken_share: float = MAX_BROKEN_SHARE
    """Stop if more than this share of the videos is unreadable."""
    num_workers: int | None = None
    """Processes that read clips; chosen for the machine if not given."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where the network runs; auto uses a GPU if there is one."""


@dataclass(frozen=True, kw_only=True)
class RetrievalSettings:
    """How test videos are compared with training videos."""

    metrics: tuple[str, ...] = ("match", "cosine", "squared_euclidean_expected")
    """match (the paper), cosine, or names of DISTANCES, for which smaller means nearer."""
    num_clips: int = TEST_CLIPS
    """Evenly spaced clips of each video."""
    num_samples: int = NUM_SAMPLES
    """K, the samples of each video for the match probability and sampled distances."""
    draw: Literal["moments", "clips"] = "moments"
    """Sample the Gaussian with the video's mean and variance (the paper), or the mixture itself."""
    seed: int = 0
    """Seed of the samples."""


@dataclass(frozen=True, kw_only=True)
class UncertaintySettings:
    """How the quality of the uncertainty is measured."""

    num_clips: int = TEST_CLIPS
    """Evenly spaced clips of each video."""
    num_samples: int = NUM_SAMPLES
    """K, the samples of each video for the match probability."""
    k: int = 10
    """Hits of each test video whose match probabilities are compared with the labels."""
    num_resamples: int = 1000
    """Bootstrap resamples of the groups, from which confidence intervals follow."""
    seed: int = 0
    """Seed of the samples and of the resamples."""

    def __post_init__(self) -> None:
        check_at_least_one(self, "num_clips", "num_samples", "k", "num_resamples")


@dataclass(frozen=True, kw_only=True)
class LinearSettings:
    """A linear classifier on the features of a frozen encoder."""

    features: Literal["samples", "pooled"] = "samples"
    """samples of the embedding, as in the paper, or the backbone's pooled features, as is more common."""
    train_heads: bool = False
    """Train the encoder's heads too ("only the FC layers" may mean them); the backbone stays frozen."""
    learning_rates: tuple[float, ...] = (0.003, 0.01, 0.03, 0.1, 0.3, 1.0)
    """All are trained side by side; the best on held-out training videos is used."""
    held_out: float = 0.2
    """Share of the training videos, by whole groups, held out to choose; training then uses all of them."""
    epochs: int = 100
    batch_size: int = 96
    momentum: float = 0.9
    weight_decay: float = 1e-4
    num_clips: int = TEST_CLIPS
    """Evenly spaced clips of each video, whose features are computed once."""
    num_train_clips: int = 2
    """Clips per mixture: random ones in a training step, neighbouring ones in the test."""
    num_samples: int = NUM_SAMPLES
    """K, the samples of a mixture over which probabilities are averaged."""
    seed: int = 0

    def __post_init__(self) -> None:
        if self.train_heads and self.features == "pooled":
            raise ConfigError("--features pooled does not use the heads. Leave out --train-heads.")
        if not self.learning_rates or min(self.learning_rates) <= 0:
            raise ConfigError("Give at least one learning rate above 0 with --learning-rates.")
        if not 0 < self.held_out < 1:
            raise ConfigError(f"--held-out is {self.held_out}, but it must be between 0 and 1.")
        check_clips(self.num_clips, self.num_train_clips)
        check_at_least_one(self, "epochs", "batch_size", "num_samples")


@dataclass(frozen=True, kw_only=True)
class FinetuneSettings:
    """How the whole network is finetuned. SGD and its schedule are not in the paper; the rest is."""

    from_scratch: bool = False
    """Start from random weights: the supervised baseline."""
    epochs: int = 200
    batch_size: int = 96
    learning_rate: float = 0.02
    warmup_epochs: float = 0.0
    momentum: float = 0.9
    weight_decay: float = 1e-4
    num_clips: int = TEST_CLIPS
    """Evenly spaced clips of a test video."""
    num_train_clips: int = 2
    """Clips per mixture: random ones in a training step, neighbouring ones in the test."""
    num_samples: int = NUM_SAMPLES
    """K, the samples of a mixture over which probabilities are averaged."""
    augmentation: str = "crop"
    """none; crop, as in the paper; shift, which crops each clip separately; shift_colour, which also jitters
    colours and blurs; contrastive, which also varies the scale; or another of AUGMENTATIONS."""
    short_side: int | None = None
    """Pixels of a frame's shorter side before it is cropped; 8/7 of the crop if not given."""
    store: str = "none"
    """Prepare all frames before training: jpeg, raw, mp4 or another of STORES; none reads the videos."""
    max_gradient_norm: float | None = None
    """Clip gradients to this norm; None does not clip."""
    precision: Literal["fp32", "bf16", "fp16"] = "fp32"
    """Precision of the backbone; heads, classifier and loss always use float32."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    num_workers: int | None = None
    """Processes that read clips; chosen for the machine if not given."""
    checkpoint_every: int = 10
    """Epochs between two checkpoints."""
    max_broken_share: float = MAX_BROKEN_SHARE
    """Stop if more than this share of the training videos is unreadable."""
    seed: int = 0

    def __post_init__(self) -> None:
        check_clips(self.num_clips, self.num_train_clips)
        check_at_least_one(self, "epochs", "batch_size", "num_samples", "checkpoint_every")


FINETUNE_RECIPES: dict[str, FinetuneSettings] = {
    "paper": FinetuneSettings(),
    # What the `tiny` network can do on a CPU in a few minutes; chosen on held-out videos, not tuned.
    "tiny": FinetuneSettings(epochs=20, batch_size=32, augmentation="shift", store="raw", warmup_epochs=2),
}
"""Named settings for finetuning."""
