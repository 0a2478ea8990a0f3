"""Several indexes answer as one index with all of their videos, and say which of them could not be asked."""

from __future__ import annotations

import dataclasses
import json
import math
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from provico.cli import main
from provico.data.catalog import open_catalog
from provico.data.library import Library
from provico.errors import ConfigError, VideoIndexError
from provico.models import Encoder
from provico.search import parts
from provico.search.index import Index
from provico.search.parts import PartedIndex, open_indexes
from provico.search.query import Filter
from provico.search.store.folder import IndexFolder
from provico.search.store.video_store import BLOBS, TEXT, Rows

from .conftest import postgres_servers
from .crowd import crowd_rows, same_hits, without_place

NUM_VIDEOS, NUM_SERVERS = 240, 4
OPTIONS = {"num_clips": 2, "num_samples": 4}


@dataclasses.dataclass
class Divided:
    """One set of videos in one index, and in parts: on servers, and in two folders."""

    whole: Index
    names: list[str]
    """Folders of indexes whose rows are on servers, an address, and folders with all that they have."""


def some(rows: Rows, chosen: np.ndarray) -> Rows:
    return {
        name: values[chosen] if isinstance(values, np.ndarray) else [values[row] for row in chosen]
        for name, values in rows.items()
    }


def write(folder: Path, encoder: Encoder, rows: Rows, store: str | None = None) -> Index:
    index = Index.create(folder, encoder, store=store, **OPTIONS)
    with IndexFolder(folder).changing(index.settings) as opened:
        opened.write(rows)
    return Index.open(folder)


@pytest.fixture(scope="module")
def divided(encoder: Encoder, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Divided]:
    folder = tmp_path_factory.mktemp("divided")
    empty = Index.create(folder / "empty", encoder, **OPTIONS)
    rows = crowd_rows(empty.settings, NUM_VIDEOS)
    rng = np.random.default_rng(1)
    rows |= {
        "label": [str(word) for word in rng.choice(["red", "blue", "green"], NUM_VIDEOS)],
        "group": [f"recording {number}" for number in rng.integers(NUM_VIDEOS // 3, size=NUM_VIDEOS)],
        "path": [f"/videos/{name}" for name in rows["id"]],
    }
    place = rng.integers(NUM_SERVERS + 2, size=NUM_VIDEOS)
    rows["subset"] = [["train", "test"][int(part == 0)] for part in place]  # a word of one part only
    with postgres_servers(NUM_SERVERS) as addresses:
        names = []
        for part, address in enumerate([*addresses, None, None]):
            write(folder / str(part), encoder, some(rows, np.flatnonzero(place == part)), address)
            names.append(str(folder / str(part)))
        names[1] = addresses[1]  # nothing of this part but the server
        yield Divided(write(folder / "whole", encoder, rows), names)


QUESTIONS = [
    {},
    {"k": 1},
    {"k": 60, "max_chance": None},
    {"max_chance": None, "exclude_same": "nothing"},
    {"max_chance": None, "exclude_same": "group"},
    {"max_chance": None, "filter": Filter(labels=["red"], max_uncertainty=2.0)},
    {"max_chance": None, "filter": Filter(subsets=["test"])},
]


@pytest.mark.parametrize("in_engine", [True, False])
def test_parts_answer_as_one_index(
    divided: Divided, colour_videos: Path, library: Library, in_engine: bool
) -> None:
    together = open_indexes(divided.names, in_engine=in_engine)
    assert len(together) == len(divided.whole) == NUM_VIDEOS
    assert together.version
    queries = [*divided.whole.ids[::31], colour_videos / "test" / "red" / "0.mp4"]
    others = [] if in_engine else [("cosine", QUESTIONS[2]), ("bhattacharyya", QUESTIONS[4])]
    questions = [*(("match", question) for question in QUESTIONS), *others]
    for metric, question in questions:
        expected = divided.whole.search_many(queries, metric=metric, library=library, **question)
        found = together.search_many(queries, metric=metric, library=library, **question)
        for ours, theirs in zip(found, expected, strict=True):
            assert same_hits(without_place(ours).hits, without_place(theirs).hits), (metric, question)
            assert ours.certificate.is_exact
            assert ours.certificate.num_allowed == theirs.certificate.num_allowed
            assert ours.best_expected_by_chance == pytest.approx(theirs.best_expected_by_chance)
            assert ours.chance == theirs.chance is not None
            assert ours.unreached == ()
            if metric == "match" and len(ours.hits) == question.get("k", 10):
                assert ours.certificate.ceiling <= ours.hits[-1].score


def test_what_cannot_be_asked_of_parts_is_refused(
    divided: Divided, make_encoder: object, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    together = open_indexes(divided.names)
    name = divided.whole.ids[0]
    with pytest.raises(ConfigError, match=r"label 'rod'. Did you mean red"):
        together.search(name, filter=Filter(labels=["rod"]))
    with pytest.raises(VideoIndexError, match=f"{name}0 is neither one of the {NUM_VIDEOS} videos"):
        together.search(f"{name}0")
    with pytest.raises(ConfigError, match="A guarantee applies to one index"):
        together.search(name, max_error=0.1)
    with pytest.raises(ConfigError, match="k is 0"):
        together.search(name, k=0)
    other = Index.create(tmp_path / "other", divided.whole.encoder, num_clips=3)
    with pytest.raises(ConfigError, match=r"other cannot be searched together with .*: it has clips 3 inst"):
        open_indexes([divided.names[0], other.path])
    with pytest.raises(VideoIndexError, match=r"has 1 indexes .* so name one of them"):
        open_indexes([f"{divided.names[1]}#provico_other"])
    alone = open_indexes([divided.names[1]])
    assert isinstance(alone, Index)
    with pytest.raises(VideoIndexError, match="encoder"):
        alone.search(shutil.copy(__file__, tmp_path / "a.mp4"))
    main(["search", *divided.names, name, "--k", "3", "--max-chance", "inf", "--json"])
    (answer,) = json.loads(capsys.readouterr().out)
    assert [hit["id"] for hit in answer["hits"]] == [
        hit.id for hit in divided.whole.search(name, k=3, max_chance=None).hits
    ]
    assert answer["unreached"] == []


def test_a_part_that_is_lost_is_named(
    divided: Divided, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Before it is asked, while it is, and where the query is one of its videos; until it is back."""
    lost = Path(shutil.copytree(divided.names[-1], tmp_path / "lost"))
    names = [divided.names[0], divided.names[-2], str(lost)]
    inside = Index.open(lost).ids
    ours = next(name for name in divided.whole.ids if name in Index.open(divided.names[0]))
    together = open_indexes(names)
    assert isinstance(together, PartedIndex)
    before = open_indexes(names).search(ours, k=20, max_chance=None)
    assert {hit.id for hit in before.hits} & set(inside)
    lost.joinpath("store").rename(tmp_path / "away")
    for opened in (together, open_indexes(names)):  # what it has is in memory, but for the clips of hits
        answer = opened.search(ours, k=20, max_chance=None)
        expected = open_indexes(names[:2]).search(ours, k=20, max_chance=None)
        assert same_hits(answer.hits, expected.hits)
        assert [part.name for part in answer.unreached] == [str(lost)]
        assert not answer.certificate.is_exact
        assert answer.certificate.ceiling == 0
        assert answer.certificate.num_allowed == expected.certificate.num_allowed
    cosine = together.search(ours, metric="cosine", max_chance=None)
    assert math.isinf(cosine.certificate.ceiling)
    with pytest.raises(VideoIndexError, match=rf"neither one of .*Not searched: {lost} \(.*lost.store"):
        together.search(inside[0])
    main(["search", *names, ours, "--max-chance", "inf"])
    said = "".join(capsys.readouterr().out.split())
    assert f"Notsearched:{lost}" in said
    assert "Notprovedtobethebest,sincenotallvideosweresearched" in said
    assert together.is_newest
    monkeypatch.setattr(parts, "RETRY_SECONDS", 0)
    assert open_indexes(names).is_newest  # still lost
    tmp_path.joinpath("away").rename(lost / "store")
    together._retry_at = 0
    assert not together.is_newest
    assert same_hits(open_indexes(names).search(ours, k=20, max_chance=None).hits, before.hits)
    with pytest.raises(VideoIndexError, match="is not an index"):
        open_indexes([tmp_path / "no", tmp_path / "where"])


def test_a_video_in_two_parts_is_one_video(divided: Divided, encoder: Encoder, tmp_path: Path) -> None:
    """As while videos are moved; another file with the same id is another video."""
    first, rest = divided.names[-2:]
    rows = IndexFolder(Path(first)).open_store(divided.whole.settings)
    copied = rows.read([*TEXT, *divided.whole.settings.columns, *BLOBS])
    moved = write(tmp_path / "moved", encoder, copied)
    name = moved.ids[0]
    expected = open_indexes([first, rest]).search(name, k=30, max_chance=None).hits
    found = open_indexes([first, rest, moved.path]).search(name, k=30, max_chance=None)
    assert [hit.id for hit in found.hits] == [hit.id for hit in expected]
    copied["path"] = [f"/elsewhere/{one}" for one in copied["id"]]
    other = write(tmp_path / "other", encoder, copied)
    query = Index.open(rest).ids[0]
    found = open_indexes([rest, other.path, first]).search(query, k=200, max_chance=None)
    assert sum(hit.id == name for hit in found.hits) == 2
    with pytest.raises(VideoIndexError, match=f"{name} is the id of 2 videos: .*Give the file instead"):
        open_indexes([first, other.path]).search(name)


def test_videos_move_to_a_part_that_is_added(
    encoder: Encoder, colour_videos: Path, library: Library, tmp_path: Path
) -> None:
    """First the new part is filled, then the others let go; meanwhile nothing is found twice."""

    def fill(number: int, num_parts: int, *, prune: bool) -> None:
        path = tmp_path / str(number)
        index = Index.open(path) if path.exists() else Index.create(path, encoder, **OPTIONS)
        index.add(open_catalog(colour_videos, part=(number, num_parts)), library=library, prune=prune)

    def found(num_parts: int) -> list[str]:
        parts = open_indexes([tmp_path / str(number) for number in range(1, num_parts + 1)])
        query = "train/red/0.mp4"
        return [hit.id for hit in parts.search(query, k=18, metric="cosine", max_chance=None).hits]

    for number in (1, 2):
        fill(number, 2, prune=False)
    before = found(2)
    assert len(before) == 17
    fill(3, 3, prune=False)
    assert found(3) == before
    parts = open_indexes([tmp_path / "1", tmp_path / "2"])
    for name in before:
        assert parts.thumbnail(name)[:2] == b"\xff\xd8"
        assert parts.preview(name).is_relative_to(tmp_path)
    for number in (1, 2):
        fill(number, 3, prune=True)
    assert found(3) == before
    assert sum(len(Index.open(tmp_path / str(number))) for number in (1, 2, 3)) == 18
