"""Who may ask, and what every answer carries. It stands before all routes, so that none can forget it.

- **Host.** A page of a stranger whose name suddenly leads to this machine (DNS rebinding) still asks for that
  name. So a name must be localhost or one that was given; an IP address cannot be rebound.
- **Token.** If there is one, it is needed for everything but the static files: as `Authorization: Bearer`, or
  as the cookie that /login sets.
- **Origin.** Nothing changes by GET. Whatever else changes something or costs much needs the header
  `X-ProViCo`, which no other page can send unasked, and must come from this page itself.
- **Size, time and number.** A body is counted and timed while it comes, and few uploads come at once.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import time
from urllib.parse import urlsplit

import anyio
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from provico.explorer.lanes import busy
from provico.explorer.problems import Problem, answer
from provico.explorer.settings import ExplorerSettings

CSP = (
    "default-src 'self'; img-src 'self' blob: data:; media-src 'self' blob:; object-src 'none'; "
    "base-uri 'none'; frame-ancestors 'none'; form-action 'self'"
)
REPORT_CSP = (
    "sandbox; default-src 'none'; img-src data:; style-src 'unsafe-inline'; font-src data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'self'"
)
"""Reports are files that were found in a folder: they may look as they like, but run and fetch nothing."""
HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}
SAFE_METHODS = ("GET", "HEAD", "OPTIONS")
MAX_BODY_BYTES = 2**16
"""Of every request but an upload and what is done with many videos."""
MAX_ACTION_BYTES = 2**24
ACTION_PATHS = ("/api/actions", "/api/duplicates/rejections")
"""They name many videos."""
MAX_BODY_SECONDS = 20.0
UPLOAD_PATH = "/api/search"
FORM_BYTES = 2**16
"""What the form around an uploaded file may take."""
GUARD_HEADER = "x-provico"


class RequestGuard:
    """ASGI middleware."""

    def __init__(self, app: ASGIApp, *, settings: ExplorerSettings) -> None:
        self._app, self._settings = app, settings
        self._num_uploads = 0
        self._names = {"localhost", *(name.lower().rstrip(".") for name in settings.hosts)}
        # What the cookie holds tells nobody the token.
        self._secret = None if settings.token is None else _digest(settings.token)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        path: str = scope["path"]
        guarded = _with_headers(send, path)
        try:
            self._check(scope)
        except Exception as error:  # no answer leaves without its headers
            await answer(Request(scope), error)(scope, receive, guarded)
            return
        if path == "/login":
            await self._login(Request(scope))(scope, receive, guarded)
            return
        is_upload = scope["method"] == "POST" and path == UPLOAD_PATH
        if is_upload and self._num_uploads >= self._settings.max_uploads:
            # Before the body: what is not read takes no room on the disk.
            await answer(Request(scope), busy("uploads"))(scope, receive, guarded)
            return
        most = MAX_ACTION_BYTES if path in ACTION_PATHS else MAX_BODY_BYTES
        limited = _limited(
            receive,
            max_bytes=self._settings.max_upload_bytes + FORM_BYTES if is_upload else most,
            seconds=self._settings.upload_seconds if is_upload else MAX_BODY_SECONDS,
        )
        self._num_uploads += is_upload
        try:
            await self._app(scope, limited, guarded)
        except Exception as error:  # nobody foresaw it; it is in the log, and the server goes on
            await answer(Request(scope), error)(scope, receive, guarded)
        finally:
            self._num_uploads -= is_upload

    def _check(self, scope: Scope) -> None:
        headers, path = Headers(scope=scope), scope["path"]
        host = headers.get("host", "")
        if not self._is_known_host(host):
            raise Problem(
                403,
                "host",
                f"This server is not known as {host[:100]!r}.",
                "Ask for it by its IP address or as localhost, or start it with --allow-host NAME.",
            )
        if self._secret is not None and path != "/login" and not path.startswith("/static/"):
            self._check_token(headers, scope)
        is_same_site = headers.get("sec-fetch-site", "same-origin") in ("same-origin", "none")
        if scope["method"] not in SAFE_METHODS:
            is_own = _is_own(headers.get("origin"), host)
            if headers.get(GUARD_HEADER) != "1" or not is_own or not is_same_site:
                raise Problem(
                    403,
                    "cross_site",
                    "A request that changes something must come from the page itself.",
                    "Other clients send the header X-ProViCo: 1, and no Origin.",
                )
        elif not is_same_site and path.startswith(("/api/", "/media/")):
            raise Problem(403, "cross_site", "Requests from other sites are not allowed.")

    def _is_known_host(self, host: str) -> bool:
        try:
            name = (urlsplit(f"//{host}").hostname or "").rstrip(".")
        except ValueError:  # brackets that do not fit
            return False
        return name in self._names or _is_address(name)

    def _check_token(self, headers: Headers, scope: Scope) -> None:
        assert self._secret is not None
        kind, _, given = headers.get("authorization", "").partition(" ")
        cookie = Request(scope).cookies.get(self._settings.cookie_name, "")
        is_bearer = kind.lower() == "bearer" and hmac.compare_digest(_digest(given.strip()), self._secret)
        if not is_bearer and not hmac.compare_digest(cookie.encode(), self._secret.encode()):
            raise Problem(
                401,
                "token",
                "A token is needed.",
                "Open the link that `provico serve` printed, or send Authorization: Bearer TOKEN.",
                headers={"WWW-Authenticate": "Bearer"},
            )

    def _login(self, request: Request) -> Response:
        """Trade the token in the link for a cookie that no other site can use."""
        given = _digest(request.query_params.get("token", ""))
        if self._secret is not None and not hmac.compare_digest(given, self._secret):
            hint = "Look at what `provico serve` printed."
            return answer(request, Problem(401, "token", "The token is wrong.", hint))
        welcome = RedirectResponse("/", 303)
        if self._secret is not None:
            name = self._settings.cookie_name
            welcome.set_cookie(name, self._secret, httponly=True, samesite="strict", path="/")
        return welcome


def _is_own(origin: str | None, host: str) -> bool:
    """Whether a request says that it comes from this page, or does not say where it comes from."""
    try:
        return origin is None or urlsplit(origin).netloc == host
    except ValueError as error:  # brackets that do not fit
        raise Problem(400, "bad_request", "The header Origin is not an address.") from error


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _digest(token: str) -> str:
    return hashlib.sha256(b"provico explorer " + token.encode()).hexdigest()


def _with_headers(send: Send, path: str) -> Send:
    async def guarded(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            headers.update(HEADERS)
            headers["Content-Security-Policy"] = REPORT_CSP if path.startswith("/reports/") else CSP
            headers.setdefault("Cache-Control", "no-cache" if path.startswith("/static/") else "no-store")
        await send(message)

    return guarded


def _limited(receive: Receive, *, max_bytes: int, seconds: float) -> Receive:
    deadline = time.monotonic() + seconds
    num_bytes = 0
    is_whole = False

    async def limited() -> Message:
        nonlocal num_bytes, is_whole
        if is_whole:  # what is waited for now is that the client leaves
            return await receive()
        try:
            with anyio.fail_after(max(0.0, deadline - time.monotonic())):
                message = await receive()
        except TimeoutError:
            reason = f"The request took longer than {seconds:g} seconds to arrive."
            raise Problem(408, "too_slow", reason) from None
        num_bytes += len(message.get("body", b""))
        is_whole = not message.get("more_body", False)
        if num_bytes > max_bytes:
            raise Problem(413, "too_large", f"The request is larger than {max_bytes:,} bytes.")
        return message

    return limited
