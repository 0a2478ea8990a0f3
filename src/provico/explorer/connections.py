"""Connections that send no whole request: they may wait for a while, and few of them at once.

Who connects and then says nothing, or half of a header, is not known yet: the token comes with the header. So
such a connection has a time limit, and when there are too many, the one that has waited longest is closed.
A client that sends its request at once is never that one.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from typing import Any, ClassVar

from uvicorn.protocols.http.h11_impl import H11Protocol

HEADER_SECONDS = 10.0
"""How long a client may take to send the header of a request."""
MAX_WAITING = 128
"""How many clients may be in the middle of it at once."""


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
