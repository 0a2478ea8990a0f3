"""Pages do not wait for the application, whatever it waits for; and an error of it ends the server."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
import pytest
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route

from provico.explorer.front import Front
from provico.explorer.pages import PAGES, page_routes
from provico.explorer.settings import ExplorerSettings


class Slow:
    """An application that is made when it is let go, behind a front with a token."""

    def __init__(self, settings: ExplorerSettings, *, fails: bool = False) -> None:
        self.may_load, self.fails = threading.Event(), fails
        self.failures: list[Exception] = []
        self.events: list[str] = []
        self.front = Front(settings, self._load, self.failures.append)

    def _load(self) -> Starlette:
        assert self.may_load.wait(60)
        if self.fails:
            raise ValueError("no index")

        @asynccontextmanager
        async def lifespan(_: Starlette) -> AsyncIterator[None]:
            self.events.append("started")
            yield
            self.events.append("ended")

        async def work(_: object) -> JSONResponse:
            return JSONResponse(self.events)

        return Starlette(routes=[Route("/api/work", work), *page_routes()], lifespan=lifespan)


@pytest.fixture
def settings(collection) -> ExplorerSettings:
    return ExplorerSettings(index=collection.index, token="a secret")


def run(slow: Slow, visit) -> None:
    """A visit within the life of the front."""

    async def visited() -> None:
        transport = httpx.ASGITransport(slow.front)
        async with (
            slow.front._pages._app.router.lifespan_context(slow.front),
            httpx.AsyncClient(transport=transport, base_url="http://localhost") as client,
        ):
            await visit(client)
            slow.may_load.set()

    asyncio.run(visited())


def test_pages_come_first_and_questions_wait(settings):
    slow = Slow(settings)
    known = {"Authorization": "Bearer a secret"}

    async def visit(client: httpx.AsyncClient) -> None:
        assert (await client.get("/")).status_code == 401  # guarded from the first moment
        assert (await client.get("/static/js/overview.js")).status_code == 200
        question = asyncio.create_task(client.get("/api/work"))
        for path in PAGES:
            page = await client.get(path, headers=known)
            assert (page.status_code, "<main" in page.text) == (200, True)
        assert not question.done()
        given_up = asyncio.create_task(client.get("/api/work"))
        await asyncio.sleep(0)
        given_up.cancel()
        slow.may_load.set()
        assert (await question).json() == ["started"]
        assert (
            await client.get("/")
        ).status_code == 200  # by the application itself, which has no guard here

    run(slow, visit)
    assert slow.events == ["started", "ended"]
    assert slow.failures == []


def test_an_error_is_handed_on(settings):
    slow = Slow(settings, fails=True)

    async def visit(client: httpx.AsyncClient) -> None:
        slow.may_load.set()
        with pytest.raises(ValueError, match="no index"):
            await client.get("/api/work")

    run(slow, visit)
    assert [str(error) for error in slow.failures] == ["no index"]


def test_nothing_before_the_page_imports_torch():
    modules = "provico.explorer.server, provico.workspace.worker, provico.cli.serve"
    code = f"import sys, {modules}; sys.exit('torch' in sys.modules or 'lancedb' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_pages_do_not_wait_for_threads(client):
    """However many questions are stuck, for as long as whatever they wait for takes."""
    app, held = client.app, client.app.state.explorer.grouping._lock
    known = {"Accept": "*/*"}

    async def visit() -> None:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(
            transport=transport, base_url="http://localhost", headers=known
        ) as browser:
            stuck = [asyncio.create_task(browser.get("/api/overview")) for _ in range(50)]
            await asyncio.sleep(0.5)
            for path in (*PAGES, "/static/js/overview.js", "/static/icons.svg"):
                assert (await asyncio.wait_for(browser.get(path), 60)).status_code == 200
            assert not any(one.done() for one in stuck)
            held.release()
            assert {(await one).status_code for one in stuck} == {200}

    held.acquire()
    asyncio.run(visit())


def test_files_are_revalidated(client):
    first = client.get("/static/css/base.css")
    assert first.headers["content-type"].startswith("text/css")
    etag = first.headers["etag"]
    assert client.get("/static/css/base.css", headers={"If-None-Match": etag}).status_code == 304
    for missing in ("/static/../app.py", "/static/js/no.js", "/static/%2e%2e/app.py", "/static/js"):
        assert client.get(missing).status_code == 404
