"""What people said of videos follows them to their new names, in every file of an index or a collection.

gone.json      what was in videos that were removed from an index: a file that comes back under another name,
               after it was in the trash or on a disk that was away, is known again
renaming.json  names that are being changed in the logs and in the index: what was killed in the middle is
               finished by the next writer, and no log changes a name twice
.names-lock    held while names change, and shared by whoever says something of a video by its name; what is
               in it is another text after each change
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Collection, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from provico.files import Lock, replace_text
from provico.locations import home_of
from provico.renamed import note_names
from provico.search.judgements import JudgementLog
from provico.search.lots import LotFile
from provico.search.store.folder import NAMES_LOCK_NAME, IndexFolder

GONE_NAME, RENAMING_NAME = "gone.json", "renaming.json"
MOST_GONE = 100_000
"""So many are remembered, the last ones."""
Content = tuple[int, str]
"""The size of a file, and its hash."""


@dataclass(frozen=True)
class _Call:
    """The logs call a video by its new name; the index may still have it under the old one."""

    old: str
    new: str
    content: Content


class Names:
    """What the logs of an index call its videos, while one writer brings the index up to date.

    Args:
        index: the folder of the index.
        known: what is in each video of the index that may have another name now.
    """

    def __init__(self, index: Path, known: Mapping[str, Content]) -> None:
        self._index = index
        self._gone = read_gone(index)
        calls = _finished(index)
        everything = self._gone | dict(known)
        moved = {call.old: call.new for call in calls if everything.get(call.old) == call.content}
        self._called = {name: moved.get(name, name) for name in everything}
        self.contents: dict[str, Content] = {call.new: call.content for call in calls}
        """What is in each video, by what the logs call it."""
        self.contents |= {self._called[name]: content for name, content in everything.items()}
        self._everything = everything

    @contextmanager
    def changing(
        self, renamed: Mapping[str, str], *, indexed: Collection[str], vanished: Collection[str]
    ) -> Iterator[None]:
        """Change names in the logs, then in the index, which the caller does meanwhile.

        renamed: what videos are called now, by what the logs call them.
        indexed: what is in the index afterwards.
        vanished: what is in it under an old name, and is not found.
        """
        with changing_names(self._index, is_shared=False) as lock:
            called = {name: renamed.get(now, now) for name, now in self._called.items()}
            calls = [_Call(name, now, self._everything[name]) for name, now in called.items() if name != now]
            path = home_of(self._index) / RENAMING_NAME
            if calls or path.exists():
                _begin(self._index, renamed, calls)
            self._keep_gone(
                {
                    renamed.get(name, name): content
                    for name, content in self.contents.items()
                    if renamed.get(name, name) not in indexed
                }
            )
            yield
            if calls:
                lock.file.truncate(0)
                lock.file.write(secrets.token_hex(8).encode())
                lock.file.flush()
            left = [call for call in calls if call.old in vanished]
            if left:
                _begin(self._index, {}, left)
            else:
                self.settle()

    def end(self, *, indexed: Collection[str], failed: Mapping[str, Content]) -> None:
        """Remember what is about to be removed from the index, and forget what has come back to it."""
        left = {name: content for name, content in self._gone.items() if name not in indexed}
        self._keep_gone(left | {self._called.get(name, name): content for name, content in failed.items()})

    def settle(self) -> None:
        """The index has no name any more that the logs do not know."""
        (home_of(self._index) / RENAMING_NAME).unlink(missing_ok=True)

    def _keep_gone(self, gone: dict[str, Content]) -> None:
        if gone != self._gone:
            self._gone = gone
            _write_gone(self._index, gone)


@contextmanager
def changing_names(index: Path, *, is_shared: bool) -> Iterator[Lock]:
    """For one who changes names, or for all who say something of videos by their names."""
    with Lock(home_of(index) / NAMES_LOCK_NAME, of="handle") as lock:
        lock.take(is_shared=is_shared)
        yield lock


def names_state_of(index: Path) -> str:
    """Another text after names were changed."""
    try:
        return (home_of(index) / NAMES_LOCK_NAME).read_text(encoding="ascii")
    except (OSError, ValueError):
        return ""


def unsettled(index: Path) -> frozenset[str]:
    """Names that were being changed when that was killed: the next writer finishes it."""
    calls = _read_renaming(index)[2]
    return frozenset(name for call in calls for name in (call.old, call.new))


def read_gone(index: Path) -> dict[str, Content]:
    """What was in the videos that were removed; of none if that cannot be read."""
    try:
        found = json.loads((home_of(index) / GONE_NAME).read_text(encoding="utf-8"))
        return {str(name): (int(num_bytes), str(content)) for name, (num_bytes, content) in found.items()}
    except (OSError, AttributeError, TypeError, ValueError, RecursionError):
        return {}


def remember(index: Path) -> None:
    """Remember what is in all videos of an index that is about to be replaced by another one."""
    folder = IndexFolder(index)
    with closing(folder.open_store(folder.read_settings())) as store:
        rows = store.read(("num_bytes", "content_hash"))
        contents = zip(rows["num_bytes"].tolist(), rows["content_hash"], strict=True)
        _write_gone(index, read_gone(index) | dict(zip(store.ids, contents, strict=True)))


def _write_gone(index: Path, gone: Mapping[str, Content]) -> None:
    replace_text(home_of(index) / GONE_NAME, json.dumps(dict([*gone.items()][-MOST_GONE:])) + "\n")


def _begin(index: Path, renamed: Mapping[str, str], calls: Collection[_Call]) -> None:
    """Say what is about to be changed, then change it in the logs; on the disk when it returns."""
    key = secrets.token_hex(8)
    said = {
        "key": key,
        "renamed": dict(renamed),
        "calls": [[call.old, call.new, *call.content] for call in calls],
    }
    replace_text(home_of(index) / RENAMING_NAME, json.dumps(said) + "\n")
    _note(index, key, renamed)


def _finished(index: Path) -> list[_Call]:
    """What a killed writer had begun, once it is in all logs."""
    key, renamed, calls = _read_renaming(index)
    _note(index, key, renamed)
    return calls


def _note(index: Path, key: str, renamed: Mapping[str, str]) -> None:
    if renamed:
        note_names(home_of(index), renamed, key=key)
        JudgementLog(index).rename(renamed, key=key)
        LotFile(index).rename(renamed, key=key)


def _read_renaming(index: Path) -> tuple[str, dict[str, str], list[_Call]]:
    try:
        said = json.loads((home_of(index) / RENAMING_NAME).read_text(encoding="utf-8"))
        calls = [
            _Call(str(old), str(new), (int(num_bytes), str(content)))
            for old, new, num_bytes, content in said["calls"]
        ]
        return str(said["key"]), {str(old): str(new) for old, new in said["renamed"].items()}, calls
    except (OSError, AttributeError, KeyError, TypeError, ValueError, RecursionError):
        return "", {}, []
