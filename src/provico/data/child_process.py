"""One child process: how it is started, spoken to and limited. No other file starts a process.

The parent sends a function and an item; the child says that it has begun, that it is alive while it delivers,
and at last the result. A child is stopped when it has been silent for too long, so that a file may take hours
as long as frames keep coming, or when a call as a whole takes longer than the caller can wait.

What the parent sends is pickled. What the child answers is not trusted and is plain (see `plain`). A child
has a limit of memory, and one that has grown is replaced by a new one.

A `Companion` is the other kind: it works beside its parent for hours, is told words, and ends with it.
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
"""How long a child may take until it begins, on the busiest machine."""
ALIVE_EVERY_SECONDS = 0.5
MAX_ANSWER_BYTES = 2**28
NUM_STARTS = 2
"""A child that dies before it begins has not seen the item; so many are tried."""

_REQUEST = struct.Struct("!QB")  # bytes of the pickle, number of descriptors
_ANSWER = struct.Struct("!cQQ")  # kind, bytes in memory, bytes of the value
_BEGUN, _ALIVE, _RETURNED, _RAISED, _NO_MEMORY = b"b", b"a", b"r", b"e", b"m"


@dataclass(frozen=True, kw_only=True)
class CallLimits:
    """What a call in a child may take."""

    silent_seconds: float
    """A child that has delivered nothing for so long is stopped."""
    total_seconds: float | None = None
    """A call that takes longer is stopped whatever it delivers; None lets it."""
    memory_bytes: int = DECODING_BYTES
    """What a child may take besides what it had at its start."""
    kept_bytes: int = GIGABYTE
    """A child that is larger after a call is replaced."""


@dataclass(frozen=True)
class ItemOutcome(Generic[Item, Result]):
    """One item with its result, or with the reason why there is none."""

    item: Item
    result: Result | None
    failure: str | None
    """Set when the child was stopped, died, or could not be had."""
    blames_item: bool = True
    """Whether the item is to blame for the failure; if not, it may be tried again later."""


class Child:
    """One child process that answers one request at a time; it is started by the first."""

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
        """Stop what is under way; the next call starts anew."""
        process = self._process
        if process is not None:
            process.kill()

    def end(self) -> None:
        """Stop what is under way, and start nothing more."""
        with self._lock:
            self._is_ended = True
        self.kill()

    def close(self) -> None:
        """Stop it, and wait until it is gone. Nobody may be in `call`."""
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
            return ItemOutcome(item, None, f"the process that decoded it gave no proper answer ({error})")
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
        """Have a process; False if the program ends."""
        with self._lock:
            if self._is_ended:
                return False
            if self._process is not None:
                return True
            # The current folder is not on the path (-P): a collection of videos may hold an av.py, whose code
            # must not run.
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
        """The next message: its kind, how large the child is, and its content."""
        assert self._wire is not None
        if deadline is not None:
            seconds = min(seconds, deadline - time.monotonic())
        self._wire.settimeout(max(1e-3, seconds))
        kind, num_bytes, length = _ANSWER.unpack(_read(self._wire, _ANSWER.size))
        if length > MAX_ANSWER_BYTES:
            raise ValueError(f"it announced an answer of {length:,} bytes.")
        return kind, num_bytes, _read(self._wire, length)


def _safe_environment() -> dict[str, str]:
    """With the module search path of this process, so that a child may import only what its parent can."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}


class Companion:
    """A process that works beside this one, is told words, and ends when this one does, however that ends.

    Args:
        entry: `package.module:function`, which is called with the arguments; it reads words by `hear`.
        arguments: texts for that function.
        log: a file for what it says.
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
        """Whether it has not ended."""
        return self._process.poll() is None

    def tell(self, word: str) -> None:
        """Let it hear a word; one that has ended hears nothing."""
        assert self._process.stdin is not None
        with contextlib.suppress(OSError, ValueError):  # it has gone, or was told to end
            self._process.stdin.write(f"{word}\n".encode())
            self._process.stdin.flush()

    def close(self, *, seconds: float = 10.0) -> None:
        """Tell it to end, by closing its ears; it is killed if it takes longer than this."""
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def hear(listener: Callable[[str], None]) -> None:
    """In a companion: call the listener with each word, and interrupt the work when the parent has gone."""

    # Not by `sys.stdin`, whose lock a process that is forked meanwhile would wait for in vain.
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
"""A companion that is in the middle of something may take so long to put it down."""


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
    """What the child knows of its parent; None in every other process."""

    wire: socket.socket | None = None
    last_alive = 0.0


def alive() -> None:
    """Say that the work goes on: whoever delivers frames calls it at each. In a parent it does nothing."""
    wire = _Served.wire
    if wire is not None and time.monotonic() - _Served.last_alive > ALIVE_EVERY_SECONDS:
        _Served.last_alive = time.monotonic()
        _say(wire, _ALIVE)


def serve(number: int) -> None:
    """Answer requests until the parent closes the wire."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which then ends its children
    limit_this_process()
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what the function prints is no result
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
