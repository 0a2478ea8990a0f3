"""Every error a user can cause, in one small tree.

    ProvicoError                 the command line prints its message and exits with status 2
    ├── CatalogError             a data folder or list does not say which videos there are
    ├── VideoError               one video file cannot be used; carries its path
    │   ├── UnreadableVideoError    no frame of it can be decoded, or it is not a video at all
    │   ├── ChangedVideoError       its frames are not the ones that were indexed or prepared
    │   ├── VideoTimeoutError       no frame of it came for longer than allowed
    │   └── VideoMemoryError        decoding it takes more memory than allowed
    ├── TooManyBrokenError       more of the training videos are unreadable than was allowed
    ├── ConfigError              a setting has a value that cannot work
    ├── OutputExistsError        the output is already there, and overwriting was not asked for
    ├── MissingDependencyError   an optional package is needed for this
    ├── EmbeddingFileError       a file of embeddings cannot be read, or is not of this encoder
    ├── VideoIndexError          an index cannot be opened or changed, or does not have what is asked for
    │   └── UnreachablePartError    one of several indexes that are searched as one cannot be read any more
    ├── WeightsError             a file of weights does not fit the network, or is not safe to read
    ├── UnhealthyRunError        training went non-finite or collapsed, and cannot recover
    └── ConflictError            another user or process has changed the same thing in the meantime

A message says what was found, what was needed, and what to do, in full sentences.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")


class ProvicoError(Exception):
    """Base of every error that the user, not the code, can mend."""


class CatalogError(ProvicoError):
    """A data folder or list does not say which videos there are."""


class VideoError(ProvicoError):
    """One video file cannot be used; `path` names it and `reason` says why."""

    def __init__(self, path: str | Path, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path = Path(path)
        self.reason = reason

    def __reduce__(self) -> tuple[type[VideoError], tuple[Path, str]]:
        # The default would rebuild from the joined message, which has one argument too few.
        return type(self), (self.path, self.reason)


class UnreadableVideoError(VideoError):
    """No frame of the file can be decoded, or it is not a video at all."""


class ChangedVideoError(VideoError):
    """The frames of the file are not the ones that were indexed or prepared."""


class VideoTimeoutError(VideoError):
    """No frame of the file came for longer than allowed."""


class VideoMemoryError(VideoError):
    """Decoding the file takes more memory than allowed."""


class TooManyBrokenError(ProvicoError):
    """More of the training videos are unreadable than was allowed."""


class ConfigError(ProvicoError):
    """A setting has a value that cannot work."""


class OutputExistsError(ProvicoError):
    """The output is already there, and overwriting was not asked for."""


class MissingDependencyError(ProvicoError):
    """An optional package is needed for this."""


class EmbeddingFileError(ProvicoError):
    """A file of embeddings cannot be read, or is not of this encoder."""


class VideoIndexError(ProvicoError):
    """An index cannot be opened or changed, or does not have what is asked for."""


class UnreachablePartError(VideoIndexError):
    """One of several indexes that are searched as one cannot be read any more; `number` says which."""

    def __init__(self, number: int, reason: str) -> None:
        super().__init__(reason)
        self.number = number


class WeightsError(ProvicoError):
    """A file of weights does not fit the network, or is not safe to read."""


class UnhealthyRunError(ProvicoError):
    """Training went non-finite or collapsed, and cannot recover."""


class ConflictError(ProvicoError):
    """Another user or process has changed the same thing in the meantime."""


def did_you_mean(name: str, known: Iterable[str], *, otherwise: str | None = None, prefix: str = "") -> str:
    """The way out of an unknown name, as a sentence: the nearest known name, or all of them.

    Args:
        name: what was given.
        known: the names there are.
        otherwise: what to say if none is near, where a list of all would be too long.
        prefix: goes before the nearest name, such as the section that a setting is in.
    """
    names = list(known)
    if near := get_close_matches(name, names, n=1):
        return f"Did you mean {prefix}{near[0]}?"
    return f"There are {', '.join(names)}." if otherwise is None else otherwise


def look_up(kind: str, name: str, known: Mapping[str, T]) -> T:
    """What has this name, or an error that names the nearest; `kind` says what it would be."""
    if name not in known:
        raise ConfigError(f"There is no {kind} {name!r}. {did_you_mean(name, known)}")
    return known[name]
