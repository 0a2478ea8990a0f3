"""Find copies of videos: here one that was mirrored, scaled down and cut.

python examples/find_duplicates.py
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np

from prepared import encoder, videos
from provico import Index, find_duplicates, open_catalog
from provico.data.frames.encode import write_video
from provico.data.frames.video import index_video, read_frames


def main() -> None:
    """Make a disguised copy of one video, index it with some others, and find it."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "videos"
        folder.mkdir()
        for number, video in enumerate(open_catalog(videos())[:4]):
            (folder / f"{number}.mp4").write_bytes(video.path.read_bytes())
        source = folder / "0.mp4"
        known = index_video(source)
        frames = read_frames(source, np.arange(4, known.num_frames), index=known)
        write_video(folder / "copy.mp4", frames[:, ::2, ::-2], fps=25)
        index = Index.create(Path(name) / "index", encoder())
        index.add(open_catalog(folder))
        for pair in find_duplicates(index).pairs:
            mirrored = ", mirrored" if pair.is_mirrored else ""
            print(f"{pair.first.id} and {pair.second.id}: {pair.kind}{mirrored}, p {pair.probability:.2f}")


if __name__ == "__main__":
    main()
