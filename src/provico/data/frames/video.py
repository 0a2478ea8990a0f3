"""Frames of a video file by number. Only this file, `opening` and `picture` deal with FFmpeg's decoding.

`index_video` decodes a file once from start to end and writes down what came out; `read_frames` then
returns any of these frames, bit-equal to that first decode, whatever the path to them:

- **Seek, skip, convert only what is wanted.** Decoding starts at the last keyframe before a wanted
  frame; packets that no other frame needs are not decoded at all; only wanted frames become RGB, by
  one scaler that is set up once (a new one per frame costs five times the conversion itself).
- **Trust signatures, not containers.** Timestamps say where to seek, but a frame counts as found only
  if its signature matches. Where timestamps cannot be trusted (AVI with B-frames) or a match fails
  (open groups of pictures, damaged files), the file is decoded from its start and frames are counted.
- **One thread.** Loaders run one process per core already, and several decoder threads conceal errors
  in damaged files differently from run to run.
"""

from __future__ import annotations

import math
import time
from array import array
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
from av.video.reformatter import VideoReformatter
from numpy.typing import ArrayLike, NDArray

from provico.data.child_process import alive
from provico.data.frames.frame_index import NO_TIMESTAMP, FrameIndex, VideoFacts
from provico.data.frames.opening import open_stream
from provico.data.frames.picture import Converter, orientation, scaled_planes, signature
from provico.data.memory import check_shape, limited, memory_left, takes_too_much
from provico.defaults import TIMEOUT_SECONDS
from provico.errors import ChangedVideoError, UnreadableVideoError, VideoTimeoutError

_FALLBACK_FPS = 25.0
_CAN_SKIP = {"h264", "hevc", "mpeg4"}
"""Codecs whose decoders leave out frames that no other frame needs, and lose no other frame by it."""
MAX_KEPT_BYTES = 2**27
"""Of decoded frames that are kept: those of six seconds of 960 x 540 pixels."""
FRAME_BYTES = 2**12
"""What a decoded frame takes besides its pixels: that of a thumbnail takes more than they do."""
_LOOK_EVERY = 8  # brightness and motion are judged on every eighth frame ...
_LOOK_SIDE = 32  # ... at 32 x 32 pixels


class KeptFrames:
    """Decoded frames of a file that is indexed, so that what is wanted of them needs no second decode.

    None are kept of a video that is too long or too large for it: memory stays bounded.
    """

    def __init__(self) -> None:
        self.frames: list[av.VideoFrame] = []
        self._bytes_left, self._shape, self._frame_bytes = MAX_KEPT_BYTES, (0, 0), 0

    def take(self, frame: av.VideoFrame) -> None:
        """Keep the next frame, if there is room for it and was for all before."""
        if self._shape != (frame.height, frame.width):  # it may change on the way
            self._shape = frame.height, frame.width
            self._frame_bytes = FRAME_BYTES + sum(plane.buffer_size for plane in frame.planes)
        self._bytes_left -= self._frame_bytes
        if self._bytes_left >= 0:
            self.frames.append(frame)
        else:
            self.frames.clear()


def index_video(
    path: str | Path, *, timeout_seconds: float = TIMEOUT_SECONDS, keep: KeptFrames | None = None
) -> FrameIndex:
    """Decode the whole file once and say which frames it has.

    Packets that cannot be decoded are counted in `num_errors` and left out; a file of which no frame
    decodes is refused.
    """
    with limited(path), open_source(path, timeout_seconds) as source:
        timestamps, signatures, keyframes = array("q"), array("I"), array("q")  # a day has millions
        watch = _Watch()
        turns, mirrored = 0, False
        width = height = 0
        for number, frame in enumerate(source.frames()):
            if number == 0:
                turns, mirrored = orientation(frame)
                width, height = frame.width, frame.height
                check_shape(path, width, height)
            if frame.key_frame:
                keyframes.append(number)
            timestamps.append(NO_TIMESTAMP if frame.pts is None else frame.pts)
            signatures.append(signature(frame))
            watch.look(number, frame)
            if keep is not None:
                keep.take(frame)
        if not timestamps:
            raise UnreadableVideoError(
                path, f"no frame could be decoded ({source.num_errors} packets failed)."
            )
        seconds_per_tick = float(source.stream.time_base or Fraction(1, 1000))
        times = np.array(timestamps, np.int64)
        return FrameIndex(
            facts=VideoFacts(
                codec=source.stream.codec_context.codec.canonical_name,
                container=source.container.format.name,
                width=height if turns % 2 else width,
                height=width if turns % 2 else height,
                quarter_turns=turns,
                mirrored=mirrored,
                frames_per_second=_frame_rate(times, seconds_per_tick, source.stream.average_rate),
                seconds_per_tick=seconds_per_tick,
                num_errors=source.num_errors,
                brightness=watch.brightness,
                motion=watch.motion,
            ),
            timestamps=times,
            signatures=np.array(signatures, np.uint32),
            keyframes=np.array(keyframes, np.int64),
        )


def read_frames(
    path: str | Path,
    frame_numbers: ArrayLike,
    *,
    index: FrameIndex,
    short_side: int | None = None,
    grey: bool = False,
    timeout_seconds: float = TIMEOUT_SECONDS,
    kept: KeptFrames | None = None,
) -> NDArray[np.uint8]:
    """Frames as RGB, "*numbers height width 3": any numbers in any order, repeats included.

    With `short_side` the frames are scaled while they are converted, keeping their aspect.

    grey: only how bright they are, "*numbers height width".
    kept: the frames that were kept when the index was made; the file is then not opened.
    """
    numbers = np.asarray(frame_numbers, np.int64)
    if numbers.size == 0 or numbers.min() < 0 or numbers.max() >= index.num_frames:
        raise IndexError(
            f"{path} has frames 0 to {index.num_frames - 1}; asked for "
            + ("none." if numbers.size == 0 else f"{numbers.min()} to {numbers.max()}.")
        )
    wanted, first, place = np.unique(numbers, return_index=True, return_inverse=True)
    convert = Converter(index, short_side, grey=grey)
    shape = (numbers.size, *convert.shape)
    with limited(path, more_bytes=math.prod(shape)):
        pixels = np.empty(shape, np.uint8)
        targets = [pixels[position] for position in first]
        if kept is not None and len(kept.frames) == index.num_frames:
            for number, target in zip(wanted, targets, strict=True):
                convert.into(target, kept.frames[number])
        else:
            _decode(path, wanted, index, convert, targets, timeout_seconds)
    if len(wanted) < numbers.size:  # frames that are wanted more than once have been converted once
        converted = first[place.ravel()]
        repeats = np.flatnonzero(converted != np.arange(numbers.size))
        pixels[repeats] = pixels[converted[repeats]]
    return pixels.reshape(*numbers.shape, *convert.shape)


def _decode(
    path: str | Path,
    wanted: NDArray[np.int64],
    index: FrameIndex,
    convert: Converter,
    targets: Sequence[NDArray[np.uint8]],
    timeout_seconds: float,
) -> None:
    """Find the wanted frames in the file and convert each to its target."""
    with open_source(path, timeout_seconds) as source:
        can_seek = index.seekable and index.keyframes.size > 0
        found = can_seek and _collect(by_seeking(source, index, wanted), wanted, index, convert, targets)
        if not found:
            if can_seek:
                source.rewind()
            found = _collect(by_counting(source, wanted), wanted, index, convert, targets)
        if not found:
            raise not_as_indexed(path)


def iterate_frames(
    path: str | Path,
    *,
    index: FrameIndex,
    short_side: int | None = None,
    timeout_seconds: float = TIMEOUT_SECONDS,
) -> Iterator[NDArray[np.uint8]]:
    """All frames in order, one RGB "height width 3" array at a time, checked against the index."""
    with open_source(path, timeout_seconds) as source:
        convert = Converter(index, short_side)
        number = -1
        for number, frame in enumerate(source.frames()):
            if number >= index.num_frames or signature(frame) != index.signatures[number]:
                break
            rgb = np.empty(convert.shape, np.uint8)
            convert.into(rgb, frame)
            yield rgb
        if number != index.num_frames - 1:
            raise ChangedVideoError(
                path, f"frame {number} is not the one that was indexed. Scan the file again."
            )


def not_as_indexed(path: str | Path) -> ChangedVideoError:
    """The error for a file whose frames have changed."""
    return ChangedVideoError(
        path,
        "its frames are not those that were seen when it was indexed. "
        "If the file was replaced, scan it again.",
    )


# ----------------------------------------------------------------------------------------------------
# Finding frames


def _collect(
    found: Iterable[tuple[int, av.VideoFrame]],
    wanted: NDArray[np.int64],
    index: FrameIndex,
    convert: Converter,
    targets: Sequence[NDArray[np.uint8]],
) -> bool:
    """Convert the wanted frames as they arrive, each to its target; False if they are not the right ones."""
    for place, (number, frame) in enumerate(found):
        if number != wanted[place] or signature(frame) != index.signatures[number]:
            return False
        convert.into(targets[place], frame)
        if place == len(wanted) - 1:
            return True
    return False


def by_counting(source: Source, wanted: NDArray[np.int64]) -> Iterator[tuple[int, av.VideoFrame]]:
    """From the start of the file, in decoding order: slower, but right for every file."""
    place = 0
    for number, frame in enumerate(source.frames()):
        if number == wanted[place]:
            yield number, frame
            place += 1
            if place == len(wanted):
                return


def by_seeking(
    source: Source, index: FrameIndex, wanted: NDArray[np.int64]
) -> Iterator[tuple[int, av.VideoFrame]]:
    """From the last keyframe before each group of wanted frames, told apart by timestamp.

    A new group begins where a keyframe lies between two wanted frames, so that a seek saves decoding.
    """
    starts = index.keyframes[np.searchsorted(index.keyframes, wanted, side="right") - 1]
    starts = np.where(starts > wanted, 0, starts)  # frames before the first keyframe
    breaks = np.flatnonzero(starts[1:] > wanted[:-1]) + 1
    for start, group in zip(starts[np.r_[0, breaks]], np.split(wanted, breaks), strict=True):
        if start > 0:  # a freshly opened file is at its start already
            source.seek(int(index.timestamps[start]))
        number_at = dict(zip(index.timestamps[group].tolist(), group.tolist(), strict=True))
        last = int(group[-1])
        for frame in source.frames(needed=number_at.keys()):
            number = number_at.get(frame.pts)
            if number is not None:
                yield number, frame
                if number == last:
                    break


# ----------------------------------------------------------------------------------------------------
# The open file


@dataclass
class Source:
    """An open file with its one video stream, a time limit, and a count of what failed to decode.

    The limit is for the next frame, not for the file: how long a file takes depends on its length and on what
    else the machine does, and neither makes it unreadable.
    """

    path: str | Path
    container: av.container.InputContainer
    stream: av.VideoStream
    silent_seconds: float
    """How long it may take until the next frame comes."""
    num_errors: int = 0

    def __post_init__(self) -> None:
        self.deadline = time.monotonic() + self.silent_seconds

    def frames(self, needed: Collection[int] = ()) -> Iterator[av.VideoFrame]:
        """Decode from the current position to the end.

        With `needed` (timestamps), packets of other frames are decoded only if later frames refer to
        them; which those are, the codec knows.
        """
        context = self.stream.codec_context
        wanted = set(needed) if needed and context.codec.canonical_name in _CAN_SKIP else None
        skipping = False
        for packet in self._packets():
            if time.monotonic() > self.deadline:
                reason = f"no frame came of it for {self.silent_seconds:g} seconds, the time limit."
                raise VideoTimeoutError(self.path, reason)
            if wanted is not None:
                skip = packet is not None and packet.pts is not None and packet.pts not in wanted
                if skip != skipping:
                    context.skip_frame = "NONREF" if skip else "DEFAULT"
                    skipping = skip
            try:
                decoded = context.decode(packet)
            except (av.FFmpegError, ValueError, MemoryError) as error:
                # Some decoders call a picture invalid for which they get no memory.
                if isinstance(error, MemoryError) or memory_left() < 4 * context.width * context.height:
                    raise takes_too_much(self.path) from None
                self.num_errors += 1
                continue
            for frame in decoded:
                self.num_errors += frame.is_corrupt
                alive()
                yield frame
                # From when the next one is asked for: what was done with this one does not count.
                self.deadline = time.monotonic() + self.silent_seconds

    def _packets(self) -> Iterator[av.Packet[av.VideoStream] | None]:
        """The packets of the stream and a last None that flushes the decoder, also after an error."""
        try:
            for packet in self.container.demux(self.stream):
                if packet.size:
                    yield packet
        except (av.FFmpegError, OSError, ValueError):
            self.num_errors += 1
        yield None

    def seek(self, timestamp: int) -> None:
        """Go to the keyframe at or before the timestamp, or to the start where that fails."""
        self.stream.codec_context.skip_frame = "DEFAULT"
        try:
            self.container.seek(timestamp, stream=self.stream)
        except av.FFmpegError:
            self.rewind()

    def rewind(self) -> None:
        """Go to the start. The file is opened anew: a seek to 0 can lose the first frames of a stream."""
        self.container.close()
        self.container, self.stream = open_stream(self.path, self.silent_seconds)


@contextmanager
def open_source(path: str | Path, timeout_seconds: float) -> Iterator[Source]:
    """The file, open until the end of the block; what FFmpeg cannot do with its frames names the file."""
    container, stream = open_stream(path, timeout_seconds)
    source = Source(path, container, stream, timeout_seconds)
    try:
        yield source
    except MemoryError:
        raise takes_too_much(path) from None
    except av.FFmpegError as error:
        raise UnreadableVideoError(path, f"its frames cannot be converted ({error.strerror}).") from error
    finally:
        source.container.close()


# ----------------------------------------------------------------------------------------------------
# What is noted down


def _frame_rate(timestamps: NDArray[np.int64], seconds_per_tick: float, declared: Fraction | None) -> float:
    """From the timestamps where they make sense, else as declared."""
    ticks = float(timestamps[-1]) - float(timestamps[0])
    if len(timestamps) > 1 and bool(np.all(timestamps[1:] > timestamps[:-1])):
        return (len(timestamps) - 1) / (ticks * seconds_per_tick)
    return float(declared) if declared else _FALLBACK_FPS


class _Watch:
    """Keeps the brightest frame and the largest change, on small grey pictures of some frames."""

    def __init__(self) -> None:
        self.brightness = 0.0
        self.motion = 0.0
        self._reformatter = VideoReformatter()
        self._before: NDArray[np.int16] | None = None

    def look(self, number: int, frame: av.VideoFrame) -> None:
        if number % _LOOK_EVERY and number >= _LOOK_EVERY:
            return
        grey = scaled_planes(self._reformatter, frame, _LOOK_SIDE, _LOOK_SIDE, "gray")[0].astype(np.int16)
        self.brightness = max(self.brightness, float(grey.mean()))
        if self._before is not None:
            self.motion = max(self.motion, float(np.abs(grey - self._before).mean()))
        self._before = grey
