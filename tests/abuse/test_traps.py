"""A collection may hold Python files: none of them is ever run, whatever the verb."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from provico.cli import VERBS

from ..warm_processes import ForkServer
from .traps import set_traps, sprung

COMMANDS = {
    "scan": "scan .",
    "prepare": "prepare . --short-side 32 --out prepared",
    "index": "index . --checkpoint {encoder} --out index --num-clips 2",
    "search": "search index 0.mp4 other.mp4",
    "embed": "embed . --checkpoint {encoder} --out embeddings.parquet --num-clips 2",
    "dedup": "dedup index",
    "curate": "curate index",
    "select": "select index --out open.csv",
    "judge": "judge index judgements.csv",
    "calibrate": "calibrate index",
    "cut": "cut 0.mp4 --span 0-0.2 --out part.mp4",
    "info": "info index",
    "export": "export {encoder} --out exported",
    "doctor": "doctor",
    "open": "open --help",  # test_open.py opens such a folder
    "serve": "serve --help",  # tests/explorer/test_abuse.py serves and uploads in such a folder
    "uncertainty": "uncertainty . --checkpoint {encoder} --out report --num-clips 2 --num-timelines 1",
    "demo-data": "demo-data drawn --videos-per-class 3 --num-workers 1",
    "pretrain": (
        "pretrain . --recipe tiny --max-steps 1 --batch-size 2 --num-workers 1 --device cpu --out run "
        "--num-frames 4 --size 32 --dim 8"
    ),
    # These take long, and start no process in another way than those above.
    "demo": "demo --help",
    "evaluate retrieval": "evaluate retrieval --help",
    "evaluate linear": "evaluate linear --help",
    "evaluate finetune": "evaluate finetune --help",
    "evaluate uncertainty": "evaluate uncertainty --help",
    "reproduce": "reproduce --help",
}
"""Every verb, in an order in which each finds what it needs."""
ALL_IN_ONE_PROCESS = """
import contextlib, os, sys
sys.path.remove(os.getcwd())  # as it is for the command `provico`
from provico.cli import main
for line in {lines!r}:
    try:
        with contextlib.suppress(SystemExit):
            main(line.split())
    except BaseException as error:
        print(f"{{line}}: {{error!r}}")
"""


@pytest.fixture
def collection(tmp_path: Path, colour_videos: Path) -> Path:
    """Four videos among traps."""
    folder = tmp_path / "collection"
    folder.mkdir()
    names = ("0.mp4", "1.mp4", "2.mp4", "other.mp4")
    for name, video in zip(names, sorted(colour_videos.glob("train/*/0.mp4")), strict=False):
        (folder / name).write_bytes(video.read_bytes())
    (folder / "judgements.csv").write_text("query,hit,verdict\n0.mp4,1.mp4,right\n")
    set_traps(folder)
    return folder


def test_there_is_a_command_for_every_verb() -> None:
    assert set(COMMANDS) == set(VERBS)


def test_no_verb_runs_code_of_the_current_folder(
    collection: Path, tmp_path: Path, fork_server: ForkServer, shaded_encoder: Path
) -> None:
    lines = [command.format(encoder=shaded_encoder) for command in COMMANDS.values()]
    environment = os.environ | {"PROVICO_HOME": str(tmp_path / "home")}
    code = ALL_IN_ONE_PROCESS.format(lines=lines)
    process = fork_server.start("-c", code, folder=collection, environment=environment)
    assert process.wait() == 0, process.stderr
    assert sprung(collection) == []
    made = {"scan/manifest.csv", "prepared", "index/index.json", "embeddings.parquet", "index/curation"}
    made |= {"exported", "report/videos.csv", "drawn", "run/encoder"}
    assert {name for name in made if not (collection / name).exists()} == set(), process.stdout


def test_nor_does_the_module(collection: Path, tmp_path: Path) -> None:
    """`python -m` puts the current folder first, where Python itself finds its first modules; we do not."""
    for name in (*sys.stdlib_module_names, "provico"):
        (collection / f"{name}.py").unlink(missing_ok=True)
    environment = os.environ | {"PROVICO_HOME": str(tmp_path / "home")}
    command = [sys.executable, "-m", "provico", "scan", "."]
    done = subprocess.run(
        command, cwd=collection, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert sprung(collection) == []
