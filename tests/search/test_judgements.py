"""Judgements survive crashes, several writers and damaged lines; the last about a pair counts."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from provico.errors import ConfigError, ConflictError
from provico.search.judgements import VERDICTS, Judgement, JudgementLog, read_judgements

from ..warm_processes import ForkServer, all_succeed


def judgement(query: str, hit: str, verdict: str) -> Judgement:
    return Judgement(query=query, hit=hit, verdict=VERDICTS[verdict == "wrong"])


@pytest.fixture
def log(tmp_path: Path) -> JudgementLog:
    return JudgementLog(tmp_path)


def verdicts(log: JudgementLog) -> dict[tuple[str, str], str]:
    return {pair: one.verdict for pair, one in log.read().current.items()}


def test_nothing_was_judged_at_first(log: JudgementLog) -> None:
    assert log.read().current == {}
    assert log.read().revision == 0
    assert log.undo() is None


def test_the_last_judgement_counts_and_undo_takes_it_back(log: JudgementLog) -> None:
    log.record([judgement("a", "b", "right"), judgement("a", "c", "right")])
    log.record([judgement("a", "b", "wrong")])
    assert verdicts(log) == {("a", "b"): "wrong", ("a", "c"): "right"}
    assert log.undo() == ("a", "b")
    assert verdicts(log) == {("a", "b"): "right", ("a", "c"): "right"}
    assert log.undo() == ("a", "c")
    assert log.undo() == ("a", "b")
    assert verdicts(log) == {}
    assert log.undo() is None
    lines = log.path.read_text().splitlines()
    assert lines[0] == "query,hit,verdict,time"
    assert len(lines) == 1 + 3 + 3


names = st.text(
    st.characters(exclude_characters="\n\r\x00", exclude_categories=["Cs"]), min_size=1, max_size=8
)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(names, names, st.sampled_from(VERDICTS)), max_size=8))
def test_what_is_recorded_is_read_again_whatever_the_names(rows: list[tuple[str, str, str]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        log = JudgementLog(Path(folder))
        for row in rows:
            log.record([judgement(*row)])
        assert log.read().damaged == ()
        assert verdicts(log) == {(query, hit): verdict for query, hit, verdict in rows}


@pytest.mark.parametrize("cut", range(1, 24))
def test_a_line_that_a_crash_cut_short_spoils_no_other(log: JudgementLog, cut: int) -> None:
    log.record([judgement("a", "b", "right")])
    whole = log.path.read_bytes()
    log.record([judgement("some", "hit", "wrong")])
    log.path.write_bytes(log.path.read_bytes()[: len(whole) + cut])
    before = verdicts(log)
    assert before[("a", "b")] == "right"
    log.record([judgement("c", "d", "wrong")])
    assert verdicts(log) == before | {("c", "d"): "wrong"}


def test_damaged_lines_are_named_and_the_others_count(log: JudgementLog) -> None:
    log.record([judgement("a", "b", "right")])
    with log.path.open("ab") as file:
        file.write(b'nonsense\n\xff\xfe,"\na,b,maybe,now\n')
    log.record([judgement("c", "d", "wrong")])
    known = log.read()
    assert verdicts(log) == {("a", "b"): "right", ("c", "d"): "wrong"}
    assert len(known.damaged) == 3
    assert [f"line {number}" in line for number, line in zip((3, 4, 5), known.damaged, strict=True)]


def test_what_was_judged_elsewhere_meanwhile_is_a_conflict(log: JudgementLog) -> None:
    seen = log.record([judgement("a", "b", "right")]).revision
    log.record([judgement("a", "b", "wrong")])
    with pytest.raises(ConflictError, match="elsewhere"):
        log.record([judgement("a", "b", "right")], seen_revision=seen)
    log.record([judgement("a", "c", "right")], seen_revision=seen)  # another hit is no conflict
    with pytest.raises(ConflictError, match="undo"):
        log.undo(seen_revision=seen)


WRITER = """
import sys
from pathlib import Path
from provico.search.judgements import Judgement, JudgementLog
for number in range(15):
    JudgementLog(Path(sys.argv[1])).record([Judgement(query=sys.argv[2], hit=str(number), verdict="right")])
"""


def test_two_processes_lose_nothing(tmp_path: Path, fork_server: ForkServer) -> None:
    all_succeed([fork_server.start("-c", WRITER, tmp_path, name) for name in ("one", "two")])
    known = JudgementLog(tmp_path).read()
    assert known.damaged == ()
    assert set(known.current) == {(name, str(number)) for name in ("one", "two") for number in range(15)}


def test_all_are_recorded_or_none(log: JudgementLog) -> None:
    def find(name: str) -> None:
        if name == "missing":
            raise ConfigError("There is no video missing.")

    with pytest.raises(ConfigError, match="missing"):
        log.record([judgement("a", "b", "right"), judgement("a", "missing", "right")], find=find)
    assert not log.path.exists()
    with pytest.raises(ConfigError, match="line break"):
        log.record([judgement("a\nb", "c", "right")])


def test_a_csv_of_the_user_may_have_other_columns_and_open_lines(tmp_path: Path) -> None:
    path = tmp_path / "mine.csv"
    path.write_text("who,hit,query,verdict\nme,b,a,Right\nme,c,a,\nme,d,a, wrong\n")
    assert read_judgements(path) == [judgement("a", "b", "right"), judgement("a", "d", "wrong")]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("query,hit\na,b\n", "no column verdict"),
        ("", "no column query"),
        ("query,hit,verdict\na,b,maybe\n", "row 2: the verdict is 'maybe'"),
        ("query,hit,verdict\n,b,right\n", "row 2"),
    ],
)
def test_a_csv_that_is_wrong_is_refused_with_the_place(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "mine.csv"
    path.write_text(text)
    with pytest.raises(ConfigError, match=message):
        read_judgements(path)
    with pytest.raises(ConfigError, match="cannot be read"):
        read_judgements(tmp_path / "none.csv")
