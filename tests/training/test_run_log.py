"""What a run writes down can be read back, also after a crash."""

from __future__ import annotations

import importlib.util
import json
import math
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from provico.errors import MissingDependencyError, ProvicoError
from provico.training.run_log import RunLog, read_metrics


def record(step: int) -> dict[str, float]:
    return {"step": step, "epoch": step / 7, "loss": 1 / (step + 3), "mining/num_pairs": step % 5}


def write(folder: Path, steps: range, *, keep_to_step: int | None = None, tensorboard: bool = False) -> None:
    with RunLog(folder, keep_to_step=keep_to_step, tensorboard=tensorboard) as log:
        for step in steps:
            log.write(record(step))


def test_records_come_back_bit_equal(tmp_path: Path) -> None:
    write(tmp_path / "new" / "run", range(0, 50, 10))
    assert read_metrics(tmp_path / "new" / "run" / "metrics.jsonl") == [record(s) for s in range(0, 50, 10)]


def test_every_record_can_be_read_while_the_run_goes_on(tmp_path: Path) -> None:
    with RunLog(tmp_path) as log:
        for number in range(1, 4):
            log.write(record(number))
            assert len(read_metrics(tmp_path / "metrics.jsonl")) == number


def test_what_is_not_finite_becomes_null(tmp_path: Path) -> None:
    with RunLog(tmp_path) as log:
        log.write(
            {"step": 1, "loss": math.nan, "health/noise": math.inf, "loss/kl": -math.inf, "curve/a": 1.5}
        )
    text = (tmp_path / "metrics.jsonl").read_text()
    assert text == '{"step": 1, "loss": null, "health/noise": null, "loss/kl": null, "curve/a": 1.5}\n'


@settings(max_examples=25)
@given(stop=st.integers(0, 20), torn=st.integers(0, 60), checkpoint=st.integers(0, 20))
def test_a_resumed_file_is_that_of_a_run_never_interrupted(
    tmp_path_factory: pytest.TempPathFactory, stop: int, torn: int, checkpoint: int
) -> None:
    folder = tmp_path_factory.mktemp("runs")
    write(folder / "whole", range(25))
    checkpoint = min(checkpoint, stop)
    write(folder / "cut", range(stop + 1))
    with (folder / "cut" / "metrics.jsonl").open("a") as file:
        file.write(json.dumps(record(stop + 1))[:torn])  # killed while it wrote a line
    write(folder / "cut", range(checkpoint + 1, 25), keep_to_step=checkpoint)
    assert (folder / "cut" / "metrics.jsonl").read_bytes() == (
        folder / "whole" / "metrics.jsonl"
    ).read_bytes()
    assert [path.name for path in (folder / "cut").iterdir()] == ["metrics.jsonl"]


def test_a_torn_line_is_neither_read_nor_written_on(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    write(tmp_path, range(2))
    with path.open("ab") as file:
        file.write(b'{"step": 2, "lo\xff')
    assert [line["step"] for line in read_metrics(path)] == [0, 1]
    write(tmp_path, range(2, 4))  # goes on without cutting anything whole
    assert [line["step"] for line in read_metrics(path)] == [0, 1, 2, 3]


@pytest.mark.parametrize("damage", [b"\0\0\0\0", b"[1, 2]", b'{"step": 1'])
def test_a_damaged_line_is_named_and_nothing_is_lost(tmp_path: Path, damage: bytes) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(b'{"step": 0}\n' + damage + b'\n{"step": 2}\n')
    before = path.read_bytes()
    with pytest.raises(ProvicoError, match=r"Line 2 of .*metrics\.jsonl is"):
        read_metrics(path)
    with pytest.raises(ProvicoError, match="Line 2"):
        RunLog(tmp_path, keep_to_step=0)
    assert path.read_bytes() == before


def scalars(folder: Path, name: str) -> list[tuple[int, float]]:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator  # slow to import

    events = EventAccumulator(str(folder / "tensorboard"))
    events.Reload()
    return [(event.step, event.value) for event in events.Scalars(name)]


def test_tensorboard_reads_the_same_numbers(tmp_path: Path) -> None:
    write(tmp_path, range(5), tensorboard=True)
    assert scalars(tmp_path, "loss") == [(s, pytest.approx(record(s)["loss"])) for s in range(5)]
    assert scalars(tmp_path, "mining/num_pairs") == [(s, s % 5) for s in range(5)]
    assert len(read_metrics(tmp_path / "metrics.jsonl")) == 5


def test_tensorboard_forgets_what_a_resumed_run_does_again(tmp_path: Path) -> None:
    write(tmp_path, range(5), tensorboard=True)
    with RunLog(tmp_path, tensorboard=True, keep_to_step=2) as log:
        log.write({"step": 3, "loss": 42.0})
    assert scalars(tmp_path, "loss")[2:] == [(2, pytest.approx(record(2)["loss"])), (3, 42.0)]


def test_a_missing_tensorboard_is_named_before_anything_is_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, range(5))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingDependencyError, match=r"pip install 'provico\[tensorboard\]'"):
        RunLog(tmp_path, tensorboard=True, keep_to_step=0)
    assert len(read_metrics(tmp_path / "metrics.jsonl")) == 5


def test_closing_twice_does_no_harm(tmp_path: Path) -> None:
    log = RunLog(tmp_path, tensorboard=True)
    log.write(record(0))
    log.close()
    log.close()
    with pytest.raises(ValueError, match="closed"):
        log.write(record(1))
