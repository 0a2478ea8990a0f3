"""A report says what was measured, how sure it is, and on what; and refuses to overwrite."""

from __future__ import annotations

import csv
import dataclasses
import json
from pathlib import Path

import pytest

from provico.data.catalog import Catalog, Video
from provico.errors import OutputExistsError
from provico.evaluation.paper import NUM_CLASSES, PAPER_ROWS, paper_rows
from provico.evaluation.result import EvaluationReport, Prediction, ProtocolCard, Result
from provico.evaluation.statistics import Estimate

CARD = ProtocolCard(
    protocol="linear",
    data="videos",
    layout="ucf101",
    split="split 1",
    num_classes=3,
    num_train=10,
    num_test=6,
    num_failed=1,
    num_read=15,
    backbone="tiny",
    encoder="0123456789abcdef",
    dim=8,
    num_clips=10,
    num_frames=16,
    frame_step=1,
    short_side=128,
    crop="centre 112 of 128 pixels",
    seed=0,
)
TOLD = [("a", "a"), ("a", "b"), ("b", "b"), ("b", "b"), ("b", "a")]


def result_of(split: str, value: float) -> Result:
    return Result(
        card=dataclasses.replace(CARD, split=split),
        scores={"top-1": Estimate(value, value - 0.1, value + 0.1)},
        classes=("a", "b", "never tested"),
        predictions=tuple(
            Prediction(f"{number}.mp4", label, guess, 0.5) for number, (label, guess) in enumerate(TOLD)
        ),
        failed=(("broken.mp4", "no frames"),),
        notes={"learning rate": 0.1},
    )


def test_confusion_and_classes_are_counted_by_hand():
    result = result_of("split 1", 0.6)
    assert result.confusion.tolist() == [[1, 1, 0], [1, 2, 0], [0, 0, 0]]
    assert result.per_class == {"a": (2, 0.5), "b": (3, pytest.approx(2 / 3))}
    assert result.failure_line == "1 of 16 videos failed"


def test_the_folder_holds_everything(tmp_path):
    report = EvaluationReport((result_of("split 1", 0.6), result_of("split 2", 0.8)))
    report.write(tmp_path / "out")
    read = json.loads((tmp_path / "out" / "results.json").read_text())
    assert read["mean"] == {"top-1": pytest.approx(0.7)}
    first = read["splits"]["split 1"]
    assert first["scores"]["top-1"] == {"value": 0.6, "low": 0.5, "high": pytest.approx(0.7)}
    assert first["card"]["encoder"] == CARD.encoder
    assert first["failed"] == [{"video": "broken.mp4", "reason": "no frames"}]
    assert first["per_class"]["b"] == {"videos": 3, "correct": pytest.approx(2 / 3)}
    text = (tmp_path / "out" / "results.txt").read_text()
    assert "60.0 [50.0, 70.0]" in text
    assert "70.0" in text.splitlines()[1], "the mean over splits"
    assert "1 of 16 videos failed" in text
    assert "learning rate 0.1" in text
    assert "b      66.7 of 3  66.7 of 3" in text, "the share of each class"
    with (tmp_path / "out" / "predictions-split-2.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [(row["label"], row["predicted"], row["correct"]) for row in rows] == [
        (label, guess, str(int(label == guess))) for label, guess in TOLD
    ]
    picture = (tmp_path / "out" / "confusion-split-1.svg").read_text()
    for word in ("never tested", "predicted class", "true class"):
        assert word.replace(" ", "") in picture.replace(" ", "") or f"<!-- {word} -->" in picture
    with pytest.raises(OutputExistsError, match="--out"):
        report.write(tmp_path / "out")


def whole(layout: str, num_classes: int) -> Catalog:
    names = [f"class {number}" for number in range(num_classes)]
    videos = tuple(Video(Path(f"{name}.avi"), f"{name}.avi", name) for name in names)
    return Catalog(Path(), layout, videos, tuple(names))


def test_the_papers_figures_stand_only_beside_the_whole_data_set():
    rows = paper_rows("retrieval", whole("ucf101", 101))
    assert rows[0].figures == {"R@1 match": 67.6, "R@5 match": 81.4, "R@10 match": 90.1, "R@20 match": 94.7}
    assert paper_rows("retrieval", whole("ucf101", 5)) == ()
    assert paper_rows("linear", whole("class-folders", 101)) == ()
    assert {layout for _, layout in PAPER_ROWS} == set(NUM_CLASSES)
    report = EvaluationReport((result_of("split 1", 0.6),), paper_rows("linear", whole("hmdb51", 51)))
    assert "52.2" in report.table()
    assert report.summary()["paper"][0]["figures"] == {"top-1": 52.2}
