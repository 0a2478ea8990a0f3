"""Every setting of an evaluation. The defaults are the paper's protocol where it states one."""

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
    """Refuse numbers below 1 where they count something."""
    for name in names:
        if (value := getattr(settings, name)) < 1:
            raise ConfigError(f"--{name.replace('_', '-')} is {value}, but it must be at least 1.")


def check_clips(num_clips: int, num_train_clips: int) -> None:
    """Test clips are taken in runs of as many as a mixture has in training."""
    if num_train_clips < 1 or num_clips < num_train_clips or num_clips % num_train_clips:
        raise ConfigError(
            f"There are {num_clips} test clips and mixtures of {num_train_clips}, but the former must be a "
            "multiple of the latter: the paper makes 5 mixtures of 10 clips, 2 in each."
        )


@dataclass(frozen=True, kw_only=True)
class SetsChoice:
    """Which videos to learn from and to test on."""

    data: Annotated[Path, tyro.conf.Positional]
    """A dataset in a known layout, class folders, a list or a manifest; videos need labels."""
    layout: str = "auto"
    """ucf101, hmdb51, kinetics, list, manifest or class-folders; auto recognises it."""
    splits: tuple[int, ...] = (1,)
    """Official splits of UCF101 (1-3) or HMDB51 (1-3); each is evaluated, and their mean is given."""
    test_data: Path | None = None
    """Another dataset to test on, with classes of the same names."""
    hold_out: float | None = None
    """Test on this share of the videos, by whole groups; for videos without a division of their own."""
    allow_missing: bool = False
    """Continue when listed videos are missing; their number is always reported."""


@dataclass(frozen=True, kw_only=True)
class FeatureReading:
    """How the videos are read whose features are computed once."""

    max_broken_share: float = MAX_BROKEN_SHARE
    """More unreadable videos than this share end the evaluation."""
    num_workers: int | None = None
    """Processes that read clips; what suits the machine if not given."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where the network runs; auto takes a GPU if there is one."""


@dataclass(frozen=True, kw_only=True)
class RetrievalSettings:
    """Test videos look for training videos of their class."""

    metrics: tuple[str, ...] = ("match", "cosine", "squared_euclidean_expected")
    """match (the paper), cosine, or names of DISTANCES, smaller is nearer."""
    num_clips: int = TEST_CLIPS
    """Evenly spaced clips of each video."""
    num_samples: int = NUM_SAMPLES
    """K, the samples of each video for the match probability and sampled distances."""
    draw: Literal["moments", "clips"] = "moments"
    """Samples of the Gaussian with the video's mean and variance (the paper), or of the mixture itself."""
    seed: int = 0
    """Of the samples."""


@dataclass(frozen=True, kw_only=True)
class UncertaintySettings:
    """How the worth of the uncertainty is measured."""

    num_clips: int = TEST_CLIPS
    """Evenly spaced clips of each video."""
    num_samples: int = NUM_SAMPLES
    """K, the samples of each video for the match probability."""
    k: int = 10
    """Hits of each test video whose probabilities are compared with what is right."""
    num_resamples: int = 1000
    """Sets of redrawn groups, from which intervals follow."""
    seed: int = 0
    """Of the samples and the redrawn groups."""

    def __post_init__(self) -> None:
        check_at_least_one(self, "num_clips", "num_samples", "k", "num_resamples")


@dataclass(frozen=True, kw_only=True)
class LinearSettings:
    """A linear classifier on what a frozen encoder gives."""

    features: Literal["samples", "pooled"] = "samples"
    """samples of the embedding, as in the paper, or the backbone's pooled features, as most others do."""
    train_heads: bool = False
    """Let the encoder's heads learn too ("only the FC layers" may mean them); the backbone never does."""
    learning_rates: tuple[float, ...] = (0.003, 0.01, 0.03, 0.1, 0.3, 1.0)
    """All are trained side by side; the choice is made on videos held out of the training set."""
    held_out: float = 0.2
    """Share of the training videos, by whole groups, on which the choice is made; then all are used."""
    epochs: int = 100
    batch_size: int = 96
    momentum: float = 0.9
    weight_decay: float = 1e-4
    num_clips: int = TEST_CLIPS
    """Evenly spaced clips of each video, whose features are computed once."""
    num_train_clips: int = 2
    """Of them, the random ones that make a video's mixture in a step, and neighbours that do in the test."""
    num_samples: int = NUM_SAMPLES
    """K, the samples of a mixture over which probabilities are averaged."""
    seed: int = 0

    def __post_init__(self) -> None:
        if self.train_heads and self.features == "pooled":
            raise ConfigError("Pooled features do not pass the heads. Leave out --train-heads.")
        if not self.learning_rates or min(self.learning_rates) <= 0:
            raise ConfigError("Give at least one learning rate above 0 with --learning-rates.")
        if not 0 < self.held_out < 1:
            raise ConfigError(f"--held-out is {self.held_out}, but it must be between 0 and 1.")
        check_clips(self.num_clips, self.num_train_clips)
        check_at_least_one(self, "epochs", "batch_size", "num_samples")


@dataclass(frozen=True, kw_only=True)
class FinetuneSettings:
    """The whole network learns to classify. SGD and its decay are not in the paper, the rest is."""

    from_scratch: bool = False
    """Start the same network from random weights: the supervised reference."""
    epochs: int = 200
    batch_size: int = 96
    learning_rate: float = 0.02
    warmup_epochs: float = 0.0
    momentum: float = 0.9
    weight_decay: float = 1e-4
    num_clips: int = TEST_CLIPS
    """Evenly spaced clips of a test video."""
    num_train_clips: int = 2
    """Random clips that make a video's mixture in a step, and neighbours that do in the test."""
    num_samples: int = NUM_SAMPLES
    """K, the samples of a mixture over which probabilities are averaged."""
    augmentation: str = "crop"
    """none; crop, the paper's; shift, which crops each clip by itself; shift_colour, which also changes
    colours and blurs; contrastive, which changes the size too; or another of AUGMENTATIONS."""
    short_side: int | None = None
    """Pixels of a frame's shorter side before it is cropped; 8/7 of the crop if not given."""
    store: str = "none"
    """Prepare all frames before training: jpeg, raw, mp4 or another of STORES; none reads the videos."""
    max_gradient_norm: float | None = None
    """Gradients are cut to this norm; None leaves them."""
    precision: Literal["fp32", "bf16", "fp16"] = "fp32"
    """Of the backbone; heads, classifier and loss are always computed in float32."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    num_workers: int | None = None
    """Processes that read clips; what suits the machine if not given."""
    checkpoint_every: int = 10
    """Epochs between two checkpoints."""
    max_broken_share: float = MAX_BROKEN_SHARE
    """More unreadable training videos than this share end the run."""
    seed: int = 0

    def __post_init__(self) -> None:
        check_clips(self.num_clips, self.num_train_clips)
        check_at_least_one(self, "epochs", "batch_size", "num_samples", "checkpoint_every")


FINETUNE_RECIPES: dict[str, FinetuneSettings] = {
    "paper": FinetuneSettings(),
    # What a CPU can do with the `tiny` network in some minutes; looked at on held-out videos, not tuned.
    "tiny": FinetuneSettings(epochs=20, batch_size=32, augmentation="shift", store="raw", warmup_epochs=2),
}
"""Named settings for finetuning."""
