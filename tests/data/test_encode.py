"""What the writer promises, read back with plain PyAV: settings, determinism, completeness."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest

from provico.data.frames.encode import write_video
from provico.errors import ConfigError

SETTINGS: dict[str, dict[str, Any]] = {
    "plain.mp4": {},
    "short_gop.mp4": {"gop_size": 8, "encoder_options": {"sc_threshold": "0"}},
    "b_frames.mkv": {"max_b_frames": 3},
    "xvid.avi": {"codec": "mpeg4", "max_b_frames": 2, "quality": 4, "gop_size": 12},
    "turned.mp4": {"rotation": 90},
    "full_chroma.mov": {"pixel_format": "yuv444p"},
    "ntsc.mp4": {"fps": Fraction(30000, 1001)},
}


def pictures(num_frames: int = 40) -> list[Any]:
    rows, columns = np.mgrid[:64, :96]
    waves = (127 + 90 * np.sin(rows / 9 + columns / 7 + number / 3) for number in range(num_frames))
    return [np.stack([wave] * 3, axis=-1).astype(np.uint8) for wave in waves]


def decoded(path: Path) -> list[av.VideoFrame]:
    with av.open(str(path)) as container:
        return list(container.decode(video=0))


@pytest.mark.parametrize("name", SETTINGS)
def test_frames_come_back_and_the_same_frames_give_the_same_bytes(tmp_path: Path, name: str) -> None:
    frames = pictures()
    assert write_video(tmp_path / name, iter(frames), **SETTINGS[name]) == len(frames)
    first = (tmp_path / name).read_bytes()
    back = decoded(tmp_path / name)
    assert len(back) == len(frames)
    for sent, got in zip(frames, back, strict=True):
        assert np.abs(got.to_ndarray(format="rgb24").astype(int) - sent).mean() < 6

    write_video(tmp_path / name, frames, **SETTINGS[name])
    assert (tmp_path / name).read_bytes() == first
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_settings_reach_the_file(tmp_path: Path) -> None:
    for name, settings in SETTINGS.items():
        write_video(tmp_path / name, pictures(), **settings)
    short_gop = decoded(tmp_path / "short_gop.mp4")
    assert [number for number, frame in enumerate(short_gop) if frame.key_frame] == list(range(0, 40, 8))
    assert any(frame.pict_type == 3 for frame in decoded(tmp_path / "b_frames.mkv"))
    assert not any(frame.pict_type == 3 for frame in decoded(tmp_path / "plain.mp4"))
    assert decoded(tmp_path / "turned.mp4")[0].rotation == 90
    assert decoded(tmp_path / "full_chroma.mov")[0].format.name == "yuv444p"
    with av.open(str(tmp_path / "ntsc.mp4")) as container:
        assert container.streams.video[0].average_rate == Fraction(30000, 1001)


@pytest.mark.parametrize("codec", ["libx264", "mpeg4"])
def test_better_quality_takes_more_bytes(tmp_path: Path, codec: str) -> None:
    for quality in (4, 30):
        write_video(tmp_path / f"{quality}.mkv", pictures(), codec=codec, quality=quality)
    assert (tmp_path / "4.mkv").stat().st_size > 1.5 * (tmp_path / "30.mkv").stat().st_size


def test_an_index_at_the_front_or_at_the_end(tmp_path: Path) -> None:
    for faststart in (True, False):
        write_video(tmp_path / f"{faststart}.mp4", pictures(), faststart=faststart)
    front, end = (tmp_path / f"{faststart}.mp4" for faststart in (True, False))
    assert front.read_bytes().index(b"moov") < front.read_bytes().index(b"mdat")
    assert end.read_bytes().index(b"moov") > end.read_bytes().index(b"mdat")


def test_explicit_time_stamps(tmp_path: Path) -> None:
    stamps = [number * number for number in range(40)]
    write_video(tmp_path / "vfr.mp4", pictures(), pts=stamps, time_base=Fraction(1, 500))
    times = [frame.time for frame in decoded(tmp_path / "vfr.mp4")]
    assert np.allclose(times, np.array(stamps) / 500)


@pytest.mark.parametrize(
    ("frames", "settings", "error", "complaint"),
    [
        ([], {}, ValueError, "no frames"),
        (pictures(3), {"pts": [0, 1]}, ValueError, "more frames than the 2 time stamps"),
        ([*pictures(2), pictures(1)[0][:32]], {}, ValueError, "Frame 2 is 32 x 96"),
        ([pictures(1)[0][:63]], {}, ConfigError, "even height"),
        (pictures(1), {"codec": "nonesuch"}, ConfigError, "no encoder called 'nonesuch'"),
        (pictures(1), {"codec": "aac"}, ConfigError, "does not encode pictures"),
    ],
)
def test_what_cannot_work_is_refused_and_leaves_nothing(
    tmp_path: Path, frames: list[Any], settings: dict[str, Any], error: type[Exception], complaint: str
) -> None:
    with pytest.raises(error, match=complaint):
        write_video(tmp_path / "video.mp4", frames, **settings)
    assert list(tmp_path.iterdir()) == []
