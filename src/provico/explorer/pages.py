"""The pages and their files: none of them has anything of a collection in it.

They are answered by the event loop itself. Threads are for questions that take longer, of which there may be
more than threads: a page must not wait for these.
"""

from __future__ import annotations

from email.utils import formatdate
from pathlib import Path

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import BaseRoute, Route

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
TYPES = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}


def _page(path: str, name: str) -> Route:
    async def page(request: Request) -> Response:
        return templates.TemplateResponse(request, f"{name}.html")

    return Route(path, page, methods=["GET"], name=name, include_in_schema=False)


async def _plotly_script(_: Request) -> Response:
    """The script that comes with the Python package, so that nothing is fetched from elsewhere."""
    import plotly

    script = Path(plotly.__file__).parent / "package_data" / "plotly.min.js"
    return FileResponse(
        script, media_type="text/javascript", headers={"Cache-Control": "public, max-age=86400"}
    )


PATHS = {path.relative_to(STATIC).as_posix(): path for path in STATIC.rglob("*.*")}
"""The files of the pages, which are few and small."""


async def _file(request: Request) -> Response:
    path = PATHS.get(request.path_params["path"])
    if path is None:
        raise HTTPException(404)
    status = path.stat()
    headers = {
        "ETag": f'"{status.st_mtime_ns:x}-{status.st_size:x}"',
        "Last-Modified": formatdate(status.st_mtime, usegmt=True),
    }
    if request.headers.get("if-none-match") == headers["ETag"]:
        return Response(status_code=304, headers=headers)
    return Response(path.read_bytes(), media_type=TYPES[path.suffix], headers=headers)


def page_routes() -> list[BaseRoute]:
    """All of them."""
    return [
        *(_page(path, name) for path, name in PAGES.items()),
        Route("/static/plotly.min.js", _plotly_script, methods=["GET"], include_in_schema=False),
        Route("/static/{path:path}", _file, methods=["GET"], name="static", include_in_schema=False),
    ]


def is_page(path: str) -> bool:
    """Whether it needs nothing but these routes."""
    return path in PAGES or path == "/login" or path.startswith("/static/")
