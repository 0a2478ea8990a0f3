"""A network of the user's own through the command line: its weights, not its name, say what was computed."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest
import torch

from provico import open_catalog, open_encoder
from provico.cli import main
from provico.defaults import TEST_CLIPS
from provico.embedding.features import clip_features

from .warm_processes import ForkServer, all_succeed

NETWORK = """
from pathlib import Path
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(12, 6)
        self.load_state_dict(torch.load(Path(__file__).with_name("weights.pt"), weights_only=True))

    def forward(self, frames):
        return self.linear(nn.functional.adaptive_avg_pool2d(frames, 2).flatten(1))
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "own_weights.py").write_text(NETWORK)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "own_weights", raising=False)
    return tmp_path


def put_weights(place: Path, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    weights = {"linear.weight": torch.randn(6, 12, generator=generator), "linear.bias": torch.zeros(6)}
    torch.save(weights, place / "weights.pt")


def pretrain(videos: Path, out: Path, *more: str) -> None:
    clips = ["--size", "16", "--num-frames", "4", "--num-workers", "0"]
    short = ["--dim", "8", "--epochs", "2"]
    network = ["--backbone", "own_weights:Net"]
    main(["pretrain", str(videos), "--out", str(out), *network, *clips, *short, *more])


@pytest.mark.usefixtures("without_charts")
def test_other_weights_behind_one_name_are_noticed(
    colour_videos: Path, place: Path, capsys, fork_server: ForkServer
) -> None:
    videos = colour_videos / "train"
    query = str(colour_videos / "test" / "red" / "0.mp4")
    put_weights(place, 1)
    pretrain(videos, place / "one")
    assert "Features of 12 videos: 12 computed" in capsys.readouterr().err
    pretrain(videos, place / "again")
    assert "Features of 12 videos: 0 computed" in capsys.readouterr().err
    # An index or an evaluation looks at the same clips, and computes nothing again.
    encoder = open_encoder(place / "one", allow_import=True)
    seen = clip_features(encoder, open_catalog(videos), num_clips=TEST_CLIPS)
    assert (len(seen.catalog), seen.num_computed) == (12, 0)
    weights = [(place / run / "encoder" / "model.safetensors").read_bytes() for run in ("one", "again")]
    assert weights[0] == weights[1]
    index = ["index", str(videos), "--checkpoint", str(place / "one"), "--out", str(place / "index")]
    main([*index, "--allow-import", "--no-calibrate", "--num-clips", "2", "--num-workers", "0"])
    search = ["search", str(place / "index"), query, "--allow-import", "--json"]
    # The same weights are the same network, also in another process.
    environment = {**os.environ, "PYTHONPATH": str(place)}
    found = fork_server.start("-m", "provico", *search, environment=environment)
    all_succeed([found])
    assert json.loads(found.stdout)[0]["hits"]
    capsys.readouterr()

    put_weights(place, 2)
    pretrain(videos, place / "two")
    assert "Features of 12 videos: 12 computed" in capsys.readouterr().err
    assert (place / "two" / "encoder" / "model.safetensors").read_bytes() != weights[0]
    refused = [
        search,
        [*index, "--allow-import"],
        ["info", str(place / "one"), "--allow-import"],
        ["embed", str(videos), "--checkpoint", str(place / "one"), "--allow-import"],
    ]
    for command in refused:
        with pytest.raises(SystemExit):
            main(command)
        said = capsys.readouterr().err
        assert "was made with the network own_weights:Net of hash" in said, command
        assert "its weights or its code have changed. Restore the former weights" in said
    for options in (("--resume",), ("--checkpoint", str(place / "one"))):
        with pytest.raises(SystemExit):
            pretrain(videos, place / ("one" if options == ("--resume",) else "three"), *options)
        assert "weights or its code have changed" in capsys.readouterr().err
    # What is in the index was made by one network, and is still found by its id.
    main(["search", str(place / "index"), "red/0.mp4", "--json"])
    assert json.loads(capsys.readouterr().out)[0]["hits"]
