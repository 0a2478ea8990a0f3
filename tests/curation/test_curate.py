"""A folder of videos to buckets, and a manifest that training takes."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from provico.cli import main
from provico.config.data import CurationRules
from provico.curation.folder import CurationFolder
from provico.curation.job import CurationReport, curate
from provico.data.catalog import open_catalog
from provico.data.frames.encode import write_video
from provico.errors import ConfigError
from provico.models import Encoder, EncoderConfig, InputSpec
from provico.search.index import Index

RULES = CurationRules(max_deviations=50, trim_from_seconds=4, min_segment_seconds=1, step_seconds=0.5)
SIZE = 48


def moving(num_frames: int, seed: int) -> Iterator[np.ndarray]:
    tiles = np.random.default_rng(seed).integers(60, 200, (SIZE // 8, SIZE // 8, 3), dtype=np.uint8)
    picture = tiles.repeat(8, axis=0).repeat(8, axis=1)
    return (np.roll(picture, 2 * number, axis=1) for number in range(num_frames))


def still(num_frames: int, value: int) -> Iterator[np.ndarray]:
    return (np.full((SIZE, SIZE, 3), value, np.uint8) for _ in range(num_frames))


@pytest.fixture(scope="module")
def videos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("videos")
    for number in range(4):
        write_video(folder / f"good{number}.mp4", moving(40, number), fps=10, quality=10)
    write_video(folder / "black.mp4", still(40, 0), fps=10)
    write_video(folder / "frozen.mp4", still(40, 120), fps=10)
    (folder / "copy.mp4").write_bytes((folder / "good0.mp4").read_bytes())
    (folder / "broken.mp4").write_bytes(b"no video at all" * 100)
    intro = [*still(40, 0), *moving(60, 9)]  # 4 s of black before 6 s of motion
    write_video(folder / "intro.mp4", intro, fps=10, quality=10)
    return folder


@pytest.fixture(scope="module")
def encoder() -> Encoder:
    torch.manual_seed(0)
    return Encoder(EncoderConfig.for_backbone("tiny", dim=8, input=InputSpec(size=32, num_frames=4))).eval()


@pytest.fixture(scope="module")
def index(videos: Path, encoder: Encoder, tmp_path_factory: pytest.TempPathFactory) -> Index:
    made = Index.create(tmp_path_factory.mktemp("index"), encoder, num_clips=2)
    made.add(open_catalog(videos))
    return made


@pytest.fixture(scope="module")
def report(videos: Path, index: Index, tmp_path_factory: pytest.TempPathFactory) -> CurationReport:
    out = tmp_path_factory.mktemp("curation")
    return curate(index, out=out, catalog=open_catalog(videos), rules=RULES)


def test_each_video_is_in_its_bucket(report: CurationReport) -> None:
    buckets = {video.id: video.bucket for video in report.videos}
    assert {name: buckets[name] for name in ("black.mp4", "frozen.mp4", "broken.mp4")} == {
        "black.mp4": "drop",
        "frozen.mp4": "drop",
        "broken.mp4": "drop",
    }
    # The catalog is in alphabetical order, so it is the second of the two that is the copy.
    assert (buckets["copy.mp4"], buckets["good0.mp4"]) == ("keep", "drop")
    assert [buckets[f"good{number}.mp4"] for number in (1, 2, 3)] == ["keep"] * 3
    assert report.count() == {"keep": 4, "trim": 1, "review": 0, "drop": 4}


def test_a_black_intro_is_cut_off(report: CurationReport) -> None:
    intro = next(video for video in report.videos if video.id == "intro.mp4")
    assert intro.bucket == "trim"
    assert re.fullmatch(r"0:0[56] of 0:10 is worth keeping; the rest is .*black.*", intro.reason)
    assert re.search(r"\d+ of \d+ clips black", intro.detail)
    ((start, end),) = intro.segments
    assert start == pytest.approx(4.0, abs=0.6)
    assert end == pytest.approx(10.0, abs=0.01)


def test_the_manifest_is_what_is_kept(report: CurationReport, videos: Path) -> None:
    catalog = open_catalog(CurationFolder(report.folder).manifest)
    names = [video.id.partition("#")[0] for video in catalog]
    assert names == ["copy.mp4", "good1.mp4", "good2.mp4", "good3.mp4", "intro.mp4"]
    spans = [video.span for video in catalog]
    assert spans[:-1] == [None] * 4
    assert spans[-1] is not None
    assert all(video.path.parent == videos for video in catalog)


def test_decisions_go_before_proposals_and_survive_another_run(
    report: CurationReport, videos: Path, index: Index, tmp_path: Path
) -> None:
    folder = CurationFolder(tmp_path)
    folder.write(report.videos)
    folder.decisions.record("black.mp4", "keep")
    folder.decisions.record("good1.mp4", "drop")
    folder.decisions.record("good2.mp4", "trim", segments=[(0.5, 1.0), (2.0, 3.0)])
    folder.write_manifest()
    kept = [video.id for video in open_catalog(folder.manifest)]
    assert kept[:5] == [
        *("black.mp4", "copy.mp4", "good2.mp4#0.5-1", "good2.mp4#2-3", "good3.mp4"),
    ]
    again = curate(index, out=tmp_path, catalog=open_catalog(videos), rules=RULES)
    assert {video.id: video.bucket for video in again.videos}["black.mp4"] == "keep"
    assert [video.id for video in open_catalog(folder.manifest)] == kept


def test_the_command_writes_what_the_page_shows(index: Index, capsys: pytest.CaptureFixture[str]) -> None:
    main(["curate", str(index.path), "--json"])
    said = json.loads(capsys.readouterr().out)
    with (index.path / "curation" / "proposals.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert {row["id"]: row["bucket"] for row in rows} == {v["id"]: v["bucket"] for v in said["videos"]}
    assert all(row["reason"] for row in rows)
    main(["curate", str(index.path)])
    assert "black" in capsys.readouterr().out


def test_files_are_looked_at_once(
    report: CurationReport, index: Index, videos: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("It was looked at again.")

    monkeypatch.setattr("provico.curation.job.look", refuse)
    monkeypatch.setattr("provico.curation.job._clear_parts", refuse)
    again = curate(index, out=report.folder, catalog=open_catalog(videos), rules=RULES)
    assert again.videos == report.videos


def test_a_folder_of_something_else_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"segments\.csv.*provico curate"):
        CurationFolder(tmp_path).current()


def test_a_folder_of_0_1_0_is_refused_with_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "segments.csv").write_text("id,start_seconds,end_seconds\n")
    (tmp_path / "proposals.csv").write_text("id,bucket,uncertainty,ambiguity\na.mp4,keep,0.2,0.1\n")
    with pytest.raises(ConfigError, match=r"ambiguity, which provico 0\.1\.0 wrote\. Run `provico curate`"):
        CurationFolder(tmp_path).current()
