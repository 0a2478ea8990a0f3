"""What a client is told when something cannot be done: {"error": {"code", "message", "hint"}}.

Paths of this machine stay out of it: errors whose messages may hold some are written to the log instead.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from pathlib import Path

from fastapi import FastAPI, HTTPException, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from fastapi.templating import Jinja2Templates
from starlette.exceptions import HTTPException as StarletteHTTPException
from starlette.responses import Response

from provico.errors import ConfigError, ConflictError, ProvicoError, VideoError, VideoIndexError
from provico.files import is_disk_full

log = logging.getLogger("provico.explorer")
_CODES = {400: "bad_request", 404: "not_found", 405: "method_not_allowed"}
_FOLDERS = re.compile(r"""(?<![\w./:…-])/(?:[^/\s'"()<>]+/)+(?=[^\s/])""")
templates = Jinja2Templates(Path(__file__).parent / "templates")


def without_paths(text: str, *folders: Path) -> str:
    """A text that names files, but not where they lie on this machine.

    folders: some that it may name, whatever spaces are in their names.
    """
    for folder in sorted(map(str, folders), key=len, reverse=True):
        text = text.replace(f"{folder}/", "…/").replace(folder, f"…/{Path(folder).name}")
    return _FOLDERS.sub("…/", text)


class Problem(HTTPException):
    """An answer other than the one that was asked for."""

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        hint: str | None = None,
        *,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(status, message, dict(headers or {}))
        self.code, self.message, self.hint = code, message, hint

    def response(self) -> JSONResponse:
        """As JSON."""
        error = {"code": self.code, "message": self.message, "hint": self.hint}
        return JSONResponse({"error": error}, self.status_code, self.headers)

    def page(self, request: Request) -> Response:
        """For people."""
        values = {"status": self.status_code, "message": self.message, "hint": self.hint}
        return templates.TemplateResponse(
            request, "error.html", values, status_code=self.status_code, headers=self.headers
        )


def explained(error: Exception) -> Problem:
    """The problem that an error is."""
    match error:
        case Problem():
            return error
        case ConflictError():
            return Problem(409, "conflict", str(error))
        case VideoError():
            reason = without_paths(error.reason)
            return Problem(422, "unreadable_video", f"The video cannot be used: {reason}")
        case ConfigError():
            return Problem(422, "invalid", without_paths(str(error)))
        case VideoIndexError():
            log.error("The index cannot be used.", exc_info=error)  # its message names files
            hint = "The server's log says what is wrong."
            return Problem(503, "index_unreadable", "The index cannot be read as it is now.", hint)
        case RequestValidationError():
            wrong = "; ".join(
                f"{'.'.join(map(str, one['loc'][1:])) or 'the body'}: {one['msg']}" for one in error.errors()
            )
            return Problem(422, "invalid", f"The request is not valid: {wrong}.", "See /api/openapi.json.")
        case StarletteHTTPException():
            code = _CODES.get(error.status_code, "refused")
            return Problem(error.status_code, code, f"{error.detail}.", headers=error.headers)
    if isinstance(error, OSError) and is_disk_full(error):
        log.error("The disk is full: the result was not kept.")
        return Problem(
            507, "disk_full", "The disk is full: this was not kept.", "Free some space, then try again."
        )
    log.error("A request failed.", exc_info=error)
    return Problem(500, "internal", "An internal error occurred.", "The server's log has the cause.")


def answer(request: Request, error: Exception) -> Response:
    """A page for who asks for pages, JSON for the rest."""
    problem = explained(error)
    is_page = "text/html" in request.headers.get("accept", "")
    if is_page and not request.url.path.startswith(("/api/", "/media/", "/static/")):
        return problem.page(request)
    return problem.response()


def install(app: FastAPI) -> None:
    """Let the errors of an app become such answers; `RequestGuard` does it for those that nobody foresaw."""
    for kind in (ProvicoError, RequestValidationError, StarletteHTTPException):
        app.add_exception_handler(kind, answer)
