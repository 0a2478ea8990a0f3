"""A calibration travels with its index, changes no ranking, and decides what is probable enough."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
import torch

from provico.cli import main
from provico.data.catalog import open_catalog
from provico.data.library import Library
from provico.embedding.driver import embed
from provico.errors import ConfigError, VideoIndexError
from provico.evaluation.embedded_search import Sampling, SearchedEmbeddings
from provico.info import describe
from provico.models import Encoder
from provico.search.calibrate import labelled_pairs
from provico.search.index import Index
from provico.search.store.folder import IndexFolder

NUM_CLIPS = 2
"""Of `shaded_index`."""


@pytest.fixture(scope="module")
def encoder(shaded_encoder: Path) -> Encoder:
    return Encoder.from_pretrained(shaded_encoder)


@pytest.fixture
def index(folder: Path) -> Index:
    (folder / "calibration.json").unlink(missing_ok=True)
    return Index.open(folder)


def test_an_index_that_is_not_calibrated_says_so(index: Index) -> None:
    answer = index.search("red/0.mp4", k=3)
    assert index.calibration is None
    assert answer.calibration is None
    assert answer.best_calibrated_probability is None
    assert [hit.calibrated_probability for hit in answer.hits] == [None] * 3
    with pytest.raises(ConfigError, match=r"not calibrated.*--max-chance"):
        index.search("red/0.mp4", min_probability=0.5)


def test_no_ranking_changes_and_probabilities_are_those_of_the_map(index: Index) -> None:
    queries = ["red/0.mp4", "blue/3.mp4", "grey/9.mp4"]
    before = index.search_many(queries, k=12)
    found = index.calibrate()
    after = index.search_many(queries, k=12)
    for one, other in zip(before, after, strict=True):
        assert [hit.id for hit in one.hits] == [hit.id for hit in other.hits]
        assert [hit.log_probability for hit in one.hits] == [hit.log_probability for hit in other.hits]
        assert one.certificate == other.certificate
        log_probability = torch.tensor([hit.log_probability for hit in other.hits], dtype=torch.float64)
        calibrated = [hit.calibrated_probability for hit in other.hits]
        assert calibrated == pytest.approx(found.probability(log_probability).tolist())
        assert calibrated == sorted(calibrated, reverse=True)
        assert other.best_calibrated_probability == calibrated[0]
        assert other.summary()["calibration"]["source"] == "labels"


def test_the_least_probability_is_then_a_calibrated_one(index: Index) -> None:
    index.calibrate()
    hits = index.search("red/0.mp4", k=5).hits
    second = hits[1].calibrated_probability
    assert second is not None
    answer = index.search("red/0.mp4", k=5, min_probability=second)
    assert [hit.id for hit in answer.hits] == [hit.id for hit in hits[:2]]
    nothing = index.search("red/0.mp4", k=5, min_probability=1.0)
    assert not nothing.is_confident
    assert nothing.best_calibrated_probability == hits[0].calibrated_probability


def test_it_is_kept_with_the_index_and_read_again(index: Index, folder: Path) -> None:
    reader = Index.open(folder)
    assert describe(folder).facts["calibrated_by"] is None
    found = index.calibrate(k=3)
    assert describe(folder).facts["calibrated_by"] == "labels"
    assert Index.open(folder).calibration == found
    assert reader.calibration is None
    assert not reader.refresh()  # no video has changed
    assert reader.calibration == found
    again = index.calibrate()
    assert again != found
    assert json.loads((folder / "calibration.json").read_text()) == again.to_dict()
    assert not (folder / ".calibration.json").exists()


def test_a_damaged_file_is_an_error_with_a_way_out(folder: Path) -> None:
    for text in ("{", "[]", '{"slope": 1}', json.dumps({"slope": "x"})):
        (folder / "calibration.json").write_text(text)
        with pytest.raises(VideoIndexError, match=r"(?s)damaged.*provico calibrate"):
            Index.open(folder)
    (folder / "calibration.json").unlink()


def test_one_writer_at_a_time(index: Index, folder: Path) -> None:
    with IndexFolder(folder).writing(), pytest.raises(VideoIndexError, match="being written"):
        index.calibrate()
    assert Index.open(folder).calibration is None


def test_an_index_asks_the_same_questions_as_embeddings_in_memory(
    index: Index, shaded_videos: Path, encoder: Encoder, library: Library
) -> None:
    """Two ways to the same pairs: by exact search, and by comparing everything."""
    embeddings = embed(encoder, open_catalog(shaded_videos), num_clips=NUM_CLIPS, library=library)
    order = sorted(range(len(embeddings)), key=lambda number: embeddings.ids[number])
    clips = embeddings.videos.clips
    in_order = dataclasses.replace(
        embeddings,
        ids=tuple(embeddings.ids[number] for number in order),
        videos=dataclasses.replace(
            embeddings.videos,
            clips=dataclasses.replace(clips, mean=clips.mean[order], log_var=clips.log_var[order]),
        ),
        labels=tuple(embeddings.labels[number] for number in order),
        groups=tuple(embeddings.groups[number] for number in order),
        clip_seconds=None,
    )
    in_memory = SearchedEmbeddings(in_order, index.settings.curve, Sampling(4))
    mine, its = labelled_pairs(index.loaded), labelled_pairs(in_memory)
    assert torch.allclose(mine.log_probability, its.log_probability, atol=1e-4)
    assert torch.equal(mine.is_match, its.is_match)


def options(encoder: Path, out: Path) -> list[str]:
    """Of `provico index`."""
    return ["--checkpoint", str(encoder), "--out", str(out), "--num-clips", "2", "--num-workers", "0"]


def test_few_videos_are_said_to_be_few(
    shaded_videos: Path, shaded_encoder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """An index of ten videos is made all the same; only the calibration is missing."""
    data = str(shaded_videos / "red")
    main(["index", data, *options(shaded_encoder, tmp_path / "i")])
    assert "Not calibrated: There are 10 videos" in capsys.readouterr().err
    assert not (tmp_path / "i" / "calibration.json").exists()
    with pytest.raises(ConfigError, match="at least 20"):
        Index.open(tmp_path / "i").calibrate()
    main(
        ["index", data, *options(shaded_encoder, tmp_path / "i")]
    )  # nothing has changed, so nothing is calibrated anew
    assert "Not calibrated" not in capsys.readouterr().err


def test_an_index_can_be_left_uncalibrated(shaded_videos: Path, shaded_encoder: Path, tmp_path: Path) -> None:
    main(["index", str(shaded_videos), "--no-calibrate", *options(shaded_encoder, tmp_path / "i")])
    assert Index.open(tmp_path / "i").calibration is None
