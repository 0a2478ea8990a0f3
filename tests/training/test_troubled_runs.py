"""When a run goes wrong it is stopped or rewound and the reason given, and broken videos are named."""

from __future__ import annotations

import math
import shutil

import pytest
import torch

from provico.data.catalog import open_catalog
from provico.errors import UnhealthyRunError
from provico.files import is_disk_full
from provico.models.saved import checkpoints, load_checkpoint, save_checkpoint
from provico.probability import PARAMETRISATIONS, Parametrisation
from provico.training import trainer
from provico.training.objective import OBJECTIVES, Objective, Outcome, Provico
from provico.training.pretrain import pretrain

from ..full_disk import files_of_at_most
from .small_run import SMALL, changed, losses

pytestmark = pytest.mark.usefixtures("without_charts")


def poisoned(at_calls: set[int], poison):
    """The objective of ProViCo, which some of its calls poison."""
    calls = iter(range(10**6))

    def loss(videos, step) -> Outcome:
        outcome = Provico()(videos, step)
        return poison(outcome) if next(calls) in at_calls else outcome

    return Objective(loss=loss)


def with_nan(outcome: Outcome) -> Outcome:
    return Outcome(outcome.loss * float("nan"), outcome.parts, outcome.pairs)


def test_a_loss_that_is_not_finite_stops_the_run_at_once(tmp_path, catalog, library, monkeypatch):
    monkeypatch.setitem(OBJECTIVES, "provico", poisoned({4}, with_nan))
    with pytest.raises(UnhealthyRunError, match=r"not finite at step 4.*Lower --learning-rate"):
        pretrain(catalog, out=tmp_path / "run", config=SMALL, library=library)
    (checkpoint,) = checkpoints(tmp_path / "run" / "checkpoints")
    state = load_checkpoint(checkpoint)["trainer"]["encoder"]
    assert all(bool(value.isfinite().all()) for value in state.values() if value.is_floating_point())


def test_a_run_rewinds_if_asked(tmp_path, catalog, library, monkeypatch):
    monkeypatch.setitem(OBJECTIVES, "provico", poisoned({4}, with_nan))
    said: list[str] = []
    config = changed(SMALL, run={"on_unhealthy": "rewind"})
    report = pretrain(catalog, out=tmp_path / "run", config=config, library=library, announce=said.append)
    assert report.is_finished
    assert any("Rewinding to step 3 at 0.5 times the learning rate" in text for text in said)
    records = losses(tmp_path / "run")
    assert [record["step"] for record in records] == list(range(1, 9))
    state = load_checkpoint(checkpoints(tmp_path / "run" / "checkpoints")[-1])
    assert state["trainer"]["rate_factor"] == 0.5


def test_a_run_does_not_rewind_for_ever(tmp_path, catalog, library, monkeypatch):
    monkeypatch.setitem(OBJECTIVES, "provico", poisoned(set(range(4, 100)), with_nan))
    config = changed(SMALL, run={"on_unhealthy": "rewind"})
    with pytest.raises(UnhealthyRunError, match="rewound 3 times already"):
        pretrain(catalog, out=tmp_path / "run", config=config, library=library)


def test_a_collapse_stops_the_run(tmp_path, catalog, library, monkeypatch):
    """A head whose weights are zero maps every clip to one point."""
    build = trainer.Trainer.__init__

    def collapsed(self, encoder, *arguments, **options):
        with torch.no_grad():
            for parameter in encoder.head.mean.layers.parameters():
                parameter.zero_()
            encoder.head.mean.layers[0].bias[0] = 1.0
        build(self, encoder, *arguments, **options)

    monkeypatch.setattr(trainer.Trainer, "__init__", collapsed)
    config = changed(SMALL, optimiser={"epochs": 10, "learning_rate": 1e-9, "warmup_epochs": 0})
    with pytest.raises(UnhealthyRunError, match=r"the means have collapsed.*--learning-rate"):
        pretrain(catalog, out=tmp_path / "run", config=config, library=library)


def test_the_literal_paper_collapses_and_is_stopped(tmp_path, catalog, library, monkeypatch):
    """Unit means, unit variance, a = b = 5: sampling noise hides the means (docs/decisions/0003)."""
    literal = Parametrisation(
        mean_length="unit",
        variance_unit="absolute",
        initial_variance=1.0,
        variance_bounds=(math.exp(-40.0), math.exp(40.0)),
        curve_slope=5.0,
        curve_offset=5.0,
    )
    monkeypatch.setitem(PARAMETRISATIONS, "literal", literal)
    monkeypatch.setitem(OBJECTIVES, "literal", Provico(self_pairs="keep").as_objective())
    config = changed(
        SMALL,
        model={"parametrisation": "literal", "dim": 128},
        objective={"method": "literal"},
        mining={"mine_from": None},
        optimiser={"epochs": 30},
    )
    with pytest.raises(UnhealthyRunError, match=r"noise dominates the signal.*--parametrisation sqrt_dim"):
        pretrain(catalog, out=tmp_path / "run", config=config, library=library)


def test_broken_videos_are_counted_and_named(tmp_path, videos, library):
    folder = tmp_path / "videos"
    folder.mkdir()
    for number, path in enumerate(sorted(videos.rglob("*.mp4"))[:7]):
        shutil.copy(path, folder / f"{number}.mp4")
    (folder / "broken.mp4").write_bytes(b"this is no video")
    config = changed(SMALL, optimiser={"batch_size": 4, "epochs": 2}, run={"max_broken_share": 0.2})
    report = pretrain(open_catalog(folder), out=tmp_path / "run", config=config, library=library)
    assert report.num_broken == 1
    text = (tmp_path / "run" / "bad_videos.csv").read_text()
    assert text.splitlines()[1].startswith("broken.mp4,")
    assert "monitor/recall_at_1" not in losses(tmp_path / "run")[-1]  # no labels, no monitor


def test_a_full_disk_is_said_as_such_by_a_checkpoint(tmp_path):
    state = {"weights": torch.ones(100_000)}
    with files_of_at_most(5000), pytest.raises(OSError) as raised:  # noqa: PT011
        save_checkpoint(tmp_path, state, step=1, keep=1)
    assert is_disk_full(raised.value)
    assert checkpoints(tmp_path) == []
    assert [*tmp_path.iterdir()] == []
    save_checkpoint(tmp_path, state, step=1, keep=1)
    assert len(checkpoints(tmp_path)) == 1
