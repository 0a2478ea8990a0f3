"""An index holds what is computed, keeps it whatever happens, and follows its videos as they change."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from provico.data.catalog import open_catalog
from provico.data.frames.encode import write_video
from provico.embedding.driver import embed
from provico.errors import ChangedVideoError, EmbeddingFileError, OutputExistsError, VideoIndexError
from provico.search.index import Index
from provico.search.query import Filter
from provico.search.store.folder import IndexFolder
from provico.search.store.video_store import BLOBS, TEXT, Rows

NUM_CLIPS = 3
OPTIONS = {"num_clips": NUM_CLIPS, "num_samples": 4}


@pytest.fixture(params=["lancedb", "postgres", "s3"])
def store(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str | None:
    """Where the rows are kept: what an index promises, each engine must keep."""
    if request.param == "postgres":
        return str(request.getfixturevalue("postgres"))
    if request.param == "s3":
        for name, value in request.getfixturevalue("object_store").items():
            monkeypatch.setenv(name, value)
        return "s3://videos/rows"
    return None


@pytest.fixture
def folder(colour_videos: Path, tmp_path: Path) -> Path:
    """Six videos that a test may change."""
    return Path(shutil.copytree(colour_videos / "test", tmp_path / "videos"))


def rows_of(index: Index) -> dict[str, Rows]:
    """Everything that is stored, by id."""
    settings = index.settings
    store = IndexFolder(index.path).open_store(settings)
    names = [*TEXT, *settings.columns, *BLOBS]
    columns = store.read(names)
    assert len(set(store.ids)) == len(store.ids)
    return {name: {c: columns[c][row] for c in names} for row, name in enumerate(store.ids)}


def are_equal(a: Rows, b: Rows) -> bool:
    return all(np.array_equal(a[name], b[name]) for name in a)


def previews_of(index: Index) -> set[str]:
    folder = index.path / "previews"
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def test_an_index_holds_what_the_encoder_says(encoder, folder, library, tmp_path, store):
    index = Index.create(tmp_path / "index", encoder, store=store, **OPTIONS)
    assert len(index) == 0
    catalog = open_catalog(folder)
    calls = []
    report = index.add(catalog, library=library, progress=lambda *call: calls.append(call))
    assert (report.num_videos, report.num_added, report.failed) == (6, 6, ())
    assert calls[-1] == (6, 6)
    expected = embed(encoder, catalog, num_clips=NUM_CLIPS, library=library)
    rows = rows_of(Index.open(tmp_path / "index"))
    assert list(rows) == sorted(expected.ids)
    for number, video in enumerate(catalog):
        row = rows[video.id]
        assert np.array_equal(row["clip_mean"], expected.videos.clips.mean[number])
        assert np.array_equal(row["clip_log_var"], expected.videos.clips.log_var[number])
        assert np.array_equal(row["log_var"], expected.videos.moment_matched.log_var[number])
        assert row["uncertainty"] == pytest.approx(float(expected.videos.uncertainty[number]))
        assert row["disagreement"] == pytest.approx(float(expected.videos.disagreement[number]))
        assert (row["path"], row["label"]) == (str(video.path), video.label)
        assert row["duration_seconds"] == pytest.approx(16 / 25)
    assert not previews_of(index), "nobody has asked for one"
    assert {index.preview(name).relative_to(index.path / "previews").as_posix() for name in rows} == {
        row["preview"] for row in rows.values()
    }
    assert len(previews_of(index)) == len(rows)
    with pytest.raises(OutputExistsError, match="is an index already"):
        Index.create(tmp_path / "index", encoder)


def test_an_index_follows_its_videos(encoder, folder, library, tmp_path, store):
    index = Index.create(tmp_path / "index", encoder, store=store, **OPTIONS)
    index.add(open_catalog(folder), library=library)
    before, version = rows_of(index), index.version

    report = index.add(open_catalog(folder), library=library)
    assert (report.num_unchanged, index.version) == (6, version)

    write_video(
        folder / "red" / "0.mp4", np.random.default_rng(1).integers(0, 256, (20, 36, 48, 3), np.uint8)
    )
    (folder / "blue" / "0.mp4").write_bytes(b"no video")
    (folder / "green" / "0.mp4").unlink()
    (folder / "violet").mkdir()
    shutil.copy(folder / "grey" / "0.mp4", folder / "violet" / "1.mp4")
    orphan = index.path / "previews" / "00" / "left-over.mp4"
    orphan.parent.mkdir(exist_ok=True, parents=True)
    orphan.touch()
    with pytest.raises(ChangedVideoError, match="changed since it was indexed"):
        index.preview("red/0.mp4")
    report = index.add(open_catalog(folder), library=library)
    assert (report.num_added, report.num_changed, report.num_unchanged) == (0, 1, 3)
    assert report.num_recognised == 1
    assert report.vanished == ("green/0.mp4",)
    assert [name for name, _ in report.failed] == ["blue/0.mp4"]
    after = rows_of(index)
    # What has changed and cannot be read is no longer there; what has vanished is, until it is pruned.
    assert set(after) == set(before) - {"blue/0.mp4"} | {"violet/1.mp4"}
    assert {name for name in after if name in before and not are_equal(after[name], before[name])} == {
        "red/0.mp4"
    }
    assert not orphan.exists()
    assert index.preview("red/0.mp4").is_file()

    report = index.add(open_catalog(folder), library=library, prune=True)
    assert (report.num_removed, report.num_videos) == (1, 5)
    assert "green/0.mp4" not in index
    index.remove(["grey/0.mp4"])
    assert "grey/0.mp4" not in index
    with pytest.raises(VideoIndexError, match=r"gray/0.mp4 is neither .* Did you mean"):
        index.remove(["gray/0.mp4"])
    index.add(open_catalog(folder), library=library)
    assert previews_of(index) <= {row["preview"] for row in rows_of(index).values()}


def test_an_encoder_whose_weights_have_changed_is_refused(encoder, make_encoder, folder, library, tmp_path):
    """Indexed videos are found without it; a file would be compared with what another network said."""
    path = tmp_path / "index"
    Index.create(path, encoder, **OPTIONS).add(open_catalog(folder), library=library)
    shutil.rmtree(path / "encoder")
    make_encoder(seed=1).save_pretrained(path / "encoder")
    index = Index.open(path)
    assert index.search("red/0.mp4").hits
    with pytest.raises(VideoIndexError, match=r"other weights .* Restore .* or rebuild the index"):
        index.search(("red/0.mp4", 0.0, 0.5), library=library)
    with pytest.raises(VideoIndexError, match="other weights"):
        index.add(open_catalog(folder), library=library)


def test_labels_and_paths_are_brought_up_to_date_without_reading(encoder, folder, library, tmp_path, store):
    index = Index.create(tmp_path / "index", encoder, store=store, **OPTIONS)
    index.add(open_catalog(folder), library=library)
    before = rows_of(index)
    moved = folder.rename(tmp_path / "moved")
    (moved / "list.csv").write_text("path,label\n" + "".join(f"{name},any\n" for name in before))
    report = index.add(open_catalog(moved / "list.csv"), library=library)
    assert (report.num_relabelled, report.num_changed, report.vanished) == (6, 0, ())
    for name, row in rows_of(index).items():
        assert (row["label"], row["path"]) == ("any", str(moved / name))
        assert are_equal(row, before[name] | {"label": "any", "path": row["path"]})

    catalog = open_catalog(moved / "list.csv")
    groups = ["odd", "even", "odd", "even", "odd", None]
    grouped = tuple(dataclasses.replace(v, group=g) for v, g in zip(catalog, groups, strict=True))
    report = index.add(dataclasses.replace(catalog, videos=grouped), library=library)
    assert (report.num_relabelled, report.num_unchanged) == (5, 1)
    ids = [video.id for video in catalog]
    for metric in ("match", "cosine"):
        found = index.search(ids[0], metric=metric, exclude_same="group")
        assert {hit.id for hit in found.hits} == {ids[1], ids[3], ids[5]}
        # A video without a group is only itself.
        assert len(index.search(ids[5], metric=metric, exclude_same="group").hits) == 5
    odd = index.search(ids[0], filter=Filter(groups=["odd"]))
    assert {hit.id for hit in odd.hits} == {ids[2], ids[4]}


def test_what_cannot_be_compared_is_refused(encoder, make_encoder, folder, library, tmp_path, store):
    index = Index.create(tmp_path / "index", encoder, store=store, **OPTIONS)
    index.add(open_catalog(folder), library=library)
    with pytest.raises(EmbeddingFileError, match="it has the encoder"):
        index.add(open_catalog(folder), encoder=make_encoder(1), library=library)
    other = Path(shutil.copytree(folder, tmp_path / "other"))
    with pytest.raises(VideoIndexError, match="is in the index already as"):
        index.add(open_catalog(other), library=library)
    settings = json.loads((index.path / "index.json").read_text())
    anew = f"Rebuild it: provico index VIDEOS --checkpoint {index.path}/encoder --out NEW"
    for version, way_out in ((3, anew), (99, "Update provico")):
        (index.path / "index.json").write_text(json.dumps(settings | {"format_version": version}))
        message = f"format {version}, but this version of provico knows format 4. {way_out}"
        with pytest.raises(VideoIndexError, match=re.escape(message)):
            Index.open(index.path)
    (index.path / "index.json").unlink()
    with pytest.raises(VideoIndexError, match="not a complete one"):
        Index.open(index.path)
    # What is left of a creation that was killed is made anew.
    assert len(Index.create(index.path, encoder, store=store, **OPTIONS)) == 0
    with pytest.raises(OutputExistsError, match="not an index"):
        Index.create(folder, encoder)


class Worker:
    """A process that adds videos in children of its own."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, Path(__file__).with_name("add_worker.py")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def start(self, *folders: Path) -> int:
        """Begin to add videos in a child; its process id."""
        self._write(json.dumps([*map(str, folders), dict(os.environ)]) + "\n")
        return self.expect("pid")

    def go_on(self) -> None:
        self._write(".")

    def _write(self, text: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(text)
        self._process.stdin.flush()

    def expect(self, word: str) -> int:
        found, number = self.next()
        assert found == word
        return int(number)

    def next(self) -> list[str]:
        assert self._process.stdout is not None
        return self._process.stdout.readline().split()

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    running = Worker()
    yield running
    running.close()


MANY_CLIPS = OPTIONS | {"num_clips": 8}
"""Two videos at once, and so nine commits."""


@pytest.fixture(scope="module")
def expected(encoder, colour_videos, library, tmp_path_factory) -> dict[str, Rows]:
    """What an index holds that nothing has killed."""
    whole = Index.create(tmp_path_factory.mktemp("whole") / "index", encoder, **MANY_CLIPS)
    whole.add(open_catalog(colour_videos), library=library)
    return rows_of(whole)


def test_kills_lose_nothing_and_readers_see_whole_versions(
    worker, expected, encoder, colour_videos, library, tmp_path, store
):
    Index.create(tmp_path / "index", encoder, store=store, **MANY_CLIPS)
    reader = Index.open(tmp_path / "index")
    # Each kill comes after so many commits, so many seconds into what follows.
    for num_commits, seconds in ((0, 0.3), (1, 0.0), (2, 0.05), (1, 0.15)):
        seen, num_acknowledged = reader.ids, len(reader)
        pid = worker.start(tmp_path / "index", colour_videos, library.folder)
        for _ in range(num_commits):
            num_acknowledged = len(seen) + worker.expect("done")
            # A reader keeps its version while another process writes, and can read all of it.
            assert reader.ids == seen
            assert all(reader.thumbnail(name) for name in seen)
            with pytest.raises(VideoIndexError, match="being written"):
                reader.remove(seen)
            assert len(Index.open(tmp_path / "index")) == num_acknowledged
            worker.go_on()
        time.sleep(seconds)
        os.kill(pid, signal.SIGKILL)
        while (words := worker.next())[0] == "done":
            num_acknowledged = len(seen) + int(words[1])
        assert words == ["exit", str(-signal.SIGKILL)]
        assert reader.refresh() or num_commits == 0
        rows = rows_of(reader)
        assert len(expected) > len(rows) >= num_acknowledged
        assert all(are_equal(row, expected[name]) for name, row in rows.items())
        assert all(reader.thumbnail(name) for name in rows)
    reopened = Index.open(tmp_path / "index")
    report = reopened.add(open_catalog(colour_videos), library=library)
    assert report.num_unchanged >= num_acknowledged
    rows = rows_of(reopened)
    assert rows.keys() == expected.keys()
    assert all(are_equal(row, expected[name]) for name, row in rows.items())
