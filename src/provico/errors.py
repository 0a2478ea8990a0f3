"""Every error a user can cause, in one small tree.

    ProvicoError                 the command line prints its message and exits with status 2
    ├── CatalogError             a data folder or list does not say which videos there are
    ├── VideoError               one video file cannot be used; has its path
    │   ├── UnreadableVideoError    no frame of it can be decoded, or it is not a video at all
    │   ├── ChangedVideoError       its frames differ from those that were indexed or prepared
    │   ├── VideoTimeoutError       no frame of it was decoded within the time allowed
    │   └── VideoMemoryError        decoding it takes more memory than allowed
    ├── TooManyBrokenError       more training videos are unreadable than allowed
    ├── ConfigError              a setting has a value that cannot work
    ├── OutputExistsError        the output already exists
    ├── MissingDependencyError   an optional package is needed for this
    ├── EmbeddingFileError       a file of embeddings cannot be read, or comes from another encoder
    ├── VideoIndexError          an index cannot be opened or changed, or lacks what is asked for
    │   └── UnreachablePartError    one of several indexes that are searched together can no longer be read
    ├── WeightsError             a file of weights does not fit the network, or is not safe to read
    ├── UnhealthyRunError        training went non-finite or collapsed, and cannot recover
    └── ConflictError            another user or process changed the same data in the meantime

A message says what was found, what was needed, and what to do, in full sentences.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")


class ProvicoError(Exception):
    """Base of every error that the user can fix."""


class CatalogError(ProvicoError):
    """A data folder or list does not say which videos there are."""


class VideoError(ProvicoError):
    """One video file cannot be used; `path` names it and `reason` says why."""

    def __init__(self, path: str | Path, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path = Path(path)
        self.reason = reason

    def __reduce__(self) -> tuple[type[VideoError], tuple[Path, str]]:
        # The default would rebuild from the joined message alone.
        return type(self), (self.path, self.reason)


class UnreadableVideoError(VideoError):
    """No frame of the file can be decoded, or it is not a video at all."""


class ChangedVideoError(VideoError):
    """The frames of the file differ from those that were indexed or prepared."""


class VideoTimeoutError(VideoError):
    """No frame of the file was decoded within the time allowed."""


class VideoMemoryError(VideoError):
    """Decoding the file takes more memory than allowed."""


class TooManyBrokenError(ProvicoError):
    """More training videos are unreadable than allowed."""


class ConfigError(ProvicoError):
    """A setting has a value that cannot work."""


class OutputExistsError(ProvicoError):
    """The output already exists."""


class MissingDependencyError(ProvicoError):
    """An optional package is needed for this."""


class EmbeddingFileError(ProvicoError):
    """A file of embeddings cannot be read, or comes from another encoder."""


class VideoIndexError(ProvicoError):
    """An index cannot be opened or changed, or lacks what is asked for."""


class UnreachablePartError(VideoIndexError):
    """One of several indexes that are searched together can no longer be read; `number` says which."""

    def __init__(self, number: int, reason: str) -> None:
        super().__init__(reason)
        self.number = number


class WeightsError(ProvicoError):
    """A file of weights does not fit the network, or is not safe to read."""


class UnhealthyRunError(ProvicoError):
    """Training went non-finite or collapsed, and cannot recover."""


class ConflictError(ProvicoError):
    """Another user or process changed the same data in the meantime."""


def did_you_mean(name: str, known: Iterable[str], *, otherwise: str | None = None, prefix: str = "") -> str:
    """A hint for an unknown name, as a sentence: the nearest known name, or all names.

    Args:
        name: the unknown name.
        known: the known names.
        otherwise: the hint if no name is near, where a list of all names would be too long.
        prefix: printed before the nearest name, such as the section of a setting.
    """
    names = list(known)
    if near := get_close_matches(name, names, n=1):
        return f"Did you mean {prefix}{near[0]}?"
    return f"There are {', '.join(names)}." if otherwise is None else otherwise


def look_up(kind: str, name: str, known: Mapping[str, T]) -> T:
    """The entry with this name, or an error with the nearest name. `kind` says what the name stands for."""
    if name not in known:
        raise ConfigError(f"There is no {kind} {name!r}. {did_you_mean(name, known)}")
    return known[name]


LOST_WORKER = (
    "A process that reads videos was terminated, perhaps for lack of memory. Finished work is kept: run the "
    "same command again, with a lower --num-workers if it happens again."
)


def lost_worker(error: BaseException) -> str | None:
    """The message for a killed process that reads videos, or None for any other error.

    PyTorch notices it by a signal, and raises wherever the program is at that moment.
    """
    if not isinstance(error, RuntimeError) or "DataLoader worker" not in str(error):
        return None
    return LOST_WORKER
