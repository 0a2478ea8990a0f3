"""The protocols from videos to reports, in Python and through the command line."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch

from provico.cli import main
from provico.config.evaluation import FeatureReading, LinearSettings, RetrievalSettings, SetsChoice
from provico.embedding.driver import embed
from provico.evaluation.protocols import evaluate_linear, evaluate_retrieval, open_all
from provico.evaluation.retrieval import retrieve

HERE = FeatureReading(num_workers=0)


def test_retrieval_gives_what_its_parts_give(encoder, demo_set, library):
    choice = SetsChoice(data=demo_set, splits=(1, 2))
    settings = RetrievalSettings(num_clips=2, metrics=("cosine", "match"))
    report = evaluate_retrieval(encoder, choice, settings=settings, reading=HERE, library=library)
    assert [result.card.split for result in report.results] == ["split 1", "split 2"]
    for result, sets in zip(report.results, open_all(choice), strict=True):
        queries, gallery = (
            embed(encoder, catalog, num_clips=2, library=library) for catalog in (sets.test, sets.train)
        )
        for metric in settings.metrics:
            alone = retrieve(queries, gallery, metric=metric, curve=encoder.match_curve(), ks=(1, 5))
            assert result.scores[f"R@1 {metric}"].value == pytest.approx(alone.recalls[1])
            assert result.scores[f"R@5 {metric}"].value == pytest.approx(alone.recalls[5])
        assert "R@50 match" not in result.scores, "there are not so many videos"
        nearest = retrieve(queries, gallery, metric="cosine", ks=(1,)).nearest[:, 0].tolist()
        assert [guess.nearest for guess in result.predictions] == [gallery.ids[place] for place in nearest]
        assert (result.card.num_train, result.card.num_test) == (len(sets.train), len(sets.test))
    values = [result.scores["R@1 cosine"].value for result in report.results]
    assert report.means["R@1 cosine"] == pytest.approx(sum(values) / 2)


def test_reports_do_not_depend_on_workers(encoder, demo_set, library):
    choice = SetsChoice(data=demo_set)
    settings = RetrievalSettings(num_clips=2)
    reports = [
        evaluate_retrieval(
            encoder, choice, settings=settings, reading=FeatureReading(num_workers=number), library=library
        ).summary()
        for number in (0, 2)
    ]
    assert reports[0] == reports[1]


def test_a_broken_test_video_is_counted_and_never_replaced(encoder, demo_set, library, tmp_path):
    folder = Path(shutil.copytree(demo_set, tmp_path / "copy"))
    choice = SetsChoice(data=folder)
    (sets,) = open_all(choice)
    sets.test[0].path.write_text("no video")
    reading = FeatureReading(num_workers=0, max_broken_share=0.5)
    settings = RetrievalSettings(num_clips=2)
    (result,) = evaluate_retrieval(
        encoder, choice, settings=settings, reading=reading, library=library
    ).results
    assert [name for name, _ in result.failed] == [sets.test[0].id]
    assert result.card.num_failed == 1
    assert len(result.predictions) == len(sets.test) - 1
    assert "1 of 18 videos failed" in result.failure_line


def test_statistics_and_weights_survive_a_probe(encoder, demo_set, library):
    before = {name: value.clone() for name, value in encoder.state_dict().items()}
    encoder.train()  # as a careless caller might leave it
    settings = LinearSettings(num_clips=2, epochs=2, learning_rates=(0.1,), held_out=0.4)
    report = evaluate_linear(
        encoder, SetsChoice(data=demo_set), settings=settings, reading=HERE, library=library
    )
    assert encoder.training
    encoder.eval()
    for name, value in encoder.state_dict().items():
        assert torch.equal(value, before[name]), name
    assert set(report.results[0].scores) == {"top-1"}


def test_the_command_line(encoder, demo_set, library, tmp_path, monkeypatch, capsys):
    encoder.save_pretrained(tmp_path / "encoder")
    monkeypatch.setenv("PROVICO_HOME", str(library.folder))

    def provico(*arguments: str | Path) -> str:
        main([*map(str, arguments)])
        return capsys.readouterr().out

    options = ["--checkpoint", tmp_path / "encoder", "--num-clips", "2", "--num-workers", "0"]
    said = provico("evaluate", "retrieval", demo_set, *options, "--out", tmp_path / "retrieval")
    assert "R@1 match" in said
    assert "0 of 18 videos failed" in said
    assert (tmp_path / "retrieval" / "results.json").is_file()
    short = ["--epochs", "2", "--held-out", "0.4", "--learning-rates", "0.1", "1.0", "--json"]
    said = provico("evaluate", "linear", demo_set, *options, *short)
    assert json.loads(said)["splits"]["split 1"]["card"]["protocol"] == "linear"
    assert "evaluate finetune" in provico("evaluate", "--help")
    with pytest.raises(SystemExit) as wrong:
        provico("evaluate", "retreival", demo_set)
    assert wrong.value.code == 2
    assert "Did you mean evaluate retrieval?" in capsys.readouterr().err
