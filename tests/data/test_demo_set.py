"""The demo set: its layout, its determinism, its ground truth, and that only motion tells its classes."""

from __future__ import annotations

import csv
import hashlib
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from provico.data.catalog import open_catalog
from provico.data.demo_set.look import NUM_LOOKS, draw_pool
from provico.data.demo_set.motion import ACTIONS
from provico.data.demo_set.scene import FPS, HEIGHT, WIDTH, play
from provico.data.demo_set.videos import DemoSet, plan_demo_set, write_demo_set
from provico.data.frames.video import index_video
from provico.errors import ConfigError, OutputExistsError

SPLITS = (1, 2, 3)


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> DemoSet:
    folder = tmp_path_factory.mktemp("demo") / "small"
    return write_demo_set(folder, num_classes=3, videos_per_class=3, seed=3, num_workers=1)


def ground_truth(folder: Path) -> list[dict[str, str]]:
    with (folder / "ground_truth.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def digests(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def test_the_catalog_reads_it_as_ucf101(small: DemoSet) -> None:
    assert (small.classes, small.num_videos) == (tuple(list(ACTIONS)[:3]), 9)
    tested = set()
    for split in SPLITS:
        everything = open_catalog(small.folder, split=split)
        assert (everything.layout, everything.classes, len(everything)) == ("ucf101", small.classes, 9)
        test = open_catalog(small.folder, split=split, subset="test")
        train = open_catalog(small.folder, split=split, subset="train")
        assert set(test.labels) == set(train.labels) == {0, 1, 2}
        assert not {(v.label, v.group) for v in test} & {(v.label, v.group) for v in train}
        assert not tested & {video.id for video in test}
        tested |= {video.id for video in test}
    assert len(tested) == 9


def test_lists_are_written_as_ucf101_writes_them(small: DemoSet) -> None:
    lists = small.folder / "ucfTrainTestlist"
    assert sorted(path.name for path in lists.iterdir()) == sorted(
        ["classInd.txt", *(f"{part}list0{split}.txt" for part in ("train", "test") for split in SPLITS)]
    )
    first, second, _ = small.classes
    assert (lists / "classInd.txt").read_text().splitlines()[:2] == [f"1 {first}", f"2 {second}"]
    assert f"{second}/v_{second}_g03_c01.mp4 2" in (lists / "trainlist01.txt").read_text().splitlines()
    assert f"{second}/v_{second}_g01_c01.mp4" in (lists / "testlist01.txt").read_text().splitlines()


def test_files_are_h264_of_the_stated_size_and_length(small: DemoSet) -> None:
    for row in ground_truth(small.folder):
        facts = (index := index_video(small.folder / "UCF-101" / row["video"])).facts
        assert (facts.codec, facts.height, facts.width) == ("h264", HEIGHT, WIDTH)
        assert facts.frames_per_second == pytest.approx(FPS)
        assert 3 * FPS <= index.num_frames <= 6 * FPS
        assert index.num_frames == sum(int(shot.split(":")[1]) for shot in row["shots"].split())


def test_same_seed_same_bytes_for_any_number_of_workers(small: DemoSet, tmp_path: Path) -> None:
    calls: list[tuple[int, int]] = []
    (tmp_path / "again").mkdir()  # an empty folder may be written into
    settings: dict[str, Any] = {"num_classes": 3, "videos_per_class": 3}
    again = write_demo_set(
        tmp_path / "again", **settings, seed=3, num_workers=2, progress=lambda *call: calls.append(call)
    )
    assert digests(again.folder) == digests(small.folder)
    assert calls == [(number, 9) for number in range(1, 10)]
    assert plan_demo_set(**settings, seed=4) != plan_demo_set(**settings, seed=3)


def test_an_existing_folder_is_refused_and_kept(tmp_path: Path) -> None:
    (tmp_path / "kept.txt").write_text("mine")
    with pytest.raises(OutputExistsError, match="not empty"):
        write_demo_set(tmp_path, num_classes=2, videos_per_class=3, num_workers=1)
    with pytest.raises(OutputExistsError):
        write_demo_set(tmp_path / "kept.txt", num_classes=2, videos_per_class=3, num_workers=1)
    assert [path.read_text() for path in tmp_path.iterdir()] == ["mine"]


def test_an_interrupted_set_leaves_nothing(tmp_path: Path) -> None:
    def interrupt(num_done: int, num_videos: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_demo_set(tmp_path / "set", num_classes=2, videos_per_class=3, num_workers=1, progress=interrupt)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("settings", [{"num_classes": 1}, {"num_classes": 99}, {"videos_per_class": 2}])
def test_impossible_sizes_are_refused(settings: dict[str, int]) -> None:
    with pytest.raises(ConfigError):
        plan_demo_set(**settings)


# ----------------------------------------------------------------------------------------------------
# What is drawn, over the whole default set: the plan costs nothing


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_every_look_recurs_in_every_class_in_train_and_test(seed: int) -> None:
    videos = plan_demo_set(seed=seed)
    for action in {video.action for video in videos}:
        for fold in range(3):
            for part in (True, False):
                shots = [
                    s for v in videos if v.action == action and (v.fold == fold) == part for s in v.shots
                ]
                assert {look for shot in shots for look in shot.looks} == set(range(NUM_LOOKS))


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_one_video_in_eight_is_ambiguous_in_each_way_in_train_and_test(seed: int) -> None:
    videos = plan_demo_set(seed=seed)
    for fold in range(3):
        for part in (True, False):
            kinds = [v.ambiguity for v in videos if (v.fold == fold) == part and v.ambiguity != "none"]
            assert set(kinds) == {"noise", "cut", "static"}
            assert len(kinds) / sum((v.fold == fold) == part for v in videos) == 1 / 8
    for action in {video.action for video in videos}:
        assert sum(v.ambiguity != "none" for v in videos if v.action == action) == 3


def test_the_level_says_how_ambiguous() -> None:
    for video in plan_demo_set():
        num_frames = sum(shot.num_frames for shot in video.shots)
        num_other = sum(shot.num_frames for shot in video.shots if shot.action != video.action)
        reach = video.shots[0].motion.reach_pixels
        assert 3 * FPS <= num_frames <= 6 * FPS
        if video.ambiguity == "cut":
            assert len(video.shots) > 2
            assert video.level == num_other / num_frames > 0.2
        else:
            assert num_other == 0
            assert len(video.shots) == 1
        if video.ambiguity == "static":
            assert reach <= 15.75 * (1 - video.level) + 1e-9
            assert video.level > 0.9
        else:
            assert reach > 11
        if video.ambiguity == "noise":
            assert 0.7 < video.level < 1
        assert (video.level == 0) == (video.ambiguity == "none")


def test_a_group_moves_more_alike_than_its_class() -> None:
    videos = [video for video in plan_demo_set() if video.ambiguity == "none"]
    for action in {video.action for video in videos}:
        motions = {v: v.shots[0].motion for v in videos if v.action == action}
        groups = {v.group for v in motions}
        within = [np.std([m.center_x for v, m in motions.items() if v.group == group]) for group in groups]
        assert np.mean(within) < 0.6 * np.std([motion.center_x for motion in motions.values()])


# ----------------------------------------------------------------------------------------------------
# Only motion tells the class


def nearest_share(features: NDArray[np.float64], labels: NDArray[Any], folds: NDArray[Any]) -> float:
    """R@1 over the three splits: how often the nearest training video has the query's class."""
    hits = []
    for fold in range(3):
        query, gallery = features[folds == fold], features[folds != fold]
        scaled = [(part - gallery.mean(0)) / (gallery.std(0) + 1e-6) for part in (query, gallery)]
        unit = [part / (np.linalg.norm(part, axis=1, keepdims=True) + 1e-9) for part in scaled]
        nearest = (unit[0] @ unit[1].T).argmax(axis=1)
        hits.append(labels[folds != fold][nearest] == labels[folds == fold])
    return float(np.concatenate(hits).mean())


def test_colour_thumbnail_and_single_frame_stay_near_chance_while_motion_tells() -> None:
    videos = plan_demo_set(num_classes=8, videos_per_class=12, seed=0)
    pool = draw_pool(0)
    features: dict[str, list[Any]] = {"colours": [], "mean thumbnail": [], "one frame": [], "movement": []}
    for video in videos:
        noise = video.level if video.ambiguity == "noise" else 0.0
        drawn = np.stack(list(islice(play(video.shots, pool, noise=noise, seed=video.seed), 32)))
        frames = drawn.reshape(32, 24, 4, 32, 4, 3).mean(axis=(2, 4)).astype(int)
        bins = frames // 64 @ [16, 4, 1]
        features["colours"].append(np.bincount(bins.ravel(), minlength=64) / bins.size)
        features["mean thumbnail"].append(frames.mean(axis=0).ravel())
        features["one frame"].append(frames[len(frames) // 2].ravel())
        change = np.abs(np.diff(frames, axis=0)).mean(axis=(0, 3))
        features["movement"].append(change.reshape(4, 6, 4, 8).mean(axis=(1, 3)).ravel())
    labels = np.array([video.action for video in videos])
    folds = np.array([video.fold for video in videos])
    share = {name: nearest_share(np.array(rows, float), labels, folds) for name, rows in features.items()}
    # Chance is 1/8; with 96 queries, three standard deviations of it reach to 0.23.
    for name in ("colours", "mean thumbnail", "one frame"):
        assert share[name] < 0.23, share
    assert share["movement"] > 0.4, share
