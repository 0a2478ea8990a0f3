"""One video: the strip seeks and shows frames, the causes, the clips, the neighbours."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from urllib.parse import quote

import pytest
from playwright.sync_api import Page, expect

Until = Callable[[Page, str], None]
GRASS = "Grass/1.mp4"
READY = "document.querySelector('.player video')?.readyState > 0"


def current_time(page: Page) -> float:
    return float(page.locator(".player video").evaluate("video => video.currentTime"))


def open_video(open_page: Callable[..., Page], until: Until, query: str = "") -> Page:
    page = open_page(f"/video?id={quote(GRASS)}{query}")
    expect(page.locator("h1")).to_have_text(GRASS)
    until(page, READY)
    return page


def test_a_click_on_the_strip_seeks(open_page: Callable[..., Page], until: Until):
    page = open_video(open_page, until)
    assert current_time(page) == 0
    box = page.locator(".strip-slider").bounding_box()
    assert box
    page.mouse.click(box["x"] + 0.5 * box["width"], box["y"] + box["height"] / 2)
    until(page, "document.querySelector('.player video').currentTime > 0")
    assert current_time(page) == pytest.approx(1.5, abs=0.1)
    expect(page.locator(".strip-slider")).to_have_attribute("aria-valuenow", "1.50")


def test_arrow_keys_on_the_strip_seek(open_page: Callable[..., Page], until: Until):
    page = open_video(open_page, until)
    page.locator(".strip-slider").focus()
    for _ in range(3):
        page.keyboard.press("ArrowRight")
    until(page, "document.querySelector('.player video').currentTime > 0.25")
    assert current_time(page) == pytest.approx(0.3, abs=0.05)
    page.keyboard.press("Home")
    until(page, "document.querySelector('.player video').currentTime === 0")
    page.keyboard.press("End")
    until(page, "document.querySelector('.player video').currentTime > 2.9")


def test_the_strip_shows_the_frame_under_the_pointer(open_page: Callable[..., Page], until: Until):
    page = open_video(open_page, until)
    box = page.locator(".strip-slider").bounding_box()
    assert box
    page.mouse.move(box["x"] + 0.8 * box["width"], box["y"] + box["height"] / 2)
    tip = page.locator(".strip-tip")
    expect(tip).to_contain_text("0:02.4, ")
    until(page, "document.querySelector('.strip-tip img').naturalWidth > 0")
    assert "seconds=2.4" in (tip.locator("img").get_attribute("src") or "")
    assert current_time(page) == 0
    page.mouse.move(0, 0)
    expect(tip).to_be_hidden()


def test_the_strip_moves_with_the_player(open_page: Callable[..., Page], until: Until):
    page = open_video(open_page, until, "&t=1")
    until(page, "Number(document.querySelector('.strip-slider').getAttribute('aria-valuenow')) === 1")
    page.locator(".strip-slider").focus()
    page.locator("h1").click()
    page.keyboard.press(" ")
    until(page, "Number(document.querySelector('.strip-slider').getAttribute('aria-valuenow')) > 1.2")


def test_its_uncertainty_its_clips_and_its_neighbours(
    open_page: Callable[..., Page], until: Until, client: Any
):
    page = open_video(open_page, until)
    video = client.get("/api/video", params={"id": GRASS}).json()
    panel = page.locator("section", has=page.get_by_role("heading", name="How hard it is to make out"))
    share = panel.locator(".measure").evaluate(
        "bar => bar.firstChild.getBoundingClientRect().width / bar.getBoundingClientRect().width"
    )
    assert share == pytest.approx(video["uncertainty_percentile"], abs=0.02)
    expect(panel).to_contain_text(f"{round(100 * video['uncertainty_percentile'])} %")
    # A word that needs one is told on demand, also by keyboard.
    panel.locator("h2 .term").focus()
    assert "lower uncertainty" in panel.locator("h2 .term").evaluate(
        "word => getComputedStyle(word, '::after').content"
    )
    clips = page.locator(".gaussian")
    expect(clips).to_have_count(len(video["clips"]))
    page.get_by_role("button", name="Clip 3,").focus()
    expect(page.locator(".strip .marked")).to_have_attribute("visibility", "visible")
    page.keyboard.press("Enter")
    until(page, "document.querySelector('.player video').currentTime > 0")
    assert current_time(page) == pytest.approx(video["clips"][2]["start_seconds"], abs=0.05)
    expect(page.locator("#neighbours .card")).to_have_count(8)
    expect(page.locator("#neighbours-note")).to_have_text("Too few videos to say how surprising a match is")


def test_without_a_playable_file_the_preview_and_single_frames_are_shown(
    open_page: Callable[..., Page], until: Until, client: Any
):
    """As for a long file in a codec that browsers do not know: its preview is of the middle."""
    video = client.get("/api/video", params={"id": GRASS}).json() | {"source": None, "duration_seconds": 9.0}
    page = open_page("/browse")
    page.context.route("**/api/video?*", lambda route: route.fulfill(json=video))
    page.goto(f"/video?id={quote(GRASS)}")
    until(page, READY)
    expect(page.locator(".player .note")).to_contain_text("this is its preview")
    # Three seconds from the middle of nine: it starts at the third.
    until(page, "Number(document.querySelector('.strip-slider').getAttribute('aria-valuenow')) === 3")
    box = page.locator(".strip-slider").bounding_box()
    assert box
    page.mouse.click(box["x"] + box["width"] / 2, box["y"] + 5)
    until(page, "document.querySelector('.player video').currentTime > 1.4")
    assert current_time(page) == pytest.approx(1.5, abs=0.1)
    expect(page.locator(".player-still")).to_be_hidden()
    page.mouse.click(box["x"] + box["width"] / 9, box["y"] + 5)
    expect(page.locator(".player-still")).to_be_visible()
    assert "seconds=1.0" in (page.locator(".player-still").get_attribute("src") or "")


def test_a_video_that_is_not_there_is_said(open_page: Callable[..., Page], expected_problems: list[str]):
    expected_problems.append("404")
    page = open_page("/video?id=Fire/99.mp4")
    expect(page.get_by_role("alert")).to_contain_text("Fire/99.mp4")
    page.goto("/video")
    expect(page.get_by_role("heading", name="No video was named")).to_be_visible()
