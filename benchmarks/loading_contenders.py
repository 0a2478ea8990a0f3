"""The ways to read clips that `loading.py` compares, each in the form its own documentation suggests.

A contender gets a path, the first frame of each of its clips, the corner of a crop for each clip, and an
array uint8 [clips, 16, 112, 112, 3] to fill with frames whose short side was resized to 128: part of a batch.
It may open the file once for both clips and uses one thread, as in a worker of a data loader.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

NUM_FRAMES, SHORT_SIDE, CROP_SIZE = 16, 128, 112
SOURCE_SIZE = (240, 320)
RESIZED = (128, 171)
"""What a short side of 128 makes of SOURCE_SIZE; all contenders are spared finding it out."""

Pixels = NDArray[np.uint8]
Starts = list[int]
Corners = list[tuple[int, int]]
"""Top and left of each crop."""
Load = Callable[[Path, Starts, Corners, Pixels], None]


def ours(library_folder: Path) -> Load:
    """From the source, or from the prepared copies that the library in this folder knows."""
    from provico.data.frames.prepared import read_clips
    from provico.data.library import Library

    library = Library(library_folder)

    def load(path: Path, starts: Starts, corners: Corners, out: Pixels) -> None:
        numbers = np.add.outer(starts, np.arange(NUM_FRAMES))
        crops = [(top, left, CROP_SIZE, CROP_SIZE) for top, left in corners]
        index = library.index(path)
        read_clips(path, numbers, index=index, short_side=SHORT_SIDE, library=library, crops=crops, out=out)

    return load


def plain_pyav() -> Load:
    """Seek, decode, and let every wanted frame convert itself."""
    import av

    def load(path: Path, starts: Starts, corners: Corners, out: Pixels) -> None:
        with av.open(str(path)) as container:
            stream = container.streams.video[0]
            stream.thread_type = "NONE"
            ticks_per_frame = 1 / ((stream.average_rate or 25) * (stream.time_base or 1))
            for clip_number, start in enumerate(starts):
                first = round(start * ticks_per_frame) + (stream.start_time or 0)
                container.seek(first, stream=stream)
                clip: list[Pixels] = []
                for frame in container.decode(stream):
                    if frame.pts is None or frame.pts >= first:
                        clip.append(frame.to_ndarray(format="rgb24", width=RESIZED[1], height=RESIZED[0]))
                    if len(clip) == NUM_FRAMES:
                        break
                _crop(_filled(clip), corners[clip_number], out[clip_number])

    return load


def decord() -> Load:
    """One reader that resizes, one batch of frame numbers."""
    from decord import VideoReader, cpu

    def load(path: Path, starts: Starts, corners: Corners, out: Pixels) -> None:
        height, width = RESIZED
        reader = VideoReader(str(path), ctx=cpu(0), width=width, height=height, num_threads=1)
        numbers = np.add.outer(starts, np.arange(NUM_FRAMES)).clip(max=len(reader) - 1)
        frames = reader.get_batch(numbers.ravel()).asnumpy()
        for clip, corner, target in zip(np.split(frames, len(starts)), corners, out, strict=True):
            _crop(clip, corner, target)

    return load


def opencv() -> Load:
    """Position the capture, read, resize, swap the channels."""
    import cv2

    cv2.setNumThreads(1)

    def load(path: Path, starts: Starts, corners: Corners, out: Pixels) -> None:
        capture = cv2.VideoCapture(str(path), cv2.CAP_FFMPEG, [cv2.CAP_PROP_N_THREADS, 1])
        for clip_number, start in enumerate(starts):
            capture.set(cv2.CAP_PROP_POS_FRAMES, start)
            clip: list[Pixels] = []
            while len(clip) < NUM_FRAMES:
                found, frame = capture.read()
                if not found:
                    break
                clip.append(cv2.cvtColor(cv2.resize(frame, RESIZED[::-1]), cv2.COLOR_BGR2RGB))
            _crop(_filled(clip), corners[clip_number], out[clip_number])
        capture.release()

    return load


def torchcodec() -> Load:
    """The decoder's own resize, frames by number."""
    import torch
    from torchcodec.decoders import VideoDecoder
    from torchcodec.transforms import Resize

    torch.set_num_threads(1)

    def load(path: Path, starts: Starts, corners: Corners, out: Pixels) -> None:
        decoder = VideoDecoder(
            path, dimension_order="NHWC", seek_mode="approximate", transforms=[Resize(RESIZED)]
        )
        numbers = np.add.outer(starts, np.arange(NUM_FRAMES)).clip(max=len(decoder) - 1)
        frames = decoder.get_frames_at(numbers.ravel().tolist()).data.numpy()
        for clip, corner, target in zip(np.split(frames, len(starts)), corners, out, strict=True):
            _crop(clip, corner, target)

    return load


def _filled(clip: list[Pixels]) -> list[Pixels]:
    """Some decoders lose the last frames of a file; the clip is then filled up with what there is."""
    frames = clip or [np.zeros((*RESIZED, 3), np.uint8)]
    return frames + [frames[-1]] * (NUM_FRAMES - len(frames))


def _crop(clip: Iterable[Pixels], corner: tuple[int, int], out: Pixels) -> None:
    top, left = corner
    for frame, target in zip(clip, out, strict=True):
        target[:] = frame[top : top + CROP_SIZE, left : left + CROP_SIZE]


OTHERS: dict[str, Callable[[], Load]] = {
    "plain PyAV": plain_pyav,
    "decord": decord,
    "OpenCV": opencv,
    "torchcodec": torchcodec,
}
