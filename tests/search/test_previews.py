"""Previews play in every browser, at true speed, whatever the file is like."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import pytest
import simplejpeg

from provico.data.frames.encode import write_video
from provico.data.frames.thumbnail import (
    MAX_ASPECT,
    MAX_SECONDS,
    SHORT_SIDE,
    make_preview,
    make_thumbnail,
    preview_frames,
    preview_name,
)
from provico.data.frames.video import KeptFrames, index_video


def numbered_frames(num_frames: int, height: int, width: int) -> np.ndarray:
    """Frames whose grey value tells their place."""
    values = np.linspace(20, 230, num_frames).astype(np.uint8)
    return np.broadcast_to(values[:, None, None, None], (num_frames, height, width, 3)).copy()


@pytest.mark.parametrize(
    ("name", "codec", "shape", "fps"),
    [
        ("a.avi", "mpeg4", (48, 66), 25),
        ("a.webm", "libvpx-vp9", (66, 48), 60),
        ("a.mp4", "libx264", (34, 400), Fraction(30000, 1001)),
    ],
)
def test_a_preview_is_a_small_browser_video_of_the_middle(tmp_path, name, codec, shape, fps):
    num_frames = round(6 * fps)
    path, preview = tmp_path / name, tmp_path / "ab" / "c.mp4"
    write_video(path, numbered_frames(num_frames, *shape), codec=codec, fps=fps)
    kept = KeptFrames()
    index = index_video(path, keep=kept)
    make_preview(path, preview, index=index)
    thumbnail = make_thumbnail(path, index=index)
    assert make_thumbnail(path, index=index, kept=kept) == thumbnail, "of frames that were kept"
    with av.open(str(preview)) as container:
        stream = container.streams.video[0]
        context = stream.codec_context
        assert (context.codec.canonical_name, context.pix_fmt) == ("h264", "yuv420p")
        assert not container.streams.audio
        assert float(stream.average_rate) == pytest.approx(min(float(fps), 30))
        frames = [frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)]
    assert preview.read_bytes().index(b"moov") < preview.read_bytes().index(b"mdat")
    assert len(frames) / min(float(fps), 30) == pytest.approx(MAX_SECONDS, abs=0.05)
    height, width = frames[0].shape[:2]
    assert min(height, width) == SHORT_SIDE
    assert max(height, width) <= MAX_ASPECT * SHORT_SIDE
    picture = simplejpeg.decode_jpeg(thumbnail)
    assert picture.shape == frames[0].shape
    # The first frame is that of second 1 of 6, the thumbnail that of second 3.
    assert frames[0].mean() == pytest.approx(20 + 210 / 6, abs=4)
    assert picture.mean() == pytest.approx(125, abs=4)


def test_a_variable_frame_rate_plays_at_true_speed(tmp_path):
    path = tmp_path / "a.mp4"
    pts = [*range(10), *range(20, 60, 4)]  # in twentieths of a second: slower from the first second on
    write_video(path, numbered_frames(20, 32, 32), pts=pts, time_base=Fraction(1, 20), fps=20)
    index = index_video(path)
    numbers, fps = preview_frames(index)
    shown = index.frame_seconds[numbers]
    times = (np.arange(len(numbers)) + 0.5) / float(fps)
    assert len(numbers) == round(index.duration_seconds * fps)
    ends = np.append(index.frame_seconds[1:], index.duration_seconds)[numbers]
    assert np.all(shown <= times)
    assert np.all(times[:-1] < ends[:-1])


def test_one_frame_is_enough(tmp_path):
    path = tmp_path / "a.mp4"
    write_video(path, numbered_frames(1, 32, 40))
    make_preview(path, tmp_path / "b.mp4", index=index_video(path))
    assert index_video(tmp_path / "b.mp4").num_frames == 1


def test_another_file_has_another_name():
    names = {preview_name(*key) for key in (("a", 1, 2), ("a", 2, 1), ("b", 1, 2), ("1 a", 2, 1))}
    assert len(names) == 4
    assert all(len(Path(name).parts) == 2 for name in names)
