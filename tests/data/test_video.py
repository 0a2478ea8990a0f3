"""Every frame that is read is the frame that was asked for, on every path to it; bad files are refused."""

from __future__ import annotations

import itertools
import struct
import subprocess
import sys
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace

import av
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from provico.data.frames import picture, video
from provico.data.frames.encode import write_video
from provico.data.frames.frame_index import FrameIndex
from provico.data.frames.picture import resized_shape
from provico.data.frames.video import index_video, iterate_frames, read_frames
from provico.errors import ChangedVideoError, UnreadableVideoError, VideoError, VideoTimeoutError

KINDS = {
    "h264-gop250": ("a.mp4", {"gop_size": 250, "max_b_frames": 3}),
    "h264-gop16": ("a.mp4", {"gop_size": 16, "max_b_frames": 2}),
    "h264-gop4-mkv": ("a.mkv", {"gop_size": 4, "max_b_frames": 3}),
    "h264-open-gop": (
        "a.mp4",
        {"gop_size": 12, "max_b_frames": 3, "encoder_options": {"x264-params": "open-gop=1"}},
    ),
    "h264-intra-refresh": ("a.mkv", {"gop_size": 24, "encoder_options": {"x264-params": "intra-refresh=1"}}),
    "h264-ts": ("a.ts", {"gop_size": 20, "max_b_frames": 2}),
    "xvid-avi": ("a.avi", {"codec": "mpeg4", "quality": 4, "gop_size": 30}),
    "xvid-avi-b-frames": ("a.avi", {"codec": "mpeg4", "quality": 4, "gop_size": 30, "max_b_frames": 2}),
    "vfr": ("a.mp4", {"gop_size": 10, "pts": "uneven", "time_base": Fraction(1, 1000)}),
}


@pytest.fixture(scope="session", params=KINDS)
def kind_of_video(request, make_video, tmp_path_factory):
    """A file of each kind with its index and its full sequential decode by plain PyAV."""
    name, options = KINDS[request.param]
    options = dict(options)
    if options.get("pts") == "uneven":
        options["pts"] = np.cumsum(np.random.default_rng(0).integers(5, 90, 90)).tolist()
    path = make_video(tmp_path_factory.mktemp(request.param) / name, 90, **options)
    with av.open(str(path)) as container:
        plain = np.stack([frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)])
    return path, index_video(path), plain


def test_sequential_decode_is_plain_pyav(kind_of_video, number_of):
    path, index, plain = kind_of_video
    ours = np.stack(list(iterate_frames(path, index=index)))
    assert np.array_equal(ours, plain)
    assert index.num_frames == len(plain)
    # The pictures themselves say that nothing is lost at the front and that the order is right.
    numbers = [number_of(frame) for frame in plain]
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_frames_in_any_order_are_bit_equal(kind_of_video, data):
    path, index, plain = kind_of_video
    numbers = data.draw(st.lists(st.integers(0, index.num_frames - 1), min_size=1, max_size=24))
    assert np.array_equal(read_frames(path, numbers, index=index), plain[numbers])


def test_clips_keep_their_shape_and_are_scaled_once(kind_of_video, number_of):
    path, index, plain = kind_of_video
    numbers = np.stack([np.arange(40, 56), np.arange(7, 23)])
    pixels = read_frames(path, numbers, index=index, short_side=48)
    assert pixels.shape == (2, 16, 48, 80, 3)
    first = number_of(plain[0])
    assert [[number_of(frame) - first for frame in clip] for clip in pixels] == numbers.tolist()


def test_long_groups_are_reached_by_seeking_not_by_decoding_everything(make_video, tmp_path, monkeypatch):
    path = make_video(tmp_path / "a.mp4", 90, gop_size=16)
    index = index_video(path)

    def refuse(*_: object) -> None:
        raise AssertionError("decoded from the start although seeking was possible")

    monkeypatch.setattr(video, "by_counting", refuse)
    assert read_frames(path, [70, 71, 20], index=index).shape[0] == 3


def test_frame_times_of_a_variable_frame_rate(make_video, tmp_path):
    stamps = [0, 40, 90, 400, 410, 1000]
    index = index_video(make_video(tmp_path / "a.mp4", 6, pts=stamps, time_base=Fraction(1, 1000)))
    assert index.frame_seconds == pytest.approx(np.array(stamps) / 1000, abs=1e-3)
    assert index.duration_seconds > 1.0


@pytest.mark.parametrize("degrees", [0, 90, 180, -90])
def test_rotation_is_applied(numbered, tmp_path, degrees):
    upright = write_video(tmp_path / "up.mp4", numbered(4))
    turned = write_video(tmp_path / "turned.mp4", numbered(4), rotation=degrees)
    assert upright == turned == 4
    index = index_video(tmp_path / "turned.mp4")
    plain = read_frames(tmp_path / "up.mp4", [0, 3], index=index_video(tmp_path / "up.mp4"))
    expected = np.rot90(plain, degrees // 90, axes=(1, 2))
    pixels = read_frames(tmp_path / "turned.mp4", [0, 3], index=index)
    assert np.array_equal(pixels, expected)
    assert (index.facts.height, index.facts.width) == expected.shape[1:3]


@pytest.mark.parametrize(
    ("matrix", "expected"),
    # Where a display matrix (a b c d) sends the top left and top right corner of a picture, by definition.
    [
        ((1, 0, 0, 1), "AB CD"),
        ((0, 1, -1, 0), "CA DB"),
        ((-1, 0, 0, -1), "DC BA"),
        ((0, -1, 1, 0), "BD AC"),
        ((-1, 0, 0, 1), "BA DC"),
        ((1, 0, 0, -1), "CD AB"),
        ((0, 1, 1, 0), "AC BD"),
    ],
)
def test_orientation_follows_the_display_matrix(matrix, expected):
    a, b, c, d = (value << 16 for value in matrix)

    matrix_bytes = struct.pack("=9i", a, b, 0, c, d, 0, 0, 0, 1 << 30)
    turns, mirrored = picture.orientation(SimpleNamespace(side_data={"DISPLAYMATRIX": matrix_bytes}))
    letters = np.array([list("AB"), list("CD")])
    shown = np.rot90(letters[:, ::-1] if mirrored else letters, turns)
    assert " ".join("".join(row) for row in shown) == expected


@pytest.mark.parametrize("width", [160, 162, 170, 171])
@pytest.mark.parametrize("level", [0, 128, 255])
def test_scaling_keeps_flat_colours_at_every_width(tmp_path, width, level):
    """FFmpeg's own scaling to interleaved RGB is two levels too dark where the width is even."""
    flat = np.full((96, 2 * (width // 2), 3), level, np.uint8)
    write_video(tmp_path / "flat.mkv", [flat] * 2, quality=1)
    index = index_video(tmp_path / "flat.mkv")
    pixels = read_frames(tmp_path / "flat.mkv", [0, 1], index=index, short_side=48 + width % 2)
    assert np.abs(pixels.astype(int) - level).max() <= 1
    grey = read_frames(tmp_path / "flat.mkv", [0, 1], index=index, short_side=48 + width % 2, grey=True)
    assert np.abs(grey.astype(int) - level).max() <= 1


def test_grey_is_how_bright_a_frame_is(kind_of_video):
    path, index, _ = kind_of_video
    rgb = read_frames(path, [0, 3], index=index, short_side=24).astype(np.float64)
    grey = read_frames(path, [0, 3], index=index, short_side=24, grey=True)
    assert grey.shape == rgb.shape[:3]
    assert np.abs(grey - rgb @ (0.299, 0.587, 0.114)).mean() < 3


def test_index_survives_its_bytes(make_video, tmp_path):
    index = index_video(make_video(tmp_path / "a.mp4", 20))
    again = FrameIndex.from_bytes(index.to_bytes())
    assert again.facts == index.facts
    for name in ("timestamps", "signatures", "keyframes"):
        assert np.array_equal(getattr(again, name), getattr(index, name))
    with pytest.raises(ValueError, match="cut short"):
        FrameIndex.from_bytes(index.to_bytes()[:-3])
    with pytest.raises(ValueError, match="not a frame index"):
        FrameIndex.from_bytes(b"PK\x03\x04")


def test_same_pictures_have_the_same_hash_in_any_container(make_video, tmp_path):
    a = index_video(make_video(tmp_path / "a.mp4", 20))
    b = index_video(make_video(tmp_path / "b.mkv", 20))
    c = index_video(make_video(tmp_path / "c.mp4", 20, start=5))
    assert a.frames_hash == b.frames_hash != c.frames_hash


def test_a_replaced_file_is_noticed(make_video, tmp_path):
    path = make_video(tmp_path / "a.mp4", 30)
    index = index_video(path)
    make_video(path, 30, start=100)
    with pytest.raises(ChangedVideoError, match=r"a\.mp4.*scan it again"):
        read_frames(path, [3], index=index)
    with pytest.raises(ChangedVideoError):
        list(iterate_frames(path, index=index))


def test_frame_numbers_out_of_range(make_video, tmp_path):
    path = make_video(tmp_path / "a.mp4", 10)
    with pytest.raises(IndexError, match="frames 0 to 9"):
        read_frames(path, [10], index=index_video(path))


def test_a_truncated_file_gives_the_frames_that_decode(make_video, tmp_path):
    path = make_video(tmp_path / "a.avi", 60, codec="mpeg4", gop_size=10)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    index = index_video(path)
    assert 5 < index.num_frames < 60
    assert read_frames(path, [0, index.num_frames - 1], index=index).shape[0] == 2


def _odd_files(folder: Path, make_video) -> dict[str, Path]:
    good = make_video(folder / "good.mp4", 30, faststart=False).read_bytes()
    files = {
        "empty.mp4": b"",
        "text.mp4": b"this is not a video\n" * 50,
        "no-index.mp4": good[: len(good) // 2],  # the index of an mp4 is at its end
        "header-only.mp4": good[:64],
        "noise.avi": np.random.default_rng(0).bytes(40_000),
        "picture.mp4": b"\x89PNG\r\n\x1a\n" + b"\0" * 60,
    }
    for name, data in files.items():
        (folder / name).write_bytes(data)
    with av.open(str(folder / "sound.mp4"), "w") as container:
        stream = container.add_stream("aac", rate=8000)
        sound = av.AudioFrame.from_ndarray(np.zeros((1, 1024), np.float32), format="fltp", layout="mono")
        sound.sample_rate = 8000
        container.mux(stream.encode(sound))
        container.mux(stream.encode(None))
    return {name: folder / name for name in [*files, "sound.mp4"]}


def test_what_is_no_video_is_refused_by_name(make_video, tmp_path):
    for name, path in _odd_files(tmp_path, make_video).items():
        with pytest.raises(UnreadableVideoError, match=name):
            index_video(path)
    with pytest.raises(UnreadableVideoError, match="only audio"):
        index_video(tmp_path / "sound.mp4")
    with pytest.raises(UnreadableVideoError, match="no such file"):
        index_video(tmp_path / "absent.mp4")


def test_bit_rot_is_read_or_refused_but_never_crashes(make_video, tmp_path):
    rng = np.random.default_rng(0)
    good = np.frombuffer(make_video(tmp_path / "good.mp4", 40, gop_size=10).read_bytes(), np.uint8)
    num_read = 0
    refusals: dict[str, str] = {}
    for number in range(40):
        rotten = good.copy()
        places = rng.integers(0, len(rotten), rng.integers(1, 60))
        rotten[places] = rng.integers(0, 256, len(places))
        path = tmp_path / f"rotten{number}.mp4"
        path.write_bytes(rotten.tobytes())
        try:
            index = index_video(path)
            pixels = read_frames(path, np.arange(index.num_frames)[::3], index=index)
            assert np.array_equal(pixels, np.stack(list(iterate_frames(path, index=index)))[::3])
            num_read += 1
        except VideoError as error:
            refusals[path.name] = str(error)
    assert num_read > 5
    assert all(name in message for name, message in refusals.items())


def test_the_time_limit_is_for_the_next_frame_not_for_the_file(make_video, tmp_path, monkeypatch):
    """The clock is ours, so that the outcome does not hang on the machine's speed."""
    path = make_video(tmp_path / "a.mp4", 90)
    seconds = itertools.count()  # one second a look
    monkeypatch.setattr(video, "time", SimpleNamespace(monotonic=lambda: next(seconds)))
    assert index_video(path, timeout_seconds=30).num_frames == 90
    assert next(seconds) > 90
    hours = itertools.count(step=3600)
    monkeypatch.setattr(video, "time", SimpleNamespace(monotonic=lambda: next(hours)))
    with pytest.raises(VideoTimeoutError, match="no frame came of it for 30 seconds, the time limit"):
        index_video(path, timeout_seconds=30)


@given(height=st.integers(1, 4000), width=st.integers(1, 4000), side=st.integers(1, 512))
def test_resized_shape_keeps_the_aspect(height, width, side):
    new_height, new_width = resized_shape(height, width, side)
    assert min(new_height, new_width) == side
    longer, original = max(new_height, new_width), max(height, width) / min(height, width)
    assert abs(longer - side * original) <= 0.5 + 1e-6


def test_every_real_odd_file_is_read_or_refused(real_data, tmp_path):
    """In a child process, because a crash of the decoder would take the tests with it."""
    script = tmp_path / "read_all.py"
    script.write_text(
        "import sys, numpy as np\n"
        "from pathlib import Path\n"
        "from provico.data.frames.video import index_video, iterate_frames, read_frames\n"
        "from provico.errors import VideoError\n"
        "for path in sorted(Path(sys.argv[1]).iterdir()):\n"
        "    try:\n"
        "        index = index_video(path)\n"
        "        frames = np.stack(list(iterate_frames(path, index=index, short_side=48)))\n"
        "        rng = np.random.default_rng(0)\n"
        "        for start in rng.integers(0, index.num_frames, 1):\n"
        "            numbers = (start + np.arange(16)) % index.num_frames\n"
        "            pixels = read_frames(path, numbers, index=index, short_side=48)\n"
        "            assert np.array_equal(pixels, frames[numbers]), path\n"
        "        print('read', path.name)\n"
        "    except VideoError as error:\n"
        "        assert path.name in str(error)\n"
        "        print('refused', path.name)\n"
    )
    for folder, least_read in (("odd-videos", 50), ("originals", 14)):
        run = subprocess.run(
            [sys.executable, script, real_data / folder], capture_output=True, text=True, timeout=300
        )
        assert run.returncode == 0, run.stderr[-2000:]
        lines = run.stdout.splitlines()
        assert len(lines) == len(list((real_data / folder).iterdir()))
        assert sum(line.startswith("read") for line in lines) >= least_read
