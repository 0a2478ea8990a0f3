"""Files that may be served, and parts of them.

A file is opened once, what was opened is checked, and what was checked is sent: there is no moment in which
one file could take the place of another.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import AsyncIterator, Iterable
from pathlib import Path

import anyio.to_thread
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from provico.explorer.problems import Problem
from provico.files import Signature

CHUNK = 2**18
"""How many bytes are read at once."""


class OpenFile:
    """A regular file below one of some folders, open for reading; raises Problem if it is not that."""

    descriptor = -1

    def __init__(self, path: Path, *, roots: Iterable[Path], expected: Signature | None = None) -> None:
        try:
            real = path.resolve(strict=True)
            # A link may lead out of the folders, so it is the file behind all links that must be in them.
            if not any(real.is_relative_to(root.resolve()) for root in roots):
                raise _missing("It does not lie in a folder that is served.", "Serve it with --root FOLDER.")
            # No link again, and never wait for whoever writes to a pipe.
            self.descriptor = os.open(real, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except (OSError, ValueError, RuntimeError) as error:
            raise _missing("It is gone, or may not be read.") from error
        status = os.fstat(self.descriptor)
        self.signature = Signature(status.st_size, status.st_mtime_ns)
        if not stat.S_ISREG(status.st_mode):
            self.close()
            raise _missing("It is not a regular file.")
        if expected is not None and self.signature != expected:
            self.close()
            raise _missing("It has changed since it was indexed.", "Run `provico index` again.")
        self.path = real

    @property
    def etag(self) -> str:
        """Another one for another content."""
        return f'"{self.signature.num_bytes:x}-{self.signature.modified_ns:x}"'

    def begin(self, num_bytes: int) -> bytes:
        """Its first bytes."""
        return os.pread(self.descriptor, num_bytes, 0)

    def close(self) -> None:
        """Close it; more than once does no harm."""
        descriptor, self.descriptor = self.descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def __del__(self) -> None:
        # Of an answer that nobody waited for, not one byte may have been asked for.
        self.close()


def _missing(message: str, hint: str | None = None) -> Problem:
    return Problem(404, "no_file", f"The file cannot be served. {message}", hint)


def send(file: OpenFile, request: Request, *, media_type: str, max_age: int = 0) -> Response:
    """A file, or the part of it that the request asks for; closes it when it is sent."""
    size, etag = file.signature.num_bytes, file.etag
    headers = {
        "ETag": etag,
        "Accept-Ranges": "bytes",
        "Cache-Control": f"private, max-age={max_age}" if max_age else "private, no-cache",
    }
    if etag in request.headers.get("if-none-match", ""):
        file.close()
        return Response(status_code=304, headers=headers)
    wanted = request.headers.get("range")
    if wanted is not None and request.headers.get("if-range", etag) != etag:
        wanted = None  # the client has a part of another file
    try:
        part = None if wanted is None else parse_range(wanted, size)
    except Problem:
        file.close()
        raise
    start, end = part or (0, size)
    headers["Content-Length"] = str(end - start)
    if part is not None:
        headers["Content-Range"] = f"bytes {start}-{end - 1}/{size}"
    return StreamingResponse(
        _chunks(file, start, end),
        status_code=206 if part else 200,
        headers=headers,
        media_type=media_type,
    )


async def _chunks(file: OpenFile, start: int, end: int) -> AsyncIterator[bytes]:
    try:
        while start < end:
            num_bytes = min(CHUNK, end - start)
            chunk = await anyio.to_thread.run_sync(os.pread, file.descriptor, num_bytes, start)
            if not chunk:
                return  # the file was cut short meanwhile; the client sees that bytes are missing
            start += len(chunk)
            yield chunk
    finally:
        file.close()


def parse_range(text: str, size: int) -> tuple[int, int] | None:
    """Start and end (exclusive) of one range; None for what may be ignored, such as several ranges."""
    found = re.fullmatch(r"bytes=(\d{0,18})-(\d{0,18})", text.strip())
    if found is None or found.groups() == ("", ""):
        return None
    first, last = found.groups()
    if not first:
        start, end = max(0, size - int(last)), size
    else:
        start, end = int(first), min(size, int(last) + 1) if last else size
        if last and int(last) < int(first):
            return None
    if start >= size or start >= end:
        raise Problem(
            416,
            "range",
            f"The file has {size} bytes, and {text[:100]} is beyond them.",
            headers={"Content-Range": f"bytes */{size}"},
        )
    return start, end
