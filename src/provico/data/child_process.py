"""Child processes: how they are started, called and limited. No other file starts a process.

The parent sends a function and an item; the child reports that it has begun, that it is alive while it
delivers, and finally the result. A child that is silent for too long is stopped, so a file may take hours as
long as frames keep coming; so is a call that takes longer in total than the caller can wait.

What the parent sends is pickled. The child's answer is untrusted and therefore plain (see `plain`). A child
has a memory limit, and one that has grown is replaced.

A `Companion` is the other kind: it works beside its parent for hours, receives commands, and ends with it.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from provico.data import plain
from provico.data.memory import (
    DECODING_BYTES,
    GIGABYTE,
    data_bytes,
    limit_this_process,
    limit_to,
    resident_bytes,
)

Item = TypeVar("Item")
Result = TypeVar("Result")

START_SECONDS = 300.0
"""Time that a child may take to begin, even on a busy machine."""
ALIVE_EVERY_SECONDS = 0.5
MAX_ANSWER_BYTES = 2**28
NUM_STARTS = 2
"""Attempts to start a child: one that dies before it begins has not seen the item."""

_REQUEST = struct.Struct("!QB")  # bytes of the pickle, number of descriptors
_ANSWER = struct.Struct("!cQQ")  # kind, bytes in memory, bytes of the value
_BEGUN, _ALIVE, _RETURNED, _RAISED, _NO_MEMORY = b"b", b"a", b"r", b"e", b"m"


@dataclass(frozen=True, kw_only=True)
class CallLimits:
    """Limits of a call in a child."""

    silent_seconds: float
    """A child that delivers nothing for this long is stopped."""
    total_seconds: float | None = None
    """A call that takes longer in total is stopped; None for no limit."""
    memory_bytes: int = DECODING_BYTES
    """Memory that a child may use beyond that at its start."""
    kept_bytes: int = GIGABYTE
    """A child that is larger after a call is replaced."""


@dataclass(frozen=True)
class ItemOutcome(Generic[Item, Result]):
    """One item with its result, or the reason why there is none."""

    item: Item
    result: Result | None
    failure: str | None
    """Set if the child was stopped, died, or could not be started."""
    blames_item: bool = True
    """Whether the item is to blame for the failure; if not, it may be tried again later."""


class Child:
    """One child process that answers one request at a time; the first request starts it."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._wire: socket.socket | None = None
        self._lock = threading.Lock()
        self._is_ended = False

    def call(
        self,
        function: Callable[..., Result],
        item: Item,
        limits: CallLimits,
        *,
        descriptors: Sequence[int] = (),
    ) -> ItemOutcome[Item, Result]:
        """Call the function with the item, and with open files if any are given, in the child."""
        deadline = None if limits.total_seconds is None else time.monotonic() + limits.total_seconds
        request = pickle.dumps((function, item, limits.memory_bytes))
        cause = "the program ends."
        for _ in range(NUM_STARTS):
            if not self._start():
                break
            try:
                self._send(request, descriptors)
                self._receive(START_SECONDS, deadline)  # that it has begun
            except TimeoutError:
                return self._stopped(item, limits, deadline)
            except (OSError, EOFError):
                # It had died before, perhaps killed while it was idle: the item has done nothing.
                cause = f"the process that decodes videos ended ({self._cause_of_death()})."
                continue
            return self._answer(item, limits, deadline)
        return ItemOutcome(item, None, cause, blames_item=False)

    def kill(self) -> None:
        """Stop the current call; the next call starts a new child."""
        process = self._process
        if process is not None:
            process.kill()

    def end(self) -> None:
        """Stop the current call, and start no more children."""
        with self._lock:
            self._is_ended = True
        self.kill()

    def close(self) -> None:
        """Stop the child and wait for it. No `call` may be running."""
        self.kill()
        if self._process is not None:
            self._process.wait()
            self._process = None
        if self._wire is not None:
            self._wire.close()
            self._wire = None

    def _answer(self, item: Item, limits: CallLimits, deadline: float | None) -> ItemOutcome[Item, Result]:
        try:
            kind = _ALIVE
            while kind == _ALIVE:
                kind, num_bytes, content = self._receive(limits.silent_seconds, deadline)
            value: Any = None if kind == _NO_MEMORY else plain.from_bytes(content)
            if kind not in (_RETURNED, _RAISED, _NO_MEMORY) or (
                kind == _RAISED and not isinstance(value, Exception)
            ):
                raise ValueError("it is of no known kind.")
        except TimeoutError:
            return self._stopped(item, limits, deadline)
        except (OSError, EOFError):
            return ItemOutcome(item, None, f"the decoder crashed ({self._cause_of_death()}).")
        except ValueError as error:
            self.close()
            return ItemOutcome(item, None, f"the process that decoded it gave no valid answer ({error})")
        if num_bytes > limits.kept_bytes or kind == _NO_MEMORY:
            self.close()
        if kind == _NO_MEMORY:
            allowed = f"{limits.memory_bytes / GIGABYTE:g} GB"
            return ItemOutcome(item, None, f"it needs more memory than a process may take ({allowed}).")
        if kind == _RAISED:
            raise value
        return ItemOutcome(item, value, None)

    def _stopped(self, item: Item, limits: CallLimits, deadline: float | None) -> ItemOutcome[Item, Result]:
        self.close()
        if deadline is not None and time.monotonic() >= deadline:
            return ItemOutcome(item, None, f"it took longer than {limits.total_seconds:g} seconds.")
        return ItemOutcome(item, None, f"nothing came of it for {limits.silent_seconds:g} seconds.")

    def _cause_of_death(self) -> str:
        process = self._process
        if process is None:
            return "before it began"
        process.kill()  # if only its end of the wire is closed
        returncode = process.wait()
        self.close()
        if returncode < 0:
            with contextlib.suppress(ValueError):
                return signal.Signals(-returncode).name
        return f"exit status {returncode}"

    def _start(self) -> bool:
        """Start a process; False if the program is ending."""
        with self._lock:
            if self._is_ended:
                return False
            if self._process is not None:
                return True
            # The current folder is not on the path (-P): a collection of videos may contain an av.py, whose
            # code must not run.
            ours, theirs = socket.socketpair()
            with theirs:
                code = f"from provico.data.child_process import serve; serve({theirs.fileno()})"
                self._process = subprocess.Popen(  # nosec B603
                    [sys.executable, "-P", "-c", code],
                    stdin=subprocess.DEVNULL,
                    env=_safe_environment(),
                    pass_fds=[theirs.fileno()],
                )
            self._wire = ours
            return True

    def _send(self, request: bytes, descriptors: Sequence[int]) -> None:
        assert self._wire is not None
        self._wire.settimeout(START_SECONDS)
        # At least one byte goes with descriptors; the header is small enough to go in one piece.
        socket.send_fds(self._wire, [_REQUEST.pack(len(request), len(descriptors))], list(descriptors))
        self._wire.sendall(request)

    def _receive(self, seconds: float, deadline: float | None) -> tuple[bytes, int, bytes]:
        """The next message: its kind, the child's memory, and the content."""
        assert self._wire is not None
        if deadline is not None:
            seconds = min(seconds, deadline - time.monotonic())
        self._wire.settimeout(max(1e-3, seconds))
        kind, num_bytes, length = _ANSWER.unpack(_read(self._wire, _ANSWER.size))
        if length > MAX_ANSWER_BYTES:
            raise ValueError(f"it announced an answer of {length:,} bytes.")
        return kind, num_bytes, _read(self._wire, length)


def _safe_environment() -> dict[str, str]:
    """The environment with this process's module search path, so that children import the same modules."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}


class Companion:
    """A process that works beside this one, receives commands, and ends when this one ends in any way.

    Args:
        entry: `package.module:function`, called with the arguments; it receives commands by `hear`.
        arguments: texts for that function.
        log: a file for its output.
    """

    def __init__(self, entry: str, *arguments: str, log: Path) -> None:
        module, _, function = entry.partition(":")
        code = f"import sys; from {module} import {function}; {function}(*sys.argv[1:])"
        with log.open("ab") as said:
            self._process = subprocess.Popen(  # nosec B603
                [sys.executable, "-P", "-c", code, *arguments],
                stdin=subprocess.PIPE,
                stdout=said,
                stderr=said,
                env=_safe_environment(),
            )

    @property
    def is_running(self) -> bool:
        """Whether it is running."""
        return self._process.poll() is None

    @property
    def exit_status(self) -> int | None:
        """How it has ended; None while it runs."""
        return self._process.poll()

    def tell(self, word: str) -> None:
        """Send it a command; ignored if it has ended."""
        assert self._process.stdin is not None
        with contextlib.suppress(OSError, ValueError):  # it has gone, or was told to end
            self._process.stdin.write(f"{word}\n".encode())
            self._process.stdin.flush()

    def close(self, *, seconds: float = 10.0) -> None:
        """Ask it to end by closing its input; kill it if it takes longer than this."""
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def hear(listener: Callable[[str], None]) -> None:
    """In a companion: call the listener with each command, and interrupt the work if the parent is gone."""

    # Not `sys.stdin`: a process forked meanwhile would wait for its lock forever.
    ears = os.dup(0)

    def listen() -> None:
        heard = b""
        while part := os.read(ears, 4096):
            *words, heard = (heard + part).split(b"\n")
            for word in words:
                listener(word.decode().strip())
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(_SECONDS_TO_END)
        os._exit(1)

    threading.Thread(target=listen, daemon=True).start()


_SECONDS_TO_END = 8.0
"""Time that a companion may take to stop its current work."""


def _read(wire: socket.socket, length: int) -> bytes:
    parts = bytearray()
    while len(parts) < length:
        part = wire.recv(min(length - len(parts), 2**20))
        if not part:
            raise EOFError
        parts += part
    return bytes(parts)


# ----------------------------------------------------------------------------------------------------
# The child's side


class _Served:
    """The child's connection to its parent; None in other processes."""

    wire: socket.socket | None = None
    last_alive = 0.0


def alive() -> None:
    """Report progress: called for every delivered frame. Does nothing in a parent."""
    wire = _Served.wire
    if wire is not None and time.monotonic() - _Served.last_alive > ALIVE_EVERY_SECONDS:
        _Served.last_alive = time.monotonic()
        _say(wire, _ALIVE)


def serve(number: int) -> None:
    """Answer requests until the parent closes the wire."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is handled by the parent, which ends its children
    limit_this_process()
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # printed output is not part of the answer
    wire = _Served.wire = socket.socket(fileno=number)
    at_start: int | None = None
    while True:
        try:
            header, descriptors, _, _ = socket.recv_fds(wire, _REQUEST.size, 16)
            if not header:
                return
            request = _read(wire, _REQUEST.unpack(header)[0])
        except (EOFError, OSError):
            return
        _say(wire, _BEGUN)
        try:
            function, item, memory_bytes = pickle.loads(request)  # nosec B301
            at_start = data_bytes() if at_start is None else at_start  # with all that was imported
            limit_to(at_start + memory_bytes)
            kind, answer = _RETURNED, plain.to_bytes(function(item, *descriptors))
        except MemoryError:
            kind, answer = _NO_MEMORY, b""
        except BaseException as error:
            said = error if isinstance(error, Exception) else RuntimeError(repr(error))
            kind, answer = _RAISED, plain.to_bytes(said)
        for descriptor in descriptors:
            os.close(descriptor)
        _say(wire, kind, answer)


def _say(wire: socket.socket, kind: bytes, content: bytes = b"") -> None:
    wire.sendall(_ANSWER.pack(kind, resident_bytes(), len(content)) + content)
