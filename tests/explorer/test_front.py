"""Pages do not wait for the application, whatever it waits for; and an error of it ends the server."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager

import httpx
import numpy as np
import pytest
from fastapi import BackgroundTasks
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route

from provico.explorer.act import actions
from provico.explorer.app import create_app
from provico.explorer.first_view import PATHS, FirstView
from provico.explorer.front import Front
from provico.explorer.overview import overview
from provico.explorer.pages import PAGES, page_routes
from provico.explorer.schemas_overview import WorkState
from provico.explorer.settings import ExplorerSettings
from provico.workspace.folder import Workspace
from provico.workspace.worker import Worker, WorkerOptions


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
        answer = await client.get("/api/work")
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "ended")

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


@pytest.fixture
def looked_at(collection, tmp_path) -> ExplorerSettings:
    """A collection of which the first view was kept, with some of everything that it depends on."""
    workspace = Workspace.open(collection.videos, folder=tmp_path / "kept")
    shutil.copytree(collection.index, workspace.path / "index-1")
    workspace.change(current="index-1")
    for name in ("actions.jsonl", "duplicates.json", "not_duplicates.jsonl", "not_read.csv"):
        (workspace.path / name).touch()
    settings = ExplorerSettings(
        index=workspace.path, workspace=workspace, worker=Worker(workspace, WorkerOptions())
    )
    settings.curation_folder.mkdir()
    (settings.curation_folder / "decisions.jsonl").touch()
    return settings


def kept_answers(settings: ExplorerSettings, paths: Iterable[str]) -> dict[str, tuple[str, bytes] | None]:
    """What the front answers before there is an application."""
    first = FirstView.read(settings)
    answers = {}
    for path in paths:
        place, _, query = path.partition("?")
        scope = {"type": "http", "method": "GET", "path": place, "query_string": query.encode()}
        found = None if first is None else first.answer(scope)
        answers[path] = None if found is None else (found.media_type or "", bytes(found.body))
    return answers


def test_the_first_view_is_kept_until_anything_changes(looked_at):
    settings = looked_at
    assert FirstView.read(settings) is None
    explorer = create_app(settings).state.explorer
    view = explorer.collection.view
    afterwards = BackgroundTasks()
    seen = overview(explorer, afterwards)
    asyncio.run(afterwards())
    pictures = [card.thumbnail for cluster in seen.clusters for card in cluster.cards]
    assert len(pictures) >= 4
    answers = kept_answers(settings, [*PATHS, *pictures, "/api/videos", "/media/thumbnail?id=x"])
    assert answers["/api/videos"] is answers["/media/thumbnail?id=x"] is None
    assert json.loads(answers["/api/overview"][1]) == json.loads(seen.model_dump_json())
    assert json.loads(answers["/api/actions"][1]) == actions(explorer).model_dump()
    begun = WorkState.model_validate_json(answers["/api/work"][1])
    assert (begun.is_working, begun.is_empty, begun.can_learn) == (True, False, False)
    for card in seen.clusters[0].cards:
        thumbnail = view.read(view.number(card.id), "thumbnail")["thumbnail"]
        assert answers[card.thumbnail] == ("image/jpeg", thumbnail)
    explorer.close()

    # The front gives them before there is an application, to who may ask.
    slow = Slow(dataclasses.replace(settings, token="a secret"))

    async def visit(client: httpx.AsyncClient) -> None:
        assert (await client.get("/api/overview")).status_code == 401
        known = {"Authorization": "Bearer a secret"}
        given = await client.get("/api/overview", headers=known)
        assert given.json() == json.loads(seen.model_dump_json())
        assert (await client.get(pictures[0], headers=known)).content == answers[pictures[0]][1]
        slow.may_load.set()
        while (await client.get("/api/work", headers=known)).json() != ["started"]:
            await asyncio.sleep(0.01)

    run(slow, visit)
    assert slow.failures == []

    # Whatever it depends on is looked at.
    assert FirstView.read(dataclasses.replace(settings, words=("a dog",))) is None
    for path in (*settings.workspace.path.iterdir(), *settings.curation_folder.iterdir()):
        if path.suffix in (".jsonl", ".csv") or path.name == "duplicates.json":
            before = path.stat()
            os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns + 1))
            assert FirstView.read(settings) is None, path
            os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert FirstView.read(settings) is not None
    (settings.curation_folder / "proposals.csv").touch()
    assert FirstView.read(settings) is None
    (settings.curation_folder / "proposals.csv").unlink()
    settings.workspace.change(current="index-2")
    assert FirstView.read(settings) is None
    settings.workspace.change(current="index-1")
    whole = (settings.workspace.path / "first-view.zip").read_bytes()
    for damaged in (whole[:-40], whole.replace(b'"clusters"', b'"clustera"', 1), b"nonsense", b""):
        (settings.workspace.path / "first-view.zip").write_bytes(damaged)
        assert FirstView.read(settings) is None
    rng = np.random.default_rng(0)
    for place in rng.integers(0, len(whole), 300):  # a sentence in the log, or what was kept
        damaged = whole[:place] + rng.bytes(4) + whole[place + 4 :]
        (settings.workspace.path / "first-view.zip").write_bytes(damaged)
        if (found := FirstView.read(settings)) is not None:
            assert found._answers["/api/overview"] == answers["/api/overview"][1]
