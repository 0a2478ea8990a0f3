"""What the README tells people to type works."""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


def test_the_python_example_runs(demo_set, encoder, tmp_path, fork_server):
    (example,) = blocks("python")
    encoder.save_pretrained(tmp_path / "run")
    video = next(demo_set.rglob("*.mp4"))
    script = example.replace('"run"', repr(str(tmp_path / "run"))).replace('"a.mp4"', repr(str(video)))
    process = fork_server.start("-c", script)
    assert process.wait() == 0, process.stderr
    assert "torch.Size" in process.stdout


SAID = {
    "pretrain": "Encoder: run/encoder",
    "index": "18 videos added",
    "search": "Exact: ",
    "dedup": "18 videos, ",
    "curate": "manifest.csv lists the videos to keep.",
}
"""What each verb says, among other things. tests/explorer/pages/test_page_open.py compares `provico open`."""


def test_the_commands_run_as_typed(demo_set, tmp_path, fork_server):
    commands = re.findall(r"^provico (?!doctor).*", "\n".join(blocks("bash")), re.MULTILINE)
    (tmp_path / "VIDEOS").symlink_to(demo_set)
    shutil.copyfile(min(demo_set.rglob("*.mp4")), tmp_path / "a.mp4")
    verbs = []
    for command in commands:
        words = shlex.split(command, comments=True)
        process = fork_server.start("-m", *words, folder=tmp_path)
        assert process.wait() == 0, process.stderr
        assert SAID[words[1]] in process.stdout, process.stdout
        verbs.append(words[1])
    assert verbs == [*SAID]


def test_the_targets_exist():
    targets = re.findall(r"^make ([a-z]+)", "\n".join(blocks("bash")), re.MULTILINE)
    assert targets == ["demo", "test"]
    makefile = (ROOT / "Makefile").read_text()
    assert all(re.search(rf"^{target}:", makefile, re.MULTILINE) for target in targets)


def test_it_is_read_in_two_minutes():
    assert len(re.sub(r"```.*?```", "", README, flags=re.DOTALL).split()) <= 600


@pytest.mark.parametrize("document", ["README.md", "CONTRIBUTING.md", "docs/notation.md"])
def test_files_that_are_named_exist(document):
    text = (ROOT / document).read_text()
    named = {ROOT / name for name in re.findall(r"`((?:docs|benchmarks|tests|src)/[\w./-]+\.\w+)`", text)}
    linked = {(ROOT / document).parent / name for name in re.findall(r"\]\(((?!http)[\w./-]+)\)", text)}
    assert [path for path in sorted(named | linked) if not path.exists()] == []
