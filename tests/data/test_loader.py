"""A seed gives one order of batches, whatever the workers, the processes or the interruptions."""

from __future__ import annotations

import gc
import json
import os
import signal
import time

import numpy as np
import psutil
import pytest
import torch

from provico.data.catalog import open_catalog
from provico.data.clips import ClipSpec
from provico.data.frames.encode import write_video
from provico.data.frames.prepared import prepare
from provico.data.frames.video import index_video, read_frames
from provico.data.library import Library
from provico.data.loader import ClipBatch, ClipLoader, ClipSettings, _whole
from provico.data.transforms import AUGMENTATIONS
from provico.errors import ConfigError, TooManyBrokenError, lost_worker

SMALL = ClipSettings(
    num_clips=2, spec=ClipSpec(8), short_side=48, crop_size=40, augmentation=AUGMENTATIONS["contrastive"]
)
PLAIN = ClipSettings(num_clips=3, spec=ClipSpec(8), sampling="uniform", short_side=48, crop_size=48)


@pytest.fixture(scope="module")
def folder(make_video, tmp_path_factory):
    folder = tmp_path_factory.mktemp("videos")
    for number in range(12):
        make_video(folder / f"{number:02}.mp4", 20 + number, start=number * 40)
    return folder


def contents(batches: list[ClipBatch]) -> list[tuple[list[int], bytes]]:
    return [(batch.videos.tolist(), batch.pixels.numpy().tobytes()) for batch in batches]


def two_epochs(folder, **options) -> list[tuple[list[int], bytes]]:
    loader = ClipLoader(open_catalog(folder), SMALL, **{"batch_size": 4, "seed": 3, **options})
    return contents([*loader, *loader])


def test_batches_do_not_depend_on_the_number_of_workers(folder):
    expected = two_epochs(folder)
    assert two_epochs(folder, num_workers=2) == expected
    assert two_epochs(folder, num_workers=1) == expected
    assert two_epochs(folder, seed=4) != expected
    assert expected[:3] != expected[3:], "every epoch must draw anew"
    for epoch in (expected[:3], expected[3:]):
        assert sorted(number for videos, _ in epoch for number in videos) == list(range(12))


def test_pixels_are_those_of_the_frames_that_the_clips_name(folder):
    catalog = open_catalog(folder)
    batches = list(ClipLoader(catalog, PLAIN, batch_size=5, shuffle=False, drop_last=False))
    assert [len(batch) for batch in batches] == [5, 5, 2]
    for batch in batches:
        for number, clips, pixels in zip(batch.videos.tolist(), batch.clips, batch.pixels, strict=True):
            path = catalog[number].path
            frames = np.array([clip.frames for clip in clips])
            expected = read_frames(path, frames, index=index_video(path), short_side=48)[..., 16:64, :]
            assert np.array_equal(pixels.numpy(), expected)
            assert {clip.video_id for clip in clips} == {catalog[number].id}
    clips = batches[0].clips[1]
    assert [clip.frames[0] for clip in clips] == [0, 6, 13]
    assert [clip.start_seconds for clip in clips] == pytest.approx([0, 6 / 25, 13 / 25])
    assert clips[0].end_seconds == pytest.approx(8 / 25)


def test_a_restored_loader_goes_on_with_the_next_batch(folder):
    expected = two_epochs(folder)
    options = {"batch_size": 4, "seed": 3}
    for stop in range(6):
        loader = ClipLoader(open_catalog(folder), SMALL, **options)
        seen = []
        while len(seen) < stop:
            for batch in loader:
                seen.append(batch)
                if len(seen) == stop:
                    break
        state = json.loads(json.dumps(loader.state_dict()))
        again = ClipLoader(open_catalog(folder), SMALL, num_workers=2 if stop == 4 else 0, **options)
        again.load_state_dict(state)
        rest = []
        while again.epoch < 2:
            rest += list(again)
        assert contents(seen + rest) == expected


def test_another_order_is_refused(folder):
    state = ClipLoader(open_catalog(folder), SMALL, batch_size=4, seed=3).state_dict()
    with pytest.raises(ConfigError, match="--seed was 3 and is 5"):
        ClipLoader(open_catalog(folder), SMALL, batch_size=4, seed=5).load_state_dict(state)


def test_processes_share_the_batches_of_one(folder):
    whole = two_epochs(folder, batch_size=6)
    parts = [two_epochs(folder, batch_size=2, rank=rank, world_size=3) for rank in range(3)]
    for together, *apart in zip(whole, *parts, strict=True):
        assert together[0] == [number for videos, _ in apart for number in videos]
        assert together[1] == b"".join(pixels for _, pixels in apart)


def test_broken_videos_are_counted_and_never_replaced(folder, tmp_path):
    listing = tmp_path / "list.txt"
    (tmp_path / "broken.mp4").write_text("no video")
    paths = [*sorted(folder.iterdir()), tmp_path / "broken.mp4"]
    listing.write_text("\n".join(map(str, paths)))
    catalog = open_catalog(listing)
    loader = ClipLoader(catalog, PLAIN, batch_size=13, shuffle=False, max_broken_share=0.1, num_workers=1)
    (batch,) = loader
    assert len(batch) == 12
    assert [catalog[number].path.name for number, _ in batch.broken] == ["broken.mp4"]
    assert list(loader.broken) == [12]
    assert ClipLoader(catalog, PLAIN, batch_size=13, shuffle=False).state_dict()["broken"] == {}
    strict = ClipLoader(catalog, PLAIN, batch_size=13, max_broken_share=0.05)
    with pytest.raises(TooManyBrokenError, match=r"1 of 13 videos.*broken\.mp4.*--max-broken-share"):
        list(strict)


def test_a_batch_larger_than_the_collection_is_refused(folder):
    with pytest.raises(ConfigError, match="There are 12 videos, but one batch takes 96"):
        ClipLoader(open_catalog(folder), SMALL, batch_size=96)


def test_prepared_frames_are_used_by_themselves(folder, tmp_path, monkeypatch):
    library = Library(tmp_path / "home")
    catalog = open_catalog(folder)
    expected = contents(list(ClipLoader(catalog, PLAIN, batch_size=4, library=library)))
    prepare(catalog, library=library, store="raw", short_side=48)

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("decoded the source although it was prepared")

    monkeypatch.setattr("provico.data.frames.prepared.read_frames", refuse)
    assert contents(list(ClipLoader(catalog, PLAIN, batch_size=4, library=library))) == expected


def test_memory_stays_flat_over_many_clips(tmp_path):
    for number in range(12):
        pictures = np.random.default_rng(number).integers(0, 256, (6, 80, 80, 3), np.uint8)
        write_video(tmp_path / f"{number}.mp4", pictures)
    process = psutil.Process(os.getpid())
    settings = ClipSettings(num_clips=8, spec=ClipSpec(4), short_side=80, crop_size=80)
    loader = ClipLoader(open_catalog(tmp_path), settings, batch_size=12)
    resident = []
    for _ in range(13):
        for batch in loader:
            assert batch.pixels.dtype == torch.uint8
        gc.collect()
        resident.append(process.memory_info().rss / 2**20)
    assert loader.epoch * 12 * 8 > 1200
    # The first fifth fills caches and allocator pools; a leak of every clip would add 50 MB after.
    assert np.mean(resident[-2:]) - np.mean(resident[2:4]) < 15, resident


def test_waiting_time_is_measured(folder):
    loader = ClipLoader(open_catalog(folder), PLAIN, batch_size=4)
    list(loader)
    assert loader.wait_seconds > 0


def test_a_reader_that_is_killed_while_nothing_is_read_is_named() -> None:
    batches = iter(torch.utils.data.DataLoader(range(1000), num_workers=1, prefetch_factor=1))
    next(batches)
    (reader,) = psutil.Process().children()[-1:]

    def killed() -> None:
        os.kill(reader.pid, signal.SIGKILL)
        time.sleep(60)

    with pytest.raises(RuntimeError) as raised:  # from a signal handler of PyTorch
        killed()
    assert "was terminated" in (lost_worker(raised.value) or "")
    assert lost_worker(RuntimeError("something else")) is None


class KillsItsReader:
    """What a worker hands over, and is killed while it does."""

    def __reduce__(self) -> tuple[object, ...]:
        return handed_over, (os.getpid(),)


def handed_over(reader: int) -> None:
    os.kill(reader, signal.SIGKILL)
    raise ConnectionResetError("Connection reset by peer")


def test_a_reader_that_is_killed_while_it_hands_over_is_named() -> None:
    batches = torch.utils.data.DataLoader([KillsItsReader()], num_workers=1, batch_size=None)
    with pytest.raises(ConfigError, match="was terminated"):
        _whole(iter(batches))
