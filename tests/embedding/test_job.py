"""A file of embeddings is finished whatever happens on the way, and follows its videos as they change."""

from __future__ import annotations

import dataclasses
import os
import shutil
import signal
from pathlib import Path

import numpy as np
import pytest

from provico import files
from provico.data.catalog import open_catalog
from provico.embedding import job
from provico.embedding.file import TEXT, Columns, read_columns, read_embeddings, read_header
from provico.embedding.job import embed_to_file
from provico.errors import TooManyBrokenError

from .small_files import FORMATS, NUM_CLIPS, NUM_VIDEOS, run, write


@pytest.fixture
def folder(originals: Path, tmp_path: Path) -> Path:
    """Videos that a test may change."""
    return Path(shutil.copytree(originals, tmp_path / "videos"))


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


# --- interruptions -----------------------------------------------------------------------------------------

KILLED = """
import os, signal, sys
from provico.cli import main
from provico import files
from provico.embedding import job

when, name, *arguments = sys.argv[1:]
real = files.publish

def publish(partial, path):
    if (when, path.name) == ("before", name):
        os.kill(os.getpid(), signal.SIGKILL)
    real(partial, path)
    if (when, path.name) == ("after", name):
        os.kill(os.getpid(), signal.SIGKILL)

job.VIDEOS_A_PART = 1
files.publish = publish
main(arguments)
"""


@pytest.mark.parametrize(
    ("when", "name", "num_left"),
    [("before", "part-000001.npz", 2), ("before", "e.npz", 0), ("after", "e.npz", 0)],
    ids=["a part is half written", "the file is half written", "the parts are still there"],
)
def test_after_a_kill_it_goes_on(
    when, name, num_left, encoder, originals, library, whole, tmp_path, fork_server
):
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
    arguments = ["-c", KILLED, when, name, "embed", originals, *options, "--device", "cpu"]
    environment = {**os.environ, "PROVICO_HOME": str(library.folder)}
    killed = fork_server.start(*arguments, environment=environment)
    assert killed.wait() == -signal.SIGKILL, killed.stderr
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
    monkeypatch.setattr(job, "SECONDS_A_PART", -1.0)
    published = []
    real = files.publish

    def publish(partial: Path, path: Path) -> None:
        published.append(path.name)
        real(partial, path)

    monkeypatch.setattr(files, "publish", publish)
    run(encoder, originals, tmp_path / "e.npz", library)
    assert published == ["settings.json", "part-000000.npz", "part-000001.npz", "e.npz"]


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
    with pytest.raises(TooManyBrokenError, match=r"None of 1 videos can be read: a\.mp4"):
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
