"""Children that hang or crash cost one item and nothing else."""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
import signal
import subprocess
import sys
import threading
import time

import psutil
import pytest

from provico.data.child_process import CallLimits
from provico.data.isolated import Children, IsolatedCalls, run_isolated
from provico.errors import ProvicoError

LIMIT_SECONDS = 10
"""For calls that exceed it on purpose: on a busy machine, starting a child alone takes seconds."""


def test_every_item_is_answered():
    outcomes = list(run_isolated(abs, [-3, 4, -5], num_workers=2, limits=CallLimits(silent_seconds=300)))
    assert sorted((outcome.item, outcome.result) for outcome in outcomes) == [(-5, 5), (-3, 3), (4, 4)]
    assert all(outcome.failure is None for outcome in outcomes)


def test_no_items_start_no_process():
    assert list(run_isolated(abs, [], num_workers=4, limits=CallLimits(silent_seconds=300))) == []


def test_a_child_that_hangs_is_stopped_and_the_rest_goes_on():
    outcomes = {
        outcome.item: outcome
        for outcome in run_isolated(
            time.sleep,
            [60.0, 0.0, 0.01, 0.02],
            num_workers=1,
            limits=CallLimits(silent_seconds=LIMIT_SECONDS),
        )
    }
    assert "nothing came of it for 10 seconds" in (outcomes[60.0].failure or "")
    assert [outcomes[item].failure for item in (0.0, 0.01, 0.02)] == [None] * 3


def test_a_child_that_crashes_is_noticed_and_the_rest_goes_on():
    outcomes = list(
        run_isolated(
            signal.raise_signal, [signal.SIGSEGV], num_workers=1, limits=CallLimits(silent_seconds=300)
        )
    )
    assert "SIGSEGV" in (outcomes[0].failure or "")
    exits = list(run_isolated(os._exit, [3, 4], num_workers=2, limits=CallLimits(silent_seconds=300)))
    assert {outcome.failure for outcome in exits} == {
        "the decoder crashed (exit status 3).",
        "the decoder crashed (exit status 4).",
    }


def test_what_the_function_raises_is_raised():
    with pytest.raises(ValueError, match="invalid literal"):
        list(run_isolated(int, ["x"], num_workers=1, limits=CallLimits(silent_seconds=300)))


def test_what_the_function_prints_does_not_disturb():
    outcomes = list(
        run_isolated(
            functools.partial(print, "noise"), ["a"], num_workers=1, limits=CallLimits(silent_seconds=300)
        )
    )
    assert outcomes[0].failure is None


def test_works_in_a_script_without_a_main_guard(tmp_path):
    script = tmp_path / "plain.py"
    script.write_text(
        "from provico.data.child_process import CallLimits\n"
        "from provico.data.isolated import run_isolated\n"
        "limits = CallLimits(silent_seconds=300)\n"
        "print([o.result for o in run_isolated(abs, [-1], num_workers=1, limits=limits)])\n"
    )
    run = subprocess.run([sys.executable, script], capture_output=True, text=True)
    assert run.stdout == "[1]\n", run.stderr


def test_children_stay_for_the_next_run_and_a_crash_costs_no_other():
    ask = "__import__('os').getpid()"
    crash = "__import__('os')._exit(3)"
    with Children() as children:

        def run(*code):
            return [
                outcome.result
                for outcome in run_isolated(
                    eval, code, num_workers=1, limits=CallLimits(silent_seconds=300), children=children
                )
            ]

        (first,), (again,) = run(ask), run(ask)
        assert first == again != os.getpid()
        assert run(crash) == [None]
        (other,) = run(ask)
        assert other not in (None, first)
        # Who stops listening ends what is under way, and the next run starts anew.
        unheard = run_isolated(
            eval,
            [ask, "__import__('time').sleep(600)"],
            num_workers=1,
            limits=CallLimits(silent_seconds=900),
            children=children,
        )
        assert next(unheard).result == other
        unheard.close()
        (last,) = run(ask)
        assert last not in (None, other)
    assert not psutil.pid_exists(last)


def test_children_stay_for_the_next_call():
    calls = IsolatedCalls(eval, num_workers=1, limits=CallLimits(silent_seconds=300))
    try:
        pids = {calls("__import__('os').getpid()").result for _ in range(3)}
        assert len(pids) == 1
        assert os.getpid() not in pids
    finally:
        calls.close()


def test_a_call_that_crashes_or_hangs_costs_no_other():
    calls = IsolatedCalls(signal.raise_signal, num_workers=1, limits=CallLimits(silent_seconds=300))
    try:
        assert "SIGSEGV" in (calls(signal.SIGSEGV).failure or "")
        assert calls(signal.SIGCHLD).failure is None  # which every process ignores
    finally:
        calls.close()
    slow = IsolatedCalls(time.sleep, num_workers=1, limits=CallLimits(silent_seconds=LIMIT_SECONDS))
    try:
        assert "nothing came of it for 10 seconds" in (slow(60.0).failure or "")
        assert slow(0.0).failure is None
    finally:
        slow.close()


def test_what_a_call_raises_is_raised_here_and_the_child_stays():
    calls = IsolatedCalls(int, num_workers=1, limits=CallLimits(silent_seconds=300))
    try:
        with pytest.raises(ValueError, match="invalid literal"):
            calls("x")
        assert calls("3").result == 3
    finally:
        calls.close()


def test_who_waits_too_long_for_a_child_is_told():
    calls = IsolatedCalls(time.sleep, num_workers=1, limits=CallLimits(silent_seconds=3))
    failures: list[str | None] = []
    threads = [threading.Thread(target=lambda: failures.append(calls(60.0).failure)) for _ in range(3)]
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert any("others are waiting" in (failure or "") for failure in failures)
        assert all(failures)
    finally:
        calls.close()


def test_closing_ends_what_is_under_way(tmp_path):
    calls = IsolatedCalls(exec, num_workers=1, limits=CallLimits(silent_seconds=600))
    begun = tmp_path / "begun"
    endless = f"import pathlib, time; pathlib.Path({str(begun)!r}).touch(); time.sleep(600)"
    failures: list[str | None] = []
    thread = threading.Thread(target=lambda: failures.append(calls(endless).failure))
    thread.start()
    while not begun.exists():
        time.sleep(0.01)
    calls.close()
    thread.join()
    assert len(failures) == 1
    assert "SIGKILL" in (failures[0] or "")
    calls.close()
    assert calls("pass").failure == "the program ends."


DELIVER = """
import time
from provico.data.child_process import alive
for _ in range({times}):
    time.sleep(0.6)
    alive()
"""


@pytest.fixture
def calls_of():
    """Starts functions whose calls run in a child, and ends their children."""
    with contextlib.ExitStack() as stack:

        def start(function, **limits):
            calls = IsolatedCalls(
                function, num_workers=1, limits=CallLimits(**{"silent_seconds": 300, **limits})
            )
            stack.callback(calls.close)
            return calls

        yield start


def test_a_child_that_keeps_delivering_is_not_stopped(calls_of):
    calls = calls_of(exec, silent_seconds=LIMIT_SECONDS)
    assert calls(DELIVER.format(times=round(LIMIT_SECONDS / 0.5))).failure is None


def test_but_where_somebody_waits_a_call_as_a_whole_has_its_limit(calls_of):
    calls = calls_of(exec, total_seconds=3)
    assert "longer than 3 seconds" in (calls(DELIVER.format(times=10**6)).failure or "")


def test_a_child_that_died_while_it_was_idle_costs_no_item(calls_of):
    calls = calls_of(eval)
    child = psutil.Process(calls("__import__('os').getpid()").result)
    child.kill()
    while child.is_running() and child.status() != psutil.STATUS_ZOMBIE:
        time.sleep(0.01)
    assert calls("1 + 1").result == 2


def test_a_child_that_cannot_start_is_no_fault_of_the_item(calls_of, monkeypatch):
    monkeypatch.setattr(sys, "executable", shutil.which("false"))
    outcome = calls_of(abs)(-1)
    assert (outcome.result, outcome.blames_item) == (None, False)
    assert "ended (exit status 1)" in (outcome.failure or "")
    with pytest.raises(ProvicoError, match="-1 was not read"):
        list(run_isolated(abs, [-1], num_workers=1, limits=CallLimits(silent_seconds=300)))


def test_memory_has_a_limit_and_the_next_item_a_new_child(calls_of):
    calls = calls_of(eval, memory_bytes=2**28)
    ask = "__import__('os').getpid()"
    first = calls(ask).result
    assert "more memory than a process may take (0.25 GB)" in (calls("len(bytearray(2**30))").failure or "")
    assert calls(ask).result != first


def test_a_child_that_has_grown_is_replaced(calls_of):
    calls = calls_of(eval, kept_bytes=2**29)
    grow = "(__import__('os').getpid(), globals().setdefault('kept', bytearray({})))[0]"
    first = calls(grow.format(1)).result
    assert calls(grow.format(1)).result == first
    code = "(__import__('os').getpid(), setattr(__import__('sys'), 'kept', b'x' * 2**29))[0]"
    assert calls(code).result == first
    assert calls(grow.format(1)).result != first


@pytest.mark.parametrize("said", ["b'x' * 17", "b'r' + bytes(8) + b'\\xff' * 8", "b'r' + bytes(16)"])
def test_what_is_no_answer_is_not_believed(calls_of, said):
    """A decoder that was taken over can say what it likes; the parent reads plain values and nothing else."""
    calls = calls_of(eval)
    wire = "__import__('provico.data.child_process').data.child_process._Served.wire"
    assert "no valid answer" in (calls(f"{wire}.sendall({said})").failure or "")
    assert calls("1 + 1").result == 2


def test_what_is_not_plain_is_not_answered(calls_of):
    with pytest.raises(TypeError, match="A set is not plain"):
        calls_of(eval)("{1}")
