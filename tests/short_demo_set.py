"""The demo set with videos that end early: reading them is most of what many tests do."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from provico.data.demo_set import videos
from provico.data.demo_set.scene import Shot
from provico.data.demo_set.videos import DemoVideo, plan_demo_set, write_demo_set

NUM_FRAMES = 40
"""Of each video, at most: longer than the clips of all recipes that the tests run."""


def ended_early(video: DemoVideo) -> DemoVideo:
    shots: list[Shot] = []
    num_left = NUM_FRAMES
    for shot in video.shots:
        if num_left:
            shots.append(dataclasses.replace(shot, num_frames=min(shot.num_frames, num_left)))
            num_left -= shots[-1].num_frames
    return dataclasses.replace(video, shots=tuple(shots))


def write_short_demo_set(out: Path, *, num_classes: int, videos_per_class: int) -> None:
    def planned(**options: int) -> list[DemoVideo]:
        return [ended_early(video) for video in plan_demo_set(**options)]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(videos, "plan_demo_set", planned)
        write_demo_set(out, num_classes=num_classes, videos_per_class=videos_per_class, num_workers=1)
