"""Doubts and probabilities are judged by what came true, and rivals that win are named."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from matplotlib.image import imread

from provico.cli import main
from provico.errors import ConfigError
from provico.evaluation.uncertainty import JudgedProbability, UncertaintyEvaluation, judge_doubts
from provico.evaluation.uncertainty_report import summary, table, write
from provico.metrics import aurc
from provico.probability.calibration import CalibrationQuality
from provico.probability.reliability import reliability


def evaluation(*, is_uncertainty_good: bool, is_rival_good: bool, num: int = 200) -> UncertaintyEvaluation:
    """Doubts that know which queries are wrong, or do not."""
    generator = torch.Generator().manual_seed(0)
    correct = torch.rand(num, generator=generator) < 0.7
    noise, other = torch.rand(2, num, generator=generator, dtype=torch.float64)
    doubts = {
        "uncertainty": noise + 2 * (~correct) * is_uncertainty_good,
        "dark": other + 2 * (~correct) * is_rival_good,
    }
    groups = [str(number // 2) for number in range(num)]
    probability = torch.full((num,), 0.7)
    return UncertaintyEvaluation(
        doubts=judge_doubts(doubts, correct, groups, num_resamples=200),
        probabilities=(
            JudgedProbability(
                name="match probability",
                quality=CalibrationQuality.of(torch.logit(probability), correct),
                mean_probability=0.7,
                bins=reliability(probability, correct),
            ),
        ),
        num_queries=num,
        num_errors=int((~correct).sum()),
        num_groups=num // 2,
        num_failed=0,
        hit_share=float(correct.double().mean()),
        least_aurc=aurc((~correct).double(), correct),
        about="made up",
    )


def test_a_doubt_that_knows_is_said_to_know() -> None:
    found = evaluation(is_uncertainty_good=True, is_rival_good=False)
    uncertainty, dark = found.doubts
    assert (uncertainty.kind, dark.kind) == ("ours", "rival")
    assert uncertainty.auroc.value == 1
    assert uncertainty.excess.value == pytest.approx(0)
    assert dark.auroc.low < 0.5 < dark.auroc.high
    assert dark.advantage.high < 0
    assert found.verdicts[0].startswith("The uncertainty predicts errors")
    assert found.verdicts[1] == "No trivial baseline is better."


def test_a_rival_that_wins_is_named() -> None:
    found = evaluation(is_uncertainty_good=False, is_rival_good=True)
    assert found.verdicts[0].startswith("There is no evidence")
    assert '"dark" is better' in found.verdicts[1]
    assert "not beyond chance" not in found.verdicts[1]
    assert "beyond chance" in found.verdicts[1]


def test_a_doubt_that_misleads_is_said_to_mislead() -> None:
    found = evaluation(is_uncertainty_good=True, is_rival_good=False)
    correct = torch.rand(100, generator=torch.Generator().manual_seed(1)) < 0.6
    doubts = judge_doubts({"uncertainty": correct.double()}, correct, [None] * 100, num_resamples=50)
    assert "is misleading" in replace(found, doubts=doubts).verdicts[0]


def test_without_errors_nothing_is_claimed() -> None:
    found = replace(evaluation(is_uncertainty_good=True, is_rival_good=False), num_errors=0)
    assert found.verdicts == ("0 of 200 queries are wrong: nothing can be predicted.",)
    with pytest.raises(ConfigError, match="not among those given"):
        judge_doubts({"dark": torch.rand(3)}, torch.tensor([True, False, True]), ["a"] * 3, num_resamples=2)


def test_intervals_are_by_group() -> None:
    """Copies of a query tell nothing new: with their groups, intervals stay as wide as without the copies."""
    generator = torch.Generator().manual_seed(2)
    correct = torch.rand(40, generator=generator) < 0.6
    doubt = torch.rand(40, generator=generator) + 0.3 * (~correct)
    names = [str(number) for number in range(40)]
    (alone,) = judge_doubts({"uncertainty": doubt}, correct, names, num_resamples=300)
    copied = [value.repeat_interleave(5) for value in (doubt, correct)]
    (grouped,) = judge_doubts(
        {"uncertainty": copied[0]}, copied[1], [name for name in names for _ in range(5)], num_resamples=300
    )
    (apart,) = judge_doubts({"uncertainty": copied[0]}, copied[1], [None] * 200, num_resamples=300)
    assert (grouped.auroc.low, grouped.auroc.high) == pytest.approx((alone.auroc.low, alone.auroc.high))
    assert apart.auroc.high - apart.auroc.low < 0.7 * (grouped.auroc.high - grouped.auroc.low)


def test_files_hold_what_was_found(tmp_path: Path) -> None:
    found = evaluation(is_uncertainty_good=True, is_rival_good=False)
    write(found, tmp_path / "out")
    assert json.loads((tmp_path / "out" / "results.json").read_text()) == summary(found)
    assert (tmp_path / "out" / "results.txt").read_text() == table(found)
    rows = list(csv.DictReader((tmp_path / "out" / "doubts.csv").read_text().splitlines()))
    assert [float(row["auroc"]) for row in rows] == [doubt.auroc.value for doubt in found.doubts]
    risks = list(csv.DictReader((tmp_path / "out" / "risk_coverage.csv").read_text().splitlines()))
    assert float(risks[-1]["coverage"]) == 1
    assert float(risks[-1]["dark"]) == pytest.approx(found.num_errors / found.num_queries)
    assert imread(tmp_path / "out" / "figure.png").std() > 0.05


def test_command_line(
    shaded_videos: Path, shaded_encoder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--hold-out", "0.3", "--num-clips", "2", "--num-resamples", "50", "--num-workers", "0"]
    main(
        [
            "evaluate",
            "uncertainty",
            str(shaded_videos),
            "--checkpoint",
            str(shaded_encoder),
            "--out",
            str(tmp_path / "o"),
            *options,
        ]
    )
    shown = capsys.readouterr().out
    found = json.loads((tmp_path / "o" / "results.json").read_text())
    assert found["num_queries"] == 12
    names = {doubt["name"] for doubt in found["doubts"]}
    rivals = {"dark", "little motion", "short", "small feature norm", "far from its nearest"}
    assert names == {"uncertainty", "disagreement", "total uncertainty", "low match probability"} | rivals
    assert {one["name"] for one in found["probabilities"]} >= {
        "match probability",
        "calibrated (labels)",
    }
    for name in names:
        assert name in shown
    assert all(line in shown for line in found["verdicts"])
