"""`provico embed`, `info` and `export` as users type them."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
import torch

from provico.cli import main
from provico.data.frames.encode import write_video
from provico.embedding.file import read_embeddings
from provico.info import describe
from provico.models import Encoder, encoder_hash
from provico.models.saved import build_encoder, open_encoder, save_checkpoint
from provico.recipes import RECIPES

TINY = RECIPES["tiny-motion"]
CONFIG = dataclasses.replace(
    TINY,
    model=dataclasses.replace(TINY.model, size=32, num_frames=4, dim=8),
    run=dataclasses.replace(TINY.run, seed=5),
)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run that was stopped at step 7."""
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(CONFIG.to_dict()))
    (folder / "metrics.jsonl").write_text('{"step": 5, "loss": 3.0}\n{"step": 7, "loss": 2.5}\n')
    torch.manual_seed(0)
    encoder = build_encoder(CONFIG.model)
    parts = {"encoder": encoder.own_state_dict(), "encoder_config": encoder.config.to_json()}
    state = {"trainer": {"step": 7, **parts}}
    save_checkpoint(folder / "checkpoints", state, step=7, keep=1)
    return folder


@pytest.fixture
def videos(tmp_path: Path) -> Path:
    folder = tmp_path / "videos"
    folder.mkdir()
    rng = np.random.default_rng(0)
    for number in range(3):
        write_video(folder / f"{number}.mp4", rng.integers(0, 256, (12, 40, 48, 3), np.uint8))
    (folder / "broken.mp4").write_text("no video")
    return folder


def provico(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> str:
    main([str(argument) for argument in arguments])
    return capsys.readouterr().out


def test_embed_names_what_failed_and_info_knows_the_file(run, videos, tmp_path, capsys):
    out = tmp_path / "e.parquet"
    options = ("--checkpoint", run, "--out", out, "--num-clips", "2", "--num-workers", "1")
    said = provico(capsys, "embed", videos, *options)
    assert "3 videos embedded, 0 already embedded, 1 failed." in said
    assert "failed: broken.mp4: " in said
    said = provico(capsys, "embed", videos, *options, "--json")
    report = json.loads(said)
    assert (report["num_videos"], report["num_computed"], list(report["failed"])) == (3, 0, ["broken.mp4"])
    embeddings = read_embeddings(out)
    encoder = open_encoder(run)
    found = encoder.embed(videos / "1.mp4", num_clips=2)
    torch.testing.assert_close(embeddings.videos.mean[1], found.mixture.mean)
    assert embeddings.clip_seconds[1].tolist() == [[c.start_seconds, c.end_seconds] for c in found.clips]

    facts = json.loads(provico(capsys, "info", out, "--json"))
    assert (facts["kind"], facts["num_videos"], facts["num_failed"]) == ("embeddings", 3, 1)
    assert (facts["encoder_hash"], facts["num_clips"], facts["dim"]) == (encoder_hash(encoder), 2, 8)
    assert facts["columns"][0] == "id"
    assert "embeddings" in provico(capsys, "info", out)


def test_info_on_a_run_that_is_not_finished(run, capsys):
    facts = json.loads(provico(capsys, "info", run, "--json"))
    assert (facts["kind"], facts["is_finished"], facts["step"]) == ("run", False, 7)
    encoder = open_encoder(run)
    assert facts["encoder_hash"] == encoder_hash(encoder)
    assert facts["parameters"] == {
        "learnt": sum(value.numel() for value in encoder.parameters()),
        "frozen": 0,
    }
    assert facts["clips"]["num_frames"] == 4
    assert facts["match_curve"]["b"] == pytest.approx(float(encoder.match_curve().b.detach()))
    assert facts["nearest_recipe"] == "tiny-motion"
    assert facts["changes"] == {"model.dim": 8, "model.num_frames": 4, "model.size": 32}
    assert facts["last_metrics"] == {"step": 7, "loss": 2.5}
    assert facts["files"].keys() == {"config.json", "metrics.jsonl", "checkpoints/step-000000007.pt"}
    said = provico(capsys, "info", run)
    assert "nearest recipe" in said
    assert "2.5" in said


def test_info_on_an_encoder_and_on_a_checkpoint(run):
    (checkpoint,) = (run / "checkpoints").iterdir()
    found = describe(checkpoint)
    assert (found.kind, found.facts["step"], found.facts["nearest_recipe"]) == (
        "checkpoint",
        7,
        "tiny-motion",
    )
    open_encoder(run).save_pretrained(run / "encoder")
    assert describe(run).facts["is_finished"]
    found = describe(run / "encoder")
    assert found.kind == "encoder"
    assert "step" not in found.facts
    assert found.files.keys() == {"README.md", "config.json", "model.safetensors"}


def test_export_writes_an_encoder_and_never_over_one(run, tmp_path, capsys):
    assert "Encoder written" in provico(capsys, "export", run, "--out", tmp_path / "out")
    expected = encoder_hash(open_encoder(run))
    assert encoder_hash(Encoder.from_pretrained(tmp_path / "out")) == expected
    with pytest.raises(SystemExit) as refused:
        provico(capsys, "export", run, "--out", tmp_path / "out")
    assert refused.value.code == 2
    assert "exists already" in capsys.readouterr().err


def test_what_is_none_of_these_is_refused_in_a_sentence(tmp_path, capsys):
    for arguments in (("info", tmp_path), ("export", tmp_path, "--out", tmp_path / "x")):
        with pytest.raises(SystemExit):
            provico(capsys, *arguments)
        assert "is neither an encoder" in capsys.readouterr().err
