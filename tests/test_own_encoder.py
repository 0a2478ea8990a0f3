"""The commands of docs/own-encoder.md, with tiny networks behind the names that it uses."""

from __future__ import annotations

import re
import shlex
import shutil
import warnings
from pathlib import Path

import pytest
import torch
from torch import nn

from provico.cli import main
from provico.models.backbones import hub

from .tiny_networks import saver

PAGE = (Path(__file__).parents[1] / "docs" / "own-encoder.md").read_text(encoding="utf-8")
SHORT = {
    "index": ["--num-clips", "2", "--num-workers", "0"],
    "pretrain": ["--epochs", "2", "--dim", "8", "--num-workers", "0"],
}


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


def export_network(folder: Path) -> None:
    folder.mkdir()
    torch.manual_seed(0)
    network = nn.Sequential(nn.Conv2d(3, 6, 4, stride=4), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            network.eval(),
            (torch.zeros(2, 3, 32, 32),),
            folder / "network.onnx",
            dynamic_shapes=({0: torch.export.Dim("batch")},),
            dynamo=True,
            external_data=False,
            verbose=False,
        )


@pytest.fixture
def place(tmp_path: Path, made_once, colour_videos: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with VIDEOS, QUERY, a network.onnx, and the network of the page in the cache of the Hub."""
    from huggingface_hub import constants

    cache = tmp_path / "cache"
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(cache))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    repo = cache / "models--facebook--dinov2-small"
    shutil.copytree(made_once("network-dinov2", saver("dinov2")), repo / "snapshots" / ("0" * 40))
    (repo / "refs").mkdir()
    (repo / "refs" / "main").write_text("0" * 40)
    hub.fetch.cache_clear()
    (tmp_path / "VIDEOS").symlink_to(colour_videos / "train")
    (tmp_path / "QUERY").symlink_to(colour_videos / "test" / "red" / "0.mp4")
    (tmp_path / "network.onnx").symlink_to(made_once("own-network", export_network) / "network.onnx")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.usefixtures("without_charts")
def test_the_commands_run(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    commands = [shlex.split(line) for block in blocks("bash") for line in block.strip().splitlines()]
    # What goes to the Hub is tested with a stand-in of it, in tests/models/test_hub.py.
    run = [command[1:] for command in commands if "--to-hub" not in command]
    assert [command[0] for command in run] == ["index", "info", "search", "pretrain", "index", "index"]
    assert all(command[0] == "provico" for command in commands)
    for command in run:
        main([*command, *SHORT.get(command[0], [])])
    said = capsys.readouterr()
    assert "not trained: principal axes of 12 videos" in said.out
    assert "red/" in said.out
    assert (place / "run" / "encoder" / "README.md").is_file()


def test_the_python_example_runs(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (example,) = blocks("python")
    exec(compile(example, "own-encoder.md", "exec"), {})
    assert "torch.Size([10, 32])" in capsys.readouterr().out


def test_every_kind_of_name_is_explained() -> None:
    from provico.models.backbones.registry import SOURCES
    from provico.models.backbones.transformers_model import FAMILIES

    assert all(name in PAGE for name in SOURCES)
    families = re.sub(r"[\s-]", "", PAGE).lower()
    for name in FAMILIES:
        assert name.partition("_")[0] in families, name
