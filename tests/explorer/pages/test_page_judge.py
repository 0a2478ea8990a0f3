"""Judging hits on the search page: two keys, buttons, undo, reload, another tab."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import quote

import pytest
from playwright.sync_api import Locator, Page, expect

from provico.search.judgements import JudgementLog

QUERY = "Fire/1.mp4"
ADDRESS = f"/search?id={quote(QUERY)}&p=0"


@pytest.fixture(autouse=True)
def forgotten(server: Any) -> Iterator[None]:
    server.reset_judgements()
    yield
    server.reset_judgements()


def verdicts(server: Any) -> list[str]:
    return [one.verdict for one in JudgementLog(server.index).read().current.values()]


def button(hit: Locator, name: str) -> Locator:
    return hit.get_by_role("button", name=re.compile(f"^{name}"))


def opened(open_page: Callable[..., Page]) -> Page:
    page = open_page(ADDRESS)
    expect(page.locator(".hit")).to_have_count(11)
    expect(page.locator(".verdict")).to_have_count(22)
    return page


def test_two_keys_judge_the_focussed_hit_and_undo_takes_it_back(open_page: Callable[..., Page], server: Any):
    page = opened(open_page)
    first, second = page.locator(".hit").nth(0), page.locator(".hit").nth(1)
    page.keyboard.press("j")
    expect(first).to_be_focused()
    page.keyboard.press("r")
    expect(first).to_have_attribute("data-verdict", "right")
    expect(button(first, "Right")).to_have_attribute("aria-pressed", "true")
    page.keyboard.press("j")
    expect(second).to_be_focused()
    page.keyboard.press("w")
    expect(second).to_have_attribute("data-verdict", "wrong")
    expect(page.locator("#judge-status")).to_contain_text("2 hits judged")
    assert verdicts(server) == ["right", "wrong"]
    page.keyboard.press("u")
    expect(second).to_have_attribute("data-verdict", "")
    expect(first).to_have_attribute("data-verdict", "right")
    assert verdicts(server) == ["right"]


def test_buttons_do_the_same_and_a_reload_keeps_it(open_page: Callable[..., Page], server: Any):
    page = opened(open_page)
    button(page.locator(".hit").nth(2), "Wrong").click()
    expect(page.locator(".hit").nth(2)).to_have_attribute("data-verdict", "wrong")
    page.reload()
    expect(page.locator(".hit").nth(2)).to_have_attribute("data-verdict", "wrong")
    button(page.locator(".hit").nth(2), "Right").click()
    expect(page.locator(".hit").nth(2)).to_have_attribute("data-verdict", "right")
    assert verdicts(server) == ["right"]


def test_a_second_tab_is_seen_and_never_overwritten(
    open_page: Callable[..., Page], server: Any, expected_problems: list[str]
):
    expected_problems.append("409")
    one, other = opened(open_page), opened(open_page)
    button(other.locator(".hit").nth(0), "Wrong").click()
    expect(other.locator(".hit").nth(0)).to_have_attribute("data-verdict", "wrong")
    button(one.locator(".hit").nth(0), "Right").click()
    expect(one.locator("#judge-status")).to_contain_text("Not saved")
    expect(one.locator(".hit").nth(0)).to_have_attribute("data-verdict", "wrong")
    assert verdicts(server) == ["wrong"]


def test_what_could_not_be_saved_is_not_called_saved(
    open_page: Callable[..., Page], server: Any, expected_problems: list[str]
):
    expected_problems.append("Failed to load resource")
    page = opened(open_page)
    page.route("**/api/judgements", lambda route: route.abort())
    button(page.locator(".hit").nth(0), "Right").click()
    expect(page.locator("#judge-status")).to_contain_text("Not saved")
    expect(page.locator(".hit").nth(0)).not_to_have_attribute("data-verdict", "right")
    assert verdicts(server) == []


def test_the_list_of_what_to_judge_first_leads_to_the_query(open_page: Callable[..., Page]):
    page = open_page("/search")
    page.get_by_text("Judge these first").click()
    links = page.locator("#judge-first-list a")
    expect(links).to_have_count(10)
    links.first.click()
    expect(page).to_have_url(re.compile(r"exclude_same=group"))
    expect(page.locator(".verdict").first).to_be_visible()
    page.keyboard.press("?")
    expect(page.locator(".keys-list")).to_contain_text("Right: judge the hit")


def test_a_part_of_a_video_cannot_be_judged(open_page: Callable[..., Page]):
    page = open_page(f"{ADDRESS}&start=0.5&end=2")
    expect(page.locator(".hit").first).to_be_visible()
    expect(page.locator(".verdict")).to_have_count(0)


def test_a_guarantee_without_judgements_says_what_is_missing(
    open_page: Callable[..., Page], expected_problems: list[str]
):
    expected_problems.append("422")
    page = open_page(f"{ADDRESS}&max_error=0.1")
    expect(page.locator(".state-problem")).to_contain_text(
        "needs judgements of at least 30 randomly drawn queries"
    )
