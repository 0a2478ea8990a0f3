"""What `make demo` runs, on a set and a schedule that take seconds."""

from __future__ import annotations

import dataclasses
import shutil
from functools import partial
from pathlib import Path

import pytest

from provico import demo
from provico.config import PretrainConfig, evaluation
from provico.progress import Progress


@pytest.mark.usefixtures("without_charts")
def test_the_demo_learns_and_a_second_run_uses_what_is_there(
    demo_set: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PROVICO_HOME", str(tmp_path / "home"))

    def small_set(out: Path, *, num_workers: int | None, progress: Progress) -> None:
        shutil.copytree(demo_set, out)
        progress(18, 18)

    monkeypatch.setattr(demo, "write_demo_set", small_set)
    recipe = demo.demo_recipe()

    def small_recipe() -> PretrainConfig:
        return dataclasses.replace(
            recipe,
            model=dataclasses.replace(recipe.model, size=32, num_frames=4, dim=16, hidden_dim=16),
            optimiser=dataclasses.replace(recipe.optimiser, epochs=2, batch_size=6),
            mining=dataclasses.replace(recipe.mining, mine_from=1),
        )

    monkeypatch.setattr(demo, "demo_recipe", small_recipe)
    monkeypatch.setattr(evaluation, "LinearSettings", partial(evaluation.LinearSettings, epochs=4))
    demo.run(tmp_path / "demo", num_workers=1)
    said = capsys.readouterr().out
    assert "12 videos to train on, 6 to test on" in said
    assert "Bounce, Orbit." in said
    assert "finished" in said
    assert "R@1 match" in said
    assert "linear probe" in said
    assert "0 of 18 videos failed." in said
    assert "18 videos added" in said
    assert "Exact: " in said
    assert "provico serve" in said  # how to go on
    for name in (
        "clips.jpg",
        "scan/manifest.csv",
        "run/report.html",
        "run/encoder/model.safetensors",
        "index/index.json",
    ):
        assert (tmp_path / "demo" / name).is_file(), name
    weights = (tmp_path / "demo/run/encoder/model.safetensors").read_bytes()
    demo.run(tmp_path / "demo", num_workers=1)
    assert (tmp_path / "demo/run/encoder/model.safetensors").read_bytes() == weights


def test_the_demo_trains_for_long_enough_to_mine() -> None:
    recipe = demo.demo_recipe(seed=3)
    assert recipe.run.seed == 3
    assert recipe.mining.mine_from is not None
    assert recipe.mining.mine_from < recipe.optimiser.epochs
