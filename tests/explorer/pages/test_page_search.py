"""Search: by a click, by a name, by a file; and a threshold that asks nobody."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from playwright.sync_api import Page, expect

Until = Callable[[Page, str], None]
FIRE = "Fire/1.mp4"


@pytest.fixture
def duplicates(server: Any, keep_pair: Callable[[Path, str, str], Path]) -> Iterator[list[str]]:
    """Two videos that are said to show the same."""
    group = ["Fire/2.mp4", "Fire/3.mp4"]
    path = keep_pair(server.index, *group)
    yield group
    path.unlink()


def scores(page: Page) -> list[float]:
    return page.locator(".hit").evaluate_all("hits => hits.map(hit => Number(hit.dataset.score))")


def with_chance(answer: dict[str, Any]) -> dict[str, Any]:
    """Nothing can be said of twelve videos: the answer is given numbers, from .001 videos to 100."""
    for place, hit in enumerate(answer["answer"]["hits"]):
        hit["expected_by_chance"] = 10 ** (place / 2 - 3)
        hit["false_match_rate"] = hit["expected_by_chance"] / 1000
    return answer


def test_a_click_on_a_card_finds_its_like(open_page: Callable[..., Page]):
    page = open_page("/browse")
    card = page.locator(f".card[data-id='{FIRE}']")
    card.hover()
    card.get_by_role("link", name=f"Find videos like {FIRE}").click()
    expect(page).to_have_url(re.compile("/search\\?id=Fire%2F1.mp4"))
    expect(page.locator(".hit")).to_have_count(11)
    found = scores(page)
    assert found == sorted(found, reverse=True)
    expect(page.locator("#answer-status")).to_contain_text("proved to be the best of 11 videos")


def test_a_hit_shows_both_moments_and_why(open_page: Callable[..., Page]):
    page = open_page(f"/search?id={quote(FIRE)}")
    hit = page.locator(".hit").first
    for picture in (hit.locator(".moment img").first, hit.locator(".moment img").last):
        expect(picture).to_have_js_property("complete", True)
        assert picture.evaluate("image => image.naturalWidth") > 0
        assert re.search(r" at 0:0\d\.\d$", picture.get_attribute("alt") or "")
    for reason in ("Distance of means", "Query unsure", "Hit unsure"):
        expect(hit).to_contain_text(reason)
    expect(page.locator("#answer-status")).to_contain_text("Too few videos to say how surprising a match is")


def test_the_threshold_filters_at_once_without_a_request(open_page: Callable[..., Page], client: Any):
    answer = with_chance(client.get("/api/search", params={"id": FIRE, "k": 20}).json())
    page = open_page("/search")
    page.context.route("**/api/search?*", lambda route: route.fulfill(json=answer))
    page.goto(f"/search?id={quote(FIRE)}")
    expect(page.locator(".hit")).to_have_count(7)
    expect(page.locator("#right-field")).to_be_hidden()
    expect(page.locator(".hit-probability").first).to_have_text("0.001 by chance")
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.locator("select[name=chance]").select_option("0.1")
    expect(page.locator(".hit")).to_have_count(5)
    expect(page.locator("#answer-status")).to_contain_text("5 of the best 11")
    page.locator("select[name=chance]").select_option("any")
    expect(page.locator(".hit")).to_have_count(11)
    assert not [text for text in page.locator(".hit-probability, .hit dd").all_inner_texts() if "%" in text]
    assert not [url for url in asked if "/api/" in url]
    expect(page).to_have_url(re.compile(r"[?&]chance=any"))
    page.reload()
    expect(page.locator(".hit")).to_have_count(11)


def test_no_match_beyond_chance_is_an_answer(open_page: Callable[..., Page], client: Any):
    answer = with_chance(client.get("/api/search", params={"id": FIRE, "k": 20}).json())
    answer["answer"]["hits"] = answer["answer"]["hits"][8:]
    page = open_page("/search")
    page.context.route("**/api/search?*", lambda route: route.fulfill(json=answer))
    page.goto(f"/search?id={quote(FIRE)}")
    expect(page.get_by_role("heading", name="No match beyond chance")).to_be_visible()
    expect(page.locator("#hits")).to_contain_text("10 unrelated videos are expected")
    assert page.locator(".hit").count() == 0
    page.get_by_role("button", name="Show the best anyway").click()
    expect(page.locator(".hit").first).to_be_visible()


def test_a_file_is_looked_at_and_finds_itself(
    open_page: Callable[..., Page], until: Until, collection: Any, tmp_path: Path
):
    mine = tmp_path / "holiday.mp4"
    mine.write_bytes((collection.videos / FIRE).read_bytes())
    page = open_page("/search")
    expect(page.get_by_role("heading", name="Search with a video")).to_be_visible()
    page.locator("#file").set_input_files(mine)
    expect(page.locator(".hit")).to_have_count(12)
    hit = page.locator(f".hit[data-id='{FIRE}']")
    distance = hit.locator("dd").first.text_content() or ""  # folded away
    assert float(distance.replace("e", "E")) < 1e-3
    # The moments of a file that was never kept are shown from the reader's own copy.
    own = hit.locator(".moment video")
    assert (own.get_attribute("src") or "").startswith("blob:")
    until(page, "document.querySelector('.hit .moment video').readyState > 0")
    page.reload()
    expect(page.get_by_role("heading", name="The file is not kept")).to_be_visible()


def drop(page: Page, file: Path) -> None:
    """Drag a file of the desktop onto the page with the mouse, and let it go."""
    box = page.locator("#drop").bounding_box()
    assert box
    where = {"x": box["x"] + box["width"] / 2, "y": box["y"] + box["height"] / 2}
    data = {"items": [], "files": [str(file)], "dragOperationsMask": 1}
    devtools = page.context.new_cdp_session(page)
    for kind in ("dragEnter", "dragOver", "drop"):
        devtools.send("Input.dispatchDragEvent", {"type": kind, "data": data, **where})


def test_a_file_is_dropped_with_the_mouse_even_while_the_page_opens(
    open_slowly: Callable[..., Any], collection: Any
):
    page, let_through = open_slowly("/search", "**/api/stats?*")
    drop(page, collection.videos / FIRE)
    expect(page.locator("#query")).to_contain_text("1.mp4")
    let_through()
    expect(page.locator(".hit")).to_have_count(12)
    expect(page.locator("#query")).to_contain_text("1.mp4")
    expect(page.locator("#drop")).not_to_have_class(re.compile("is-over"))


def test_a_file_that_is_no_video_is_refused_in_words(
    open_page: Callable[..., Page], tmp_path: Path, expected_problems: list[str]
):
    expected_problems.append(r"status of 4\d\d")
    text = tmp_path / "notes.mp4"
    text.write_text("This is not a video.")
    page = open_page("/search")
    page.locator("#file").set_input_files(text)
    expect(page.locator("#hits").get_by_role("alert")).to_be_visible()


def test_a_name_finds_a_video_to_search_with(open_page: Callable[..., Page]):
    page = open_page("/search")
    page.get_by_label("Or a video of the collection").fill("grass/2")
    page.get_by_role("button", name="Grass/2.mp4").click()
    expect(page.locator(".hit")).to_have_count(11)
    expect(page.locator("#query")).to_contain_text("Grass/2.mp4")
    page.go_back()
    expect(page.get_by_role("heading", name="Search with a video")).to_be_visible()


def test_options_ask_again_and_survive_a_reload(open_page: Callable[..., Page]):
    page = open_page(f"/search?id={quote(FIRE)}")
    expect(page.locator(".hit")).to_have_count(11)
    page.locator(".options summary").click()
    page.locator("select[name=label]").select_option("Rain")
    expect(page.locator(".hit")).to_have_count(4)
    page.reload()
    expect(page.locator(".hit")).to_have_count(4)
    assert all("Rain/" in one for one in page.locator(".hit h3").all_inner_texts())


def test_duplicates_stand_together(open_page: Callable[..., Page], duplicates: list[str]):
    page = open_page(f"/search?id={quote(FIRE)}")
    expect(page.locator(".hit")).to_have_count(10)
    grouped = page.locator(".hit", has=page.locator(".duplicates"))
    expect(grouped).to_have_count(1)
    grouped.locator(".duplicates summary").click()
    named = {grouped.get_attribute("data-id"), grouped.locator(".duplicates a").inner_text()}
    assert named == set(duplicates)
    page.get_by_label("Group duplicates").uncheck()
    expect(page.locator(".hit")).to_have_count(11)


def test_a_calibrated_probability_is_called_so(open_page: Callable[..., Page], client: Any):
    """No calibration can be learnt from twelve videos: the answer is given one."""
    answer = client.get("/api/search", params={"id": FIRE, "k": 3}).json()
    for place, hit in enumerate(answer["answer"]["hits"]):
        hit["calibrated_probability"] = 0.9 - 0.3 * place
    page = open_page("/search")
    page.context.route("**/api/search?*", lambda route: route.fulfill(json=answer))
    page.goto(f"/search?id={quote(FIRE)}&p=0.5")
    expect(page.locator(".hit")).to_have_count(2)
    expect(page.locator(".hit-probability").first).to_have_text("90%")
    expect(page.locator("#answer-status")).to_contain_text("How often such hits are right")
