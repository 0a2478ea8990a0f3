"""The index of a video file's frames, from one full decode.

Headers lie: real UCF101 files decode one to four frames fewer than they declare, and the timestamps of some
are not monotonic. So a file is decoded once from start to end, and the timestamp and a signature of every
frame are stored. The signature makes later random access safe: a frame reached by seeking is accepted only if
its signature is the one from that sequential decode.
"""

from __future__ import annotations

import hashlib
import json
import math
import zlib
from dataclasses import asdict, dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

NO_TIMESTAMP = np.iinfo(np.int64).min
"""Stands in `timestamps` for a frame that has none."""

_MAGIC = b"PVIX1\n"


@dataclass(frozen=True, kw_only=True)
class VideoFacts:
    """The part of the index that is plain numbers and words."""

    codec: str
    container: str
    width: int
    """Pixels, after the rotation that the file asks for."""
    height: int
    quarter_turns: int
    """How often the decoded picture is turned by 90 degrees counter-clockwise to be shown."""
    mirrored: bool
    """Whether the decoded picture is flipped left to right before it is turned."""
    frames_per_second: float
    seconds_per_tick: float
    """Unit of `FrameIndex.timestamps`."""
    num_errors: int
    """Packets that could not be decoded and frames marked corrupt: the file is damaged, but can be read."""
    brightness: float
    """Mean grey value, 0 to 255, of the brightest of the frames that were looked at."""
    motion: float
    """Mean absolute change in grey value between the frames that were looked at, largest over the video."""


@dataclass(frozen=True, kw_only=True, eq=False)
class FrameIndex:
    """Every frame of one video in the order in which it is decoded; frame numbers count from 0."""

    facts: VideoFacts
    timestamps: NDArray[np.int64]
    signatures: NDArray[np.uint32]
    keyframes: NDArray[np.int64]
    """Frame numbers at which decoding can start."""

    def __post_init__(self) -> None:
        if len(self.timestamps) != len(self.signatures) or not len(self.timestamps):
            raise ValueError(
                f"An index needs one timestamp and one signature for each of at least one frame, "
                f"got {len(self.timestamps)} and {len(self.signatures)}."
            )

    @property
    def num_frames(self) -> int:
        """Number of frames that can be decoded."""
        return len(self.timestamps)

    @cached_property
    def seekable(self) -> bool:
        """Whether the timestamps are unique and in order, so that seeking can work."""
        t = self.timestamps
        return bool(t[0] != NO_TIMESTAMP and np.all(t[1:] > t[:-1]))

    @cached_property
    def frame_seconds(self) -> NDArray[np.float64]:
        """The time of each frame, from 0; also correct for variable frame rates."""
        if self.seekable:
            ticks: NDArray[np.float64] = (self.timestamps - self.timestamps[0]).astype(np.float64)
            ticks *= self.facts.seconds_per_tick
            return ticks
        return np.arange(self.num_frames) / self.facts.frames_per_second

    @property
    def duration_seconds(self) -> float:
        """From the first frame to the end of the last one."""
        return float(self.frame_seconds[-1]) + 1 / self.facts.frames_per_second

    @property
    def end_seconds(self) -> NDArray[np.float64]:
        """The end of each frame: the start of the next one."""
        return np.append(self.frame_seconds[1:], self.duration_seconds)

    def seconds_of(self, frames: range) -> float:
        """Duration of these frames, from the first one to the end of the last."""
        end = self.duration_seconds if frames.stop == self.num_frames else self.frame_seconds[frames.stop]
        return float(end - self.frame_seconds[frames.start])

    def frames_within(self, start_seconds: float, end_seconds: float) -> range:
        """The frame numbers between two times; empty outside of the video."""
        inside = np.flatnonzero((self.frame_seconds < end_seconds) & (self.end_seconds > start_seconds))
        return range(int(inside[0]), int(inside[-1]) + 1) if len(inside) else range(0)

    @cached_property
    def frames_hash(self) -> str:
        """Equal for files whose decoded frames are equal, whatever the container."""
        digest = hashlib.blake2b(digest_size=12)
        digest.update(f"{self.facts.width}x{self.facts.height}".encode())
        digest.update(self.signatures.astype("<u4").tobytes())
        return digest.hexdigest()

    def to_bytes(self) -> bytes:
        """Plain JSON and compressed integers: nothing in it can run code when it is read."""
        steps = np.diff(self.timestamps, prepend=0).astype("<i8")
        parts = [
            zlib.compress(steps.tobytes(), 1),
            self.signatures.astype("<u4").tobytes(),
            zlib.compress(self.keyframes.astype("<i8").tobytes(), 1),
        ]
        header = json.dumps({"facts": asdict(self.facts), "sizes": [len(part) for part in parts]})
        return _MAGIC + header.encode() + b"\n" + b"".join(parts)

    @classmethod
    def from_bytes(cls, data: bytes) -> FrameIndex:
        """The inverse of `to_bytes`; raises ValueError for anything else."""
        try:
            return cls._parsed(data)
        except (KeyError, TypeError, zlib.error, RecursionError) as error:
            raise ValueError(f"This frame index is damaged ({error}).") from error

    @classmethod
    def _parsed(cls, data: bytes) -> FrameIndex:
        if not data.startswith(_MAGIC):
            raise ValueError("This is not a frame index.")
        header, _, payload = data[len(_MAGIC) :].partition(b"\n")
        fields = json.loads(header)
        first, second, third = fields["sizes"]
        if min(first, second, third) < 0 or len(payload) != first + second + third:
            raise ValueError("This frame index is cut short.")
        signatures = np.frombuffer(payload[first : first + second], "<u4").astype(np.uint32)
        # No more is unpacked than there can be, whatever the bytes say.
        steps = _unpacked(payload[:first], len(signatures))
        keyframes = _unpacked(payload[first + second :], len(signatures))
        if len(keyframes) and not (keyframes[0] >= 0 and keyframes[-1] < len(signatures)):
            raise ValueError("This frame index names frames that the video does not have.")
        if np.any(keyframes[1:] <= keyframes[:-1]):
            raise ValueError("The keyframes of this frame index are not in order.")
        return cls(
            facts=_checked(VideoFacts(**fields["facts"])),
            timestamps=np.cumsum(steps, dtype=np.int64),
            signatures=signatures,
            keyframes=keyframes,
        )


def _unpacked(data: bytes, max_numbers: int) -> NDArray[np.int64]:
    packed = zlib.decompressobj()
    numbers = packed.decompress(data, 8 * max_numbers + 1)
    if len(numbers) > 8 * max_numbers or (not packed.eof and len(numbers) < 8 * max_numbers):
        raise ValueError("This frame index does not fit its number of frames.")
    return np.frombuffer(numbers, "<i8").astype(np.int64)


def _checked(facts: VideoFacts) -> VideoFacts:
    """These facts, unchanged; ValueError if a number cannot be one of a video."""
    for name, value in asdict(facts).items():
        wanted = {"str": str, "bool": bool, "int": int}.get(str(VideoFacts.__annotations__[name]), float)
        is_number = wanted is float and isinstance(value, int | float) and not isinstance(value, bool)
        if type(value) is not wanted and not (is_number and math.isfinite(value)):
            raise ValueError(f"The {name} of this frame index is {value!r}.")
    positive = (facts.width, facts.height, facts.frames_per_second, facts.seconds_per_tick)
    if min(positive) <= 0 or facts.quarter_turns not in range(4) or facts.num_errors < 0:
        raise ValueError("This frame index has numbers that no video can have.")
    if not all(map(math.isfinite, (*positive, facts.brightness, facts.motion))):
        raise ValueError("This frame index has numbers that are not finite.")
    return facts
