"""An index in PostgreSQL answers as one in its own folder does, loaded or searched in the server."""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path

import psycopg
import pytest

from provico.cli import main
from provico.data.catalog import open_catalog
from provico.data.library import Library
from provico.errors import ConfigError, VideoIndexError
from provico.models import Encoder
from provico.search.chance import NUM_REFERENCES
from provico.search.index import Index
from provico.search.query import Filter
from provico.search.served import ServedVideos
from provico.search.store import server
from provico.search.store.folder import IndexFolder
from provico.search.store.postgres import PostgresStore
from provico.search.store.video_store import Rows

from .crowd import crowd_rows, same_hits, without_place

OPTIONS = {"num_clips": 3, "num_samples": 4}


@pytest.fixture(scope="module")
def both(
    encoder: Encoder,
    colour_videos: Path,
    library: Library,
    postgres: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[Index, Index]:
    """One set of videos in a folder and in the server."""
    folder = tmp_path_factory.mktemp("both")
    indexes = (
        Index.create(folder / "folder", encoder, **OPTIONS),
        Index.create(folder / "server", encoder, store=postgres, **OPTIONS),
    )
    for index in indexes:
        index.add(open_catalog(colour_videos), library=library)
    return indexes


QUESTIONS = [
    {},
    {"k": 1},
    {"k": 40},
    {"exclude_same": "nothing"},
    {"exclude_same": "group"},
    {"max_chance": 0.3},
    {"max_chance": None},
    {"filter": Filter(labels=["red", "blue"])},
    {"filter": Filter(subsets=["train"], max_seconds=10.0)},
    {"filter": Filter(min_seconds=10.0)},
]


@pytest.mark.parametrize("question", QUESTIONS, ids=str)
def test_every_engine_gives_the_same_answers(both, colour_videos, library, question):
    folder, server = both
    served = Index.open(server.path, in_engine=True)
    assert folder.ids == server.ids
    assert len(served) == len(server) == 18
    copy = colour_videos / "test" / "grey" / "0.mp4"
    for query in ("test/red/0.mp4", copy, (copy, 0.1, 0.5)):
        expected = folder.search(query, library=library, **question)
        assert without_place(server.search(query, library=library, **question)) == without_place(expected)
        found = served.search(query, library=library, **question)
        assert same_hits(without_place(found).hits, without_place(expected).hits)
        assert found.certificate.is_exact
        assert found.certificate.num_allowed == expected.certificate.num_allowed
        same = dataclasses.replace(
            found, hits=expected.hits, certificate=expected.certificate, best_log_probability=None
        )
        assert same == dataclasses.replace(expected, best_log_probability=None)
    for metric in ("cosine", "bhattacharyya"):
        answers = [without_place(index.search(copy, metric=metric, library=library)) for index in both]
        assert answers[0] == answers[1]


def test_what_cannot_be_asked_is_explained(both, postgres, encoder, tmp_path):
    folder, server = both
    served = Index.open(server.path, in_engine=True)
    with pytest.raises(ConfigError, match="not in PostgreSQL"):
        Index.open(folder.path, in_engine=True)
    with pytest.raises(ConfigError, match="ranks by match only"):
        served.search_many(["test/red/0.mp4"], metric="cosine")
    with pytest.raises(ConfigError, match=r"label 'rad'. Did you mean red"):
        served.search("test/red/0.mp4", filter=Filter(labels=["rad"]))
    with pytest.raises(VideoIndexError, match="nor a file"):
        served.search("test/rad/0.mp4")
    with pytest.raises(ConfigError, match="must begin with one of postgresql://"):
        Index.create(tmp_path / "a", encoder, store="mysql://host")
    with pytest.raises(ConfigError, match=r"password .* PGPASSWORD"):
        Index.create(tmp_path / "a", encoder, store="postgresql://me:secret@host/videos")
    with pytest.raises(VideoIndexError, match="Check that the server runs"):
        Index.create(tmp_path / "a", encoder, store="postgresql:///x?host=/no/such/folder")
    assert not (tmp_path / "a" / "index.json").exists()
    # What is left of it is made anew.
    assert len(Index.create(tmp_path / "a", encoder, store=postgres)) == 0


def test_two_machines_do_not_write_at_once(both, encoder, postgres, colour_videos, library, tmp_path):
    """Each has a copy of the folder, so that only the server can keep them apart."""
    first = Index.create(tmp_path / "first", encoder, store=postgres, **OPTIONS)
    first.add(open_catalog(colour_videos / "test"), library=library)
    second = Index.open(shutil.copytree(first.path, tmp_path / "second"))
    with IndexFolder(first.path).changing(first.settings) as store:
        with pytest.raises(VideoIndexError, match="by another process or machine"):
            second.remove(["red/0.mp4"])
        # A writer whose connection is lost has lost the lock, and cannot write any more.
        with psycopg.connect(postgres, autocommit=True) as other:
            assert isinstance(store, PostgresStore)
            other.execute(
                "select pg_terminate_backend(pid) from pg_stat_activity "
                "where pid in (select pid from pg_locks where locktype = 'advisory')"
            )
        second.remove(["red/0.mp4"])
        with pytest.raises(VideoIndexError, match="cannot be read or written"):
            store.remove(["blue/0.mp4"])
    # A reader that has lost its connection makes a new one, and keeps its version.
    with psycopg.connect(postgres, autocommit=True) as other:
        other.execute(
            "select pg_terminate_backend(pid) from pg_stat_activity where pid <> pg_backend_pid() "
            "and backend_type = 'client backend'"
        )
    assert first.thumbnail("red/0.mp4")
    assert first.refresh()
    assert "red/0.mp4" not in first
    assert "blue/0.mp4" in first


def test_old_versions_are_kept_for_a_while(encoder, postgres, colour_videos, library, tmp_path):
    index = Index.create(tmp_path / "index", encoder, store=postgres, **OPTIONS)
    index.add(open_catalog(colour_videos / "test"), library=library)
    old, served = Index.open(index.path), Index.open(index.path, in_engine=True)
    index.remove(["red/0.mp4"])
    index.add(open_catalog(colour_videos / "test"), library=library)  # which tidies
    schema = index.settings.place.name
    assert len(served) == 6
    assert served.search("red/0.mp4").hits == old.search("red/0.mp4").hits
    with psycopg.connect(postgres, autocommit=True) as other:
        other.execute(f"update {schema}.videos set ended = ended - interval '2 days'")
    index.remove(["blue/0.mp4"])
    index.add(open_catalog(colour_videos / "test"), library=library)
    with pytest.raises(VideoIndexError, match=r"rows of version \d+ of the index are gone.*Open it again"):
        old.thumbnail("red/0.mp4")


NUM_CROWD = 3000


class Crowd:
    """An index in the server with many made-up videos, in clusters of clouds of very different widths."""

    def __init__(self, postgres: str, encoder: Encoder, folder: Path, number: int) -> None:
        index = Index.create(folder, encoder, store=postgres, **OPTIONS)
        self.settings = index.settings
        with IndexFolder(folder).changing(self.settings) as store:
            store.write(crowd_rows(self.settings, number))
        self.loaded = Index.open(folder)
        self.served = Index.open(folder, in_engine=True)


@pytest.fixture(scope="module")
def crowd(postgres: str, encoder: Encoder, tmp_path_factory: pytest.TempPathFactory) -> Crowd:
    return Crowd(postgres, encoder, tmp_path_factory.mktemp("crowd") / "index", NUM_CROWD)


@pytest.mark.parametrize("k", [1, 10])
def test_the_server_finds_the_same_among_many(crowd, k, monkeypatch):
    """Also where the k-th is so improbable that there are several rounds of candidates."""
    monkeypatch.setattr("provico.search.served.LARGEST_ROUND", 256)
    queries = [f"{place:05}" for place in range(0, NUM_CROWD, 249)]
    expected = crowd.loaded.search_many(queries, k=k)
    found = crowd.served.search_many(queries, k=k)
    for ours, theirs in zip(found, expected, strict=True):
        assert same_hits(ours.hits, theirs.hits)
        assert ours.certificate.is_exact
    scored = sorted(answer.certificate.num_scored for answer in found)
    assert scored[0] < 100  # most queries do not look at everything


def test_both_draw_the_same_references(crowd):
    served = Index.open(crowd.loaded.path, in_engine=True)
    drawn = [index.chance.references.ids for index in (served, crowd.loaded)]
    assert len(drawn[0]) == NUM_REFERENCES < len(served)
    assert drawn[0] == drawn[1]
    assert served.chance.model("match") == crowd.loaded.chance.model("match")


def test_the_server_does_not_send_the_collection(crowd, monkeypatch):
    """What is near the query is all that is read of a collection."""
    read: list[int] = []
    original = ServedVideos.read

    def counted(self: ServedVideos, names: tuple[str, ...], rows: list[int]) -> Rows:
        read.append(len(rows))
        return original(self, names, rows)

    monkeypatch.setattr(ServedVideos, "read", counted)
    monkeypatch.setattr(PostgresStore, "ids", property(lambda self: pytest.fail("all ids were read")))
    served = Index.open(crowd.loaded.path, in_engine=True)
    answer = served.search("00000", k=3)
    assert len(answer.hits) == 3
    assert 0 < sum(read) < NUM_CROWD


def test_the_command_line_knows_the_store(encoder, colour_videos, postgres, tmp_path, capsys):
    encoder.save_pretrained(tmp_path / "encoder")
    out = tmp_path / "index"
    made = ("index", colour_videos / "test", "--out", out, "--checkpoint", tmp_path / "encoder")
    main([str(word) for word in (*made, "--store", postgres, "--num-clips", "3", "--num-workers", "1")])
    assert "6 videos added" in capsys.readouterr().out
    settings = json.loads((out / "index.json").read_text())
    assert settings["place"]["address"] == postgres
    found = []
    for more in ((), ("--in-engine",)):
        main(["search", str(out), "red/0.mp4", "--k", "2", "--json", *more])
        (answer,) = json.loads(capsys.readouterr().out)
        found.append([hit["id"] for hit in answer["hits"]])
    assert len(found[0]) == 2
    assert found[0] == found[1]


def test_an_address_of_somebody_else_is_used_once_it_is_trusted(
    both: tuple[Index, Index],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """By a user who has never given it, on the command line."""
    monkeypatch.setenv("PROVICO_HOME", str(tmp_path))
    monkeypatch.setattr(server, "_trusts_all", False)
    index = both[1]
    command = ["search", str(index.path), index.ids[0]]
    with pytest.raises(SystemExit) as end:
        main(command)
    assert end.value.code == 2
    assert "--trust-address" in capsys.readouterr().err
    main([*command, "--trust-address"])
    monkeypatch.setattr(server, "_trusts_all", False)
    main(command)  # it was said once
