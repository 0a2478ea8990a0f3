"""A real Chromium, without a past for every test, and an eye on everything that it complains about."""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from playwright.sync_api import (
    Browser,
    ConsoleMessage,
    Error,
    Page,
    Route,
    ViewportSize,
    expect,
    sync_playwright,
)

FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--renderer-process-limit=1",
    "--disable-site-isolation-trials",
)
# Several browsers share few cores with other tests: patience costs nothing where all is well.
PATIENCE_SECONDS = 300
expect.set_options(timeout=1000 * PATIENCE_SECONDS)

REPORT_VIOLATIONS = """
document.addEventListener("securitypolicyviolation",
  (event) => console.error(`policy violated: ${event.violatedDirective} ${event.blockedURI}`));
"""


# The first that there is: without windows Chromium needs less time, a quarter less in 19 tests.
EXECUTABLES = ("chromium-headless-shell", "chromium", "chromium-browser")


# Not for the whole session: while Playwright is open, no other test of the process could run an event loop.
@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    executable = next(filter(None, map(shutil.which, EXECUTABLES)), None)
    if executable is None:
        message = "There is no Chromium to test the pages in. Install it with: make browser"
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


class Windows:
    """Windows of the browser, by their settings; each is handed out again, without its past.

    To open one takes Chromium as long as a test takes.
    """

    def __init__(self, browser: Browser, address: str) -> None:
        self._browser = browser
        self._address = address
        self._free: dict[str, list[Page]] = {}
        self._taken: list[tuple[str, Page]] = []

    def take(self, *, width: int, height: int, **settings: Any) -> Page:
        """A window that shows nothing yet."""
        viewport: ViewportSize = {"width": width, "height": height}
        kind = repr(sorted(settings.items()))
        free = self._free.setdefault(kind, [])
        if free:
            page = free.pop()
            page.set_viewport_size(viewport)
        else:
            context = self._browser.new_context(base_url=self._address, viewport=viewport, **settings)
            context.set_default_timeout(1000 * PATIENCE_SECONDS)
            context.add_init_script(REPORT_VIOLATIONS)
            page = context.new_page()
        self._taken.append((kind, page))
        return page

    def put_back(self) -> None:
        """All that were taken."""
        for kind, page in self._taken:
            context = page.context
            for holder in (page, context):
                holder.unroute_all(behavior="ignoreErrors")
            for other in context.pages:
                if other is not page:
                    other.close()
            page.goto("/static/logo.svg")  # of the same site, so that no new process is started
            page.mouse.move(0, 0)
            devtools = context.new_cdp_session(page)
            devtools.send("Storage.clearDataForOrigin", {"origin": self._address, "storageTypes": "all"})
            devtools.detach()
            self._free[kind].append(page)
        self._taken.clear()


class Tabs(Windows):
    """Tabs of one window, for tests that only look; some may be where the system is dark.

    They share a process of the browser, which then reads the scripts of the pages once.
    """

    def take(self, *, width: int, height: int, color_scheme: Any = None, **settings: Any) -> Page:
        """Another tab."""
        assert not settings, "tabs of one window have the same settings"
        if self._taken:
            page = self._taken[0][1].context.new_page()
            page.set_viewport_size({"width": width, "height": height})
        else:
            page = super().take(width=width, height=height)
        page.emulate_media(color_scheme=color_scheme)
        return page

    def put_back(self) -> None:
        """Close them all."""
        for _, page in self._taken:
            page.context.close()


@contextmanager
def opening(windows: Windows, expected_problems: list[str]) -> Iterator[Callable[..., Page]]:
    """Opens pages of the explorer, and closes them."""
    problems: list[str] = []
    listening: list[Page] = []

    def note_said(said: ConsoleMessage) -> None:
        if said.type == "error":
            problems.append(said.text)

    def note_error(error: Error) -> None:
        problems.append(str(error))

    def opened(path: str = "/", *, width: int = 1280, height: int = 860, **options: Any) -> Page:
        page = windows.take(width=width, height=height, **options)
        page.on("console", note_said)
        page.on("pageerror", note_error)
        listening.append(page)
        page.goto(path)
        return page

    yield opened
    for page in listening:
        page.remove_listener("console", note_said)
        page.remove_listener("pageerror", note_error)
    windows.put_back()
    unexpected = [one for one in problems if not any(re.search(known, one) for known in expected_problems)]
    assert not unexpected


@pytest.fixture(scope="package")
def windows(browser: Browser, server: Any) -> Windows:
    return Windows(browser, server.url)


@pytest.fixture
def open_page(windows: Windows, expected_problems: list[str]) -> Iterator[Callable[..., Page]]:
    """Opens a page for one test."""
    with opening(windows, expected_problems) as opened:
        yield opened


@pytest.fixture(scope="module")
def open_shared_page(browser: Browser, server: Any) -> Iterator[Callable[..., Page]]:
    """Opens a page for all tests of a file that only look at it."""
    with opening(Tabs(browser, server.url), []) as opened:
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
