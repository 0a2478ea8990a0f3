"""Every script in examples/ runs, on one small run that they share."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from provico import demo, pretrain

from .tiny_networks import save_network, save_tokenizer

FOLDER = Path(__file__).parents[1] / "examples"
SAID = {
    "calibrate_with_judgements": "50 judgements",
    "clean_a_folder": "black.mp4    drop",
    "embed_one_video": "10 clips in 16 dimensions",
    "export_to_onnx": "Largest difference of the means",
    "find_duplicates": "0.mp4 and copy.mp4: duplicate, mirrored",
    "measure_uncertainty": "R-AUROC",
    "own_backbone": " is like ",
    "own_loss": "uniformity: -",
    "prepared": "18 videos are ready",
    "pretrain_with_torchrun": "steps by 1 processes",
    "search_by_words": "cosine",
    "search_a_folder": "No other video can be better: True.",
}
"""What each says, among other things."""


@pytest.fixture(scope="module")
def prepared(
    made_once: Callable[[str, Callable[[Path], object]], Path], demo_set: Path, without_charts: object
) -> Path:
    """In the place of what the first example makes: fewer and shorter videos, and a smaller network."""

    def make(folder: Path) -> None:
        folder.mkdir()
        (folder / "data").symlink_to(demo_set)
        recipe = demo.demo_recipe(num_workers=0)
        small = dataclasses.replace(
            recipe,
            model=dataclasses.replace(recipe.model, size=32, num_frames=4, dim=16, hidden_dim=16),
            optimiser=dataclasses.replace(recipe.optimiser, epochs=2, batch_size=6),
        )
        pretrain(demo_set, out=folder / "run", config=small)

    return made_once("examples", make)


RUN_NOTEBOOK = """
import ast, json, os, sys
sys.path.insert(0, os.path.dirname(sys.argv[1]))
names = {"__name__": "__main__"}
for cell in json.load(open(sys.argv[1]))["cells"]:
    if cell["cell_type"] == "code":
        tree = ast.parse("".join(cell["source"]))
        last = ast.Expression(tree.body.pop().value)
        exec(compile(tree, "cell", "exec"), names)
        value = eval(compile(last, "cell", "eval"), names)
        print(json.dumps([type(value).__name__, getattr(value, "_repr_html_", lambda: repr(value))()]))
"""
"""Each cell ends with a value, which a notebook shows by its `_repr_html_`."""


def test_the_notebook_shows_a_video_an_answer_mixtures_and_a_run(prepared: Path, fork_server: Any) -> None:
    environment = os.environ | {"PROVICO_DEMO": str(prepared)}
    process = fork_server.start("-c", RUN_NOTEBOOK, FOLDER / "tour.ipynb", environment=environment)
    assert process.wait() == 0, process.stderr
    shown = dict(json.loads(line) for line in process.stdout.splitlines() if line.startswith("["))
    assert list(shown) == ["Video", "VideoEmbedding", "Answer", "Mixture", "float", "PretrainReport"]
    assert shown["Video"].count("data:image/jpeg;base64,") == 1
    assert shown["VideoEmbedding"].count("<rect ") == 10
    assert shown["Answer"].count("<tr>") == 6
    assert "18 mixtures of 4 Gaussians" in shown["Mixture"]
    assert "<polyline " in shown["PretrainReport"]
    for name in ("Video", "VideoEmbedding", "Answer", "Mixture", "PretrainReport"):
        ElementTree.fromstring(shown[name])  # well-formed: what is shown is escaped


def test_all_are_tried_and_short() -> None:
    assert {path.stem for path in FOLDER.glob("*.py")} == set(SAID)
    assert [path.name for path in FOLDER.glob("*.py") if len(path.read_text().splitlines()) > 80] == []


@pytest.mark.parametrize("name", sorted(SAID, key=lambda name: name != "prepared"))
def test_an_example_runs(name: str, prepared: Path, tmp_path: Path, fork_server: Any) -> None:
    environment = os.environ | {"PROVICO_DEMO": str(prepared), "OUT": str(tmp_path / "out")}
    if name == "search_by_words":  # random weights: how good its answers are is not asked here
        save_network("clip", tmp_path / "clip")
        save_tokenizer(tmp_path / "clip", "a white square that spins")
        environment["PROVICO_CLIP"] = str(tmp_path / "clip")
    process = fork_server.start(str(FOLDER / f"{name}.py"), environment=environment)
    assert process.wait() == 0, process.stderr
    assert SAID[name] in process.stdout
