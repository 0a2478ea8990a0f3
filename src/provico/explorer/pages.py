"""The pages and their files: none of them has anything of a collection in it."""

from __future__ import annotations

from pathlib import Path

from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles

from provico.explorer.problems import templates

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


def _page(path: str, name: str) -> Route:
    def page(request: Request) -> Response:
        return templates.TemplateResponse(request, f"{name}.html")

    return Route(path, page, methods=["GET"], name=name, include_in_schema=False)


def _plotly_script(_: Request) -> Response:
    """The script that comes with the Python package, so that nothing is fetched from elsewhere."""
    import plotly

    script = Path(plotly.__file__).parent / "package_data" / "plotly.min.js"
    return FileResponse(
        script, media_type="text/javascript", headers={"Cache-Control": "public, max-age=86400"}
    )


def page_routes() -> list[BaseRoute]:
    """All of them."""
    return [
        *(_page(path, name) for path, name in PAGES.items()),
        Route("/static/plotly.min.js", _plotly_script, methods=["GET"], include_in_schema=False),
        Mount("/static", StaticFiles(directory=STATIC), name="static"),
    ]


def is_page(path: str) -> bool:
    """Whether it needs nothing but these routes."""
    return path in PAGES or path == "/login" or path.startswith("/static/")
