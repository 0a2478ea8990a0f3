"""Checks of what works on this machine. Each check performs the operation that it reports on."""

from __future__ import annotations

import os
import platform
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from provico.data.frames.encode import write_video
from provico.data.frames.video import index_video, read_frames
from provico.extras import EXTRAS, lacking
from provico.files import home_folder


@dataclass(frozen=True)
class SystemCheck:
    """The result of one check."""

    name: str
    works: bool
    found: str


def examine() -> list[SystemCheck]:
    """Run all checks. Failures are reported, not raised."""
    checks = [
        SystemCheck("python", sys.version_info >= (3, 11), platform.python_version()),
        _try("torch", _torch),
        _try("ffmpeg", _ffmpeg),
        _try("H.264 in mp4", lambda: _round_trip("a.mp4", "libx264")),
        _try("MPEG-4 in avi", lambda: _round_trip("a.avi", "mpeg4")),
        _try("own folder", _own_folder),
        SystemCheck("processors", True, f"{os.cpu_count()}"),
    ]
    for extra in EXTRAS:
        sentence = lacking(extra, what=f"The extra {extra!r}")
        checks.append(SystemCheck(f"extra {extra}", sentence is None, sentence or ", ".join(EXTRAS[extra])))
    return checks


def show(checks: list[SystemCheck]) -> None:
    """Print one line per check."""
    for check in checks:
        print(f"{'ok ' if check.works else 'no '} {check.name}: {check.found}")


def _try(name: str, attempt: Callable[[], str]) -> SystemCheck:
    try:
        return SystemCheck(name, True, attempt())
    except Exception as error:
        return SystemCheck(name, False, f"{type(error).__name__}: {error}")


def _torch() -> str:
    import torch

    devices = [f"{torch.cuda.device_count()} GPU(s)"] if torch.cuda.is_available() else []
    return f"{torch.__version__}, {', '.join([*devices, 'CPU'])}, {torch.get_num_threads()} threads"


def _ffmpeg() -> str:
    import av

    return f"PyAV {av.__version__} with FFmpeg {av.ffmpeg_version_info}"


def _round_trip(name: str, codec: str) -> str:
    """Encode a few frames and read one back."""
    ramp = np.arange(64 * 64 * 3, dtype=np.uint8).reshape(64, 64, 3)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        write_video(path, [np.roll(ramp, 4 * shift, 0) for shift in range(12)], codec=codec, quality=2)
        index = index_video(path)
        read_frames(path, [index.num_frames - 1], index=index)
        return f"{index.num_frames} frames written and read"


def _own_folder() -> str:
    folder = home_folder()
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=folder):
        return f"{folder} can be written"
