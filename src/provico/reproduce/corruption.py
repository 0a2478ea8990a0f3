"""Mixed and masked clips (appendix E.3 and E.4): does uncertainty rise with corruption?

Each test video is represented by a few evenly spaced clips. Mixing composes each of them from runs of frames
of several videos; masking replaces a share of its frames by noise. The corruption depends only on the seed,
and every level corrupts the same clips, so levels are compared video by video.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from provico.data.catalog import Catalog
from provico.data.clips import ClipSpec
from provico.data.corrupt import MASK_SHARES, MIX_LEVELS, mask_clip, mix_clips, num_masked
from provico.data.library import Library
from provico.data.loader import ClipLoader
from provico.embedding.clips import clip_settings
from provico.embedding.driver import embed_pixels
from provico.embedding.embeddings import check_finite
from provico.evaluation.statistics import Estimate, over_groups
from provico.models.encoder import Encoder
from provico.probability.gaussian import Gaussian
from provico.probability.mixture import Mixture
from provico.reproduce.bench import Bench
from provico.reproduce.experiment import Check, Experiment, ExperimentResult, Preset, Row, Size
from provico.reproduce.figures import RIVAL, add_axes, new_figure, points_with_intervals
from provico.reproduce.settings import starting_point

NUM_CLIPS = 2
"""N: the corrupted clips per video, as many as in the paper's mixtures."""

LEVELS: dict[str, tuple[float, ...]] = {"mixed": MIX_LEVELS, "masked": MASK_SHARES}

Clips = NDArray[np.uint8]
"""[videos, clips, time, height, width, channels]."""
Corrupt = Callable[[Clips, float, np.random.Generator], Clips]


def mixed(clips: Clips, level: float, rng: np.random.Generator) -> Clips:
    """Mix each clip with the same clip of random other videos."""
    out = np.empty_like(clips)
    for video in range(len(clips)):
        others = rng.permutation([other for other in range(len(clips)) if other != video])
        for clip in range(clips.shape[1]):
            sources = clips[[video, *others[: 2 ** (int(level) - 1) - 1]], clip]
            out[video, clip] = mix_clips(sources, int(level)).pixels
    return out


def masked(clips: Clips, share: float, rng: np.random.Generator) -> Clips:
    """Replace this share of the frames of each clip by noise."""
    return np.stack([[mask_clip(clip, share, rng).pixels for clip in video] for video in clips])


def num_frames_for(encoder: Encoder) -> int:
    """The largest power of two that fits into the encoder's clip, so that it divides into equal runs.

    The networks average over time, so they accept shorter clips; all levels use the same length.
    """
    return 1 << (encoder.config.input.num_frames.bit_length() - 1)


def levels_for(kind: str, encoder: Encoder, num_videos: int) -> tuple[float, ...]:
    """The paper's levels that differ for the encoder's clip: of four frames, .4 and .6 both mean two."""
    num_frames = num_frames_for(encoder)
    if kind == "mixed":
        return tuple(level for level in MIX_LEVELS if 2 ** (level - 1) <= min(num_frames, num_videos))
    first = {num_masked(num_frames, share): share for share in reversed(MASK_SHARES)}
    return tuple(sorted(first.values()))


def read_test_clips(encoder: Encoder, catalog: Catalog, library: Library) -> tuple[Clips, list[int]]:
    """The clips of all readable videos, and the indices of these videos."""
    settings = clip_settings(encoder.config, num_clips=NUM_CLIPS)
    spec = ClipSpec(num_frames_for(encoder), encoder.config.input.frame_step)
    loader = ClipLoader(
        catalog,
        replace(settings, spec=spec),
        batch_size=8,
        shuffle=False,
        drop_last=False,
        library=library,
    )
    batches = [batch for batch in loader if len(batch)]
    indices = [number for batch in batches for number in batch.videos.tolist()]
    return np.concatenate([batch.pixels.numpy() for batch in batches]), indices


def uncertainties(encoder: Encoder, clips: Clips) -> dict[str, list[float]]:
    """The log uncertainty of each video, and the paper's."""
    pixels = torch.from_numpy(clips).flatten(0, 1)
    found = embed_pixels(encoder, [pixels], num_clips=clips.shape[1])
    shape = (*clips.shape[:2], -1)
    of_videos = Gaussian(found.mean.view(shape), found.log_var.view(shape))
    check_finite([f"number {row}" for row in range(1, len(clips) + 1)], of_videos)
    videos = Mixture(of_videos)
    return {
        "uncertainty": videos.uncertainty.log().tolist(),
        "total": videos.total_uncertainty.log().tolist(),
    }


def measure(
    encoder: Encoder, catalog: Catalog, levels: Sequence[float], corrupt: Corrupt, *, library: Library
) -> dict[str, Any]:
    """The uncertainties of the videos at every level, and the group of each."""
    clips, indices = read_test_clips(encoder, catalog, library)
    found = {}
    for level in levels:
        rng = np.random.default_rng([0, round(100 * level)])
        found[f"{level:g}"] = uncertainties(encoder, corrupt(clips, level, rng))
    videos = [catalog[number] for number in indices]
    return {"levels": found, "groups": [video.group or video.id for video in videos]}


def run_mixed(bench: Bench) -> ExperimentResult:
    """Levels 1, 2, ...: 1, 2, 4, ... videos in a clip, as far as the encoder's clip can be divided."""
    return _run(bench, "mixed", mixed, "Videos in a clip", lambda level: 2 ** (int(level) - 1))


def run_masked(bench: Bench) -> ExperimentResult:
    """Shares of noise frames."""
    return _run(bench, "masked", masked, "Share of frames that are noise", float)


def _run(
    bench: Bench,
    kind: str,
    corrupt: Corrupt,
    axis_label: str,
    place_of: Callable[[float], float],
) -> ExperimentResult:
    parts: dict[int, list[dict[str, Any]]] = {}
    seconds, levels = 0.0, LEVELS[kind]
    for seed in bench.size.seeds:
        for split in bench.splits:
            config = starting_point(bench, seed=seed)
            trained = bench.trained(config, split)
            seconds += trained.cpu_seconds
            if not trained.is_healthy:
                continue
            encoder = trained.encoder()
            test = bench.sets(split).test
            test = test.subset(range(0, len(test), _stride(len(test), bench.size.num_videos)))
            levels = levels_for(kind, encoder, len(test))
            compute = partial(measure, encoder, test, levels, corrupt, library=bench.library)
            found = bench.once(kind, [config.to_dict(), split, levels], test, compute)
            seconds += found["cpu_seconds"]
            parts.setdefault(seed, []).append(found)
    names = [f"{level:g}" for level in levels]
    caption = (
        f"Uncertainty of a test video, whose {NUM_CLIPS} clips are {kind}, against the level of corruption, "
        "as a multiple of that of the untouched video: geometric mean over videos of splits "
        f"{_listed(bench.splits)}, 95 % interval over groups of videos. Dashed: the paper's measure, "
        "which adds the disagreement of the clips."
    )
    figure = new_figure(caption)
    (axis,) = add_axes(figure)
    axis.set_xlabel(axis_label)
    axis.set_ylabel("Uncertainty (multiple of the untouched)")
    if not parts:
        return ExperimentResult(
            rows=(), checks=(), figure=figure, caption=caption, obstacle="no training run was completed"
        )
    groups = [group for found in next(iter(parts.values())) for group in found["groups"]]

    def table(part: str, name: str) -> NDArray[np.float64]:
        """log uncertainty [seeds, videos]."""
        return np.array(
            [[u for found in runs for u in found["levels"][name][part]] for runs in parts.values()]
        )

    positions = [place_of(level) for level in levels]
    growth = {
        part: [over_groups(table(part, name) - table(part, names[0]), groups) for name in names]
        for part in ("uncertainty", "total")
    }
    rows: list[Row] = [
        {
            axis_label.lower(): position,
            "uncertainty, multiple of untouched": round(float(np.exp(shown.value)), 4),
            "low": round(float(np.exp(shown.low)), 4),
            "high": round(float(np.exp(shown.high)), 4),
            "with disagreement (the paper's), multiple of untouched": round(float(np.exp(total.value)), 4),
            "paper": "rises (figure without numbers)" if position != positions[0] else "1 by definition",
        }
        for position, shown, total in zip(positions, *growth.values(), strict=True)
    ]
    points_with_intervals(axis, positions, [_exp(e) for e in growth["uncertainty"]], label="uncertainty")
    axis.plot(
        positions, [np.exp(e.value) for e in growth["total"]], "--", color=RIVAL, label="with disagreement"
    )
    axis.legend()
    checks = [
        Check(
            f"the uncertainty at {place_of(after):g} is above that at {place_of(before):g} "
            f"({axis_label.lower()})",
            over_groups(table("uncertainty", f"{after:g}") - table("uncertainty", f"{before:g}"), groups),
            unit="(difference of logarithms)",
        )
        for before, after in pairwise(levels)
    ]
    return ExperimentResult(
        rows=rows,
        checks=checks,
        figure=figure,
        caption=caption,
        seeds=tuple(parts),
        splits=bench.splits,
        cpu_seconds=seconds,
    )


def _exp(estimate: Estimate) -> Estimate:
    return Estimate(*(float(np.exp(part)) for part in (estimate.value, estimate.low, estimate.high)))


def _stride(num_videos: int, most: int | None) -> int:
    return 1 if most is None else max(1, -(-num_videos // most))


def _listed(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers))


_SIZES: dict[Preset, Size] = {
    "smoke": Size(recipe="scratch", epochs=2, is_evidence=False, num_videos=8),
    "cpu": Size(recipe="scratch", splits=(1, 2, 3)),
    "paper": Size(recipe="paper", backbone="r2plus1d18", splits=(1, 2, 3)),
}
_RULE = "Reproduced if from each level to the next the uncertainty rises, with the whole 95 % interval."

MIXED = Experiment(
    name="mixed-clips",
    title="Uncertainty of clips mixed from several videos",
    source="Figure A6, left (appendix E.3)",
    claim="The more videos a clip is mixed from, the higher its uncertainty.",
    rule=_RULE,
    sizes=_SIZES,
    run=run_mixed,
)
MASKED = Experiment(
    name="masked-clips",
    title="Uncertainty of clips with noise frames",
    source="Figure A6, right (appendix E.4)",
    claim="The more frames are replaced by noise, the higher the uncertainty.",
    rule=_RULE,
    sizes=_SIZES,
    run=run_masked,
)
