"""Verdicts follow from numbers, by the rule and nothing else."""

from __future__ import annotations

import csv
import dataclasses
import json
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from provico.evaluation.statistics import Estimate
from provico.reproduce.bench import Bench
from provico.reproduce.experiment import Check, Experiment, ExperimentResult, Preset, Size, judge
from provico.reproduce.figures import add_axes, new_figure
from provico.reproduce.report import write_report
from provico.reproduce.reproduce import run_experiment

ABOVE, AROUND, BELOW = Estimate(2.0, 0.5, 3.5), Estimate(2.0, -0.5, 4.5), Estimate(-2.0, -3.5, -0.5)


def check(estimate: Estimate | None, obstacle: str = "", paper: float | None = None) -> Check:
    return Check("apples beat pears", estimate, obstacle=obstacle, paper=paper)


def test_an_interval_above_zero_reproduces():
    verdict, sentence = judge([check(ABOVE)])
    assert verdict == "reproduced"
    assert sentence == "Apples beat pears: 2 [0.5, 3.5] points."


@pytest.mark.parametrize(("paper", "end"), [(None, "such tests."), (2.0, "not."), (9.0, "would.")])
def test_an_interval_around_zero_says_what_would_have_been_seen(paper, end):
    verdict, sentence = judge([check(ABOVE), check(AROUND, paper=paper)])
    assert verdict == "not visible here"
    assert "an effect of 3.6 would be detected in 80 %" in sentence  # (1.96 + 0.84) / 1.96 of half its width
    assert sentence.endswith(end)


def test_an_interval_below_zero_refutes():
    verdict, sentence = judge([check(AROUND), check(BELOW)])
    assert verdict == "refuted"
    assert "the opposite" in sentence
    assert judge([check(ABOVE), check(Estimate(0.0, 0.0, 0.0))])[0] == "refuted"


def test_what_could_not_be_measured_cannot_be_tested():
    verdict, sentence = judge([check(ABOVE), check(None, "there is one seed")])
    assert verdict == "cannot be tested here"
    assert sentence == "Apples beat pears: unknown, since there is one seed."


def test_one_failed_part_refutes_whatever_is_unknown():
    assert judge([check(None, "there is one seed"), check(BELOW)])[0] == "refuted"


def test_missing_data_comes_before_all_numbers():
    assert judge([check(ABOVE)], obstacle="there are 12 videos") == (
        "cannot be tested here",
        "There are 12 videos.",
    )


def test_nothing_measured_proves_nothing():
    assert judge([])[0] == "cannot be tested here"


@given(st.lists(st.tuples(st.floats(-5, 5), st.floats(0, 5)), min_size=1, max_size=5))
def test_reproduced_means_that_every_interval_is_above_zero(parts):
    checks = [check(Estimate(value, value - half, value + half)) for value, half in parts]
    verdict, _ = judge(checks)
    assert (verdict == "reproduced") == all(value - half > 0 for value, half in parts)


def experiment_with(result_checks, **options) -> Experiment:
    def run(bench: Bench) -> ExperimentResult:
        figure = new_figure("A caption with a <sign>.")
        (axis,) = add_axes(figure)
        axis.set_xlabel("Fruit (kg)")
        axis.set_ylabel("Taste (points)")
        rows = [{"fruit": "apple", "taste": 2.0, "paper": 3}, {"fruit": "pear", "taste": float("nan")}]
        return ExperimentResult(
            rows=rows, checks=result_checks, figure=figure, caption="A caption with a <sign>."
        )

    return Experiment(
        name="beta",
        title="Fruit",
        source="Table 9",
        claim="Apples & pears differ.",
        rule="Taste.",
        sizes=dict.fromkeys(get_args(Preset), Size(**options)),
        run=run,
        needs_data=False,
    )


def test_files_and_report_hold_the_finding(tmp_path):
    experiment = experiment_with([check(ABOVE)])
    bench = Bench(tmp_path, tmp_path, preset="cpu", size=experiment.sizes["cpu"])
    finding = run_experiment(experiment, bench, command="provico reproduce beta")
    finding.write(tmp_path)
    written = json.loads((tmp_path / "beta.json").read_text())
    assert written["verdict"] == "reproduced"
    assert written["rows"][1]["taste"] is None  # JSON has no nan
    with (tmp_path / "beta.csv").open() as file:
        assert next(csv.DictReader(file)) == {"fruit": "apple", "taste": "2.0", "paper": "3"}
    svg = (tmp_path / "beta.svg").read_text()
    assert "Fruit (kg)" in svg
    assert "Taste (points)" in svg
    assert "A caption with a" in svg
    page = write_report(tmp_path, ["beta"]).read_text()
    for text in (
        "1 reproduced, 0 refuted",
        "Apples &amp; pears differ.",
        "A caption with a &lt;sign&gt;",
    ):
        assert text in page
    assert 'src="http' not in page
    assert page == write_report(tmp_path, ["beta"]).read_text()


def test_a_size_that_proves_nothing_gets_no_other_verdict(tmp_path):
    experiment = experiment_with([check(ABOVE)], is_evidence=False)
    bench = Bench(tmp_path, tmp_path, preset="smoke", size=experiment.sizes["smoke"])
    finding = run_experiment(experiment, bench, command="")
    assert finding.verdict == "cannot be tested here"
    assert "too small" in finding.sentence


def test_findings_are_not_lost_on_a_reader_of_json(tmp_path):
    experiment = experiment_with([check(None, "of the weather")])
    bench = Bench(tmp_path, tmp_path, preset="cpu", size=experiment.sizes["cpu"])
    summary = run_experiment(experiment, bench, command="").summary()
    assert summary["checks"] == [
        {
            "statement": "apples beat pears",
            "estimate": None,
            "unit": "points",
            "paper": None,
            "detectable": None,
            "holds": None,
        }
    ]
    assert summary["size"] == dataclasses.asdict(experiment.sizes["cpu"]) | {"seeds": (0,), "splits": (1,)}


def test_figures_are_the_same_bytes_each_time(tmp_path):
    pictures = []
    for _ in range(2):
        experiment = experiment_with([])
        bench = Bench(tmp_path, tmp_path, preset="cpu", size=experiment.sizes["cpu"])
        run_experiment(experiment, bench, command="").write(tmp_path)
        pictures.append([(tmp_path / f"beta.{kind}").read_bytes() for kind in ("png", "svg")])
    assert pictures[0] == pictures[1]


def test_estimates_are_values():
    assert str(Estimate(1.23456, -0.5, 3)) == "1.23 [-0.5, 3]"
    with pytest.raises(dataclasses.FrozenInstanceError):
        ABOVE.value = 3.0
