"""What people do with videos: tag them, move them, put them into the trash, link them to a clean copy.

Every action is one line of `actions.jsonl`, flushed to the disk before a file is touched, and can be undone
until the next start of time: nothing is ever deleted or overwritten. Where a file is says what was done of an
action that a crash cut short; an undo that was cut short is finished when the log is opened.

Files are named in the log relative to the folder of the videos and to that of the collection, so that both
may be moved. Nothing outside of the folder of the videos is touched, whatever links lead there.
"""

from __future__ import annotations

import json
import os
import shutil
import threading
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, get_args

from provico.errors import ConfigError, ConflictError
from provico.files import Signature, appending_json, private_folder, replacing, sync, whole_lines
from provico.locations import ACTIONS_NAME
from provico.renamed import names_in

TRASH_NAME, CLEAN_NAME = "trash", "clean"
Verb = Literal["tag", "untag", "trash", "move", "link"]
VERBS: tuple[Verb, ...] = get_args(Verb)
MOVES = ("trash", "move")
MAX_TAG = 60
NOT_OPENED = "Files can be moved only in an opened folder: provico open VIDEOS."
ON_A_STORE = "Nothing is changed on an object store. Tag videos and export their list instead."


@dataclass(frozen=True, kw_only=True)
class ActionTarget:
    """A video that something is to be done with."""

    id: str
    path: Path
    file: Signature
    """As it was when it was read: another file under its name is not touched."""


@dataclass(frozen=True, kw_only=True)
class Action:
    """One line of the log."""

    line: int
    verb: Verb
    ids: tuple[str, ...]
    to: str = ""
    """The tag, or the folder."""
    places: tuple[tuple[str, str], ...] = ()
    """For each video where its file was and where it is to be, relative to the two folders."""


@dataclass(frozen=True, kw_only=True)
class Done:
    """What came of an action or an undo."""

    action: Action | None
    ids: tuple[str, ...]
    """The videos that it was done with."""
    failed: Mapping[str, str]
    """Why it was not done with others."""


@dataclass
class Actions:
    """The lines of the log, replayed."""

    lines: int = 0
    revision: int = 0
    """The last line in which anything was done: other names change nothing that could be undone."""
    held: list[Action] = field(default_factory=list)
    """Those that were not undone."""
    undone: list[Action] = field(default_factory=list)
    renamed: list[tuple[int, dict[str, str]]] = field(default_factory=list)
    """In which line, which videos have which names since."""
    tags: dict[str, list[str]] = field(default_factory=dict)
    """The tags of each video that has some."""


class ActionLog:
    """The actions of a collection; for any thread of one process."""

    def __init__(self, home: Path, *, root: Path | None, why_not: str = NOT_OPENED) -> None:
        """`root` is the folder of the videos; without one, files are not touched, and it is said why."""
        self._home, self._root, self._why_not = home, root, why_not
        self._path = home / ACTIONS_NAME
        self._lock = threading.RLock()
        self._known: tuple[Signature, Actions] | None = None
        if root is not None:
            self._finish()

    @property
    def why_not(self) -> str | None:
        """Why files cannot be moved; None if they can."""
        if self._root is None:
            return self._why_not
        if not os.access(self._root, os.W_OK):
            return "The folder of the videos is not writable."
        if self._home.stat().st_dev != self._root.stat().st_dev:
            return "The trash would be on a different disk from the videos. Give a --folder on their disk."
        return None

    def read(self) -> Actions:
        """All that was done."""
        with self._lock:
            now = Signature.of(self._path)
            if self._known is None or self._known[0] != now:
                self._known = now, self._replayed()
            return self._known[1]

    @property
    def signature(self) -> Signature:
        """Another one after each action."""
        return Signature.of(self._path)

    def gone(self) -> frozenset[str]:
        """The videos that are in the trash now."""
        return frozenset(
            name
            for action in self.read().held
            if action.verb == "trash"
            for name, (_, to) in zip(action.ids, action.places, strict=True)
            if (self._home / to).exists()
        )

    def do(
        self, verb: Verb, videos: Iterable[ActionTarget], *, to: str = "", seen: int | None = None
    ) -> Done:
        """Do something with videos; on the disk when it returns.

        seen: the revision that the one who asks has seen. Moving is refused if anything was done since.
        """
        wanted = list(videos)
        if verb in ("tag", "untag"):
            to = _checked_tag(to)
            action = self._append(verb, [one.id for one in wanted], to=to)
            return Done(action=action, ids=action.ids, failed={})
        if (why := self.why_not) is not None and verb != "link":
            raise ConfigError(why)
        assert self._root is not None or verb == "link"
        if self._root is None:
            raise ConfigError(self.why_not or "")
        folder = _checked_folder(self._root, to) if verb == "move" else None
        with self._lock:
            known = self.read()
            if seen is not None and seen != known.revision and verb in MOVES:
                raise ConflictError(
                    "Another action was taken elsewhere in the meantime. Check the result, then try again."
                )
            places: dict[str, tuple[str, str]] = {}
            failed: dict[str, str] = {}
            for one in wanted:
                try:
                    place = self._checked(one)
                except ConfigError as error:
                    failed[one.id] = str(error)
                    continue
                if verb == "trash":
                    target = f"{TRASH_NAME}/{known.lines + 1}/{place}"
                elif verb == "link":
                    target = f"{CLEAN_NAME}/{place}"
                else:
                    assert folder is not None
                    target = os.path.relpath(folder / Path(place).name, self._home)
                places[one.id] = place, target
            action = self._append(verb, list(places), to=to, places=list(places.values()))
            done = [name for name in places if self._forward(verb, *places[name], name, failed)]
            return Done(action=action, ids=tuple(done), failed=failed)

    def undo(self, *, seen: int | None = None) -> Done:
        """Take back the last action that holds."""
        with self._lock:
            known = self.read()
            if seen is not None and seen != known.revision:
                raise ConflictError(
                    "Another action was taken elsewhere in the meantime. Check the result, then undo."
                )
            if not known.held:
                return Done(action=None, ids=(), failed={})
            action = known.held[-1]
            self._write({"undo": action.line})
            failed: dict[str, str] = {}
            return Done(action=action, ids=tuple(self._backward(action, failed)), failed=failed)

    # --- files ----------------------------------------------------------------------------------------------

    def _checked(self, one: ActionTarget) -> str:
        """Where a file is, relative to the root; an error if it is not to be touched."""
        assert self._root is not None
        root, real = self._root.resolve(), one.path.parent.resolve() / one.path.name
        if not real.resolve().is_relative_to(root) or not real.is_relative_to(root):
            raise ConfigError("it does not lie in the folder that was opened.")
        if not real.is_file():
            raise ConfigError("its file is gone.")
        if Signature.of(real) != one.file:
            raise ConfigError("its file has changed since it was read.")
        return str(real.relative_to(root))

    def _forward(self, verb: Verb, place: str, target: str, name: str, failed: dict[str, str]) -> bool:
        assert self._root is not None
        source, to = self._root / place, self._home / target
        try:
            private_folder(to.parent) if verb == "trash" else to.parent.mkdir(parents=True, exist_ok=True)
            if verb == "link" and to.exists() and Signature.of(to) == Signature.of(source):
                return True  # it is there already
            _refuse_taken(to)
            if verb == "link":
                _link(source, to)
            else:
                source.rename(to)
            sync(to.parent)
        except OSError as error:
            failed[name] = error.strerror or str(error)
            return False
        return True

    def _backward(self, action: Action, failed: dict[str, str]) -> Iterable[str]:
        if action.verb in ("tag", "untag"):
            return action.ids
        if self._root is None:
            raise ConfigError(self.why_not or "")
        done = []
        for name, (place, target) in zip(action.ids, action.places, strict=True):
            source, to = self._root / place, self._home / target
            try:
                if not to.exists():
                    continue
                if action.verb == "link":
                    if Signature.of(to) == Signature.of(source):
                        to.unlink()
                else:
                    source.parent.mkdir(parents=True, exist_ok=True)
                    _refuse_taken(source)
                    to.rename(source)
                    sync(source.parent)
                _remove_empty(to.parent, below=self._home)
                done.append(name)
            except OSError as error:
                failed[name] = error.strerror or str(error)
        return done

    def _finish(self) -> None:
        """Finish what was being undone when a crash came."""
        for action in self.read().undone:
            self._backward(action, {})

    # --- the log --------------------------------------------------------------------------------------------

    def _append(
        self, verb: Verb, ids: list[str], *, to: str = "", places: list[tuple[str, str]] | None = None
    ) -> Action:
        line = self._write({"do": verb, "ids": ids, "to": to, "places": places or []})
        return Action(line=line, verb=verb, ids=tuple(ids), to=to, places=tuple(places or ()))

    def _write(self, values: dict[str, object]) -> int:
        with appending_json(self._path) as write:
            line = len(whole_lines(self._path)) + 1
            write(values)
        self._known = None
        return line

    def _replayed(self) -> Actions:
        found = Actions()
        by_line: dict[int, Action] = {}
        for number, text in enumerate(whole_lines(self._path), start=1):
            before, found.lines, found.revision = found.revision, number, number
            with suppress(KeyError, TypeError, ValueError, ConfigError):  # a damaged line does not count
                said = json.loads(text)
                if (names := names_in(said)) is not None:
                    found.renamed.append((number, names))
                    found.revision = before
                    continue
                if "undo" in said:
                    action = by_line.pop(int(said["undo"]))
                    found.undone.append(action)
                else:
                    by_line[number] = _parsed(said, number)
        found.held = list(by_line.values())
        found.tags = self._tags(found)
        return found

    def _tags(self, known: Actions) -> dict[str, list[str]]:
        """A file that was moved, here or by others, is another video when it is read again, with its tags."""
        found: dict[str, list[str]] = {}
        moved_here: set[str] = set()
        done: list[tuple[int, Action | dict[str, str]]] = [(action.line, action) for action in known.held]
        for _, action in sorted([*done, *known.renamed], key=lambda one: one[0]):
            if isinstance(action, dict):
                found |= {
                    new: tags
                    for new, tags in [(new, found.pop(old, [])) for old, new in action.items()]
                    if new not in moved_here  # they have them already
                }
                moved_here -= {*action.values()}
                continue
            for name in action.ids if action.verb in ("tag", "untag") else ():
                others = [tag for tag in found.get(name, []) if tag != action.to]
                found[name] = [*others, action.to] if action.verb == "tag" else others
            if action.verb == "move" and self._root is not None:
                for name, (_, to) in zip(action.ids, action.places, strict=True):
                    place = os.path.relpath(self._home / to, self._root)
                    found[place] = list(found.get(name, []))
                    moved_here.add(place)
        return {name: tags for name, tags in found.items() if tags}


def _parsed(said: dict[str, object], line: int) -> Action:
    ids, places, verb = said["ids"], said["places"], said["do"]
    if verb not in VERBS or not isinstance(ids, list) or not isinstance(places, list):
        raise ValueError("It is not an action.")
    pairs = tuple((_relative(place), _relative(to, may_leave=verb == "move")) for place, to in places)
    if verb not in ("tag", "untag") and len(pairs) != len(ids):
        raise ValueError("Some places are missing.")
    return Action(line=line, verb=verb, ids=tuple(map(str, ids)), to=str(said["to"]), places=pairs)


def _relative(path: object, *, may_leave: bool = False) -> str:
    """A path that stays below the folder that it is relative to; a log may have been tampered with."""
    if not isinstance(path, str) or Path(path).is_absolute() or "\0" in path:
        raise ValueError("It is not the path of a file here.")
    if ".." in Path(path).parts and not (may_leave and Path(path).parts.count("..") == 1):
        raise ValueError("It leads out of the folder.")
    return path


def _checked_tag(tag: str) -> str:
    tag = " ".join(tag.split())
    if not 0 < len(tag) <= MAX_TAG:
        raise ConfigError(f"A tag needs 1 to {MAX_TAG} characters.")
    return tag


def _checked_folder(root: Path, to: str) -> Path:
    """A folder below the root that its videos are read from."""
    path = Path(to.strip())
    is_hidden = any(part.startswith(".") for part in path.parts)
    if not to.strip() or path.is_absolute() or is_hidden or "\0" in to:
        raise ConfigError("Name a folder inside the one that was opened, such as sorted/cooking.")
    folder = root / path
    if not folder.resolve().is_relative_to(root.resolve()):
        raise ConfigError("This folder is a link that leads out of the one that was opened.")
    return folder


def _refuse_taken(path: Path) -> None:
    if path.exists() or path.is_symlink():
        raise OSError(0, "there is another file in its place")


def _link(source: Path, to: Path) -> None:
    try:
        os.link(source.resolve(), to)
    except OSError:  # another disk, or one without links
        with replacing(to) as partial:
            shutil.copy2(source, partial)


def _remove_empty(folder: Path, *, below: Path) -> None:
    while folder != below and folder.is_relative_to(below):
        try:
            folder.rmdir()
        except OSError:
            return
        folder = folder.parent
