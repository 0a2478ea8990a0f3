"""An index of version 0.1.0 is refused by every verb, with a command that makes it anew and works."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest

from provico.cli import main
from provico.errors import ProvicoError
from provico.models import Encoder
from provico.search.index import Index

ENCODER = {
    "backbone": "tiny",
    "input": {
        "size": 32,
        "num_frames": 4,
        "frame_step": 2,
        "pixel_mean": [0.485, 0.456, 0.406],
        "pixel_std": [0.229, 0.224, 0.225],
        "motion": False,
    },
    "dim": 8,
    "parametrisation": "sqrt_dim",
    "hidden_dim": None,
    "log_var_hidden_dim": None,
    "num_landmarks": None,
    "frozen": None,
}
INDEX = {
    "embedding": {
        "encoder_hash": "589b2866e8030c60",
        "encoder_config": ENCODER,
        "match_curve": {"a": 4.242640972137451, "b": 8.0, "sigmoid_scale": 1.0},
        "num_clips": 2,
        "short_side": 36,
        "provico_version": "0.1.0",
        "failed": [],
        "format_version": 1,
    },
    "num_samples": 10,
    "seed": 0,
    "place": {"address": None, "name": "videos"},
    "format_version": 2,
}
"""What 0.1.0 wrote into encoder/config.json and index.json."""


@pytest.fixture
def earlier(encoder: Encoder, tmp_path: Path) -> Path:
    folder = tmp_path / "index"
    folder.mkdir()
    encoder.save_pretrained(folder / "encoder")
    (folder / "encoder" / "README.md").unlink()
    (folder / "encoder" / "config.json").write_text(json.dumps(ENCODER, indent=2))
    (folder / "index.json").write_text(json.dumps(INDEX, indent=2))
    (folder / "store" / "videos.lance").mkdir(parents=True)
    return folder


@pytest.mark.parametrize(
    "command",
    ["index VIDEOS --out INDEX", "search INDEX 0.mp4", "calibrate INDEX", "select INDEX", "serve INDEX"],
)
def test_every_verb_refuses_it(
    command: str, earlier: Path, colour_videos: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = {"VIDEOS": str(colour_videos), "INDEX": str(earlier)}
    before = {path: path.read_bytes() for path in earlier.rglob("*") if path.is_file()}
    with pytest.raises(SystemExit):
        main([names.get(word, word) for word in command.split()])
    said = capsys.readouterr().err
    assert "format 2, but this version of provico knows format 4. Rebuild it: provico index VIDEOS" in said
    assert all(path.read_bytes() == content for path, content in before.items())


def test_the_command_makes_it_anew(
    earlier: Path, colour_videos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ProvicoError) as refused:
        Index.open(earlier)
    found = re.search(r"Rebuild it: provico (.+)", str(refused.value))
    assert found is not None
    names = {"VIDEOS": str(colour_videos)}
    main([names.get(word, word) for word in shlex.split(found[1])] + ["--num-workers", "0"])
    index = Index.open("NEW")
    assert len(index) == 18
    assert index.search(index.ids[0], k=1, max_chance=None).hits
