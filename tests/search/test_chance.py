"""How surprising a match is travels with its index, changes no ranking, and decides what is shown."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path

import pytest
import torch

from provico.cli import main
from provico.errors import VideoIndexError
from provico.probability.distances import DISTANCES
from provico.search.chance import Chance, evidence
from provico.search.index import Index
from provico.search.query import Filter
from provico.show import show_answer

QUERY = "red/0.mp4"


@pytest.fixture(autouse=True)
def few_are_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forty videos are too few to say anything of real ones."""
    for module in ("probability.chance", "search.chance"):
        monkeypatch.setattr(f"provico.{module}.LEAST_UNRELATED", 20)


@pytest.fixture
def index(folder: Path) -> Index:
    (folder / "chance.npz").unlink(missing_ok=True)
    return Index.open(folder)


@pytest.mark.parametrize("metric", ["match", "cosine", "bhattacharyya", "squared_euclidean_expected"])
def test_hits_and_their_order_do_not_change(index: Index, metric: str) -> None:
    shown = index.search(QUERY, k=39, metric=metric, max_chance=None)
    assert [hit.score for hit in shown.hits] == sorted((hit.score for hit in shown.hits), reverse=True)
    assert shown.chance is not None
    expected = [hit.expected_by_chance for hit in shown.hits]
    for hit in shown.hits:
        assert hit.false_match_rate is not None
        assert 0 <= hit.false_match_rate <= 1
        assert hit.expected_by_chance == pytest.approx(39 * hit.false_match_rate)
    assert shown.best_expected_by_chance == min(expected)
    limit = sum(sorted(expected)[4:6]) / 2
    fewer = index.search(QUERY, k=39, metric=metric, max_chance=limit)
    kept = [hit.id for hit in shown.hits if hit.expected_by_chance <= limit]
    assert [hit.id for hit in fewer.hits] == kept
    assert fewer.certificate == shown.certificate
    assert index.search(QUERY, k=39, metric=metric, max_chance=math.inf) == shown


def test_no_match_beyond_chance_is_an_answer(index: Index, capsys: pytest.CaptureFixture[str]) -> None:
    nothing = index.search(QUERY, max_chance=0.0)
    assert not nothing.is_confident
    assert nothing.best_expected_by_chance is not None
    show_answer(nothing, index)
    assert "No match beyond chance" in capsys.readouterr().out
    show_answer(index.search(QUERY, max_chance=None), index)
    shown = capsys.readouterr().out
    assert "by chance" in shown
    assert "right" not in shown  # which is not known
    assert re.search(rf"{QUERY} +unsure \d+ %", shown)


def test_the_number_is_of_the_videos_that_could_be_found(index: Index) -> None:
    everything = {hit.id: hit for hit in index.search(QUERY, k=39, max_chance=None).hits}
    some = index.search(QUERY, k=39, max_chance=None, filter=Filter(labels=["blue"]))
    assert some.certificate.num_allowed == 10
    for hit in some.hits:
        assert hit.false_match_rate == pytest.approx(everything[hit.id].false_match_rate)
        assert hit.expected_by_chance == pytest.approx(10 * everything[hit.id].false_match_rate)


def test_where_nothing_may_be_found_nothing_is_said(index: Index) -> None:
    nothing = index.search(QUERY, filter=Filter(min_seconds=1e6))
    assert (nothing.hits, nothing.best_expected_by_chance, nothing.best_probability) == ((), None, None)


def test_it_is_kept_with_the_index_and_measured_where_it_is_missing_or_old(
    index: Index, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured = index.search(QUERY, max_chance=None)
    assert not (folder / "chance.npz").exists()  # a reader writes nothing
    index.keep_chance()
    monkeypatch.setattr(Chance, "measured", lambda *_: pytest.fail("It is kept, so nothing is measured."))
    kept = Index.open(folder).search(QUERY, max_chance=None)
    assert [hit.id for hit in kept.hits] == [hit.id for hit in measured.hits]
    for mine, its in zip(kept.hits, measured.hits, strict=True):
        assert mine.false_match_rate == pytest.approx(its.false_match_rate, rel=1e-9)
    monkeypatch.undo()
    for module in ("probability.chance", "search.chance"):
        monkeypatch.setattr(f"provico.{module}.LEAST_UNRELATED", 20)
    old = index.chance
    Chance(old.references, old.version - 1, old.settings, {"match": None}).write(folder / "chance.npz")
    assert Index.open(folder).search(QUERY, max_chance=None).chance is not None


def test_a_damaged_file_is_an_error_with_a_way_out(index: Index, folder: Path) -> None:
    index.keep_chance()
    whole = (folder / "chance.npz").read_bytes()
    for content in (b"", b"nothing", whole[: len(whole) // 2]):
        (folder / "chance.npz").write_bytes(content)
        with pytest.raises(VideoIndexError, match=r"(?s)damaged.*provico index"):
            Index.open(folder).search(QUERY)
    (folder / "chance.npz").unlink()


def test_a_recording_is_no_part_of_its_own_null(index: Index) -> None:
    """Whatever a video scores with itself, its level is that of others."""
    some = index.chance.references
    is_other = some.is_other(some)
    assert not is_other.diagonal().any()
    assert int(is_other.sum()) == 40 * 39
    recordings = ("one",) * 20 + some.recordings[20:]
    grouped = type(some)(some.ids, recordings, some.distributions, some.samples)
    assert int(grouped.is_other(grouped).sum()) == 40 * 39 - 20 * 19


@pytest.mark.parametrize("metric", ["match", "cosine", *DISTANCES])
def test_evidence_keeps_the_order_of_scores_and_is_finite(metric: str) -> None:
    scores = {
        "match": torch.tensor([-700.0, -3.0, -1e-3, 0.0]),
        "cosine": torch.tensor([-1.0, 0.0, 0.999, 1.0]),
    }
    found = evidence(metric, scores.get(metric, torch.tensor([-1e9, -2.0, -1e-8, 0.0])))
    assert bool(found.isfinite().all())
    assert bool((found.diff() > 0).all())


def test_the_command_line_shows_it(
    shaded_videos: Path, shaded_encoder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = str(tmp_path / "i")
    fast = ["--num-clips", "2", "--num-workers", "0"]
    main(["index", str(shaded_videos), "--checkpoint", str(shaded_encoder), "--out", out, *fast])
    assert (tmp_path / "i" / "chance.npz").exists()
    capsys.readouterr()
    main(["search", out, QUERY, "--max-chance", "inf", "--k", "3", "--json"])
    (answer,) = json.loads(capsys.readouterr().out)
    assert answer["max_chance"] is None
    assert answer["chance"]["num_videos"] == 40
    assert all(hit["expected_by_chance"] >= 0 for hit in answer["hits"])
    main(["search", out, QUERY, "--max-chance", "0"])
    assert "--max-chance inf shows it anyway" in capsys.readouterr().out
