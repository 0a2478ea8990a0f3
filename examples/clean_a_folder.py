"""Propose which videos of a folder to drop, trim, review and keep, with reasons.

python examples/clean_a_folder.py
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np

from prepared import encoder, videos
from provico import Index, open_catalog
from provico.curation.job import curate
from provico.data.frames.encode import write_video


def main() -> None:
    """Add junk to good videos and print what is proposed for each."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "videos"
        folder.mkdir()
        for number, video in enumerate(open_catalog(videos())[:8]):
            (folder / f"good-{number}.mp4").write_bytes(video.path.read_bytes())
        black = np.zeros((40, 96, 128, 3), np.uint8)
        write_video(folder / "black.mp4", black, fps=25)
        still = np.repeat(np.random.default_rng(0).integers(0, 256, (1, 96, 128, 3), np.uint8), 40, axis=0)
        write_video(folder / "still.mp4", still, fps=25)
        (folder / "broken.mp4").write_bytes(b"not a video")
        found, index = open_catalog(folder), Index.create(Path(name) / "index", encoder())
        index.add(found)
        report = curate(index, catalog=found)
        for video in report.videos:
            print(f"{video.id:12} {video.bucket:7} {video.reason}")
        print(", ".join(f"{count} {bucket}" for bucket, count in report.count().items()))


if __name__ == "__main__":
    main()
