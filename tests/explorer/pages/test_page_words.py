"""Search by words in the box that takes names, and a moment cut out of what was found."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect

from provico.data.frames.video import index_video

BOX = "#pick"


@pytest.fixture
def worded_page(browser: Browser, start_server: Callable[..., Any], worded_index: Path) -> Any:
    context = browser.new_context(base_url=start_server(index=worded_index).url, accept_downloads=True)
    problems: list[str] = []
    page = context.new_page()
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("console", lambda said: problems.append(said.text) if said.type == "error" else None)
    yield page
    context.close()
    assert problems == []


def test_words_find_moments_which_can_be_saved(worded_page: Page, tmp_path: Path):
    page = worded_page
    page.goto("/search")
    box = page.get_by_label("Or words, or a video of the collection")
    box.fill("a person diving")
    page.get_by_role("button", name="Search for “a person diving”").click()
    expect(page).to_have_url(re.compile(r"[?&]text=a\+person\+diving"))
    expect(page.locator(".hit")).to_have_count(11)
    expect(page.locator("#answer-status")).to_contain_text("11 of the best 11")
    expect(page.locator("#answer-status")).to_contain_text("Too few videos to say how surprising")
    hit = page.locator(".hit[data-id='long.mp4']")
    with page.expect_download() as saved:
        hit.get_by_role("button", name=re.compile("^Cut out 0:")).click()
    assert saved.value.suggested_filename.startswith("long ")
    saved.value.save_as(tmp_path / "part.mp4")
    assert 10 <= index_video(tmp_path / "part.mp4").num_frames < 200
    expect(page.locator("#toast")).to_contain_text("Saved")
    assert not Axe().run(page).response["violations"]
    # The address says it all, and a video is searched for in the same box.
    page.reload()
    expect(page.locator(".hit")).to_have_count(11)
    box.fill("lake")
    page.locator("#picks button img").first.click()
    expect(page).to_have_url(re.compile(r"id=IMG"))
    page.go_back()
    expect(page.locator("#query")).to_contain_text("“a person diving”")


def test_unlike_changes_the_answer(worded_page: Page):
    page = worded_page
    page.goto("/search?text=at+night")
    expect(page.locator(".hit")).to_have_count(11)
    first = page.locator(".hit").first.get_attribute("data-id") or ""
    page.get_by_text("Options", exact=True).click()
    page.get_by_label("Not like").fill(first)
    page.keyboard.press("Enter")
    page.get_by_label("Not like").blur()
    expect(page.locator(".hit")).to_have_count(10)
    expect(page.locator("#query h2")).to_have_text(f"“at night not {first}”")


@pytest.mark.parametrize("expected_problems", [["409"]])
def test_without_a_text_tower_a_sentence_says_so(
    open_page: Callable[..., Page], expected_problems: list[str]
):
    page = open_page("/search")
    page.locator(BOX).fill("a person diving")
    expect(page.locator("#picks")).to_contain_text("was not trained with text")
    page.locator(BOX).press("Enter")
    expect(page.locator("#hits h2")).to_contain_text("cannot be searched by words: tiny")
    expect(page.locator("#hits")).to_contain_text("provico open VIDEOS --backbone")


@pytest.mark.parametrize("typed", ["Fire/2.mp4", "ire/2"])
def test_enter_takes_the_video_that_is_named(open_page: Callable[..., Page], typed: str):
    page = open_page("/search")
    page.locator(BOX).fill(typed)
    page.locator(BOX).press("Enter")
    expect(page.locator("#query")).to_contain_text("Fire/2.mp4")
    expect(page.locator(".hit").first).to_be_visible()


def test_a_part_is_cut_out_of_a_video_page(open_page: Callable[..., Page], tmp_path: Path):
    page = open_page("/video?id=Fire/1.mp4")
    page.get_by_label("From second").fill("0.5")
    page.get_by_label("To second").fill("1.5")
    with page.expect_download() as saved:
        page.get_by_role("button", name="Save as a file").click()
    assert saved.value.suggested_filename == "1 0.50-1.50.mp4"
    saved.value.save_as(tmp_path / "part.mp4")
    assert index_video(tmp_path / "part.mp4").num_frames == 12
    page.get_by_label("To second").fill("0.2")
    page.get_by_role("button", name="Save as a file").click()
    expect(page.locator("#toast")).to_contain_text("The end must come after the start")
