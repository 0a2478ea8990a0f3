"""Every experiment by name, at the smallest size, through the same code as at any other."""

from __future__ import annotations

import csv
import dataclasses
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
from matplotlib.image import imread
from scipy import integrate

from provico.cli import main
from provico.data.library import Library
from provico.errors import ConfigError
from provico.recipes import find_recipe
from provico.reproduce.bench import Bench
from provico.reproduce.distance_example import PAIRS, distance
from provico.reproduce.experiment import Preset
from provico.reproduce.knobs import turn_batch, turn_beta, turn_clips, turn_samples
from provico.reproduce.qualitative import NUM_FOUND
from provico.reproduce.reproduce import EXPERIMENTS, find_experiments, reproduce
from provico.reproduce.settings import starting_point
from provico.reproduce.uncertainty import NUM_BINS, binned

pytestmark = pytest.mark.usefixtures("rough_intervals")


@pytest.fixture(scope="module")
def rough_intervals() -> Iterator[None]:
    """Of few resamples: nothing here depends on how exact they are."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("provico.evaluation.statistics.NUM_RESAMPLES", 100)
        yield


AXES = {
    "distance-example": ("Density (1 / unit of z)", "z (embedding coordinate)"),
    "qualitative": ("x (pixels)",),
}
UNITS = ("(%)", "(variance)", "(pixels)", "(multiple of the untouched)", "(σ of prior)", "(1 / unit of z)")


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_experiment_runs_at_smoke(name: str, videos: Path, out: Path, library: Library):
    (finding,) = reproduce(name, preset="smoke", data=videos, out=out, library=library)
    expected = "reproduced" if name == "distance-example" else "cannot be tested here"
    assert finding.verdict == expected
    assert imread(out / f"{name}.png").ndim == 3
    svg = (out / f"{name}.svg").read_text()
    words = " ".join(re.sub(r"<[^>]+>", " ", svg).split())
    assert any(unit in words for unit in UNITS)
    assert " ".join(finding.result.caption.split()[:6]) in words
    with (out / f"{name}.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert rows
    assert finding.result.checks
    stored = json.loads((out / f"{name}.json").read_text())
    assert stored["claim"] == EXPERIMENTS[name].claim
    assert len(stored["rows"]) == len(rows)
    page = (out / "report.html").read_text()
    assert f'<section id="{name}">' in page
    assert stored["command"].startswith(f"provico reproduce {name} --preset smoke")


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_experiment_says_what_it_tests(name: str):
    experiment = EXPERIMENTS[name]
    assert set(experiment.sizes) == set(get_args(Preset))
    assert experiment.claim.endswith(".")
    assert experiment.rule.startswith("Reproduced if")
    assert experiment.source.startswith(("Table", "Figure"))


def test_the_preset_paper_is_the_papers_recipe(tmp_path):
    for experiment in EXPERIMENTS.values():
        size = experiment.sizes["paper"]
        if not experiment.needs_data:
            continue
        bench = Bench(tmp_path, tmp_path, preset="paper", size=size)
        changes = starting_point(bench, seed=0).differences(find_recipe("paper"))
        assert set(changes) <= {"model.backbone"}, experiment.name
        assert size.is_evidence


@pytest.mark.parametrize(
    ("turn", "value", "changed"),
    [
        (turn_beta, 1e-2, {"objective.kl_weight": 1e-2}),
        (turn_samples, 5, {"objective.num_samples": 5}),
        (turn_clips, 3, {"views.num_clips": 3, "optimiser.batch_size": 40}),
        (turn_batch, 24, {"optimiser.batch_size": 24}),
    ],
)
def test_a_knob_turns_one_thing(turn, value, changed):
    paper = find_recipe("paper")
    found = {name: new for name, (new, _) in turn(paper, value).differences(paper).items()}
    assert found == changed


def test_mining_by_neighbours_keeps_their_share_of_the_batch(tmp_path):
    bench = Bench(tmp_path, tmp_path, preset="cpu", size=EXPERIMENTS["batch"].sizes["cpu"])
    config = starting_point(bench, seed=0)
    assert config.mining.mutual_top == 4  # 12 of 256
    assert turn_batch(config, 24).mining.mutual_top == 1


def test_an_interrupted_experiment_goes_on_where_it_stopped(videos: Path, library: Library, tmp_path: Path):
    steps = []

    def interrupt(done: int, total: int, note: str = "") -> None:
        steps.append(note)
        if sum("loss" in note for note in steps) == 4:  # each run has two steps: in the second run
            raise KeyboardInterrupt

    options = {"preset": "smoke", "data": videos, "out": tmp_path, "library": library}
    with pytest.raises(KeyboardInterrupt):
        reproduce("mining", **options, progress=interrupt)
    (first,) = (tmp_path / "runs").glob("measured-*.json")
    written = first.stat().st_mtime_ns
    assert not (tmp_path / "mining.json").exists()
    (finding,) = reproduce("mining", **options)
    assert first.stat().st_mtime_ns == written
    assert len(list((tmp_path / "runs").glob("measured-*.json"))) == 2
    again = []
    (same,) = reproduce("mining", **options, progress=lambda done, total, note="": again.append(note))
    assert not again  # nothing is trained or embedded a second time
    assert same.summary() == finding.summary()


def test_seeds_can_be_chosen(tmp_path: Path):
    (finding,) = reproduce("distance-example", preset="smoke", out=tmp_path, seeds=(1, 2))
    assert finding.size.seeds == (1, 2)
    assert finding.command.endswith("--seeds 1 2")


def test_the_example_agrees_with_the_integral():
    for first, second in PAIRS.values():

        def root(z, first=first, second=second):
            return np.prod(
                [
                    np.exp(-((z - m) ** 2) / (4 * s * s)) / (2 * np.pi * s * s) ** 0.25
                    for m, s in (first, second)
                ]
            )

        overlap, _ = integrate.quad(root, -20, 20)
        assert distance("bhattacharyya", first, second) == pytest.approx(-np.log(overlap), abs=1e-6)


def test_bins_hold_every_video_once():
    rng = np.random.default_rng(0)
    doubt, right = rng.normal(size=97), (rng.random(97) < 0.7).astype(float)
    for kind in ("equal width", "equal count"):
        bins = binned(doubt, right, kind)
        assert len(bins) == NUM_BINS
        assert sum(count for *_, count in bins) == 97
        assert sum(share * count for _, share, count in bins if count) == pytest.approx(right.sum())
        middles = [middle for middle, _, count in bins if count]
        assert middles == sorted(middles)
    counts = [count for *_, count in binned(doubt, right, "equal count")]
    assert max(counts) - min(counts) <= 1


def test_wrong_neighbours_are_marked(videos: Path, out: Path, library: Library):
    experiment = EXPERIMENTS["qualitative"]
    bench = Bench(videos, out, preset="smoke", size=experiment.sizes["smoke"], library=library)
    result = experiment.run(bench)
    row = result.rows[0]
    for rank in range(1, NUM_FOUND + 1):
        found = str(row[f"nearest {rank}"])
        assert found.endswith("(wrong)") == (found.split("/")[0] != row["class"])
    num_wrong = sum("(wrong)" in str(value) for row in result.rows for value in row.values())
    thick = [
        axis
        for axis in result.figure.axes
        if axis.spines["left"].get_linewidth() == 3  # red frames
    ]
    assert len(thick) == num_wrong


def test_the_list_names_every_claim(capsys: pytest.CaptureFixture[str]):
    main(["reproduce", "--list", "--json"])
    listed = json.loads(capsys.readouterr().out)
    assert [each["name"] for each in listed] == list(EXPERIMENTS)
    assert all(each["claim"] for each in listed)
    main(["reproduce", "--list"])
    assert "masked-clips" in capsys.readouterr().out


def test_the_command_writes_and_tells(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    main(["reproduce", "distance-example", "--preset", "smoke", "--out", str(tmp_path)])
    assert "distance-example: reproduced" in capsys.readouterr().out
    assert (tmp_path / "report.html").is_file()
    main(["reproduce", "distance-example", "--out", str(tmp_path), "--json"])
    assert json.loads(capsys.readouterr().out)[0]["verdict"] == "reproduced"


def test_mistakes_are_explained(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    with pytest.raises(ConfigError, match=r"Did you mean mining\?"):
        find_experiments("minning")
    with pytest.raises(ConfigError, match="needs its data: UCF101"):
        reproduce("beta", preset="paper", out=tmp_path)
    with pytest.raises(SystemExit):
        main(["reproduce"])
    assert "provico reproduce --list" in capsys.readouterr().err


def test_an_experiment_is_a_value():
    with pytest.raises(dataclasses.FrozenInstanceError):
        EXPERIMENTS["beta"].claim = "another"
