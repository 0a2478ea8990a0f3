"""What the README tells people to type works."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from provico.cli import VERBS

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


def test_the_commands_exist():
    commands = re.findall(r"^provico ([a-z-]+)", "\n".join(blocks("bash")), re.MULTILINE)
    assert commands
    assert set(commands) <= {verb.partition(" ")[0] for verb in VERBS}
    targets = re.findall(r"^make ([a-z]+)", "\n".join(blocks("bash")), re.MULTILINE)
    assert targets == ["demo", "test"]
    makefile = (ROOT / "Makefile").read_text()
    assert all(re.search(rf"^{target}:", makefile, re.MULTILINE) for target in targets)


@pytest.mark.parametrize("document", ["README.md", "CONTRIBUTING.md", "docs/notation.md"])
def test_files_that_are_named_exist(document):
    text = (ROOT / document).read_text()
    named = {ROOT / name for name in re.findall(r"`((?:docs|benchmarks|tests|src)/[\w./-]+\.\w+)`", text)}
    linked = {(ROOT / document).parent / name for name in re.findall(r"\]\(((?!http)[\w./-]+)\)", text)}
    assert [path for path in sorted(named | linked) if not path.exists()] == []
