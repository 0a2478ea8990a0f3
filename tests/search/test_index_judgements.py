"""Judgements of an index: from the command line to answers that are withheld."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
import torch

from provico.cli import main
from provico.errors import ConfigError, VideoIndexError
from provico.search.index import Index
from provico.search.judgements import Judgement
from provico.search.query import Filter

QUERIES = ["red/0.mp4", "blue/3.mp4", "grey/9.mp4"]


@pytest.fixture
def index(folder: Path) -> Index:
    for name in ("calibration.json", "judgements.csv", "lots.json"):
        (folder / name).unlink(missing_ok=True)
    return Index.open(folder)


def by_label(query: str, hit: str) -> Judgement:
    is_right = query.split("/")[0] == hit.split("/")[0]
    return Judgement(query=query, hit=hit, verdict="right" if is_right else "wrong")


def test_a_guarantee_without_judgements_is_refused_with_the_way_to_them(index: Index) -> None:
    with pytest.raises(ConfigError, match=r"--max-error 0\.1 needs .* at least 30 .*select.*judge"):
        index.search(QUERIES[0], max_error=0.1)
    for more in ({"metric": "cosine"}, {"filter": Filter(labels=["red"])}, {"exclude_same": "nothing"}):
        with pytest.raises(ConfigError, match="Leave out"):
            index.search(QUERIES[0], max_error=0.1, **more)  # type: ignore[arg-type]


def test_the_command_line_draws_judges_and_answers(
    index: Index, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "judge.csv"
    folder = str(index.path)
    main(["select", folder, "--num", "40", "--by-lot", "--max-error", "0.5", "--out", str(out)])
    rows = list(csv.DictReader(out.read_text().splitlines()))
    assert len({row["query"] for row in rows}) == 40
    for row in rows:
        row["verdict"] = by_label(row["query"], row["hit"]).verdict
    with out.open("w", newline="") as file:
        writer = csv.DictWriter(file, ["query", "hit", "verdict"])
        writer.writeheader()
        writer.writerows(rows)
    capsys.readouterr()
    main(["judge", folder, str(out), "--json"])
    judged = json.loads(capsys.readouterr().out)
    assert (judged["imported"], judged["judged"]) == (40, 40)
    assert judged["calibration"]["source"] == "judgements"
    main(["search", folder, *QUERIES, "--max-error", "0.9", "--json"])
    answers = json.loads(capsys.readouterr().out)
    assert all(answer["max_error"] == 0.9 for answer in answers)
    assert all((answer["withheld"] is None) == bool(answer["hits"]) for answer in answers)
    assert any(answer["hits"] for answer in answers)
    with pytest.raises(SystemExit):
        main(["search", folder, QUERIES[0], "--max-error", "0.01"])
    assert "--max-error 0.01 needs judgements of at least" in capsys.readouterr().err


def test_an_answer_is_that_of_other_recordings_or_withheld_with_a_reason(index: Index) -> None:
    for proposal in index.select(num=40, by_lot=True, max_error=0.5):
        index.judge([by_label(proposal.query, proposal.hit)])
    plain = index.search_many(QUERIES, k=3, exclude_same="group")
    kept = index.search_many(QUERIES, k=3, max_error=0.9)
    for one, other in zip(plain, kept, strict=True):
        assert other.withheld is None
        assert other.hits == one.hits
    with_few = index.search_many(QUERIES, k=3, max_error=0.1)
    for answer in with_few:
        if answer.withheld is not None:
            assert answer.hits == ()
            assert answer.withheld.startswith("withheld: ")
            assert answer.best_log_probability is not None


def test_labels_give_a_guarantee_with_the_calibration(index: Index) -> None:
    assert index.calibrate(source="labels").source == "labels"
    promised = index.promise(0.9)
    assert promised.lot.origin == "labels"
    assert promised.coverage > 0
    assert "labels" in promised.in_words()


def test_judgements_are_preferred_to_labels_and_give_the_same_where_they_agree(index: Index) -> None:
    answers = index.search_many([*index.ids], k=10, exclude_same="group")
    index.judge(by_label(answer.query, hit.id) for answer in answers for hit in answer.hits)
    by_judgement = index.calibrate()
    by_labels = index.calibrate(source="labels")
    assert by_judgement.source == "judgements"
    log_probability = torch.linspace(-3, 0, 9, dtype=torch.float64)
    assert torch.allclose(
        by_judgement.probability(log_probability), by_labels.probability(log_probability), atol=1e-6
    )
    assert by_judgement.num_pairs == by_labels.num_pairs == 400


def test_few_judgements_leave_the_calibration_to_labels(
    index: Index, capsys: pytest.CaptureFixture[str]
) -> None:
    index.judge([by_label("red/0.mp4", "red/1.mp4")])
    assert index.calibrate().source == "labels"
    with pytest.raises(ConfigError, match="1 hits of the index are judged right and 0 wrong"):
        index.calibrate(source="judgements")
    with pytest.raises(SystemExit):
        main(["calibrate", str(index.path), "--source", "judgements"])
    assert "1 hits of the index are judged right" in capsys.readouterr().err
    with pytest.raises(VideoIndexError, match=r"none\.mp4"):
        index.judge([by_label("red/0.mp4", "red/1.mp4"), by_label("red/0.mp4", "none.mp4")])
    assert len(index.judgements.read().current) == 1


def test_select_names_queries_with_their_best_hits(
    index: Index, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    main(["select", str(index.path), "--num", "5", "--json"])
    found = json.loads(capsys.readouterr().out)
    assert [one["is_drawn"] for one in found] == [False] * 5
    for one in found:
        assert index.search(one["query"], k=1, exclude_same="group").hits[0].id == one["hit"]
    (tmp_path / "there.csv").touch()
    with pytest.raises(SystemExit):
        main(["select", str(index.path), "--out", str(tmp_path / "there.csv")])
    assert "exists already" in capsys.readouterr().err
    with pytest.raises(ConfigError, match=r"recordings would be drawn, but at least"):
        index.select(num=10, by_lot=True, max_error=0.1)
