"""Routes: the pages themselves, and the files they need."""

from __future__ import annotations

from pathlib import Path

from fastapi import APIRouter, FastAPI, Request
from fastapi.responses import FileResponse, Response
from fastapi.staticfiles import StaticFiles

from provico.explorer.problems import templates

PAGES = {
    "/": "browse",
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


def install(app: FastAPI) -> None:
    """Add pages and static files to an app."""
    app.include_router(router)
    app.mount("/static", StaticFiles(directory=STATIC), name="static")
