"""The explorer as an ASGI application: the pages and their files, and all routes together."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.metadata import version
from pathlib import Path

from fastapi import APIRouter, FastAPI, Request
from fastapi.responses import FileResponse, Response
from fastapi.staticfiles import StaticFiles

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
from provico.explorer.problems import templates
from provico.explorer.settings import ExplorerSettings
from provico.explorer.state import Explorer

PAGES = {
    "/": "overview",
    "/browse": "browse",
    "/duplicates": "duplicates",
    "/search": "search",
    "/video": "video",
    "/map": "map",
    "/runs": "runs",
    "/curate": "curate",
}
"""The template of each page."""
STATIC = Path(__file__).parent / "static"

router = APIRouter(include_in_schema=False)


def _add(path: str, name: str) -> None:
    def page(request: Request) -> Response:
        return templates.TemplateResponse(request, f"{name}.html")

    router.add_api_route(path, page, methods=["GET"], name=name)


for _path, _name in PAGES.items():
    _add(_path, _name)


@router.get("/static/plotly.min.js")
def plotly_script() -> Response:
    """The script that comes with the Python package, so that nothing is fetched from elsewhere."""
    import plotly

    script = Path(plotly.__file__).parent / "package_data" / "plotly.min.js"
    return FileResponse(
        script, media_type="text/javascript", headers={"Cache-Control": "public, max-age=86400"}
    )


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
    app.include_router(router)
    app.mount("/static", StaticFiles(directory=STATIC), name="static")
    problems.install(app)
    app.add_middleware(RequestGuard, settings=settings)
    return app
