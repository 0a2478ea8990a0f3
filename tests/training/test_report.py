"""The page of a run: complete, self-contained, safe, and the same bytes for the same run."""

from __future__ import annotations

import json
import math
import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import matplotlib
import pytest

from provico.errors import ProvicoError
from provico.training.report import MAX_POINTS, SECTIONS, write_report
from provico.training.run_log import RunLog

TITLES = [panel.title for _, panels in SECTIONS.values() for panel in panels]
CONFIG = {"model": {"dim": 128, "backbone": "tiny"}, "mining": {"mutual_top": None}}


def full_record(step: int) -> dict[str, float]:
    """Every metric a run can log."""
    epoch = step / 10
    keys = {key for _, panels in SECTIONS.values() for panel in panels for key in (*panel.left, *panel.right)}
    keys |= {key for _, panels in SECTIONS.values() for panel in panels for key in panel.band or ()}
    return {
        "step": step,
        "epoch": epoch,
        "stage": 1 if epoch < 3 else 2,
        **{key: 0.5 + 0.4 * math.sin(step + number) for number, key in enumerate(sorted(keys))},
        "health/noise_to_signal": 0.25,
        "data/num_broken": 2,
    }


def make(folder: Path, records: list[dict[str, float]], config: dict[str, Any] | None = None) -> str:
    with RunLog(folder) as log:
        for record in records:
            log.write(record)
    (folder / "config.json").write_text(json.dumps(CONFIG if config is None else config))
    path = write_report(folder)
    assert path == folder / "report.html"
    return path.read_text(encoding="utf-8")


class Page(HTMLParser):
    """Elements, attributes and text of a page, as a browser would see them."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.text: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def charts(text: str) -> dict[str, ElementTree.Element]:
    found = [ElementTree.fromstring(svg) for svg in re.findall(r"<svg.*?</svg>", text, flags=re.DOTALL)]
    return {svg.attrib["aria-label"]: svg for svg in found}


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> str:
    return make(tmp_path_factory.mktemp("full") / "run", [full_record(step) for step in range(0, 60, 5)])


def test_every_chart_is_there_and_each_curve_has_its_name(full: str) -> None:
    drawn = charts(full)
    assert list(drawn) == TITLES
    for _, panels in SECTIONS.values():
        for panel in panels:
            words = {element.text for element in drawn[panel.title].iter() if element.tag.endswith("}text")}
            assert {*panel.left.values(), *panel.right.values(), "epoch", "mining"} <= words, panel.title


def test_the_page_needs_nothing_from_outside(full: str) -> None:
    page = Page(full)
    assert not {"script", "link", "img", "iframe", "object"} & set(page.tags)
    assert all((value or "").startswith("#") for name, value in page.attributes if "href" in name)
    assert "src" not in dict(page.attributes)
    assert "@import" not in full
    assert all(target.startswith("#") for target in re.findall(r"url\(([^)]*)\)", full))


def test_identifiers_are_unique_and_all_references_are_met(full: str) -> None:
    identifiers = [value for name, value in Page(full).attributes if name == "id"]
    assert len(identifiers) == len(set(identifiers)) > 0
    assert set(re.findall(r'(?:url\(|href=")#([^)"]*)', full)) <= set(identifiers)


def test_colours_follow_the_page_in_light_and_dark(full: str) -> None:
    css, dark = re.findall(r":root \{(.*?)\}", full, flags=re.DOTALL)
    used = set(re.findall(r"var\((--[a-z0-9-]+)\)", full))
    assert {"--ink", "--series-1", "--series-4"} <= used
    assert all(f"{name}:" in css and f"{name}:" in dark for name in used)
    body = full[full.index("<body>") :]
    assert re.findall(r"#[0-9a-fA-F]{6}\b", body) == []


def test_the_run_is_told_in_words(tmp_path: Path) -> None:
    kept = ("step", "epoch", "stage", "loss", "data/num_broken", "health/noise_to_signal")
    records = [{key: full_record(step)[key] for key in kept} for step in range(0, 60, 5)]
    said = {
        "loss": 0.125,
        "health/effective_rank": 37.2,
        "monitor/recall_at_1": 0.75,
        "mining/num_pairs": 1,
        "mining/share": 0.004,
        "mining/precision": 0.93,
    }
    for record in records:
        record |= {"time/step_seconds": 36.0, "time/data_share": 0.03}
    text = "".join(Page(make(tmp_path, [*records[:-1], records[-1] | said])).text)
    assert "55 steps, 5.5 epochs, about 33.0 minutes of training." in text
    assert " to 0.125." in text
    assert "The means span about 37 of 128 directions." in text
    assert "The noise is 0.25 times the signal: the means distinguish videos." in text
    assert "R@1 of the monitor ended at 0.75;" in text
    assert "Mining began at epoch 3." in text
    assert "The last record mined 1 pair, 0.4 % of all; 93 % of them are right." in text
    assert "Waiting for data took 3 % of the time." in text
    assert "2 videos could not be read" in text
    assert "model.dim" in text
    assert "mining.mutual_top" in text


def test_nothing_from_a_file_becomes_markup(tmp_path: Path) -> None:
    evil = "</td><script>alert('x')</script><img src=x onerror=alert(1)>\"&"
    folder = tmp_path / "<script>run&<b>"
    text = make(folder, [{"step": 1, "loss": 1.0, evil: 2.0}], {"data": {"folder": evil, evil: 1}})
    page = Page(text)
    assert not {"script", "img", "b"} & set(page.tags)
    assert "".join(page.text).count(evil) == 3  # a value and a key of the settings, a key of the record
    assert "<script>run&<b>" in page.text


def test_the_same_run_gives_the_same_bytes_everywhere(tmp_path: Path) -> None:
    records = [{"step": step, "loss": 1 / (1 + step)} for step in range(3)]
    first = make(tmp_path / "a" / "run", records)
    with matplotlib.rc_context({"axes.linewidth": 5.0, "svg.fonttype": "path"}):
        assert make(tmp_path / "b" / "run", records) == first
    other = tmp_path / "c" / "run"
    make(other, records)
    (other / "report.html").unlink()
    script = (
        "import sys, pathlib; from provico.training.report import write_report; "
        "write_report(pathlib.Path(sys.argv[1])); print('matplotlib.pyplot' in sys.modules)"
    )
    run = subprocess.run(
        [sys.executable, "-c", script, str(other)], capture_output=True, text=True, check=True
    )
    assert run.stdout.strip() == "False"  # no state shared with the caller's own plots
    assert (other / "report.html").read_text(encoding="utf-8") == first
    assert sorted(path.name for path in other.iterdir()) == ["config.json", "metrics.jsonl", "report.html"]


def test_one_record_is_enough(tmp_path: Path) -> None:
    assert list(charts(make(tmp_path, [full_record(40)]))) == TITLES


@pytest.mark.parametrize("missing", [None, "epoch", "step", "stage"])
def test_what_was_not_logged_is_left_out(tmp_path: Path, missing: str | None) -> None:
    records = [{"step": s, "epoch": s / 4, "stage": 1, "loss": 2.0 - s} for s in range(5)]
    text = make(tmp_path, [{k: v for k, v in record.items() if k != missing} for record in records], {})
    assert list(charts(text)) == ["Loss and its parts"]
    assert "<h2>Loss</h2>" in text
    assert "<h2>Mined pairs</h2>" not in text
    assert "<h2>Settings</h2>" not in text


def test_numbers_that_are_not_finite_or_not_positive_are_drawn_around(tmp_path: Path) -> None:
    records = [{"step": s, "loss": 1.0, "health/noise": 0.0, "health/signal": 2.0} for s in range(4)]
    text = make(tmp_path, [*records, {"step": 4, "loss": math.nan, "health/signal": math.inf}])
    assert list(charts(text)) == ["Loss and its parts", "Noise against signal"]
    assert "The loss of the last record is not a finite number." in text
    assert "<td>not finite</td>" in text


def test_a_long_run_stays_a_small_page(tmp_path: Path) -> None:
    records = [{"step": s, "loss": float(s % 7)} for s in range(5 * MAX_POINTS)]
    svg = charts(make(tmp_path, records))["Loss and its parts"]
    longest = max(element.attrib.get("d", "").count("L") for element in svg.iter())
    assert MAX_POINTS / 2 < longest <= MAX_POINTS


def test_a_run_that_has_logged_nothing_yet(tmp_path: Path) -> None:
    text = make(tmp_path, [])
    assert "No step has been logged yet." in text
    assert charts(text) == {}


def test_a_folder_without_a_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ProvicoError, match=r"no metrics\.jsonl in .*Give the folder"):
        write_report(tmp_path)
