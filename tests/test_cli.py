"""The real command line: results on stdout, one helpful sentence for a mistake, never a traceback."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import tyro

from provico.cli import VERBS, main
from provico.cli.help import REGISTRY
from provico.cli.learn import MAIN_SETTINGS
from provico.config import DataChoice, PretrainConfig
from provico.config.data import EmbedOptions
from provico.data.frames.encode import write_video

from .warm_processes import ForkServer


@dataclasses.dataclass(frozen=True)
class Ended:
    returncode: int
    stdout: str
    stderr: str


@pytest.fixture
def provico(fork_server: ForkServer) -> Callable[..., Ended]:
    """The command in a process of its own."""

    def run(*arguments: str | Path, home: Path) -> Ended:
        environment = os.environ | {"PROVICO_HOME": str(home), "COLUMNS": "200"}
        process = fork_server.start("-m", "provico", *arguments, environment=environment)
        return Ended(process.wait(), process.stdout, process.stderr)

    return run


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("videos")
    rng = np.random.default_rng(0)
    for number in range(3):
        write_video(folder / f"{number}.mp4", rng.integers(0, 256, (20, 48, 64, 3), np.uint8))
    (folder / "broken.mp4").write_text("no video")
    return folder


def test_help_and_version(tmp_path, provico):
    run = provico("--help", home=tmp_path)
    assert run.returncode == 0
    assert all(f"\n  {verb}  " in run.stdout for verb in VERBS)
    assert provico("--version", home=tmp_path).stdout.startswith("provico ")
    run = provico("scan", "--help", home=tmp_path)
    assert run.returncode == 0
    assert "--min-frames" in run.stdout


def test_help_names_plain_values_and_none_can_be_given(capsys):
    with pytest.raises(SystemExit):
        main(["open", "--help"])
    said = capsys.readouterr().out
    assert "--folder PATH" in said
    assert "{None}" not in said
    read = tyro.cli(DataChoice, args=["videos", "--part", "1/2"], registry=REGISTRY)
    assert read.part == "1/2"
    read = tyro.cli(DataChoice, args=["videos", "--part", "None"], registry=REGISTRY)
    assert read.part is None


def test_without_a_command_it_says_what_to_do_next(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    main([])
    assert "provico open FOLDER " in capsys.readouterr().out
    for name in (
        *("my videos/a.mp4", "my videos/b.MOV", "classes/run/a.mp4", "classes/walk/b.avi"),
        *("run/metrics.jsonl", "index/index.json", ".git/a.mp4"),
    ):
        (tmp_path / name).parent.mkdir(exist_ok=True, parents=True)
        (tmp_path / name).touch()
    (tmp_path / "run" / "encoder").mkdir()
    main([])
    said = capsys.readouterr().out
    assert "provico open 'my videos'  " in said
    assert "provico open classes  " in said
    assert said.count("its 2 videos") == 2
    assert "provico index VIDEOS --checkpoint run " in said
    assert "provico open index " in said
    assert ".git" not in said


def test_scan_then_prepare(folder, tmp_path, provico):
    run = provico("scan", folder, "--out", tmp_path / "scan", home=tmp_path / "home")
    assert run.returncode == 0, run.stderr
    assert "broken.mp4" in run.stdout
    again = provico("scan", folder, "--out", tmp_path / "scan", "--json", home=tmp_path / "home")
    assert json.loads(again.stdout)["readable"] == 3
    manifest = tmp_path / "scan" / "manifest.csv"
    run = provico("prepare", manifest, "--short-side", "32", "--json", home=tmp_path / "home")
    assert run.returncode == 0, run.stderr
    report = json.loads(run.stdout)
    assert (report["prepared"], report["failed"]) == (3, {})
    assert "needs about" in run.stderr


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["scna"], "Did you mean scan?"),
        (["scan", "absent-folder"], "does not exist"),
        (["scan", ".", "--layout", "ufc101"], "ucf101"),
        (["prepare", ".", "--short-side", "0"], "short side"),
    ],
)
def test_a_mistake_is_one_sentence_and_status_2(arguments, expected, folder, tmp_path, provico):
    arguments = [str(folder) if argument == "." else argument for argument in arguments]
    run = provico(*arguments, home=tmp_path)
    assert run.returncode == 2
    assert run.stdout == ""
    assert run.stderr.startswith("provico: ")
    assert expected in run.stderr
    assert "Traceback" not in run.stderr
    assert "Traceback" in provico(*arguments, "--debug", home=tmp_path).stderr


def test_a_mistyped_option_is_status_2(folder, tmp_path, provico):
    run = provico("scan", folder, "--min-frame", "3", home=tmp_path)
    assert run.returncode == 2
    assert "--min-frames" in run.stderr + run.stdout


def test_doctor_tries_the_decoders(tmp_path, provico):
    checks = json.loads(provico("doctor", "--json", home=tmp_path).stdout)
    assert checks["H.264 in mp4"]["works"]
    assert checks["MPEG-4 in avi"]["works"]
    assert str(tmp_path) in checks["own folder"]["found"]


def test_output_piped_to_a_reader_that_leaves(folder, tmp_path):
    command = f"{sys.executable} -m provico scan {folder} --out {tmp_path / 's'} | head -n 1"
    run = subprocess.run(
        command,
        shell=True,
        capture_output=True,
        text=True,
        env={**os.environ, "PROVICO_HOME": str(tmp_path)},
    )
    assert "Traceback" not in run.stderr
    assert run.stdout


@pytest.mark.parametrize("verb", ["embed", "index", "uncertainty"])
def test_all_verbs_that_embed_have_the_same_options(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main([verb, "--help"])
    shown = capsys.readouterr().out
    for field in dataclasses.fields(EmbedOptions):
        assert f"--{field.name.replace('_', '-')}" in shown


def test_the_help_of_pretrain_shows_the_main_settings_and_help_all_every_one(tmp_path, provico):
    """A setting that help leaves out can still be given."""
    brief, full = (provico("pretrain", word, home=tmp_path) for word in ("--help", "--help-all"))
    assert (brief.returncode, full.returncode) == (0, 0)
    names = {name for group in PretrainConfig().to_dict().values() for name in group}
    shown, all_shown = (
        {name for name in names if re.search(rf"--{name.replace('_', '-')}\b(?!-)", run.stdout)}
        for run in (brief, full)
    )
    assert shown == set(MAIN_SETTINGS)
    assert all_shown == names
    assert "--help-all" in brief.stdout
    refused = provico("pretrain", tmp_path, "--among", "all", "--threshold", "adaptive", home=tmp_path)
    assert refused.returncode == 2
    assert "--among all needs --mutual-top and a fixed --threshold" in refused.stderr
