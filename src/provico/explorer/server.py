"""The process around the application: one port, a clean end."""

from __future__ import annotations

import errno
import ipaddress
import socket
from collections.abc import Callable
from contextlib import suppress

import uvicorn
from starlette.applications import Starlette

from provico.errors import ConfigError
from provico.explorer.connections import PatientProtocol
from provico.explorer.front import Front
from provico.explorer.settings import MAX_CONNECTIONS, ExplorerSettings

SECONDS_TO_END = 3
"""How long answers under way may take after Ctrl-C."""


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
