"""What a user can get wrong, or a disk can do, is one sentence and exit status 2, and leaves nothing."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from provico.cli import main
from provico.curation.folder import CuratedVideo, CurationFolder
from provico.data.catalog import open_catalog
from provico.errors import ProvicoError, VideoIndexError
from provico.files import disk_problem
from provico.search.index import Index
from provico.search.store import server

from ..full_disk import files_of_at_most
from ..warm_processes import ForkServer
from .chaos import said_once, unshare, with_mount

Run = Callable[..., str]


@pytest.fixture
def refused(capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs a command that must be refused; what it says."""

    def run(*arguments: object) -> str:
        capsys.readouterr()
        with pytest.raises(SystemExit) as end:
            main([str(argument) for argument in arguments])
        said = capsys.readouterr().err
        assert end.value.code == 2, said
        assert "Traceback" not in said
        lines = [line for line in said.splitlines() if line.startswith("provico: ")]
        assert len(lines) == 1, said
        return lines[0]

    return run


@pytest.fixture
def videos(tmp_path: Path, colour_videos: Path) -> Path:
    folder = tmp_path / "videos"
    folder.mkdir()
    for number, video in enumerate(sorted(colour_videos.glob("train/*/0.mp4"))[:3]):
        shutil.copy(video, folder / f"{number}.mp4")
    return folder


def test_a_full_disk(videos: Path, tmp_path: Path, refused: Run) -> None:
    main(["scan", str(videos), "--out", str(tmp_path / "known")])  # so that the library need not grow
    with files_of_at_most(100):
        assert "Make room" in refused("scan", videos, "--out", tmp_path / "scan")
    videos_of = [CuratedVideo(path=str(n), id=str(n), bucket="keep", reason="good") for n in range(9)]
    with files_of_at_most(100), pytest.raises(OSError) as error:  # noqa: PT011
        CurationFolder(tmp_path / "curation").write(videos_of)
    assert "Make room" in (disk_problem(error.value) or "")
    assert not [*tmp_path.rglob("*.partial*")]


def test_a_full_disk_while_it_is_curated(videos: Path, tmp_path: Path, foreign: Path, refused: Run) -> None:
    index = Index.open(foreign)
    index.add(open_catalog(videos))
    with files_of_at_most(100):
        assert "Make room" in refused("curate", foreign)
    main(["curate", str(foreign)])


def test_a_disk_that_may_only_be_read(
    videos: Path, tmp_path: Path, shaded_encoder: Path, fork_server: ForkServer
) -> None:
    if unshare() is None:
        pytest.skip("This machine lets nobody mount a disk of their own.")
    (disk := tmp_path / "disk").mkdir()
    main(["index", str(videos), "--checkpoint", str(shaded_encoder), "--out", str(disk / "index")])
    for words in (
        ("scan", videos, "--out", disk / "scan"),
        ("prepare", videos, "--short-side", "16", "--out", disk / "prepared"),
        ("curate", disk / "index"),
        ("index", videos, "--checkpoint", shaded_encoder, "--out", disk / "other"),
    ):
        mount = f"mount --bind '{disk}' '{disk}' && mount -o remount,ro,bind '{disk}'"
        process = fork_server.start(*with_mount(mount, "-m", "provico", *words))
        assert process.wait() == 2, (words, process.stderr)
        said_once(process.stderr)


@pytest.mark.parametrize("is_cut", [True, False])
def test_a_damaged_library_stops_no_command(
    videos: Path, tmp_path: Path, shaded_encoder: Path, fork_server: ForkServer, is_cut: bool
) -> None:
    """Garbage, or cut off in the middle: it is set aside, made again, and said."""
    home, index = tmp_path / "home", tmp_path / "index"
    library, query = home / "library.sqlite", tmp_path / "query.mp4"
    shutil.copy(videos / "0.mp4", query)

    def run(*words: object) -> str:
        process = fork_server.start(
            "-m", "provico", *words, environment=os.environ | {"PROVICO_HOME": str(home)}
        )
        assert process.wait() == 0, process.stderr
        assert "Traceback" not in process.stderr
        return process.stderr

    run("scan", videos, "--out", tmp_path / "known")
    whole = library.read_bytes()
    for words in (
        ("scan", videos, "--out", tmp_path / "scan"),
        ("index", videos, "--checkpoint", shaded_encoder, "--out", index, "--num-clips", "1"),
        ("search", index, query),
    ):
        library.write_bytes(whole[: len(whole) // 2] if is_cut else b"garbage" * 1000)
        assert "was damaged" in run(*words), words


def test_a_library_that_cannot_grow(videos: Path, tmp_path: Path, refused: Run) -> None:
    with files_of_at_most(100):
        assert "PROVICO_HOME" in refused("scan", videos, "--out", tmp_path / "scan")


@pytest.mark.parametrize("out", ["file/scan", "/dev/null"])
def test_a_place_that_cannot_be_written_to(videos: Path, tmp_path: Path, refused: Run, out: str) -> None:
    (tmp_path / "file").touch()
    said = refused("scan", videos, "--out", tmp_path / out)
    assert "cannot be written" in said
    assert "Errno" not in said


@pytest.mark.parametrize("verb", ["index", "embed", "uncertainty"])
@pytest.mark.parametrize(
    ("option", "value"), [("--num-clips", "0"), ("--num-clips", "1000000000"), ("--short-side", "0")]
)
def test_numbers_that_no_video_can_be_looked_at_by(
    videos: Path, tmp_path: Path, shaded_encoder: Path, refused: Run, verb: str, option: str, value: str
) -> None:
    out = tmp_path / ("out.parquet" if verb == "embed" else "out")
    said = refused(verb, videos, "--checkpoint", shaded_encoder, "--out", out, option, value)
    assert f"{option} is {value}, but it must be between 1 and " in said
    assert not out.exists()


def test_an_index_of_nothing_leaves_nothing(tmp_path: Path, shaded_encoder: Path, refused: Run) -> None:
    folder, out = tmp_path / "empty", tmp_path / "index"
    folder.mkdir()
    index = ("index", folder, "--checkpoint", shaded_encoder, "--out", out, "--num-clips", 1)
    assert "There is no video" in refused(*index)
    assert not out.exists()
    (folder / "a.mp4").write_text("no video")
    assert "None of 1 videos can be read" in refused(*index)
    assert not out.exists()


def test_a_scan_says_which_files_it_did_not_look_at(
    videos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("a.m2p", "b.m2p", "notes.txt"):
        (videos / name).touch()
    main(["scan", str(videos), "--out", str(tmp_path / "scan")])
    assert "2 x .m2p, 1 x .txt" in capsys.readouterr().out
    assert json.loads((tmp_path / "scan" / "summary.json").read_text())["other_files"] == {
        ".m2p": 2,
        ".txt": 1,
    }


def test_uncertainty_goes_on_with_what_can_be_read(
    videos: Path, tmp_path: Path, shaded_encoder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the other verbs that look at a collection, whatever share of it is broken."""
    monkeypatch.setattr("provico.embedding.report_plots.write_pictures", lambda *_, **__: None)
    for number in range(6):
        (videos / f"broken{number}.mp4").write_text("no video")
    out = tmp_path / "report"
    main(
        [
            "uncertainty",
            str(videos),
            "--checkpoint",
            str(shaded_encoder),
            "--out",
            str(out),
            "--num-clips",
            "1",
        ]
    )
    assert (out / "uncertainty.csv").is_file() or [*out.glob("*.csv")]


# --- what a stranger's index may do ------------------------------------------------------------------------


@pytest.fixture
def foreign(tmp_path: Path, shaded_encoder: Path, colour_videos: Path) -> Path:
    """An index that says that its rows are on a server."""
    from provico.models import Encoder

    folder = tmp_path / "foreign"
    Index.create(folder, Encoder.from_pretrained(shaded_encoder), num_clips=1, num_samples=2)
    return folder


@pytest.mark.parametrize(
    "address", ["postgresql://user:secret@198.51.100.7/videos", "s3://bucket/folder", "nonsense://["]
)
def test_no_address_of_a_stranger_is_connected_to(
    foreign: Path, refused: Run, monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    settings = json.loads((foreign / "index.json").read_text())
    settings["place"] = {"address": address, "name": "videos"}
    (foreign / "index.json").write_text(json.dumps(settings))
    connected: list[object] = []
    monkeypatch.setattr("provico.search.store.lance._connect", connected.append)
    monkeypatch.setattr("provico.search.store.postgres.PostgresStore.__init__", connected.append)
    for verb in (("search", foreign, "a.mp4"), ("info", foreign), ("calibrate", foreign), ("dedup", foreign)):
        said = refused(*verb)
        assert "secret" not in said
        assert "--trust-address" in said or "damaged" in said
    assert connected == []


def test_an_address_that_was_given_is_trusted_from_then_on(monkeypatch: pytest.MonkeyPatch) -> None:
    address = "postgresql://198.51.100.7/videos"
    with pytest.raises(VideoIndexError, match="that you have not used before"):
        server.check_trusted(address)
    monkeypatch.setattr(server, "_trusts_all", True)
    server.check_trusted(address)
    monkeypatch.setattr(server, "_trusts_all", False)
    server.check_trusted(address)
    with pytest.raises(ProvicoError):
        server.check_trusted(address + "2")


def test_an_index_whose_rows_are_gone_is_not_made_anew(foreign: Path, refused: Run) -> None:
    shutil.rmtree(foreign / "store")
    assert "is gone" in refused("info", foreign)
    assert not (foreign / "store").exists()


def test_another_dim_than_that_of_the_rows(foreign: Path, refused: Run) -> None:
    settings = json.loads((foreign / "index.json").read_text())
    settings["embedding"]["encoder_config"]["dim"] = 16
    (foreign / "index.json").write_text(json.dumps(settings))
    assert "other columns than index.json says" in refused("search", foreign, "a.mp4")
