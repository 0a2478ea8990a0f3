"""The explorer as an ASGI application: the pages and their files, and all routes together."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.metadata import version

from fastapi import FastAPI

from provico.explorer import (
    act,
    browse,
    curate,
    cut,
    duplicates,
    find,
    judge,
    media,
    overview,
    problems,
    runs,
    words,
)
from provico.explorer.guard import RequestGuard
from provico.explorer.pages import page_routes
from provico.explorer.settings import ExplorerSettings
from provico.explorer.state import Explorer

DESCRIPTION = """What the pages of `provico serve` ask for, for any client.

Requests other than GET need the header `X-ProViCo: 1`. If the server was started with a token, send it as
`Authorization: Bearer TOKEN`. Everything but a success is `{"error": {"code", "message", "hint"}}`.
"""


def create_app(settings: ExplorerSettings) -> FastAPI:
    """The application for one index; raises VideoIndexError if there is none."""
    explorer = Explorer(settings)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        if settings.worker is not None:
            settings.worker.start()
        yield
        explorer.close()

    app = FastAPI(
        title="ProViCo explorer",
        version=version("provico"),
        description=DESCRIPTION,
        openapi_url="/api/openapi.json",
        # Their pages load scripts from elsewhere.
        docs_url=None,
        redoc_url=None,
        lifespan=lifespan,
    )
    app.state.explorer = explorer
    for routes in (overview, browse, duplicates, find, words, judge, media, cut, runs, curate, act):
        app.include_router(routes.router)
    app.router.routes.extend(page_routes())
    problems.install(app)
    app.add_middleware(RequestGuard, settings=settings)
    return app
