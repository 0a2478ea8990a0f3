"""Encoders are built as settings ask, and weights are taken from where they are."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch

from provico.config import ModelSettings, PretrainConfig
from provico.errors import ConfigError, WeightsError
from provico.models import Encoder, encoder_hash
from provico.models.saved import build_encoder, find_encoder, open_encoder, save_checkpoint

SMALL = ModelSettings(backbone="tiny", size=32, num_frames=5, dim=16, motion=True)


def test_settings_that_are_not_given_are_those_of_the_backbone():
    encoder = build_encoder(ModelSettings(backbone="tiny"))
    assert (encoder.config.input.size, encoder.config.input.motion) == (64, False)
    encoder = build_encoder(SMALL)
    assert (encoder.config.input.size, encoder.config.input.num_frames) == (32, 5)
    assert encoder.config.input.motion
    assert encoder.config.input.frame_step == 2


def encoder_state(encoder: Encoder) -> dict[str, object]:
    return {"encoder": encoder.own_state_dict(), "encoder_config": encoder.config.to_json()}


def write_run(folder: Path, *steps: int) -> list[Encoder]:
    """A run with the checkpoint of another encoder at each of these steps."""
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(PretrainConfig(model=SMALL).to_dict()))
    encoders = []
    for step in steps:
        torch.manual_seed(step)
        encoders.append(build_encoder(SMALL))
        state = {"trainer": {"step": step, **encoder_state(encoders[-1])}}
        save_checkpoint(folder / "checkpoints", state, step=step, keep=9)
    return encoders


def test_an_encoder_is_found_wherever_a_run_left_it(tmp_path):
    run = tmp_path / "run"
    older, newer = write_run(run, 3, 8)
    first, last = sorted((run / "checkpoints").iterdir())
    assert find_encoder(run).kind == "run"
    assert find_encoder(run).is_checkpoint
    found = open_encoder(run)
    assert not found.training
    assert encoder_hash(found) == encoder_hash(open_encoder(last)) == encoder_hash(newer)
    assert encoder_hash(open_encoder(str(first))) == encoder_hash(older)
    # Once it is finished its encoder counts.
    build_encoder(SMALL).save_pretrained(run / "encoder")
    for path in (run, run / "encoder"):
        expected = Encoder.from_pretrained(run / "encoder")
        assert encoder_hash(open_encoder(path)) == encoder_hash(expected) != encoder_hash(newer)
    assert not find_encoder(run).is_checkpoint
    assert find_encoder(run / "encoder").kind == "encoder"
    assert find_encoder(last).kind == "checkpoint"
    assert find_encoder(last).run == run


def test_a_checkpoint_is_enough_by_itself(tmp_path):
    (encoder,) = write_run(tmp_path / "run", 3)
    (checkpoint,) = (tmp_path / "run" / "checkpoints").iterdir()
    alone = tmp_path / "alone" / "x" / "step.pt"
    alone.parent.mkdir(parents=True)
    shutil.copy(checkpoint, alone)
    assert encoder_hash(open_encoder(alone)) == encoder_hash(encoder)
    assert find_encoder(alone).run is None


def test_what_is_no_encoder_is_refused_in_a_sentence(tmp_path):
    write_run(tmp_path / "run", 3)
    with pytest.raises(WeightsError, match="does not exist"):
        open_encoder(tmp_path / "absent")
    with pytest.raises(WeightsError, match="neither an encoder, nor a run with a checkpoint"):
        open_encoder(tmp_path)
    with pytest.raises(WeightsError, match="cannot be read as a checkpoint"):
        open_encoder(tmp_path / "run" / "config.json")
    save_checkpoint(tmp_path / "run" / "checkpoints", {"other": 1}, step=5, keep=9)
    with pytest.raises(WeightsError, match="it does not contain an encoder"):
        open_encoder(tmp_path / "run")


def test_a_run_whose_network_is_imported_needs_permission(tmp_path, monkeypatch):
    (tmp_path / "mean_colours.py").write_text("def colours(clips):\n    return clips.mean(dim=(2, 3, 4))\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    model = ModelSettings(backbone="mean_colours:colours", dim=4)
    encoder = build_encoder(model)
    run = tmp_path / "run"
    run.mkdir()
    (run / "config.json").write_text(json.dumps(PretrainConfig(model=model).to_dict()))
    state = {"trainer": encoder_state(encoder)}
    save_checkpoint(run / "checkpoints", state, step=1, keep=1)
    with pytest.raises(ConfigError, match="wants to import and run 'mean_colours:colours'"):
        open_encoder(run)
    assert encoder_hash(open_encoder(run, allow_import=True)) == encoder_hash(encoder)
