"""Decisions survive crashes, undo and a second writer."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from provico.curation.decisions import DecisionLog
from provico.errors import ConfigError, ConflictError


@pytest.fixture
def log(tmp_path: Path) -> DecisionLog:
    return DecisionLog(tmp_path / "curation" / "decisions.jsonl")


def choices(log: DecisionLog) -> dict[str, str]:
    return {name: decision.choice for name, decision in log.current().items()}


def test_the_last_decision_on_a_video_holds_and_is_there_for_the_next_reader(log: DecisionLog) -> None:
    assert log.current() == {}
    log.record("a.mp4", "keep")
    log.record("b.mp4", "trim", segments=[(5.0, 9.0), (1.0, 2.0)])
    log.record("a.mp4", "drop")
    again = DecisionLog(log.path)
    assert choices(again) == {"a.mp4": "drop", "b.mp4": "trim"}
    assert again.current()["b.mp4"].segments == ((1.0, 2.0), (5.0, 9.0))
    assert again.revision == 3


def test_undo_takes_back_one_decision_after_the_other(log: DecisionLog) -> None:
    for name, choice in (("a", "keep"), ("b", "drop"), ("a", "drop")):
        log.record(name, choice)  # type: ignore[arg-type]
    assert log.undo() == "a"
    assert choices(log) == {"a": "keep", "b": "drop"}
    assert [log.undo(), log.undo(), log.undo()] == ["b", "a", None]
    assert log.current() == {}


@given(st.lists(st.one_of(st.none(), st.tuples(st.sampled_from("abc"), st.sampled_from(["keep", "drop"])))))
def test_undo_is_that_of_a_list(tmp_path_factory: pytest.TempPathFactory, steps: list) -> None:
    log = DecisionLog(tmp_path_factory.mktemp("log") / "decisions.jsonl")
    held: list[tuple[str, str]] = []
    for step in steps:
        if step is None:
            assert log.undo() == (held.pop()[0] if held else None)
        else:
            log.record(*step)
            held.append(step)
    assert choices(log) == dict(held)


def test_a_video_that_was_decided_on_elsewhere_is_refused(log: DecisionLog) -> None:
    seen = log.record("a", "keep").revision
    DecisionLog(log.path).record("b", "drop")
    log.record("a", "drop", seen_revision=seen)  # what changed is another video
    with pytest.raises(ConflictError, match="a was decided on elsewhere"):
        log.record("a", "keep", seen_revision=seen)
    with pytest.raises(ConflictError, match="Look again"):
        log.undo(seen_revision=seen)
    assert choices(log) == {"a": "drop", "b": "drop"}


def test_a_line_cut_short_by_a_crash_does_not_count_and_does_no_harm(log: DecisionLog) -> None:
    log.record("a", "keep")
    whole = log.path.read_bytes()
    log.record("b", "drop")
    for end in range(len(whole), len(log.path.read_bytes())):
        cut = DecisionLog(log.path.with_name(f"{end}.jsonl"))
        cut.path.write_bytes(log.path.read_bytes()[:end])
        assert choices(cut) == {"a": "keep"}
        cut.record("c", "keep")
        assert choices(cut) == {"a": "keep", "c": "keep"}


@pytest.mark.parametrize(
    "line",
    [
        b"nonsense",
        b'{"id": "a", "choice": "burn", "segments": []}',
        b'{"id": "a"}',
        b'{"id": 3, "choice": "keep", "segments": []}',
        b'{"undo": ["a"]}',
        b"[1]",
        b"7",
        b"\xff\xfe\x85",
        b"[" * 5000,
    ],
)
def test_a_damaged_line_does_not_count_and_is_named(log: DecisionLog, line: bytes) -> None:
    log.record("a", "keep")
    with log.path.open("ab") as file:
        file.write(line + b"\n")
    log.record("b", "drop", seen_revision=2)
    assert choices(log) == {"a": "keep", "b": "drop"}
    found = log.read()
    assert found.revision == 3
    (said,) = found.damaged
    assert said.startswith("line 2 of decisions.jsonl is damaged and does not count")
    assert log.undo() == "b"


@pytest.mark.parametrize(
    "segments", [[(2.0, 1.0)], [(-1.0, 1.0)], [(0.0, 2.0), (1.0, 3.0)], [], [(0.0, 1e999)]]
)
def test_segments_must_make_sense(log: DecisionLog, segments: list[tuple[float, float]]) -> None:
    with pytest.raises(ConfigError):
        log.record("a", "trim", segments=segments)
    assert not log.path.exists()


def test_two_processes_lose_nothing(log: DecisionLog) -> None:
    code = (
        "import sys; from pathlib import Path; from provico.curation.decisions import DecisionLog\n"
        "log = DecisionLog(Path(sys.argv[1]))\n"
        "for number in range(50): log.record(f'{sys.argv[2]}{number}', 'keep')"
    )
    writers = [subprocess.Popen([sys.executable, "-c", code, str(log.path), name]) for name in "ab"]
    assert [writer.wait(60) for writer in writers] == [0, 0]
    assert set(log.current()) == {f"{name}{number}" for name in "ab" for number in range(50)}
    assert all(json.loads(line) for line in log.path.read_text().splitlines())
