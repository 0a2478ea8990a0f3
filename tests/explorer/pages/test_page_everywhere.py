"""What holds on every page: phones, light and dark, the keyboard, and those who do not see the screen."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Literal

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, expect

import provico

Until = Callable[[Page, str], None]
STATIC = Path(provico.__file__).parent / "explorer" / "static"
PAGES = {
    "overview": ("/", ".cluster"),
    "browse": ("/browse", ".card"),
    "duplicates": ("/duplicates", ".state"),
    "search": ("/search?id=Fire/1.mp4&p=0", ".hit"),
    "video": ("/video?id=Fire/1.mp4", "#neighbours .card"),
    "map": ("/map", ".scatterlayer .point"),
    "runs": ("/runs?run=first", ".curve .scatterlayer path"),
    "curate": ("/curate", "#item-title"),
}
"""The address of each page, and what is there when it is complete."""
every_page = pytest.mark.parametrize("name", PAGES)

# Run in the page: what a reader of the screen would miss. Each returns the offending elements.
NAMELESS = """() => [...document.querySelectorAll('a[href], button, input, select, [role]')]
  .filter(element => !element.role || ['slider', 'button'].includes(element.role))
  .filter(element => element.checkVisibility() && !element.closest('.plot-area'))
  .filter(element => !(element.getAttribute('aria-label') || element.innerText?.trim() || element.title
    || [...element.labels ?? []].some(label => label.innerText.trim())
    || element.querySelector('title, img[alt]:not([alt=""])')))
  .map(element => element.outerHTML.slice(0, 120))"""
WITHOUT_ALT = (
    "() => [...document.images].filter(image => !image.hasAttribute('alt')).map(image => image.outerHTML)"
)
HEADINGS = """() => [...document.querySelectorAll('h1, h2, h3, h4')]
  .filter(heading => heading.checkVisibility()).map(heading => Number(heading.tagName[1]))"""
DOUBLE_IDS = """() => { const ids = [...document.querySelectorAll('[id]')].map(element => element.id);
  return ids.filter((id, place) => ids.indexOf(id) !== place); }"""
FOCUSED = """() => { const element = document.activeElement, box = element.getBoundingClientRect();
  const outlined = [getComputedStyle(element), getComputedStyle(element, '::after'),
    getComputedStyle(element.closest('.drop, .card') ?? element),
    getComputedStyle(element.nextElementSibling ?? element)].some(style => parseFloat(style.outlineWidth) >= 2
      && style.outlineStyle !== 'none');
  return {tag: element.tagName, html: element.outerHTML.slice(0, 120), outlined}; }"""

OUTSIDE = """() => [...document.querySelectorAll('.term')].filter(word => {
  if (!word.checkVisibility()) return false;
  word.focus();
  const box = word.getBoundingClientRect(), tip = getComputedStyle(word, '::after');
  const width = tip.boxSizing === 'border-box' ? parseFloat(tip.width)
    : parseFloat(tip.width) + parseFloat(tip.paddingLeft) + parseFloat(tip.paddingRight);
  const left = box.left + box.width / 2 + new DOMMatrix(tip.transform).e;
  return left < 0 || left + width > innerWidth;
}).map(word => word.getAttribute('aria-label'))"""
"""Explanations that reach out of the window."""


def complete(open_page: Callable[..., Page], name: str, **options: object) -> Page:
    path, sign = PAGES[name]
    page = open_page(path, **options)
    expect(page.locator(sign).first).to_be_visible()
    return page


@every_page
def test_a_phone_needs_no_scrolling_to_the_side(open_page: Callable[..., Page], name: str):
    page = complete(open_page, name, width=375, height=740, has_touch=True, is_mobile=True)
    assert page.evaluate("document.documentElement.scrollWidth") <= 375
    # The views are within reach, and what is at the end of the page is not under them.
    bar = page.locator(".site-nav").bounding_box()
    assert bar
    assert bar["y"] + bar["height"] == pytest.approx(740, abs=1)
    assert page.evaluate(OUTSIDE) == []


@pytest.fixture(scope="module")
def turn(open_shared_page: Callable[..., Page]) -> Callable[[str, Literal["light", "dark"]], Page]:
    """Each page, complete, loaded once where the system is dark; from then on it follows the system."""

    @cache
    def loaded(name: str) -> Page:
        page = complete(open_shared_page, name, color_scheme="dark")
        expect(page.locator("html")).to_have_attribute("data-theme", "dark")
        return page

    def turned(name: str, scheme: Literal["light", "dark"]) -> Page:
        page = loaded(name)
        page.emulate_media(color_scheme=scheme)
        expect(page.locator("html")).to_have_attribute("data-theme", scheme)
        return page

    return turned


@pytest.fixture(scope="module")
def light_page(turn: Callable[..., Page]) -> Callable[[str], Page]:
    """Each page as most people see it."""
    return lambda name: turn(name, "light")


@pytest.fixture(scope="module")
def dark_page(turn: Callable[..., Page]) -> Callable[[str], Page]:
    """Each page where the system is dark."""
    return lambda name: turn(name, "dark")


@every_page
def test_dark_where_the_system_is_dark(dark_page: Callable[[str], Page], name: str):
    background = dark_page(name).evaluate("getComputedStyle(document.body).backgroundColor")
    assert max(int(value) for value in re.findall(r"\d+", background)[:3]) < 64


@every_page
def test_everything_has_a_name_and_an_order(light_page: Callable[[str], Page], name: str):
    page = light_page(name)
    assert page.evaluate(NAMELESS) == []
    assert page.evaluate(WITHOUT_ALT) == []
    assert page.evaluate(DOUBLE_IDS) == []
    for landmark in ("banner", "main", "navigation"):
        expect(page.get_by_role(landmark)).to_have_count(1)
    assert page.locator("html").get_attribute("lang") == "en"
    if name not in ("video", "overview"):  # which are named by what they show
        assert {"curate": "review"}.get(name, name) in page.title().lower()
    levels = page.evaluate(HEADINGS)
    assert levels.count(1) == 1
    assert levels[0] == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))
    if name != "video":
        here = page.locator("header [aria-current=page]")
        title = {"curate": "Review", "runs": "Runs and reports"}.get(name, name)
        expect(here).to_have_accessible_name(re.compile(title, re.I))


@every_page
def test_the_focus_is_always_seen(light_page: Callable[[str], Page], name: str):
    page = light_page(name)
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip-link"
    seen = []
    for _ in range(24):
        page.keyboard.press("Tab")
        focused = page.evaluate(FOCUSED)
        if focused["tag"] not in ("BODY", "VIDEO", "svg"):  # the browser draws its own around a player
            seen.append(focused)
    assert len(seen) > 8
    assert [one["html"] for one in seen if not one["outlined"]] == []


def test_the_chosen_theme_outlives_the_page(open_page: Callable[..., Page]):
    page = complete(open_page, "browse")
    theme = page.locator("html")
    expect(theme).to_have_attribute("data-theme", "light")
    page.get_by_role("button", name="Light or dark").click()
    expect(theme).to_have_attribute("data-theme", "dark")
    page.goto("/curate")
    expect(theme).to_have_attribute("data-theme", "dark")
    page.get_by_role("button", name="Light or dark").click()
    page.reload()
    expect(theme).to_have_attribute("data-theme", "light")


def test_the_keys_are_listed_and_lead_to_the_views(open_page: Callable[..., Page]):
    page = complete(open_page, "curate")
    page.keyboard.press("?")
    dialog = page.get_by_role("dialog", name="Keyboard")
    for text in ("Keep", "Drop", "Undo", "Go to Browse"):
        expect(dialog).to_contain_text(text)
    page.keyboard.press("Escape")
    expect(dialog).to_be_hidden()
    page.keyboard.press("5")
    expect(page.get_by_role("heading", name="Map")).to_be_visible()


def test_pages_that_are_not_there_look_like_the_others(
    open_page: Callable[..., Page], expected_problems: list[str]
):
    expected_problems.append("404")
    page = open_page("/nowhere")
    expect(page.get_by_role("link", name="To the collection", exact=True)).to_be_visible()


def luminance(colour: str) -> float:
    """Relative luminance as in WCAG 2."""
    channels = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    bright, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (bright + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_colours_can_be_told_apart(theme: str):
    rules = (STATIC / "css" / "base.css").read_text().split("}")
    colours = dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6});", rules[["light", "dark"].index(theme)]))
    for text in ("text", "muted", "accent", "good", "bad", "warn"):
        for ground in ("bg", "surface", "sunken"):
            assert contrast(colours[text], colours[ground]) >= 4.5, (text, ground)
    assert contrast(colours["on-accent"], colours["accent"]) >= 4.5
    assert contrast(colours["accent"], colours["accent-soft"]) >= 4.5
    for part in ("field-line", "unsure"):
        for ground in ("bg", "surface"):
            assert contrast(colours[part], colours[ground]) >= 3, (part, ground)


@every_page
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing(turn: Callable[..., Page], scheme: str, name: str):
    options: dict[str, object] = {"resultTypes": ["violations"]}
    if scheme == "dark":  # the schemes differ in their colours alone
        options["runOnly"] = {"type": "rule", "values": ["color-contrast"]}
    found = Axe().run(turn(name, scheme), context={"exclude": [".plot-area"]}, options=options)
    assert found.violations_count == 0, found.generate_report()
