"""Browse: the whole collection, of which only what is seen is loaded."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import Page, Route, expect

Until = Callable[[Page, str], None]
MANY = 10_000


def shown(page: Page) -> list[str]:
    return page.locator(".card").evaluate_all("cards => cards.map(card => card.dataset.id)")


def test_every_video_has_a_picture_and_a_preview(
    open_page: Callable[..., Page], until: Until, ids: list[str]
):
    page = open_page("/browse")
    expect(page.locator("#count")).to_have_text(f"{len(ids)} videos")
    assert shown(page) == ids
    expect(page.locator(".card img").first).to_have_js_property("complete", True)
    assert page.locator(".card img").first.evaluate("image => image.naturalWidth") > 0

    # A preview plays only while it is pointed at.
    card = page.locator(".card").first
    assert page.locator("video").count() == 0
    card.hover()
    until(page, "document.querySelector('.card video')?.currentTime > 0")
    page.locator("h1").hover()
    expect(page.locator("video")).to_have_count(0)


def test_all_in_view_play_on_demand_and_none_for_who_wants_rest(open_page: Callable[..., Page], until: Until):
    page = open_page("/browse?play=1")
    until(page, "document.querySelectorAll('.card video').length > 3")
    page.get_by_label("Play all in view").uncheck()
    expect(page.locator("video")).to_have_count(0)
    still = open_page("/browse?play=1", reduced_motion="reduce")
    expect(still.locator(".card").first).to_be_visible()
    still.locator(".card").first.hover()
    assert still.locator("video").count() == 0


def test_filters_are_in_the_address_and_survive_a_reload(open_page: Callable[..., Page], until: Until):
    page = open_page("/browse")
    page.locator("select[name=label]").select_option("Fire")
    page.get_by_label("Order").select_option("-uncertainty")
    expect(page.locator("#count")).to_have_text("4 of 12 videos")
    expect(page).to_have_url(re.compile(r"label=Fire&sort=-uncertainty"))
    until(page, "document.querySelectorAll('.card').length === 4")
    found = shown(page)
    page.reload()
    expect(page.locator("#count")).to_have_text("4 of 12 videos")
    assert shown(page) == found
    expect(page.locator("select[name=label]")).to_have_value("Fire")
    page.get_by_role("button", name="Clear filters").click()
    expect(page.locator("#count")).to_have_text("12 videos")


def test_the_handles_leave_out_what_is_clear(open_page: Callable[..., Page], client):
    page = open_page("/browse")
    expect(page.locator("#count")).to_have_text("12 videos")
    page.get_by_label("At least this unsure").fill("60")
    least = re.compile(r"min_unsure=([\d.e-]+)")
    expect(page).to_have_url(least)
    (value,) = least.findall(page.url)
    total = client.get(f"/api/videos?min_unsure={value}").json()["total"]
    assert 0 < total < 12
    expect(page.locator("#count")).to_have_text(f"{total} of 12 videos")


def test_arrow_keys_walk_the_grid_and_an_odd_name_is_found(open_page: Callable[..., Page], ids: list[str]):
    page = open_page("/browse")
    expect(page.locator(".card")).to_have_count(12)
    columns = int(
        page.locator("#grid").evaluate("grid => getComputedStyle(grid).getPropertyValue('--columns')")
    )
    for key in ("ArrowRight", "ArrowRight", "ArrowDown", "ArrowLeft"):
        page.keyboard.press(key)
    focused = page.evaluate("document.activeElement.closest('.card').dataset.id")
    assert focused == ids[columns]
    page.keyboard.press("Enter")
    expect(page.locator("h1")).to_have_text(ids[columns])

    page.goto("/browse")
    page.keyboard.press("/")
    page.keyboard.type("50% OFF & more #1?")
    expect(page.locator("#count")).to_have_text("1 of 12 videos")
    page.locator(".card-title").click()
    expect(page.locator("h1")).to_have_text("Rain/50% off & more #1?.mp4")


def test_what_is_typed_while_the_index_opens_is_not_lost(open_slowly: Callable[..., Any]):
    page, let_through = open_slowly("/browse?label=Rain", "**/api/stats?*")
    page.keyboard.press("/")
    page.keyboard.type("50%")
    expect(page).to_have_url(re.compile("text=50"))
    let_through()
    expect(page.locator("#count")).to_have_text("1 of 12 videos")
    expect(page.locator("#text")).to_have_value("50%")
    expect(page.locator("select[name=label]")).to_have_value("Rain")


def test_nothing_found_is_said_with_a_way_out(open_page: Callable[..., Page]):
    page = open_page("/browse?text=no+such+video")
    expect(page.get_by_role("heading", name="No matching videos")).to_be_visible()
    page.locator("#grid").get_by_role("button", name="Clear filters").click()
    expect(page.locator(".card")).to_have_count(12)


@pytest.mark.parametrize("is_cut", [False, True], ids=["no answer", "half an answer"])
def test_a_server_that_is_away_is_said_and_tried_again(
    open_page: Callable[..., Page], expected_problems: list[str], is_cut: bool
):
    expected_problems.append("ERR_FAILED")
    page = open_page("/browse")
    expect(page.locator(".card")).to_have_count(12)
    cut = {"status": 200, "content_type": "application/json", "body": '{"items": ['}
    page.route("**/api/videos?*", lambda route: route.fulfill(**cut) if is_cut else route.abort())
    page.locator("select[name=label]").select_option("Rain")
    expect(page.get_by_role("alert")).to_contain_text("The explorer does not answer.")
    page.unroute("**/api/videos?*")
    page.get_by_role("button", name="Try again").click()
    expect(page.locator(".card")).to_have_count(4)


def test_of_many_videos_only_those_near_the_view_are_asked_for(open_page: Callable[..., Page], client):
    """No index of ten thousand videos can be made in a test: the list is one video said over and over."""
    (card,) = client.get("/api/videos?limit=1").json()["items"]
    asked: list[int] = []

    def answer(route: Route) -> None:
        given = parse_qs(urlsplit(route.request.url).query)
        offset, limit = int(given["offset"][0]), int(given["limit"][0])
        asked.append(offset)
        items = [card | {"id": f"{number}.mp4"} for number in range(offset, min(offset + limit, MANY))]
        body = json.dumps({"total": MANY, "offset": offset, "items": items})
        route.fulfill(content_type="application/json", body=body)

    page = open_page("/search")
    page.context.route("**/api/videos?*", answer)
    page.goto("/browse")
    expect(page.locator(".card").first).to_be_visible()
    assert max(asked) <= 120
    # The scroll bar is honest from the start: the end is there, though nothing of it is.
    page.evaluate("scrollTo(0, document.body.scrollHeight)")
    expect(page.locator(f".card[data-id='{MANY - 1}.mp4']")).to_be_visible()
    expect(page.locator(".card[data-id='0.mp4']")).to_have_count(0)
    assert len(asked) < 12
    assert page.locator(".card").count() <= 240
