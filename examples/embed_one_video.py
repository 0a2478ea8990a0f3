"""Embed a video as a distribution: one Gaussian per clip, a mixture for the video, and the uncertainty.

python examples/embed_one_video.py
"""

from __future__ import annotations

from prepared import encoder, videos
from provico import open_catalog


def main() -> None:
    """Embed the first video."""
    video = open_catalog(videos())[0]
    found = encoder().embed(video.path)
    print(f"{video.id}: {len(found.clips)} clips in {found.gaussians.mean.shape[-1]} dimensions")
    for clip, gaussian in zip(found.clips, found.gaussians.uncertainty.tolist(), strict=True):
        print(f"  {clip.start_seconds:5.2f} to {clip.end_seconds:5.2f} s: uncertainty {gaussian:.3f}")
    print(f"The video: uncertainty {found.uncertainty:.3f}; its clips differ by {found.disagreement:.3f}.")


if __name__ == "__main__":
    main()
