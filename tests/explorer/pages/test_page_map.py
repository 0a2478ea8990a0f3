"""Map: what is drawn, what can be chosen, what can be taken away."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from playwright.sync_api import Page, expect

POINTS = ".scatterlayer .point"


def exported(page: Page) -> list[dict[str, str]]:
    with page.expect_download() as download:
        page.get_by_role("button", name="Export CSV").click()
    assert download.value.suggested_filename == "selection.csv"
    return list(csv.DictReader(io.StringIO(Path(download.value.path()).read_text())))


def test_every_video_is_a_point_larger_where_it_is_less_certain(open_page: Callable[..., Page], client: Any):
    page = open_page("/map")
    expect(page.locator(POINTS)).to_have_count(12)
    expect(page.locator("#map-status")).to_contain_text("12 videos")
    points = client.get("/api/map?dim=2").json()
    sizes = page.locator("#map .plot-area").evaluate(
        "plot => Object.fromEntries(plot.data.flatMap("
        "  ({customdata, marker}) => customdata.map((number, place) => [number, marker.size[place]])))"
    )
    by_size = sorted(range(12), key=lambda place: sizes[str(place)])
    assert by_size == sorted(range(12), key=lambda place: points["uncertainty"][place])
    # Nothing offers to send the data elsewhere: the plot library has such buttons of its own.
    titles = page.locator(".modebar-btn").evaluate_all("all => all.map(one => one.dataset.title)")
    assert titles == ["Lasso Select", "Box Select", "Zoom", "Pan", "Reset axes"]


def test_a_point_shows_its_picture_under_the_pointer(open_page: Callable[..., Page], until: Any):
    page = open_page("/map")
    expect(page.locator(POINTS)).to_have_count(12)
    expect(page.locator("#look")).to_have_count(0)
    box = page.locator(POINTS).first.bounding_box()
    assert box
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    expect(page.locator("#look")).to_be_visible()
    until(page, "document.querySelector('#look')?.naturalWidth > 0")
    page.mouse.move(5, 5)
    expect(page.locator("#look")).to_have_count(0)


def test_a_lasso_or_a_class_selects_and_is_exported(open_page: Callable[..., Page], ids: list[str]):
    page = open_page("/map")
    expect(page.locator(POINTS)).to_have_count(12)
    expect(page.get_by_role("button", name="Export CSV")).to_be_disabled()
    box = page.locator("#map .nsewdrag").bounding_box()
    assert box
    left, top, right, bottom = 2, 2, box["width"] - 4, box["height"] - 4
    page.mouse.move(box["x"] + left, box["y"] + top)
    page.mouse.down()
    for x, y in ((right, top), (right, bottom), (left, bottom), (left, top)):
        page.mouse.move(box["x"] + x, box["y"] + y, steps=8)
    page.mouse.up()
    expect(page.locator("#selection-status")).to_have_text("12 videos selected")
    assert sorted(row["id"] for row in exported(page)) == ids
    page.locator("#clear").click()
    expect(page.get_by_role("button", name="Export CSV")).to_be_disabled()
    page.locator("#select-by").select_option("Rain")
    expect(page.locator("#selected li")).to_have_count(4)
    rows = exported(page)
    assert {row["label"] for row in rows} == {"Rain"}
    assert "Rain/50% off & more #1?.mp4" in {row["id"] for row in rows}


def test_colours_and_ellipses_are_in_the_address(open_page: Callable[..., Page], client: Any):
    page = open_page("/map")
    expect(page.locator(POINTS)).to_have_count(12)
    page.get_by_role("radio", name="Group").check()
    page.get_by_label("Ellipses").check()
    expect(page.locator(".shapelayer path")).to_have_count(12)
    titles = client.get("/api/map?dim=2").json()["cluster_titles"]
    assert set(page.locator(".legendtext").all_text_contents()) == set(titles)
    page.reload()
    expect(page.locator(".shapelayer path")).to_have_count(12)
    expect(page.get_by_label("Ellipses")).to_be_checked()


def test_what_is_chosen_while_the_points_come_is_drawn(open_slowly: Callable[..., Any]):
    page, let_through = open_slowly("/map", "**/api/map?*")
    page.get_by_role("radio", name="Unsure").check()
    let_through()
    expect(page.locator(POINTS)).to_have_count(12)
    assert page.locator("#map .plot-area").evaluate("plot => plot.data.map(trace => trace.name)") == [
        "Uncertainty"
    ]
    expect(page.locator("#scale")).to_have_text(re.compile("Unsure.*100 %"))


def test_a_selection_ends_with_the_points_that_it_was_made_of(open_page: Callable[..., Page]):
    page = open_page("/map")
    expect(page.locator(POINTS)).to_have_count(12)
    page.get_by_label("Select all of").select_option("Fire")
    export = page.get_by_role("button", name="Export CSV")
    expect(export).to_be_enabled()
    page.route("**/api/map?*", lambda route: None)  # the other points never come
    page.get_by_role("radio", name="3-D").check()
    expect(export).to_be_disabled()
    page.keyboard.press("e")


def test_three_axes(open_page: Callable[..., Page], expected_problems: list[str]):
    expected_problems.append("WebGL|GPU stall")  # where the machine has no graphics at all
    page = open_page("/map?dim=3")
    expect(page.locator("#map .plot-area.js-plotly-plot")).to_be_visible()
    kinds = page.locator("#map .plot-area").evaluate("plot => [...new Set(plot.data.map(one => one.type))]")
    assert kinds == ["scatter3d"]
    expect(page.locator("#selection-status")).to_contain_text("drawing around videos works in 2-D")
    page.get_by_label("2-D").check()
    expect(page.locator(POINTS)).to_have_count(12)
