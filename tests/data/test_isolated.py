"""Children that hang or crash cost one item and nothing else."""

from __future__ import annotations

import functools
import os
import signal
import subprocess
import sys
import time

import pytest

from provico.data.isolated import run_isolated


def test_every_item_is_answered():
    outcomes = list(run_isolated(abs, [-3, 4, -5], num_workers=2, timeout_seconds=30))
    assert sorted((outcome.item, outcome.result) for outcome in outcomes) == [(-5, 5), (-3, 3), (4, 4)]
    assert all(outcome.failure is None for outcome in outcomes)


def test_no_items_start_no_process():
    assert list(run_isolated(abs, [], num_workers=4, timeout_seconds=30)) == []


def test_a_child_that_hangs_is_stopped_and_the_rest_goes_on():
    outcomes = {
        outcome.item: outcome
        for outcome in run_isolated(time.sleep, [60.0, 0.0, 0.01, 0.02], num_workers=1, timeout_seconds=1.5)
    }
    assert "longer than 1.5 seconds" in (outcomes[60.0].failure or "")
    assert [outcomes[item].failure for item in (0.0, 0.01, 0.02)] == [None] * 3


def test_a_child_that_crashes_is_noticed_and_the_rest_goes_on():
    outcomes = list(run_isolated(signal.raise_signal, [signal.SIGSEGV], num_workers=1, timeout_seconds=30))
    assert "SIGSEGV" in (outcomes[0].failure or "")
    exits = list(run_isolated(os._exit, [3, 4], num_workers=2, timeout_seconds=30))
    assert {outcome.failure for outcome in exits} == {
        "the decoder crashed (exit status 3).",
        "the decoder crashed (exit status 4).",
    }


def test_what_the_function_raises_is_raised():
    with pytest.raises(ValueError, match="invalid literal"):
        list(run_isolated(int, ["x"], num_workers=1, timeout_seconds=30))


def test_what_the_function_prints_does_not_disturb():
    outcomes = list(run_isolated(functools.partial(print, "noise"), ["a"], num_workers=1, timeout_seconds=30))
    assert outcomes[0].failure is None


def test_works_in_a_script_without_a_main_guard(tmp_path):
    script = tmp_path / "plain.py"
    script.write_text(
        "from provico.data.isolated import run_isolated\n"
        "print([o.result for o in run_isolated(abs, [-1], num_workers=1, timeout_seconds=30)])\n"
    )
    run = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=60)
    assert run.stdout == "[1]\n", run.stderr
