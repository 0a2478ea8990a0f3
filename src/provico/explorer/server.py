"""The process around the application: one port, connections that cannot wait for ever, a clean end.

Who connects and then says nothing, or half of a header, is not known yet: the token comes with the header. So
such a connection has a time limit, and when there are too many, the one that has waited longest is closed. A
client that sends its request at once is never that one.
"""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import socket
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from typing import Any, ClassVar

import uvicorn
from starlette.applications import Starlette
from uvicorn.protocols.http.h11_impl import H11Protocol

from provico.errors import ConfigError
from provico.explorer.front import Front
from provico.explorer.settings import MAX_CONNECTIONS, ExplorerSettings

SECONDS_TO_END = 3
"""How long answers under way may take after Ctrl-C."""
HEADER_SECONDS = 10.0
"""How long a client may take to send the header of a request."""
MAX_WAITING = 128
"""How many clients may be in the middle of it at once."""


def listen(host: str, port: int) -> socket.socket:
    """A socket at which to listen; an error with a way out if that cannot be."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        opened = socket.socket(family, kind, protocol)
        try:
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            opened.bind(address)
            opened.listen(128)
        except OSError:
            opened.close()
            raise
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise ConfigError(
                f"Port {port} of {host} is taken, perhaps by another `provico serve`. Choose another --port, "
                "or 0 for any that is free."
            ) from error
        raise ConfigError(f"The server cannot bind to {host}, port {port} ({error.strerror}).") from error
    return opened


def address_of(opened: socket.socket) -> str:
    """The address of the page for a browser on this machine."""
    host, port = opened.getsockname()[:2]
    if host in ("0.0.0.0", "::"):  # nosec B104
        host = "127.0.0.1"
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def is_local(host: str) -> bool:
    """Whether only this machine can connect."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def serve(
    settings: ExplorerSettings,
    opened: socket.socket,
    *,
    ready: Callable[[], None] = lambda: None,
    before: Callable[[], None] = lambda: None,
) -> None:
    """Serve until Ctrl-C or a signal to end.

    An index is opened before anything is answered, so that an error ends the command. Of a collection the
    pages are there before that.

    ready: is called when the first request would be answered.
    before: is called before the index is opened.
    """
    errors: list[Exception] = []

    def failed(error: Exception) -> None:
        errors.append(error)
        server.should_exit = True

    def load() -> Starlette:
        before()
        return _application(settings)

    config = uvicorn.Config(
        load() if settings.workspace is None else Front(settings, load, failed),
        http=PatientProtocol,
        log_level="warning",
        access_log=False,  # addresses of pages can hold the token
        server_header=False,
        limit_concurrency=MAX_CONNECTIONS,
        timeout_graceful_shutdown=SECONDS_TO_END,
    )
    server = _Server(config, ready)
    with suppress(KeyboardInterrupt):  # that is how it ends
        server.run(sockets=[opened])
    if errors:
        raise errors[0]


def _application(settings: ExplorerSettings) -> Starlette:
    import torch

    from provico.explorer.app import create_app

    torch.set_num_threads(1)  # each search has a thread of its own
    return create_app(settings)


class _Server(uvicorn.Server):
    """Says when it is ready."""

    def __init__(self, config: uvicorn.Config, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._ready()


class PatientProtocol(H11Protocol):
    """HTTP/1.1 whose patience has an end."""

    header_seconds = HEADER_SECONDS
    max_waiting = MAX_WAITING
    _waiting: ClassVar[OrderedDict[PatientProtocol, None]] = OrderedDict()
    """Those without a whole request, the one that has waited longest first; of all servers here."""
    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """Begin to wait."""
        super().connection_made(transport)
        self._look()

    def data_received(self, data: bytes) -> None:
        """It may have been the rest of a header."""
        super().data_received(data)
        self._look()

    def on_response_complete(self) -> None:
        """Wait for the next request."""
        super().on_response_complete()
        self._look()

    def connection_lost(self, exc: Exception | None) -> None:
        """Nobody waits any more."""
        self._stop_waiting()
        super().connection_lost(exc)

    def _look(self) -> None:
        is_waiting = self.cycle is None or self.cycle.response_complete
        if not is_waiting or self.transport.is_closing():
            self._stop_waiting()
        elif self._timer is None:
            self._timer = self.loop.call_later(self.header_seconds, self._give_up)
            self._waiting[self] = None
            while len(self._waiting) > self.max_waiting:
                next(iter(self._waiting))._give_up()

    def _stop_waiting(self) -> None:
        self._waiting.pop(self, None)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _give_up(self) -> None:
        self._stop_waiting()
        self.transport.close()
