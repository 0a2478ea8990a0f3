"""Runs: curves that grow while one looks, and reports."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

Until = Callable[[Page, str], None]
LOSS = "document.querySelector('.plot-area[data-name=loss]')?.data?.[0].y.length"


@pytest.fixture
def live_run(collection: Any) -> Iterator[Path]:
    """A run that has only begun."""
    folder = collection.runs / "live"
    shutil.copytree(collection.runs / "first", folder)
    (folder / "metrics.jsonl").write_text(json.dumps({"step": 1, "epoch": 0.5, "loss": 3.0}) + "\n")
    yield folder
    shutil.rmtree(folder)


def test_the_curves_of_a_run(open_page: Callable[..., Page], until: Until):
    page = open_page("/runs?run=first")
    until(page, f"{LOSS} === 7")
    expect(page.get_by_role("heading", name="loss")).to_be_visible()
    # A number that was never finite has no curve.
    assert page.locator(".curve h3").all_inner_texts() == ["loss", "epoch"]


def test_a_run_is_watched_while_it_trains(open_page: Callable[..., Page], until: Until, live_run: Path):
    page = open_page("/runs?run=live")
    until(page, f"{LOSS} === 1")
    expect(page.locator("#run-status")).to_have_text("Training, live")
    with (live_run / "metrics.jsonl").open("a") as file:
        file.write(json.dumps({"step": 2, "epoch": 1.0, "loss": 2.5, "loss/kl": 1.0}) + "\n")
    until(page, f"{LOSS} === 2")
    expect(page.get_by_role("heading", name="loss/kl")).to_be_visible()


def test_another_run_is_chosen_and_kept_in_the_address(
    open_page: Callable[..., Page], until: Until, live_run: Path
):
    page = open_page("/runs?run=live")
    until(page, f"{LOSS} === 1")
    page.get_by_role("link", name="first provico").click()
    until(page, f"{LOSS} === 7")
    page.reload()
    until(page, f"{LOSS} === 7")
    page.go_back()
    until(page, f"{LOSS} === 1")


def test_a_run_that_ends_by_its_steps_shows_how_far_it_is(open_page: Callable[..., Page], live_run: Path):
    settings = {"optimiser": {"epochs": 10_000, "max_steps": 4}, "objective": {"method": "provico"}}
    (live_run / "config.json").write_text(json.dumps(settings))
    page = open_page("/runs?run=live")
    bar = page.locator(".run-list a[aria-current] .progress")
    expect(bar).to_have_attribute("aria-label", "1 of 4 steps")
    assert bar.evaluate("bar => bar.firstChild.style.getPropertyValue('--share')") == "25%"


def test_reports_open_on_their_own(open_page: Callable[..., Page], client: Any):
    reports = client.get("/api/reports").json()
    page = open_page("/runs")
    links = page.locator(".report-list a")
    expect(links).to_have_count(len(reports))
    with page.expect_popup() as popup:
        links.first.click()
    expect(popup.value.locator("p")).to_have_text("The story of a run.")
