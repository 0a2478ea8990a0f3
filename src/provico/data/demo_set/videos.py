"""The demo set: real H.264 files whose classes differ only in motion.

`write_demo_set` writes UCF101's own layout, so that everything which reads UCF101 reads it:

    OUT/UCF-101/Orbit/v_Orbit_g01_c01.mp4      group g01 is one scene, c01 its first clip
    OUT/ucfTrainTestlist/classInd.txt, trainlist01.txt, testlist01.txt, ... 03
    OUT/ground_truth.csv                       what was drawn for every video

All classes share one small pool of looks (`look`), and every video wanders through it
(`scene`); only the actions differ (`motion`). One video in eight is ambiguous on purpose,
and `ground_truth.csv` says how and how much, so that a measure of uncertainty can be checked:

    noise    every frame is buried in noise                      level = share of noise in a pixel
    cut      cuts to other scenes in which other actions happen  level = share of frames of other actions
    static   hardly anything moves                               level = share of the movement taken away
"""

from __future__ import annotations

import csv
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import count
from pathlib import Path

import numpy as np

from provico.data.child_process import CallLimits
from provico.data.demo_set.look import NUM_LOOKS, DrawnLook, draw_pool
from provico.data.demo_set.motion import ACTIONS, Motion
from provico.data.demo_set.scene import FPS, Shot, play
from provico.data.frames.encode import write_video
from provico.data.isolated import run_isolated
from provico.defaults import TIMEOUT_SECONDS
from provico.errors import ConfigError, OutputExistsError, UnreadableVideoError
from provico.files import replacing

NUM_SPLITS = 3
VIDEOS_PER_GROUP = 4
VIDEOS_PER_AMBIGUOUS = 8
AMBIGUITIES = ("noise", "cut", "static")


@dataclass(frozen=True, kw_only=True)
class DemoSet:
    """The written demo set."""

    folder: Path
    classes: tuple[str, ...]
    num_videos: int


@dataclass(frozen=True, kw_only=True)
class DemoVideo:
    """Everything that was drawn for one video."""

    action: str
    group: int
    clip: int
    fold: int
    """The video is in the test list of split `fold` + 1 and in the train lists of the other splits."""
    ambiguity: str = "none"
    level: float = 0.0
    shots: tuple[Shot, ...]
    seed: tuple[int, ...]
    """Of what is drawn while it is rendered: camera, light and noise."""

    @property
    def name(self) -> str:
        """Its path below `UCF-101`, as the lists give it."""
        return f"{self.action}/v_{self.action}_g{self.group:02d}_c{self.clip:02d}.mp4"


def write_demo_set(
    out: str | Path,
    *,
    num_classes: int = 8,
    videos_per_class: int = 24,
    seed: int = 0,
    num_workers: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> DemoSet:
    """Write the demo set into `out`, which must not exist yet or be empty.

    The same seed gives the same bytes, whatever the number of workers. `out` appears when all of it is
    written.

    Args:
        out: the folder to write.
        num_classes: how many of the ten actions take part.
        videos_per_class: in groups of four, at least three groups; each split tests a third of the groups.
        seed: decides everything that is drawn.
        num_workers: processes; one for each available core if not given. With 1, no process is started.
        progress: called as `progress(num_done, num_videos)` after each video.
    """
    out = Path(out)
    if out.exists() and not (out.is_dir() and not any(out.iterdir())):
        raise OutputExistsError(f"{out} already exists and is not empty. Choose another folder or remove it.")
    videos = plan_demo_set(num_classes=num_classes, videos_per_class=videos_per_class, seed=seed)
    classes = tuple(dict.fromkeys(video.action for video in videos))

    with replacing(out.absolute()) as staging:
        for action in classes:
            (staging / "UCF-101" / action).mkdir(parents=True)
        _write_lists(staging / "ucfTrainTestlist", videos, classes)
        _write_ground_truth(staging / "ground_truth.csv", videos, _pool(seed))
        write_one = partial(_write_one, staging / "UCF-101", seed)
        for num_done in _count_done(write_one, videos, num_workers or _num_available_cores()):
            if progress is not None:
                progress(num_done, len(videos))
    return DemoSet(folder=out, classes=classes, num_videos=len(videos))


# ----------------------------------------------------------------------------------------------------
# What to write


def plan_demo_set(*, num_classes: int = 8, videos_per_class: int = 24, seed: int = 0) -> list[DemoVideo]:
    """Draw every video of the set, without rendering any."""
    if not 2 <= num_classes <= len(ACTIONS):
        raise ConfigError(f"The demo set has 2 to {len(ACTIONS)} classes; {num_classes} were asked for.")
    if videos_per_class < NUM_SPLITS:
        raise ConfigError(
            f"Each class needs at least {NUM_SPLITS} videos, one to test in each split; "
            f"{videos_per_class} were asked for."
        )
    num_groups = max(NUM_SPLITS, -(-videos_per_class // VIDEOS_PER_GROUP))
    names = list(ACTIONS)[:num_classes]
    return [
        video
        for number in range(num_classes)
        for video in _plan_class(names, number, num_groups, videos_per_class, seed)
    ]


def _plan_class(
    names: list[str], class_number: int, num_groups: int, num_videos: int, seed: int
) -> Iterator[DemoVideo]:
    action = names[class_number]
    ambiguous = _choose_ambiguous(class_number, num_groups, num_videos, seed)
    num_in_group = [0] * num_groups
    for number in range(num_videos):
        group = number * num_groups // num_videos
        num_in_group[group] += 1
        scene_seed = (seed, class_number, group + 1)  # NumPy takes trailing zeros for nothing
        video_seed = (*scene_seed, num_in_group[group])
        rng = np.random.default_rng(video_seed)
        scene = _draw_scene(np.random.default_rng(scene_seed))
        shot = _draw_shot(action, _vary(scene, rng), int(rng.integers(3 * FPS, 6 * FPS + 1)), rng)
        video = DemoVideo(
            action=action,
            group=group + 1,
            clip=num_in_group[group],
            fold=group * NUM_SPLITS // num_groups,
            shots=(shot,),
            seed=(*video_seed, 1),
        )
        yield _made_ambiguous(video, ambiguous.get(number, "none"), names, rng)


def _choose_ambiguous(class_number: int, num_groups: int, num_videos: int, seed: int) -> dict[int, str]:
    """Which videos of a class are ambiguous, and how.

    Kinds and test folds rotate from class to class, so that each split tests about as many of each kind.
    """
    rng = np.random.default_rng((seed, class_number))
    folds = np.arange(num_videos) * num_groups // num_videos * NUM_SPLITS // num_groups
    chosen: dict[int, str] = {}
    for turn in range(round(num_videos / VIDEOS_PER_AMBIGUOUS)):
        kind = class_number + turn
        fold = (class_number + kind + turn // len(AMBIGUITIES)) % NUM_SPLITS
        free = [int(number) for number in np.flatnonzero(folds == fold) if int(number) not in chosen]
        chosen[free[int(rng.integers(len(free)))]] = AMBIGUITIES[kind % len(AMBIGUITIES)]
    return chosen


def _draw_scene(rng: np.random.Generator) -> Motion:
    """How a group performs its action; the ranges are the same for all classes."""
    return Motion(
        period_seconds=rng.uniform(0.46, 0.58),
        reach_pixels=rng.uniform(12, 15),
        direction=int(rng.choice([-1, 1])),
        phase=0.0,
        center_x=rng.uniform(-12, 12),
        center_y=rng.uniform(-8, 8),
    )


def _vary(scene: Motion, rng: np.random.Generator) -> Motion:
    """One performance of the group's action: nearly the same, at another moment."""
    return Motion(
        period_seconds=scene.period_seconds * rng.uniform(0.96, 1.04),
        reach_pixels=scene.reach_pixels * rng.uniform(0.95, 1.05),
        direction=scene.direction,
        phase=rng.uniform(0, 2 * np.pi),
        center_x=scene.center_x + rng.uniform(-3, 3),
        center_y=scene.center_y + rng.uniform(-3, 3),
    )


def _draw_shot(action: str, motion: Motion, num_frames: int, rng: np.random.Generator) -> Shot:
    seconds_per_look = rng.uniform(0.75, 1.0)  # the pool of eight lasts for six seconds
    num_looks = int(num_frames / FPS / seconds_per_look) + 1
    looks = tuple(int(look) for look in rng.permutation(NUM_LOOKS)[:num_looks])
    return Shot(
        action=action, motion=motion, looks=looks, seconds_per_look=seconds_per_look, num_frames=num_frames
    )


def _made_ambiguous(video: DemoVideo, kind: str, names: list[str], rng: np.random.Generator) -> DemoVideo:
    (shot,) = video.shots
    if kind == "noise":
        return replace(video, ambiguity=kind, level=rng.uniform(0.75, 0.95))
    if kind == "static":
        level = rng.uniform(0.93, 1.0)
        motion = replace(shot.motion, reach_pixels=shot.motion.reach_pixels * (1 - level))
        return replace(video, ambiguity=kind, level=level, shots=(replace(shot, motion=motion),))
    if kind == "cut":
        shots = tuple(_cut_up(shot, [name for name in names if name != video.action], rng))
        num_other = sum(piece.num_frames for piece in shots if piece.action != video.action)
        return replace(video, ambiguity=kind, level=num_other / shot.num_frames, shots=shots)
    return video


def _cut_up(shot: Shot, others: list[str], rng: np.random.Generator) -> Iterator[Shot]:
    """Shots of half a second to a second, in turn of the action itself and of others."""
    num_left = shot.num_frames
    for turn in count():
        num_frames = int(rng.integers(FPS // 2, FPS + 1))
        if num_left - num_frames < FPS // 2:  # no sliver at the end
            num_frames = num_left
        action = shot.action if turn % 2 == 0 else str(rng.choice(others))
        yield _draw_shot(action, _vary(shot.motion, rng), num_frames, rng)
        num_left -= num_frames
        if num_left == 0:
            return


# ----------------------------------------------------------------------------------------------------
# Writing it


def _write_lists(folder: Path, videos: Iterable[DemoVideo], classes: tuple[str, ...]) -> None:
    folder.mkdir()
    _write_lines(folder / "classInd.txt", (f"{number} {name}" for number, name in enumerate(classes, 1)))
    for split in range(NUM_SPLITS):
        train = (f"{v.name} {classes.index(v.action) + 1}" for v in videos if v.fold != split)
        _write_lines(folder / f"trainlist{split + 1:02d}.txt", train)
        _write_lines(folder / f"testlist{split + 1:02d}.txt", (v.name for v in videos if v.fold == split))


def _write_lines(path: Path, lines: Iterable[str]) -> None:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8", newline="\n")


def _write_ground_truth(path: Path, videos: Iterable[DemoVideo], pool: list[DrawnLook]) -> None:
    """One row a video; what changes within a video is listed in its order, separated by spaces."""
    rows = []
    for video in videos:
        looks = [pool[number].look for shot in video.shots for number in shot.looks]
        motion = video.shots[0].motion
        rows.append(
            {
                "video": video.name,
                "class": video.action,
                "group": f"g{video.group:02d}",
                "ambiguity": video.ambiguity,
                "level": f"{video.level:.4f}",
                "texture": " ".join(look.texture for look in looks),
                "palette": " ".join(look.palette for look in looks),
                "object": " ".join(look.object for look in looks),
                "period_seconds": f"{motion.period_seconds:.4f}",
                "reach_pixels": f"{motion.reach_pixels:.4f}",
                "direction": motion.direction,
                "phase": f"{motion.phase:.4f}",
                "center_x": f"{motion.center_x:.4f}",
                "center_y": f"{motion.center_y:.4f}",
                "shots": " ".join(f"{shot.action}:{shot.num_frames}" for shot in video.shots),
            }
        )
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, fieldnames=list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def _count_done(
    write_one: Callable[[DemoVideo], None], videos: list[DemoVideo], num_workers: int
) -> Iterator[int]:
    """Write all videos; yield how many are done after each."""
    if num_workers == 1:
        for num_done, video in enumerate(videos, 1):
            write_one(video)
            yield num_done
        return
    # To draw one takes seconds, and says nothing meanwhile.
    limits = CallLimits(silent_seconds=10 * TIMEOUT_SECONDS)
    outcomes = run_isolated(write_one, videos, num_workers=num_workers, limits=limits)
    for num_done, outcome in enumerate(outcomes, 1):
        if outcome.failure is not None:
            raise UnreadableVideoError(outcome.item.name, f"it could not be written: {outcome.failure}")
        yield num_done


def _write_one(folder: Path, seed: int, video: DemoVideo) -> None:
    noise = video.level if video.ambiguity == "noise" else 0.0
    frames = play(video.shots, _pool(seed), noise=noise, seed=video.seed)
    write_video(folder / video.name, frames, fps=FPS, encoder_options={"preset": "veryfast"})


@cache
def _pool(seed: int) -> list[DrawnLook]:
    """Drawn once in each process."""
    return draw_pool(seed)


def _num_available_cores() -> int:
    # A container may allow fewer cores than the machine has; not every system can tell.
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
