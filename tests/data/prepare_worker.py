"""Prepares the videos of a folder and stops for good midway, to be killed: HOME VIDEOS STORE."""

from __future__ import annotations

import dataclasses
import functools
import signal
import sys
from collections.abc import Callable, Iterable, Iterator
from itertools import count
from pathlib import Path

from provico.data.frames.frame_file import Header
from provico.data.frames.prepared import prepare
from provico.data.frames.stores import STORES, Pixels
from provico.data.library import Library

NUM_WHOLE = 2
"""How many copies each of the two processes finishes before it stops in the middle of the next one."""

_files = count(1)


def write_and_stop(
    write: Callable[[Path, Iterable[Pixels], Header], bytes],
    path: Path,
    frames: Iterable[Pixels],
    header: Header,
) -> bytes:
    """As the store writes it, but not to the end."""
    # What is written elsewhere are samples that tell how large copies will be.
    is_last = "prepared" in path.parts and next(_files) > NUM_WHOLE

    def until_the_middle() -> Iterator[Pixels]:
        for number, frame in enumerate(frames):
            # So late that an encoder which looks ahead has begun to write.
            if is_last and number == header.num_frames - 2:
                signal.pause()
            yield frame

    return write(path, until_the_middle(), header)


if __name__ == "__main__":
    import prepare_worker  # what other processes import by its name
    from moving_videos import SHORT_SIDE, Listed

    home, videos, store = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
    stopping = functools.partial(prepare_worker.write_and_stop, STORES[store].write)
    STORES[store] = dataclasses.replace(STORES[store], write=stopping)
    listed = [Listed(path) for path in sorted(videos.glob("*.mp4"))]
    # No time limit ends what stops for good, however busy the machine is.
    prepare(
        listed,
        library=Library(home),
        store=store,
        short_side=SHORT_SIDE,
        num_workers=2,
        timeout_seconds=3600,
    )
