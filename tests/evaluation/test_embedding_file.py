"""Files of embeddings hold what is computed, in both formats, whatever happened on the way."""

from __future__ import annotations

import dataclasses
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from provico.data.catalog import Catalog, open_catalog
from provico.data.encode import write_video
from provico.data.library import Library
from provico.errors import ConfigError, EmbeddingFileError, TooManyBrokenError, WeightsError
from provico.evaluation import embedding_job, embedding_parts
from provico.evaluation.embedding import embed
from provico.evaluation.embedding_file import EmbeddingHeader, read_columns, read_embeddings, read_header
from provico.evaluation.embedding_formats import COLUMNS, TEXT, Columns
from provico.evaluation.embedding_job import EmbedReport, embed_to_file
from provico.models import Encoder, encoder_hash

NUM_VIDEOS = 6
NUM_CLIPS = 4
FORMATS = ["e.parquet", "e.npz"]


def write(path: Path, seed: int, num_frames: int = 20) -> None:
    rng = np.random.default_rng(seed)
    write_video(path, rng.integers(0, 256, (num_frames, 36, 48, 3), np.uint8))


@pytest.fixture(scope="module")
def originals(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("originals")
    for number in range(NUM_VIDEOS):
        (folder / "AB"[number % 2]).mkdir(exist_ok=True)
        write(folder / "AB"[number % 2] / f"{number}.mp4", number)
    return folder


@pytest.fixture
def folder(originals: Path, tmp_path: Path) -> Path:
    """Videos that a test may change."""
    return Path(shutil.copytree(originals, tmp_path / "videos"))


def run(encoder: Encoder, data: Path | Catalog, out: Path, library: Library, **options: int) -> EmbedReport:
    catalog = data if isinstance(data, Catalog) else open_catalog(data)
    return embed_to_file(encoder, catalog, out, library=library, **{"num_clips": NUM_CLIPS, **options})


@pytest.fixture(scope="module")
def whole(encoder, originals, library, tmp_path_factory) -> Path:
    """A file that nothing interrupted."""
    path = tmp_path_factory.mktemp("whole") / "e.parquet"
    report = run(encoder, originals, path, library)
    assert (report.num_videos, report.num_computed, report.failed) == (NUM_VIDEOS, NUM_VIDEOS, ())
    assert [file.name for file in path.parent.iterdir()] == ["e.parquet"]
    return path


def assert_same(found: Columns, expected: Columns, *, but: tuple[str, ...] = ("path",)) -> None:
    assert found.keys() == expected.keys()
    for name in found.keys() - set(but):
        if name in TEXT:
            assert found[name] == expected[name], name
        else:
            assert found[name].dtype == expected[name].dtype, name
            np.testing.assert_allclose(found[name], expected[name], rtol=1e-5, atol=1e-6, err_msg=name)


# --- what a file holds -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FORMATS)
def test_a_file_holds_what_is_computed(name, encoder, originals, library, tmp_path, monkeypatch):
    monkeypatch.setattr(embedding_job, "ROWS_AT_ONCE", 4)
    monkeypatch.setattr(embedding_parts, "VIDEOS_A_PART", 3)
    path = tmp_path / name
    run(encoder, originals, path, library)
    catalog = open_catalog(originals)
    expected = embed(encoder, catalog, num_clips=NUM_CLIPS, library=library)
    columns = read_columns(path)
    assert tuple(columns) == COLUMNS
    assert columns["id"] == [video.id for video in catalog]
    assert columns["path"] == [str(video.path) for video in catalog]
    assert columns["label"] == [video.label for video in catalog] == list("AAABBB")
    assert columns["group"] == columns["subset"] == [None] * NUM_VIDEOS
    assert columns["num_bytes"].tolist() == [video.path.stat().st_size for video in catalog]
    assert columns["modified_ns"].tolist() == [video.path.stat().st_mtime_ns for video in catalog]
    clips, videos = expected.videos.clips, expected.videos.moment_matched
    numbers = {
        "clip_mean": clips.mean,
        "clip_log_var": clips.log_var,
        "mean": videos.mean,
        "log_var": videos.log_var,
        "uncertainty": videos.uncertainty,
        "ambiguity": expected.videos.within.log().mean(dim=1).exp(),
        "disagreement": videos.uncertainty - expected.videos.within.log().mean(dim=1).exp(),
    }
    for column, values in numbers.items():
        np.testing.assert_allclose(columns[column], values, rtol=1e-4, atol=1e-6, err_msg=column)
        assert columns[column].dtype == np.float32
    # Four clips of 4 frames, every second: 20 frames at 25 a second leave starts from 0 to 13.
    starts = np.array([0, 4, 8, 13]) / 25
    np.testing.assert_allclose(columns["start_seconds"], np.tile(starts, (NUM_VIDEOS, 1)), atol=1e-9)
    np.testing.assert_allclose(columns["end_seconds"] - columns["start_seconds"], 7 / 25, atol=1e-9)

    again = read_embeddings(path)
    assert (again.ids, again.labels, again.groups) == (expected.ids, expected.labels, expected.groups)
    torch.testing.assert_close(again.videos.mean, expected.videos.mean)
    torch.testing.assert_close(again.clip_seconds, expected.clip_seconds)
    header = read_header(path)
    assert header.encoder_hash == encoder_hash(encoder)
    assert header.encoder_config == encoder.config
    assert (header.num_clips, header.short_side, header.failed) == (NUM_CLIPS, 36, ())
    assert header.match_curve["b"] == pytest.approx(float(encoder.match_curve().b.detach()))


def test_a_parquet_is_what_others_expect_and_has_row_groups(
    encoder, originals, library, tmp_path, monkeypatch
):
    import pyarrow.parquet as pq

    monkeypatch.setattr(embedding_job, "ROWS_AT_ONCE", 4)
    run(encoder, originals, tmp_path / "e.parquet", library)
    file = pq.ParquetFile(tmp_path / "e.parquet")
    assert file.num_row_groups == 2
    row = file.read().to_pylist()[5]
    assert np.shape(row["clip_mean"]) == (NUM_CLIPS, 8)
    assert row["group"] is None
    assert row["uncertainty"] == pytest.approx(row["ambiguity"] + row["disagreement"], rel=1e-5)


def test_every_column_is_documented():
    text = (Path(__file__).parents[2] / "docs" / "embeddings.md").read_text()
    assert tuple(re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE)[: len(COLUMNS)]) == COLUMNS
    for field in dataclasses.fields(EmbeddingHeader):
        assert f"`{field.name}`" in text


# --- interruptions -----------------------------------------------------------------------------------------

KILLED = """
import os, signal, sys
from provico.cli import main
from provico.evaluation import embedding_job, embedding_parts

when, name, *arguments = sys.argv[1:]
real = embedding_parts.publish

def publish(unfinished, path):
    if (when, path.name) == ("before", name):
        os.kill(os.getpid(), signal.SIGKILL)
    real(unfinished, path)
    if (when, path.name) == ("after", name):
        os.kill(os.getpid(), signal.SIGKILL)

embedding_parts.VIDEOS_A_PART = 1
embedding_parts.publish = embedding_job.publish = publish
main(arguments)
"""


@pytest.mark.parametrize(
    ("when", "name", "num_left"),
    [("before", "part-000001.npz", 2), ("before", "e.npz", 0), ("after", "e.npz", 0)],
    ids=["a part is half written", "the file is half written", "the parts are still there"],
)
def test_after_a_kill_it_goes_on(when, name, num_left, encoder, originals, library, whole, tmp_path):
    encoder.save_pretrained(tmp_path / "encoder")
    out = tmp_path / "e.npz"
    options = [
        "--checkpoint",
        tmp_path / "encoder",
        "--out",
        out,
        "--num-clips",
        NUM_CLIPS,
        "--num-workers",
        0,
    ]
    arguments = [sys.executable, "-c", KILLED, when, name, "embed", originals, *options, "--device", "cpu"]
    environment = {**os.environ, "PROVICO_HOME": str(library.folder)}
    killed = subprocess.run(list(map(str, arguments)), env=environment, capture_output=True, text=True)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert out.exists() == (when == "after")
    assert out.with_name("e.npz.parts").is_dir()
    report = run(encoder, originals, out, library)
    assert (report.num_videos, report.num_computed) == (NUM_VIDEOS, num_left)
    assert_same(read_columns(out), read_columns(whole), but=())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["e.npz", "encoder"]


def test_an_error_half_way_loses_nothing(encoder, originals, library, whole, tmp_path):
    def interrupt(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        embed_to_file(
            encoder,
            open_catalog(originals),
            tmp_path / "e.parquet",
            num_clips=NUM_CLIPS,
            library=library,
            progress=interrupt,
        )
    assert run(encoder, originals, tmp_path / "e.parquet", library).num_computed == 2
    assert_same(read_columns(tmp_path / "e.parquet"), read_columns(whole), but=())


def test_parts_are_written_after_some_time_too(encoder, originals, library, tmp_path, monkeypatch):
    monkeypatch.setattr(embedding_parts, "SECONDS_A_PART", -1.0)
    published = []
    real = embedding_parts.publish

    def publish(unfinished: Path, path: Path) -> None:
        published.append(path.name)
        real(unfinished, path)

    monkeypatch.setattr(embedding_parts, "publish", publish)
    run(encoder, originals, tmp_path / "e.npz", library)
    assert published == ["settings.json", "part-000000.npz", "part-000001.npz"]


# --- bringing a file up to date ----------------------------------------------------------------------------


@pytest.mark.parametrize("name", FORMATS)
def test_only_what_is_new_or_changed_is_computed(name, encoder, folder, library, tmp_path):
    out = tmp_path / name
    run(encoder, folder, out, library)
    before = read_columns(out)
    assert run(encoder, folder, out, library).num_computed == 0
    assert_same(read_columns(out), before)

    write(folder / "A" / "2.mp4", seed=99)  # changed
    write(folder / "A" / "9.mp4", seed=9)  # new
    (folder / "B" / "1.mp4").unlink()  # gone
    shutil.move(folder / "B" / "3.mp4", folder / "B" / "7.mp4")  # another id
    report = run(encoder, folder, out, library)
    assert (report.num_videos, report.num_computed, report.num_dropped) == (6, 3, 2)
    after = read_columns(out)
    assert after["id"] == ["A/0.mp4", "A/2.mp4", "A/4.mp4", "A/9.mp4", "B/5.mp4", "B/7.mp4"]
    fresh = tmp_path / f"fresh{out.suffix}"
    run(encoder, folder, fresh, library)
    assert_same(after, read_columns(fresh), but=())
    assert not np.allclose(after["mean"][1], before["mean"][1], atol=1e-3)


def test_labels_are_those_of_now(encoder, folder, library, tmp_path):
    out = tmp_path / "e.parquet"
    run(encoder, folder, out, library)
    catalog = open_catalog(folder)
    videos = tuple(dataclasses.replace(video, label="B", group="g", subset="test") for video in catalog)
    assert run(encoder, dataclasses.replace(catalog, videos=videos), out, library).num_computed == 0
    columns = read_columns(out)
    assert set(columns["label"]) == {"B"}
    assert set(columns["group"]) == {"g"}
    assert set(columns["subset"]) == {"test"}


@pytest.mark.parametrize("name", FORMATS)
def test_a_broken_video_is_named_and_left_out(name, encoder, folder, library, whole, tmp_path):
    (folder / "A" / "2.mp4").write_text("no video")
    out = tmp_path / name
    report = run(encoder, folder, out, library)
    ((failed, reason),) = report.failed
    assert failed == "A/2.mp4"
    assert reason
    assert report.num_videos == NUM_VIDEOS - 1
    assert read_header(out).failed == read_embeddings(out).failed == report.failed
    assert read_columns(out, ("id",))["id"] == [i for i in read_columns(whole)["id"] if i != "A/2.mp4"]
    again = run(encoder, folder, out, library)
    assert (again.num_computed, again.failed) == (0, report.failed)
    write(folder / "A" / "2.mp4", seed=2)
    mended = run(encoder, folder, out, library)
    assert (mended.num_computed, mended.failed) == (1, ())
    assert_same(read_columns(out), read_columns(whole), but=("path", "modified_ns"))


def test_nothing_but_broken_videos_is_an_error_and_leaves_nothing(encoder, library, tmp_path):
    (tmp_path / "videos").mkdir()
    (tmp_path / "videos" / "a.mp4").write_text("no video")
    with pytest.raises(TooManyBrokenError, match=r"Not one of 1 videos can be read: a\.mp4"):
        run(encoder, tmp_path / "videos", tmp_path / "e.npz", library)
    assert [path.name for path in tmp_path.iterdir()] == ["videos"]


@pytest.mark.parametrize("name", FORMATS)
def test_the_name_of_the_folder_need_not_be_text(name, encoder, originals, library, tmp_path):
    odd = tmp_path / os.fsdecode(b"\xff")
    try:
        shutil.copytree(originals, odd)
    except OSError:
        pytest.skip("this file system has only names that are text")
    out = tmp_path / name
    assert run(encoder, odd, out, library).num_computed == NUM_VIDEOS
    assert read_columns(out, ("path",))["path"][0] == str(tmp_path / "\\udcff" / "A" / "0.mp4")
    assert run(encoder, odd, out, library).num_computed == 0


# --- what is refused ---------------------------------------------------------------------------------------


def test_other_encoders_and_settings_are_refused(encoder, make_encoder, originals, library, whole, tmp_path):
    out = shutil.copy(whole, tmp_path / "e.parquet")
    other = make_encoder(seed=1)
    before = out.read_bytes()
    with pytest.raises(EmbeddingFileError, match=f"the encoder {encoder_hash(encoder)} instead of"):
        run(other, originals, out, library)
    with pytest.raises(EmbeddingFileError, match="the number of clips 4 instead of 2"):
        run(encoder, originals, out, library, num_clips=2)
    with pytest.raises(EmbeddingFileError, match="the short side 36 instead of 40"):
        run(encoder, originals, out, library, short_side=40)
    elsewhere = open_catalog(originals / "A")
    with pytest.raises(EmbeddingFileError, match="holds 6 other videos"):
        run(encoder, elsewhere, out, library)
    assert out.read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["e.parquet"]


def test_parts_of_another_encoder_are_refused(encoder, make_encoder, originals, library, tmp_path):
    header = EmbeddingHeader.of(make_encoder(seed=1), num_clips=NUM_CLIPS)
    out = tmp_path / "e.npz"
    (tmp_path / "e.npz.parts").mkdir()
    (tmp_path / "e.npz.parts" / "settings.json").write_text(header.to_json())
    with pytest.raises(EmbeddingFileError, match=r"e\.npz\.parts cannot be gone on with: it has the encoder"):
        run(encoder, originals, out, library)
    (tmp_path / "e.npz.parts" / "settings.json").rename(tmp_path / "e.npz.parts" / "mine.txt")
    with pytest.raises(EmbeddingFileError, match=r"it has mine\.txt in it"):
        run(encoder, originals, out, library)
    assert (tmp_path / "e.npz.parts" / "mine.txt").is_file()


def test_two_processes_do_not_write_the_same_file(encoder, originals, library, tmp_path):
    lock = tmp_path / "e.npz.parts" / ".lock"
    lock.parent.mkdir()
    script = (
        "import fcntl, sys; file = open(sys.argv[1], 'w'); fcntl.lockf(file, fcntl.LOCK_EX); "
        "print('held', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script, str(lock)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout.readline() == "held\n"
        with pytest.raises(EmbeddingFileError, match="Another process is writing"):
            run(encoder, originals, tmp_path / "e.npz", library)
        other.stdin.close()
    assert run(encoder, originals, tmp_path / "e.npz", library).num_computed == NUM_VIDEOS


def test_what_is_no_such_file_is_refused(encoder, originals, library, tmp_path):
    with pytest.raises(ConfigError, match=r"e\.csv must end in \.parquet or \.npz"):
        run(encoder, originals, tmp_path / "e.csv", library)
    with pytest.raises(EmbeddingFileError, match="No such file"):
        read_embeddings(tmp_path / "e.npz")
    for name in FORMATS:
        (tmp_path / name).write_bytes(b"something else")
        with pytest.raises(EmbeddingFileError, match="cannot be read as embeddings"):
            read_embeddings(tmp_path / name)
        with pytest.raises(EmbeddingFileError, match="cannot be read as embeddings"):
            run(encoder, originals, tmp_path / name, library)
    np.savez(tmp_path / "e.npz", a=np.zeros(3))
    with pytest.raises(EmbeddingFileError, match="cannot be read as embeddings"):
        read_header(tmp_path / "e.npz")
    newer = dataclasses.replace(EmbeddingHeader.of(encoder, num_clips=2), format_version=2)
    with pytest.raises(EmbeddingFileError, match="format 2, which is newer than the 1"):
        EmbeddingHeader.from_json(newer.to_json())


def test_an_encoder_that_has_diverged_is_refused(make_encoder, originals, library, tmp_path):
    encoder = make_encoder()
    with torch.no_grad():
        encoder.head.log_var.layers[-1].bias.fill_(torch.nan)
    with pytest.raises(WeightsError, match="not finite"):
        run(encoder, originals, tmp_path / "e.npz", library)
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_part_is_named(encoder, originals, library, tmp_path):
    folder = tmp_path / "e.npz.parts"
    folder.mkdir()
    (folder / "settings.json").write_text(EmbeddingHeader.of(encoder, num_clips=NUM_CLIPS).to_json())
    (folder / "part-000000.npz").write_bytes(b"PK\x03\x04")
    with pytest.raises(EmbeddingFileError, match=r"part-000000\.npz was damaged"):
        run(encoder, originals, tmp_path / "e.npz", library)
    (folder / "part-000000.npz").unlink()
    assert run(encoder, originals, tmp_path / "e.npz", library).num_computed == NUM_VIDEOS
