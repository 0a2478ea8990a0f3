"""A file that is replaced is the old one or the new one, whatever happens on the way."""

from __future__ import annotations

import csv
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from provico.files import replace_rows, replace_text


def test_text_and_rows_take_the_place_of_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    replace_text(path, "äöü\n")
    assert path.read_text(encoding="utf-8") == "äöü\n"
    odd = os.fsdecode(b"caf\xe9, \n.mp4")  # neither text nor free of what csv must quote
    replace_rows(path, ("path", "label"), [{"path": odd, "label": "run", "more": 1}, {"path": "b.mp4"}])
    with path.open(newline="", encoding="utf-8", errors="surrogateescape") as file:
        rows = list(csv.DictReader(file))
    assert rows == [{"path": odd, "label": "run"}, {"path": "b.mp4", "label": ""}]
    assert list(tmp_path.iterdir()) == [path]


def test_an_error_half_way_leaves_what_was_there(tmp_path: Path) -> None:
    def rows() -> Iterator[dict[str, str]]:
        yield {"path": "a.mp4"}
        raise KeyboardInterrupt

    replace_text(tmp_path / "a.csv", "old")
    with pytest.raises(KeyboardInterrupt):
        replace_rows(tmp_path / "a.csv", ("path",), rows())
    assert (tmp_path / "a.csv").read_text() == "old"
