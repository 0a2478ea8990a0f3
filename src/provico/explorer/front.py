"""Pages at once, and everything else when the whole application is there.

To import torch and to open an index takes seconds. A browser does not have to wait for that to show a page,
whose questions are answered as soon as they can be: those of the first view at once if it was kept.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from provico.explorer.first_view import PATHS, FirstView
from provico.explorer.guard import RequestGuard
from provico.explorer.pages import is_page, page_routes
from provico.explorer.problems import Problem
from provico.explorer.settings import ExplorerSettings


class Front:
    """An ASGI application before another one, which is made in a thread meanwhile.

    Args:
        settings: who may ask.
        load: makes the other one.
        failed: is called with what went wrong if that fails; then nothing more is answered.
    """

    def __init__(
        self,
        settings: ExplorerSettings,
        load: Callable[[], Starlette],
        failed: Callable[[Exception], None],
    ) -> None:
        self._load, self._failed = load, failed
        self._first_view = FirstView.read(settings)
        kept = [Route(path, self._kept, methods=["GET"]) for path in (*PATHS, "/media/thumbnail")]
        pages = Starlette(routes=[*page_routes(), *kept], lifespan=self._lifespan)
        self._pages: ASGIApp = RequestGuard(pages, settings=settings)
        self._whole: asyncio.Future[Starlette] | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        whole = self._whole
        is_there = whole is not None and whole.done()
        if whole is None or scope["type"] == "lifespan" or (self._is_known(scope) and not is_there):
            await self._pages(scope, receive, send)
        else:
            # Who leaves while waiting must not take the application away from the others.
            try:
                answers: ASGIApp = await asyncio.shield(whole)
            except Exception:  # which the command says in its own words
                problem = Problem(503, "ended", "The server could not start.", "Its output says why.")
                answers = problem.response()
            await answers(scope, receive, send)

    def _is_known(self, scope: Scope) -> bool:
        """Whether it can be answered without the application."""
        is_kept = self._first_view is not None and self._first_view.answer(scope) is not None
        return is_page(scope["path"]) or is_kept

    async def _kept(self, request: Request) -> Response:
        assert self._first_view is not None
        answer = self._first_view.answer(request.scope)
        assert answer is not None
        return answer

    @asynccontextmanager
    async def _lifespan(self, _: Starlette) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            self._whole = asyncio.ensure_future(self._opened(stack))
            yield
            await asyncio.gather(self._whole, return_exceptions=True)

    async def _opened(self, stack: AsyncExitStack) -> Starlette:
        try:
            app = await asyncio.get_running_loop().run_in_executor(None, self._load)
            await stack.enter_async_context(app.router.lifespan_context(app))
        except Exception as error:
            self._failed(error)
            raise
        return app
