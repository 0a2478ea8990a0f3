"""Moments of long videos: exact among videos with different numbers of clips, and where they should be."""

from __future__ import annotations

import shutil
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
import torch

from provico.data.catalog import open_catalog
from provico.data.clips import ClipSpec, dense_clips, overview_of, uniform_clips
from provico.data.frames.encode import write_video
from provico.data.frames.video import read_frames
from provico.data.library import Library
from provico.data.transforms import centre_box
from provico.embedding.clips import FileClips, clip_settings
from provico.embedding.driver import embed
from provico.embedding.report import COLUMNS, UncertaintyReport
from provico.models import Encoder
from provico.models.inference import CLIPS_AT_ONCE
from provico.probability.gaussian import Gaussian
from provico.probability.mixture import Mixture
from provico.probability.seeded_samples import seeded_samples
from provico.search.index import Index
from provico.search.query import Asked, Filter
from provico.search.row_writer import sample_columns
from provico.search.store.folder import IndexFolder
from provico.search.store.video_store import Rows

from .conftest import log_probability
from .crowd import make_long

NUM_VIDEOS, NUM_SAMPLES, SEED = 60, 4, 3


@pytest.fixture(scope="module")
def made_up(encoder: Encoder, tmp_path_factory: pytest.TempPathFactory) -> Index:
    """Short and long videos about a few centres, so that many segments are close to every query."""
    folder = tmp_path_factory.mktemp("made-up") / "index"
    index = Index.create(folder, encoder, num_clips=2, num_samples=NUM_SAMPLES, seed=SEED)
    rng = np.random.default_rng(0)
    rows: Rows = {
        name: rng.normal(size=(NUM_VIDEOS, *column.shape)).astype(column.dtype)
        for name, column in index.settings.columns.items()
        if not column.is_ragged
    }
    rows["mean"] += 2 * rng.normal(size=(5, 8))[rng.integers(5, size=NUM_VIDEOS)].astype(np.float32)
    rows["log_var"] -= 3
    rows |= {name: ["word"] * NUM_VIDEOS for name in ("path", "subset", "preview", "content_hash")}
    rows |= {"group": [None] * NUM_VIDEOS, "label": ["ab"[n % 2] for n in range(NUM_VIDEOS)]}
    rows |= {"id": [f"{n:02}" for n in range(NUM_VIDEOS)], "thumbnail": [b""] * NUM_VIDEOS}
    make_long(rows, range(0, NUM_VIDEOS, 4), rng)
    with IndexFolder(folder).changing(index.settings) as store:
        store.write(sample_columns(rows, index.settings))
    return Index.open(folder)


def all_units(index: Index) -> list[tuple[str, str, float, float, Gaussian]]:
    """Each video, and each pair of neighbouring clips of a long one: id, name, start, end, distribution."""
    loaded = index.loaded
    known = loaded.store.read(("timeline_seconds", "timeline_mean", "timeline_log_var", "duration_seconds"))
    units = []
    for row, name in enumerate(loaded.ids):
        whole = Gaussian(loaded.videos.mean[row], loaded.videos.log_var[row])
        units.append((name, name, 0.0, float(known["duration_seconds"][row]), whole))
        for first in range(len(known["timeline_mean"][row]) - 1):
            pair = slice(first, first + 2)
            seconds = known["timeline_seconds"][row][pair]
            mean, log_var = (
                torch.from_numpy(known[column][row][pair]) for column in ("timeline_mean", "timeline_log_var")
            )
            start, end = float(seconds[0, 0]), float(seconds[1, 1])
            both = Mixture(Gaussian(mean, log_var)).moment_matched
            units.append((name, f"{name}#{start:.3f}-{end:.3f}", start, end, both))
    return units


@pytest.mark.parametrize("metric", ["match", "cosine"])
@pytest.mark.parametrize("k", [1, 7, 200])
def test_moments_are_those_of_a_loop_over_all_segments(made_up: Index, metric: str, k: int) -> None:
    units, rng = all_units(made_up), np.random.default_rng(k)
    assert len(units) > 2 * NUM_VIDEOS
    assert len(made_up.loaded.segments) == len(units) - NUM_VIDEOS
    curve, num_split = made_up.settings.curve, 0
    samples = {
        name: seeded_samples(
            [name],
            Mixture(Gaussian(one.mean[None, None], one.log_var[None, None])),
            num_samples=NUM_SAMPLES,
            seed=SEED,
            stream="gallery",
        )[0]
        for _, name, _, _, one in units
    }
    for number in range(10):
        near, far = (units[int(one)][4] for one in rng.integers(len(units), size=2))
        clips = near.mean + 0.3 * torch.from_numpy(rng.normal(size=(3, 8))).float()
        if number < 4:  # which spans a cut
            clips = torch.cat([clips, far.mean + 0.3 * torch.from_numpy(rng.normal(size=(2, 8))).float()])
        given = Gaussian(clips, torch.full_like(clips, -4.0))
        asked = Asked(f"{number}.mp4", None, None, given, torch.zeros(len(clips), 2))
        barred = None
        if number >= 8:  # a long video of the index does not find its own parts
            row = 4 * (number - 4)
            asked, barred = made_up.loaded.as_queries(torch.tensor([row]))[0], made_up.loaded.ids[row]
        labels = ["a"] if number % 2 else None
        query = asked.samples(made_up.settings)[0]
        scenes = [one.samples(made_up.settings, "clips")[0] for one in asked.scenes(made_up.settings)]
        num_split += len(scenes) > 1
        whole = asked.mixture.moment_matched.mean[0].double()
        best: dict[str, tuple[float, float, float]] = {}
        of_scenes: dict[str, list[tuple[float, float, float]]] = {}
        for name, unit, start, end, one in units:
            if name == barred or (labels and made_up.loaded.words["label"][int(name)] != "a"):
                continue
            if metric == "match" and unit != name:
                found = [(log_probability(scene, samples[unit], curve), start, end) for scene in scenes]
                known = of_scenes.get(name, found)
                of_scenes[name] = [
                    max(pair, key=lambda one: one[0]) for pair in zip(known, found, strict=True)
                ]
                continue
            if metric == "match":
                score = log_probability(query, samples[unit], curve)
            else:
                score = float(torch.cosine_similarity(whole, one.mean.double(), dim=0))
            if name not in best or score > best[name][0]:
                best[name] = score, start, end
        for name, found in of_scenes.items():
            score = float(np.logaddexp.reduce([one[0] for one in found]) - np.log(len(found)))
            if score > best[name][0]:
                best[name] = score, *max(found, key=lambda one: one[0])[1:]
        expected = sorted(best, key=lambda name: (-best[name][0], name))[:k]
        filter = None if labels is None else Filter(labels=labels)
        answer = made_up.search(asked, k=k, metric=metric, max_chance=None, filter=filter)
        assert [hit.id for hit in answer.hits] == expected
        for hit in answer.hits:
            score, start, end = best[hit.id]
            assert hit.score == pytest.approx(score, rel=1e-9, abs=1e-12)
            assert (hit.moment.start_seconds, hit.moment.end_seconds) == (start, end)
            if end not in (5.0, 21.0):  # not the whole video
                assert hit.moment.start_seconds <= hit.clip.start_seconds
                assert hit.clip.end_seconds <= hit.moment.end_seconds
        assert answer.certificate.is_exact
        num_allowed = sum(name in best for name, *_ in units)
        assert answer.certificate.num_allowed == num_allowed
        assert len(answer.hits) == min(k, len(best))
    assert num_split if metric == "match" else not of_scenes


def test_the_null_counts_moments(made_up: Index) -> None:
    """References are videos first, then segments; parts of one video are one recording."""
    references = made_up.chance.references
    assert len(references) == min(500, len(all_units(made_up)))
    assert references.ids[0] in made_up.ids
    is_other = references.is_other(references)
    of_video = np.array([name.partition("#")[0] for name in references.ids])
    assert np.array_equal(is_other.numpy(), of_video[:, None] != of_video)
    made_up.keep_chance()
    assert Index.open(made_up.path).chance.references.recordings == references.recordings
    hits = made_up.search("00", max_chance=None).hits
    assert all(hit.expected_by_chance is not None for hit in hits)


# --- from files ---------------------------------------------------------------------------------------------

FPS, NUM_PARTS, PART_SECONDS = 8, 12, 5


@pytest.fixture(scope="module")
def long_video(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A minute of parts of five seconds, each of which has a noise of its own, and two short videos."""
    folder = tmp_path_factory.mktemp("long")
    rng = np.random.default_rng(0)
    frames = [part_frames(rng.integers(0, 255, 3), rng) for _ in range(NUM_PARTS)]
    write_video(folder / "long.mp4", np.concatenate(frames), fps=FPS)
    for name in ("short-a", "short-b"):
        write_video(folder / f"{name}.mp4", part_frames(rng.integers(0, 255, 3), rng), fps=FPS)
    return folder


def part_frames(colour: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    noise = rng.normal(colour, 25, size=(FPS * PART_SECONDS, 40, 52, 3))
    return np.clip(noise, 0, 255).astype(np.uint8)


def test_a_long_video_is_seen_all_the_way_and_its_parts_are_found(
    long_video: Path, encoder: Encoder, library: Library, tmp_path: Path
) -> None:
    catalog = open_catalog(long_video)
    index = Index.create(tmp_path / "index", encoder, num_clips=4)
    index.add(catalog, library=library)
    names = ("timeline_seconds", "timeline_mean", "start_seconds", "clip_mean", "clip_log_var", "mean")
    rows = index.loaded.store.read(names)
    seconds, *short = rows["timeline_seconds"]
    assert [len(one) for one in short] == [0, 0]
    # A clip a second or more, from the first frame to the last.
    assert len(seconds) == 61
    assert seconds[0, 0] == 0
    assert seconds[-1, 1] == pytest.approx(NUM_PARTS * PART_SECONDS)
    assert np.diff(seconds[:, 0]).max() <= 1 + 1 / FPS
    # Every so many of them are what a video is otherwise seen by.
    expected = embed(encoder, catalog, num_clips=4, library=library)
    np.testing.assert_allclose(rows["clip_mean"], expected.videos.clips.mean, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(rows["start_seconds"], expected.clip_seconds[..., 0])
    assert np.array_equal(rows["start_seconds"][0], seconds[::20, 0])
    # It is the mixture of all of them.
    np.testing.assert_allclose(rows["mean"][0], rows["timeline_mean"][0].mean(axis=0), atol=1e-6)
    # A part finds the video, and where it is; by itself it is found as a video is.
    for part in (0, 4, NUM_PARTS - 1):
        start = part * PART_SECONDS
        answer = index.search(("long.mp4", start + 0.5, start + 3.5), exclude_same="nothing", k=2)
        best = answer.hits[0]
        assert best.id == "long.mp4"
        assert start - 1 <= best.moment.start_seconds < best.moment.end_seconds <= start + PART_SECONDS + 1
        assert index.search(("long.mp4", start, start + 2)).hits[0].id != "long.mp4"
    whole = index.search("short-a.mp4", k=3)
    assert {hit.id for hit in whole.hits} == {"long.mp4", "short-b.mp4"}
    # The same when it is asked for as a file, and by all of its clips.
    asked = index.search(long_video / "long.mp4", k=2)
    again = index.search("long.mp4", k=2)
    assert [hit.id for hit in asked.hits] == [hit.id for hit in again.hits]
    assert asked.uncertainty == pytest.approx(again.uncertainty)
    report = UncertaintyReport.of_columns([index.loaded.store.read(COLUMNS)])
    assert len(report) == 3


def test_long_videos_do_not_wait_for_each_other(
    long_video: Path, encoder: Encoder, library: Library, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many of them at once would take gigabytes."""
    (tmp_path / "videos").mkdir()
    for number in range(3):
        shutil.copy(long_video / "long.mp4", tmp_path / "videos" / f"{number}.mp4")
    catalog = open_catalog(tmp_path / "videos")
    monkeypatch.setattr("provico.search.row_writer.SECONDS_A_COMMIT", 10**9)
    committed: dict[int, list[int]] = {}
    for most in (50, 150, 1000):  # each has 61
        monkeypatch.setattr("provico.search.row_writer.CLIPS_A_COMMIT", most)
        said = committed[most] = []
        index = Index.create(tmp_path / f"index-{most}", encoder, num_clips=4)
        index.add(catalog, library=library, progress=lambda done, _, said=said: said.append(done))
        assert len(index) == 3
    assert committed == {50: [1, 2, 3, 3], 150: [3, 3], 1000: [3]}


def test_a_timeline_is_finer_than_the_clips_it_contains() -> None:
    rng = np.random.default_rng(0)
    for _ in range(300):
        num_frames, num_clips = int(rng.integers(1, 4000)), int(rng.integers(1, 13))
        fps = float(rng.choice([0.1, 1, 12, 60]))
        spec = ClipSpec(int(rng.integers(1, 6)), int(rng.integers(1, 5)))
        seconds = num_frames / fps
        clips = dense_clips(num_frames, seconds, num_clips=num_clips, spec=spec, step_seconds=1.0)
        coarse = uniform_clips(num_frames, num_clips=num_clips, spec=spec)
        assert np.array_equal(clips[overview_of(len(clips), num_clips)], coarse)
        if len(clips) > num_clips:
            assert len(np.unique(clips[:, 0])) == len(clips)
            has_all = len(clips) + num_clips >= num_frames - spec.span
            assert has_all or np.diff(clips[:, 0]).max() <= fps + 1


def test_hours_are_read_in_bounded_memory(encoder: Encoder, tmp_path: Path) -> None:
    """Five hours of one frame a second: a clip of each, in one pass, a few at a time."""
    hours, path = 5, tmp_path / "long.mp4"
    rng = np.random.default_rng(0)
    blocks = [np.uint8(rng.integers(0, 255, (16, 24, 3))) for _ in range(64)]
    frames = (blocks[(number // 60) % 64] for number in range(3600 * hours))
    write_video(path, frames, fps=1, encoder_options={"preset": "ultrafast"})
    library = Library(tmp_path / "home")
    index = library.index(path)
    assert index.num_frames == 3600 * hours
    shown = dense_clips(
        index.num_frames, index.duration_seconds, num_clips=10, spec=ClipSpec(4, 2), step_seconds=1.0
    )
    assert index.num_frames - 30 < len(shown) <= index.num_frames
    settings = clip_settings(encoder.config, num_clips=10)
    tracemalloc.start()
    seen = 0
    for pixels in FileClips(path, shown[:4000], index, settings, library).pixels():
        assert len(pixels) <= CLIPS_AT_ONCE
        seen += len(pixels)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert seen == 4000
    assert peak < 16 * 2**20  # 4,000 clips are 49 MB of pixels
    expected = read_frames(path, shown[3999], index=index, short_side=settings.short_side)
    box = centre_box(*expected.shape[1:3], settings.crop_size)
    cropped = expected[:, box.top : box.top + box.height, box.left : box.left + box.width]
    assert np.array_equal(pixels[-1].numpy(), cropped)
