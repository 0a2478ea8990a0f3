"""Curate: decide with keys; what is called saved is on the disk, and two tabs do not undo each other."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from provico.curation.folder import CuratedVideo, CurationFolder


@pytest.fixture(autouse=True)
def _fresh(server: Any) -> None:
    server.reset_curation()


def current(page: Page) -> str:
    return page.locator("#item-title").inner_text()


def decided(server: Any) -> list[dict[str, Any]]:
    path = server.index / "curation" / "decisions.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()]


def open_queue(open_page: Callable[..., Page], path: str = "/curate") -> Page:
    page = open_page(path)
    expect(page.locator("#item-title")).to_be_visible()
    return page


def test_keys_decide_and_go_on(open_page: Callable[..., Page], server: Any):
    page = open_queue(open_page)
    first = current(page)
    page.keyboard.press("k")
    expect(page.locator("#item-title")).not_to_have_text(first)
    second = current(page)
    page.keyboard.press("d")
    expect(page.locator("#progress")).to_have_text("3 of 12 videos")
    expect(page.locator("#saving")).to_have_text("All saved")
    found = [(line["id"], line["choice"]) for line in decided(server)]
    assert found == [(first, "keep"), (second, "drop")]
    expect(page.locator("#counts")).to_contain_text("1 drop")


def test_undo_takes_back_and_returns(open_page: Callable[..., Page], server: Any):
    page = open_queue(open_page)
    first = current(page)
    page.keyboard.press("d")
    expect(page.locator("#saving")).to_have_text("All saved")
    page.keyboard.press("u")
    expect(page.locator("#saving")).to_have_text(f"Undone: {first}")
    expect(page.locator("#item-title")).to_have_text(first)
    assert decided(server)[-1]["undo"] == first
    expect(page.locator("#counts")).to_contain_text("0 drop")
    page.keyboard.press("u")
    expect(page.locator("#saving")).to_have_text("Nothing to undo")


def test_a_reason_is_in_words_and_its_numbers_unfold(open_page: Callable[..., Page], server: Any):
    open_queue(open_page)
    folder = CurationFolder(server.index / "curation")
    reason, detail = (
        "hard to make out: less certain than 91 % of the others",
        "uncertainty 2.7 deviations above",
    )
    folder.write([CuratedVideo(path="", id="Fire/1.mp4", bucket="review", reason=reason, detail=detail)])
    page = open_queue(open_page)
    expect(page.locator("#item-title")).to_have_text("Fire/1.mp4")
    expect(page.locator(".reason")).to_have_text(reason)
    expect(page.get_by_text(detail)).to_be_hidden()
    page.locator(".review summary", has_text="Numbers").click()
    expect(page.get_by_text(detail)).to_be_visible()
    expect(page.locator(".review .numbers dd").first).to_have_text(re.compile(r"^\d"))


def test_trim_with_the_handles(open_page: Callable[..., Page], server: Any):
    page = open_queue(open_page)
    first = current(page)
    page.keyboard.press("t")
    start = page.get_by_role("slider", name="Start of part 1")
    expect(start).to_be_focused()
    for _ in range(5):
        page.keyboard.press("ArrowRight")
    expect(start).to_have_attribute("aria-valuenow", "0.50")
    end = page.get_by_role("slider", name="End of part 1")
    box, strip = end.bounding_box(), page.locator(".strip-slider").bounding_box()
    assert box
    assert strip
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 20)
    page.mouse.down()
    page.mouse.move(strip["x"] + 2 / 3 * strip["width"], box["y"] + 20, steps=5)
    page.mouse.up()
    page.keyboard.press("Enter")
    expect(page.locator("#saving")).to_have_text("All saved")
    (line,) = decided(server)
    assert (line["id"], line["choice"]) == (first, "trim")
    assert line["segments"] == [[pytest.approx(0.5), pytest.approx(2.0, abs=0.05)]]


def test_a_cut_makes_two_parts_and_delete_leaves_one_out(open_page: Callable[..., Page], server: Any):
    page = open_queue(open_page)
    first = current(page)
    page.keyboard.press("t")
    page.keyboard.press("x")
    handles = page.locator(".trim-handle")
    expect(handles).to_have_count(4)
    expect(page.get_by_role("slider", name="End of part 1")).to_be_focused()
    page.keyboard.press("Home")  # as far as it goes
    page.keyboard.press("Enter")
    expect(page.locator("#saving")).to_have_text("All saved")
    (line,) = decided(server)
    (start, end), (again, over) = line["segments"]
    assert 0 == start < end < again < over == pytest.approx(3, abs=0.1)
    assert end == pytest.approx(0.1)
    expect(page.locator("#item-title")).not_to_have_text(first)
    page.keyboard.press("ArrowLeft")
    expect(page.locator("#item-title")).to_have_text(first)
    page.keyboard.press("t")
    expect(handles).to_have_count(4)
    page.keyboard.press("Delete")
    expect(handles).to_have_count(2)
    page.keyboard.press("Delete")
    expect(handles).to_have_count(2)
    page.keyboard.press("Enter")
    expect(page.locator("#saving")).to_have_text("All saved")
    assert decided(server)[-1]["segments"] == [[again, over]]


def test_escape_leaves_trimming_without_a_decision(open_page: Callable[..., Page]):
    page = open_queue(open_page)
    page.keyboard.press("t")
    expect(page.locator(".trim-handle")).to_have_count(2)
    page.keyboard.press("Escape")
    expect(page.locator(".trim-handle")).to_have_count(0)
    expect(page.locator("#counts")).to_contain_text("0 trim")


def test_a_reload_keeps_the_place_and_the_decisions(open_page: Callable[..., Page]):
    page = open_queue(open_page)
    first = current(page)
    page.keyboard.press("d")
    expect(page.locator("#saving")).to_have_text("All saved")
    page.keyboard.press("j")
    expect(page.locator("#progress")).to_have_text("3 of 12 videos")
    expect(page.locator("#item-title")).not_to_have_text(first)
    third = page.url
    page.reload()
    expect(page.locator("#progress")).to_have_text("3 of 12 videos")
    assert page.url == third
    page.keyboard.press("ArrowLeft")
    expect(page.locator("#progress")).to_have_text("2 of 12 videos")
    page.keyboard.press("ArrowLeft")
    expect(page.locator("#item-title")).to_have_text(first)
    expect(page.locator("#verdict .chip")).to_have_text("drop")


def test_another_tab_was_faster(open_page: Callable[..., Page], server: Any, expected_problems: list[str]):
    expected_problems.append("409")
    mine, theirs = open_queue(open_page), open_queue(open_page)
    first = current(mine)
    assert current(theirs) == first
    theirs.keyboard.press("d")
    expect(theirs.locator("#saving")).to_have_text("All saved")
    mine.keyboard.press("k")
    expect(mine.locator("#verdict [role=alert]")).to_contain_text("decided on elsewhere")
    expect(mine.locator("#item-title")).to_have_text(first)
    expect(mine.locator("#verdict .chip")).to_have_text("drop")
    assert [line["choice"] for line in decided(server)] == ["drop"]
    # Having seen it, the reader may decide otherwise.
    mine.keyboard.press("k")
    expect(mine.locator("#saving")).to_have_text("All saved")
    assert [line["choice"] for line in decided(server)] == ["drop", "keep"]


def test_what_is_not_saved_is_not_called_saved(
    open_page: Callable[..., Page], server: Any, expected_problems: list[str]
):
    expected_problems.append("ERR_FAILED")
    page = open_queue(open_page)
    first = current(page)
    page.route("**/api/curation/decisions", lambda route: route.abort())
    page.keyboard.press("k")
    expect(page.locator("#saving")).to_contain_text("1 decision not saved")
    assert not (server.index / "curation" / "decisions.jsonl").exists()
    page.unroute("**/api/curation/decisions")
    page.get_by_role("button", name="Try again").click()
    expect(page.locator("#saving")).to_have_text("All saved")
    assert [(line["id"], line["choice"]) for line in decided(server)] == [(first, "keep")]


def test_one_bucket_at_a_time(open_page: Callable[..., Page], client: Any):
    page = open_queue(open_page)
    page.keyboard.press("d")
    expect(page.locator("#saving")).to_have_text("All saved")
    page.get_by_label("Proposed").select_option("drop")
    expect(page.locator("#progress")).to_have_text("1 of 1 video")
    page.get_by_label("Proposed").select_option("trim")
    expect(page.get_by_role("heading", name="Nothing to review")).to_be_visible()


def test_buttons_do_the_same_and_keep_the_focus(open_page: Callable[..., Page], server: Any):
    page = open_queue(open_page)
    first = current(page)
    page.get_by_role("button", name="Drop d").focus()
    page.keyboard.press("Enter")
    expect(page.locator("#item-title")).not_to_have_text(first)
    expect(page.get_by_role("button", name="Drop d")).to_be_focused()
    page.get_by_role("button", name="Next j").press("Enter")
    expect(page.locator("#progress")).to_have_text("3 of 12 videos")
    expect(page.locator("#saving")).to_have_text("All saved")
    assert [(line["id"], line["choice"]) for line in decided(server)] == [(first, "drop")]
