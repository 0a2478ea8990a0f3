"""Videos on an object store: which there are, and copies of them in a folder of bounded size.

Everything that looks at a video wants a file that it can seek in, so objects are fetched whole, once, and
again when their size or time is another one. What no longer fits is not read, and `not_read.csv` names it.
Nothing is ever written to the store. Keys are taken where every program of the store looks for them: the
environment, ~/.aws, or the role of the machine.
"""

from __future__ import annotations

import csv
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Any

from provico.data.layouts.video_files import is_video_name
from provico.errors import CatalogError, ConfigError
from provico.files import Signature, private_folder, remove_partials, replace_rows, replacing
from provico.progress import Progress, silent

SCHEME = "s3://"
NOT_READ_NAME = "not_read.csv"
GIGABYTE = 10**9
CACHE_GB = 20.0
"""How many gigabytes of copies are kept at most, unless another number is asked for."""
NUM_FIRST, GROWTH = 12, 4
"""So many objects are fetched first, then so many times as many, so that pictures come early."""
NUM_THREADS = 8
CONNECT_SECONDS, SILENT_SECONDS = 10, 60
BLOCK_BYTES = 2**20
MAX_NAME_BYTES = 255
"""Of a file, on every usual disk."""
_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")


@dataclass(frozen=True)
class NotRead:
    """An object that has no copy, and why."""

    name: str
    """Its name below the prefix."""
    num_bytes: int
    reason: str


class ObjectStore:
    """The videos under a prefix of a bucket.

    Args:
        address: such as s3://bucket/prefix.
        folder: where the copies are kept.
        max_bytes: what they may take together.
    """

    def __init__(self, address: str, folder: Path, *, max_bytes: int) -> None:
        self.address, self._folder, self._max_bytes = checked_address(address), folder, max_bytes
        self._base = self.address.removeprefix(SCHEME)

    def listing(self) -> dict[str, Signature]:
        """Size and time of each video, by its name below the prefix."""
        from pyarrow.fs import FileSelector, FileType

        try:
            found = self._store.get_file_info(FileSelector(self._base, recursive=True))
        except FileNotFoundError:
            found = []
        except OSError as error:
            raise CatalogError(f"{self.address} cannot be listed: {_reason(error)}.") from error
        names = {
            info.path.removeprefix(f"{self._base}/"): Signature(info.size, info.mtime_ns or 0)
            for info in found
            if info.type == FileType.File
        }
        if not any(map(is_video_name, names)):
            raise CatalogError(
                f"There is no video under {self.address}/, only {len(names):,} other objects. Videos are "
                "told by their suffix (.mp4, .avi, .mkv, .webm, ...)."
            )
        return {name: names[name] for name in sorted(names) if is_video_name(name) and not _is_hidden(name)}

    def fetch(self, progress: Progress = silent) -> Iterator[list[NotRead]]:
        """Bring the copies up to date. After each round the folder can be read; yields what has no copy."""
        listing = self.listing()
        private_folder(self._folder)
        remove_partials(self._folder)
        self._remove_all_but(listing)
        wanted, refused = self._plan(listing)
        yield refused
        done, size = 0, NUM_FIRST
        while wanted:
            # The first round is spread over the store.
            step = max(1, len(wanted) // NUM_FIRST) if done == 0 else 1
            some = wanted[::step][:size]
            chosen = set(some)
            with ThreadPoolExecutor(NUM_THREADS, "objects") as threads:
                fetched = {threads.submit(self._fetch, name, listing[name]): name for name in some}
                try:
                    for number, one in enumerate(as_completed(fetched), start=1):
                        if (reason := one.result()) is not None:
                            name = fetched[one]
                            refused.append(NotRead(name, listing[name].num_bytes, reason))
                        progress(done + number, len(wanted) + done)
                finally:
                    threads.shutdown(cancel_futures=True)
            wanted = [name for name in wanted if name not in chosen]
            done, size = done + len(some), size * GROWTH
            yield sorted(refused, key=lambda one: one.name)

    @cached_property
    def _store(self) -> Any:
        """A connection; nothing is contacted before."""
        from pyarrow.fs import S3FileSystem, resolve_s3_region

        said = os.environ.get
        endpoint = said("AWS_ENDPOINT_URL_S3") or said("AWS_ENDPOINT_URL") or said("AWS_ENDPOINT")
        bucket = self._base.partition("/")[0]
        try:
            return S3FileSystem(
                endpoint_override=endpoint,
                region=None if endpoint else resolve_s3_region(bucket),
                anonymous=(said("AWS_SKIP_SIGNATURE") or "").lower() == "true",
                connect_timeout=CONNECT_SECONDS,
                request_timeout=SILENT_SECONDS,
            )
        except OSError as error:
            raise CatalogError(f"{self.address} cannot be reached: {_reason(error)}.") from error

    def _plan(self, listing: dict[str, Signature]) -> tuple[list[str], list[NotRead]]:
        """What is to be fetched, and what is not: for its name, or since there is no room for it."""
        refused: list[NotRead] = []
        known = {name for name, file in listing.items() if self._has(name, file)}
        room = self._max_bytes - sum(listing[name].num_bytes for name in known)
        folders = _folders(listing)
        wanted = []
        for name, file in listing.items():
            if name in known:
                continue
            if not _may_be_file(name):
                refused.append(NotRead(name, file.num_bytes, "its name is not a valid file name"))
            elif name in folders:
                refused.append(NotRead(name, file.num_bytes, "its name is also the folder of other objects"))
            elif file.num_bytes > room:
                given = f"{self._max_bytes / GIGABYTE:g}"
                refused.append(
                    NotRead(name, file.num_bytes, f"copies may take {given} GB; give more by --cache-gb")
                )
            else:
                room -= file.num_bytes
                wanted.append(name)
        return wanted, refused

    def _has(self, name: str, file: Signature) -> bool:
        return _may_be_file(name) and Signature.of(self._folder / name) == file

    def _remove_all_but(self, listing: dict[str, Signature]) -> None:
        """Remove copies of what is gone or another object by now, which would count as room."""
        folders = _folders(listing)
        # Files come before the folders that hold them.
        for path in sorted(self._folder.rglob("*"), reverse=True):
            name = path.relative_to(self._folder).as_posix()
            if path.is_dir():
                if name not in folders and not any(path.iterdir()):
                    path.rmdir()
            elif name in folders or listing.get(name) != Signature.of(path):
                path.unlink()

    def _fetch(self, name: str, file: Signature) -> str | None:
        """Copy an object; why it could not be, if so. A full disk is an error."""
        path = self._folder / name
        try:
            source = self._store.open_input_stream(f"{self._base}/{name}")
        except OSError as error:
            return _reason(error)
        with source:
            path.parent.mkdir(parents=True, exist_ok=True)
            with replacing(path) as partial:
                with partial.open("wb") as to:
                    try:
                        while block := source.read(BLOCK_BYTES):
                            to.write(block)
                    except OSError as error:
                        if error.errno is not None:  # of the disk; the store's errors have no number
                            raise
                        return _reason(error)
                if partial.stat().st_size != file.num_bytes:
                    return "it has changed since it was listed"
                os.utime(partial, ns=(file.modified_ns, file.modified_ns))
        return None


def _folders(names: Iterable[str]) -> set[str]:
    """The folders of these names."""
    return {parent.as_posix() for name in names for parent in PurePosixPath(name).parents}


def checked_address(address: str) -> str:
    """An address without a slash at its end; an error if it is none of an object store."""
    bucket, _, prefix = address.removeprefix(SCHEME).strip("/").partition("/")
    if not address.startswith(SCHEME):
        raise CatalogError(
            f"{address} is an address that is not known here. Give a folder of videos, a list of them, an "
            "index or s3://bucket/prefix; mount another store as a folder."
        )
    if not _BUCKET.fullmatch(bucket):
        raise CatalogError(f"{address} names no bucket. Write s3://bucket/prefix; keys are not part of it.")
    return SCHEME + "/".join(filter(None, (bucket, prefix.strip("/"))))


def checked_gigabytes(value: float) -> float:
    """How much copies may take; an error if that is nothing."""
    if not 0 < value < float("inf"):
        raise ConfigError(f"--cache-gb is {value:g}, but has to be above 0.")
    return value


def write_not_read(path: Path, not_read: Sequence[NotRead]) -> None:
    """All of them in a file, which is empty but for its head if there are none."""
    replace_rows(path, ("name", "num_bytes", "reason"), (vars(one) for one in not_read))


def read_not_read(path: Path) -> list[NotRead]:
    """What such a file names; nothing if there is none, or it is damaged."""
    try:
        with path.open(newline="", encoding="utf-8", errors="surrogateescape") as file:
            rows = [*csv.DictReader(file)]
        return [NotRead(row["name"], int(row["num_bytes"]), row["reason"]) for row in rows]
    except (OSError, KeyError, TypeError, ValueError, csv.Error):
        return []


def _is_hidden(name: str) -> bool:
    return any(part.startswith(".") and part not in (".", "..") for part in name.split("/"))


def _may_be_file(name: str) -> bool:
    """Whether a key is a path below a folder; keys may be anything."""
    parts = name.split("/")
    is_short = all(0 < len(part.encode(errors="surrogateescape")) <= MAX_NAME_BYTES for part in parts)
    return is_short and "\0" not in name and PurePosixPath(name).parts == (*parts,) and ".." not in parts


def _reason(error: Exception) -> str:
    """What a store says, in short: its own sentences name hosts, requests and the machine."""
    said = re.search(r"AWS Error (\w+)", str(error))
    if said is None:
        return str(error).partition(". Detail:")[0].rstrip(".")
    return {
        "ACCESS_DENIED": "the store denies access; are the right keys in the environment or in ~/.aws?",
        "NO_SUCH_BUCKET": "there is no such bucket",
        "NETWORK_CONNECTION": "the store cannot be reached",
    }.get(said[1], f"the store says {said[1].replace('_', ' ').lower()}")
