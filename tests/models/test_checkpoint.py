"""A checkpoint is complete or absent, the newest ones stay, and nothing in it can run code."""

from __future__ import annotations

import os
import pickle
import signal
import time

import pytest
import torch

from provico.errors import WeightsError
from provico.models.saved import checkpoints, load_checkpoint, save_checkpoint


def test_the_newest_stay_and_read_back(tmp_path):
    for step in (1, 20, 300):
        save_checkpoint(tmp_path, {"step": step, "weights": torch.full((3,), step)}, step=step, keep=2)
    assert [path.name for path in checkpoints(tmp_path)] == ["step-000000020.pt", "step-000000300.pt"]
    state = load_checkpoint(checkpoints(tmp_path)[-1])
    assert state["step"] == 300
    assert state["weights"].tolist() == [300, 300, 300]


WRITER = """
import itertools, sys, torch
from pathlib import Path
from provico.models.saved import save_checkpoint
for step in itertools.count(int(sys.argv[2])):
    state = {"step": step, "weights": torch.full((300_000,), step)}
    save_checkpoint(Path(sys.argv[1]), state, step=step, keep=2)
"""


def test_a_kill_at_any_moment_leaves_only_whole_checkpoints(tmp_path, fork_server):
    """A child writes checkpoints without end and is killed five times; what is there can always be read."""
    first = 0
    for pause in (0.0, 0.01, 0.02, 0.05, 0.003):
        writer = fork_server.start("-c", WRITER, tmp_path, first)
        while not [path for path in checkpoints(tmp_path) if int(path.stem[5:]) >= first + 2]:
            time.sleep(0.001)
            assert writer.poll() is None, writer.stderr
        time.sleep(pause)
        writer.send_signal(signal.SIGKILL)
        assert writer.wait() == -signal.SIGKILL
        kept = checkpoints(tmp_path)
        assert kept
        for path in kept:
            state = load_checkpoint(path)
            assert path.name == f"step-{state['step']:09d}.pt"
            assert bool((state["weights"] == state["step"]).all())
        first = load_checkpoint(kept[-1])["step"] + 1
    save_checkpoint(tmp_path, {"step": first}, step=first, keep=2)
    assert len(list(tmp_path.iterdir())) == 2  # what the kills left unfinished is gone


class _Malicious:
    def __reduce__(self):
        return os.system, ("true",)


@pytest.mark.parametrize("content", [b"", b"not a checkpoint", pickle.dumps(_Malicious())])
def test_what_is_no_checkpoint_is_refused(tmp_path, content):
    path = tmp_path / "step-000000001.pt"
    path.write_bytes(content)
    with pytest.raises(WeightsError, match="cannot be read as a checkpoint"):
        load_checkpoint(path)
