"""A report has the numbers of the distributions, whichever way it came by them, and its pictures open."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet
import pytest
from matplotlib.image import imread

from provico.cli import main
from provico.data.catalog import Video, open_catalog
from provico.embedding.file import columns_of
from provico.embedding.report import UncertaintyReport
from provico.embedding.report_plots import draw_contact_sheet, draw_histogram, draw_timeline, frames_at
from provico.errors import ConfigError, OutputExistsError
from provico.models import Encoder

NUM_CLIPS = 4


@pytest.fixture(scope="module")
def videos(shaded_videos: Path) -> Path:
    return shaded_videos


@pytest.fixture(scope="module")
def run(shaded_encoder: Path) -> Path:
    return shaded_encoder


@pytest.fixture(scope="module")
def report(videos: Path, run: Path) -> UncertaintyReport:
    return UncertaintyReport.of_catalog(
        Encoder.from_pretrained(run), open_catalog(videos), num_clips=NUM_CLIPS
    )


def made_up(num_clips: int = 3) -> UncertaintyReport:
    """Two videos: clips that are unclear but agree, and clips that are clear but do not."""
    mean = np.zeros((2, num_clips, 2), np.float32)
    mean[1, :, 0] = mean[1, :, 1] = np.arange(num_clips)
    variance = np.array([4.0, 0.01], np.float32)[:, None, None] * np.ones((1, num_clips, 2), np.float32)
    times = np.arange(num_clips, dtype=np.float64) * np.ones((2, 1))
    return UncertaintyReport.of_columns([rows_of(("a.mp4", "b.mp4"), mean, np.log(variance), times)])


def rows_of(names: tuple[str, ...], mean: Any, log_var: Any, times: Any) -> dict[str, Any]:
    """Rows as a file of embeddings has them, of clips that start at these times and last a second."""
    clips = {
        "start_seconds": times,
        "end_seconds": times + 1,
        "clip_mean": mean,
        "clip_log_var": log_var,
    }
    return columns_of([Video(Path(name), name) for name in names], clips)


def test_uncertainty_and_disagreement_are_told_apart() -> None:
    found = made_up()
    assert found.uncertainty.tolist() == pytest.approx([4.0, 0.01])
    assert found.disagreement.tolist() == pytest.approx([0.0, 2 / 3], abs=1e-6)
    assert found.clip_uncertainty[0].tolist() == pytest.approx([4.0] * 3)
    assert found.clip_departure[1].tolist() == pytest.approx([1.0, 0.0, 1.0])
    assert found.least_certain(1) == [0]
    assert found.most_certain(5) == [1, 0]


def test_numbers_are_those_of_the_encoder(report: UncertaintyReport, videos: Path, run: Path) -> None:
    name = report.ids[7]
    alone = Encoder.from_pretrained(run).embed(videos / name, num_clips=NUM_CLIPS)
    assert float(report.uncertainty[7]) == pytest.approx(alone.uncertainty, rel=1e-4)
    assert report.clip_uncertainty[7].tolist() == pytest.approx(
        alone.gaussians.uncertainty.tolist(), rel=1e-4
    )
    assert report.clip_seconds[7, 0, 0] == alone.clips[0].start_seconds
    assert float(report.disagreement[7]) == pytest.approx(alone.disagreement, rel=1e-3)


def test_videos_that_cannot_be_read_are_named_and_left_out(videos: Path, run: Path, tmp_path: Path) -> None:
    """However many they are: what is said of the others does not depend on them."""
    for name in ("a.mp4", "b.mp4"):
        (tmp_path / name).write_text("no video")
    (tmp_path / "red.mp4").write_bytes((videos / "red" / "0.mp4").read_bytes())
    found = UncertaintyReport.of_catalog(Encoder.from_pretrained(run), open_catalog(tmp_path), num_clips=1)
    assert found.ids == ("red.mp4",)
    assert [name for name, _ in found.failed] == ["a.mp4", "b.mp4"]


def test_tables_on_disk_are_the_report(report: UncertaintyReport, tmp_path: Path) -> None:
    report.write(tmp_path / "out")
    rows = list(csv.DictReader((tmp_path / "out" / "videos.csv").read_text().splitlines()))
    assert [row["id"] for row in rows] == list(report.ids)
    assert [float(row["disagreement"]) for row in rows] == pytest.approx(
        report.disagreement.tolist(), rel=1e-5
    )
    clips = pyarrow.parquet.read_table(tmp_path / "out" / "clips.parquet")
    assert clips["uncertainty"].to_pylist() == report.clip_uncertainty.flatten().tolist()
    assert clips["id"].to_pylist()[::NUM_CLIPS] == list(report.ids)
    assert (
        pyarrow.parquet.read_table(tmp_path / "out" / "videos.parquet").to_pylist()
        == report.summary()["videos"]
    )
    with pytest.raises(OutputExistsError, match="not empty"):
        report.write(tmp_path / "out")


def test_chunks_of_rows_give_the_same_report() -> None:
    rows = [
        rows_of(
            (name,), np.full((1, 3, 2), row, np.float32), np.zeros((1, 3, 2), np.float32), np.zeros((1, 3))
        )
        for row, name in enumerate(("a", "b"))
    ]
    joined = UncertaintyReport.of_columns(rows)
    assert joined.ids == ("a", "b")
    assert joined.uncertainty.tolist() == [1.0, 1.0]
    with pytest.raises(ConfigError, match="no readable videos"):
        UncertaintyReport.of_columns([])


def test_frames_are_those_of_the_moment_and_grey_if_the_file_is_gone(videos: Path) -> None:
    early, late = frames_at(str(videos / "grey" / "0.mp4"), [0.0, 1.9])
    assert early.mean() < late.mean() - 20
    gone = frames_at(str(videos / "no.mp4"), [0.0, 1.0])
    assert len(gone) == 2
    assert np.ptp(gone[0]) == 0


def test_pictures_have_axes_units_and_captions(report: UncertaintyReport) -> None:
    (histogram,) = draw_histogram(report).axes
    assert "variance" in histogram.get_xlabel()
    assert "number of videos" in histogram.get_ylabel()
    counted = sum(patch.get_height() for patch in histogram.patches)
    assert counted == len(report)
    strip, clips, whole = draw_timeline(report, report.ids[3]).axes
    assert report.ids[3] in strip.get_title()
    assert whole.get_xlabel() == "time (s)"
    heights = [bar.get_height() for bar in clips.patches]
    assert heights == pytest.approx(report.clip_uncertainty[3].tolist())
    sheet = draw_contact_sheet(report)
    captions = " ".join(axes.get_title(loc="left") for axes in sheet.axes)
    for row in report.most_certain(6) + report.least_certain(6):
        assert report.ids[row] in captions
    with pytest.raises(ConfigError, match="Did you mean"):
        draw_timeline(report, report.ids[3] + "4")


def test_command_line_from_videos_embeddings_and_an_index(
    videos: Path, run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The three ways give the same tables; the index comes calibrated, and search says what that means."""
    chosen = ["--num-clips", "2", "--num-workers", "0"]
    main(["embed", str(videos), "--checkpoint", str(run), "--out", str(tmp_path / "e.parquet"), *chosen])
    main(["index", str(videos), "--checkpoint", str(run), "--out", str(tmp_path / "index"), *chosen])
    capsys.readouterr()

    def told(*arguments: str | Path) -> Any:
        main([*map(str, arguments), "--json"])
        return json.loads(capsys.readouterr().out)

    several = ("--num-timelines", "1")
    of_videos = told(
        *("uncertainty", videos, "--checkpoint", run, "--out", tmp_path / "a", *chosen, *several)
    )
    none = ("--num-timelines", "0")
    of_file = told("uncertainty", tmp_path / "e.parquet", "--out", tmp_path / "b", *none)
    of_index = told("uncertainty", tmp_path / "index", "--out", tmp_path / "c", *none)
    for other in (of_file, of_index):
        assert [row["id"] for row in other["videos"]] == [row["id"] for row in of_videos["videos"]]
        for name in ("uncertainty", "disagreement", "most_uncertain_seconds"):
            mine, its = ([row[name] for row in one["videos"]] for one in (of_videos, other))
            assert its == pytest.approx(mine, rel=1e-4), name
    for name in ("histogram.png", "contact_sheet.png", "timeline-01.png"):
        assert imread(tmp_path / "a" / name).std() > 0.05
    assert not (tmp_path / "a" / "timeline-02.png").exists()

    kept = json.loads((tmp_path / "index" / "calibration.json").read_text())
    assert kept["source"] == "labels"
    assert told("calibrate", tmp_path / "index") == kept
    (answer,) = told("search", tmp_path / "index", "red/0.mp4", "--k", "3")
    assert answer["calibration"]["source"] == "labels"
    assert all(0 < hit["calibrated_probability"] < 1 for hit in answer["hits"])
    main(["search", str(tmp_path / "index"), "red/0.mp4", "--min-probability", "0.9999"])
    assert "of such hits are right, less than 99.99 %" in capsys.readouterr().out
    main(["search", str(tmp_path / "index"), "red/0.mp4", "--k", "2"])
    shown = capsys.readouterr().out
    assert "right: how often such hits were right among" in shown
    assert "Too few videos to say how surprising a match is" in shown


def test_wrong_input_is_one_sentence(
    videos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for arguments, words in (
        (["uncertainty", str(videos)], "--checkpoint RUN"),
        (["uncertainty", str(videos), "--num-clips", "3"], "apply to videos only"),
        (["uncertainty", str(videos), "--out", str(videos)], "not empty"),
        (["calibrate", str(videos)], "not an index"),
    ):
        with pytest.raises(SystemExit) as stopped:
            main(arguments if "--out" in arguments else [*arguments, *_out(arguments, tmp_path)])
        assert stopped.value.code == 2
        assert words in capsys.readouterr().err


def _out(arguments: list[str], folder: Path) -> list[str]:
    return ["--out", str(folder / "out")] if arguments[0] == "uncertainty" else []
