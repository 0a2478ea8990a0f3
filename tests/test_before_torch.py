"""What a command does before torch is imported: how threads wait, and the first line of a search."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from provico import threads
from provico.threads import BUSY, SPINS, wait_considerately


@pytest.mark.parametrize(
    ("given", "load", "added"),
    [
        ({}, 0.3, {"GOMP_SPINCOUNT": str(SPINS)}),
        ({}, BUSY, {"OMP_WAIT_POLICY": "passive"}),
        ({"GOMP_SPINCOUNT": "7"}, BUSY, {}),
        ({"OMP_WAIT_POLICY": "active"}, BUSY, {}),
    ],
)
def test_threads_sleep_soon_unless_the_user_has_chosen(given, load, added, monkeypatch):
    monkeypatch.setattr(os, "environ", dict(given))
    monkeypatch.setattr(os, "getloadavg", lambda: (load, 0.0, 0.0))
    monkeypatch.setattr(threads, "machine", lambda: "aarch64")
    wait_considerately()
    assert os.environ == given | added


@pytest.mark.parametrize(
    ("given", "found"),
    [({}, "1"), ({"OPENBLAS_NUM_THREADS": "4"}, "4"), ({"OMP_NUM_THREADS": "3"}, None)],
)
def test_numpy_computes_in_one_thread_unless_the_user_has_chosen(given, found, monkeypatch):
    monkeypatch.setattr(os, "environ", dict(given))
    monkeypatch.setattr(threads, "machine", lambda: "x86_64")
    wait_considerately()
    assert os.environ.get("OPENBLAS_NUM_THREADS") == found


def test_it_is_settled_before_torch_reads_it():
    code = (
        "import os, sys\n"
        "from provico.cli import main\n"
        "try:\n    main(['no-such-command'])\nexcept SystemExit:\n    pass\n"
        "print('torch' in sys.modules, 'numpy' in sys.modules)\n"
        "print('GOMP_SPINCOUNT' in os.environ or 'OMP_WAIT_POLICY' in os.environ)"
    )
    kept = {name: v for name, v in os.environ.items() if name not in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")}
    run = subprocess.run([sys.executable, "-c", code], env=kept, capture_output=True, text=True, check=True)
    assert run.stdout.split() == ["False", "False", "True"]


def test_a_search_says_that_it_opens_before_it_imports_torch(tmp_path):
    code = (
        "import sys\n"
        "from provico.cli import main\n"
        "sys.modules['provico.cli.search'].announce = lambda text: print(text, 'torch' in sys.modules)\n"
        f"main(['search', {str(tmp_path)!r}, {str(tmp_path)!r}, 'a.mp4'])"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert run.stdout.splitlines() == [f"Opening {tmp_path}, {tmp_path}. False"]
    assert run.returncode == 2
