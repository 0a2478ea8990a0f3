"""A real Chromium with a fresh profile for every test, and an eye on everything that it complains about."""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, Route, expect, sync_playwright

FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
# Several browsers share few cores with other tests: patience costs nothing where all is well.
PATIENCE_SECONDS = 120
expect.set_options(timeout=1000 * PATIENCE_SECONDS)

REPORT_VIOLATIONS = """
document.addEventListener("securitypolicyviolation",
  (event) => console.error(`policy violated: ${event.violatedDirective} ${event.blockedURI}`));
"""


# Not for the whole session: while Playwright is open, no other test of the process could run an event loop.
@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    executable = shutil.which("chromium") or shutil.which("chromium-browser")
    if executable is None:
        message = "There is no Chromium to test the pages in. Install it with: apt-get install chromium"
        if os.environ.get("CI"):
            pytest.fail(message)
        pytest.skip(message)
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=executable, args=list(FLAGS))
        yield opened
        opened.close()


@pytest.fixture
def expected_problems() -> list[str]:
    """Patterns of what a test provokes; whatever else the browser complains about fails the test."""
    return []


@contextmanager
def opening(browser: Browser, address: str, expected_problems: list[str]) -> Iterator[Callable[..., Page]]:
    """Opens pages of the explorer, each in a browser without a past, and closes them."""
    problems: list[str] = []
    contexts = []

    def opened(path: str = "/", *, width: int = 1280, height: int = 860, **options: Any) -> Page:
        context = browser.new_context(
            base_url=address, viewport={"width": width, "height": height}, **options
        )
        context.set_default_timeout(1000 * PATIENCE_SECONDS)
        contexts.append(context)
        context.add_init_script(REPORT_VIOLATIONS)
        page = context.new_page()
        page.on("console", lambda said: problems.append(said.text) if said.type == "error" else None)
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.goto(path)
        return page

    yield opened
    for context in contexts:
        context.close()
    unexpected = [one for one in problems if not any(re.search(known, one) for known in expected_problems)]
    assert not unexpected


@pytest.fixture
def open_page(browser: Browser, server: Any, expected_problems: list[str]) -> Iterator[Callable[..., Page]]:
    """Opens a page for one test."""
    with opening(browser, server.url, expected_problems) as opened:
        yield opened


@pytest.fixture(scope="module")
def open_shared_page(browser: Browser, server: Any) -> Iterator[Callable[..., Page]]:
    """Opens a page for all tests of a file that only look at it."""
    with opening(browser, server.url, []) as opened:
        yield opened


@pytest.fixture
def open_slowly(open_page: Callable[..., Page]) -> Callable[[str, str], tuple[Page, Callable[[], None]]]:
    """Opens a page whose answers to some addresses wait until they are let through."""

    def opened(path: str, held_back: str) -> tuple[Page, Callable[[], None]]:
        page = open_page("/runs")
        waiting: list[Route] = []
        page.route(held_back, lambda route: waiting.append(route))
        page.goto(path)

        def let_through() -> None:
            deadline = time.monotonic() + PATIENCE_SECONDS
            while not waiting:
                assert time.monotonic() < deadline, f"never asked for: {held_back}"
                page.wait_for_timeout(20)
            page.unroute(held_back)  # which lets go of those that wait

        return page, let_through

    return opened


@pytest.fixture
def until() -> Callable[[Page, str], None]:
    """Waits until an expression is true: Playwright's own way needs `eval`, which our policy forbids."""

    def wait(page: Page, expression: str) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not page.evaluate(expression):
            assert time.monotonic() < deadline, f"never true: {expression}"
            page.wait_for_timeout(50)

    return wait


@pytest.fixture
def ids(client: Any) -> list[str]:
    """The ids of the collection, in order."""
    return [item["id"] for item in client.get("/api/videos").json()["items"]]
