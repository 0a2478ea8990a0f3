"""The one folder of a collection that was opened: `.provico` in the folder of the videos.

collection.json    which videos, which index is the current one, and how its encoder was made
index-N/           an index of them; the next one takes its place when its encoder is better
curation/          what is proposed for each video, and what people decided
duplicates.json    which videos show the same recording; not_duplicates.jsonl: what people rejected
judgements.csv     what people said of hits; lots.json: queries drawn by lot
gone.json          what was in videos that are gone: what was said of them is known again with the file
renaming.json      names of videos that are being changed; .names-lock: held meanwhile
actions.jsonl      what was tagged, moved, put into the trash or linked; trash/, clean/: where to
run/               pretraining on the collection
status.json        what is being done; worker.log: what went wrong
objects/           copies of videos on an object store; not_read.csv: what has none, and why
.lock              held by the `provico open` that serves it
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from provico.data.catalog import Catalog, open_catalog
from provico.errors import CatalogError, ConfigError, ProvicoError, VideoIndexError
from provico.files import Lock, disk_problem, home_folder, is_disk_full, private_folder, replace_text
from provico.locations import COLLECTION_NAME, HIDDEN_NAME, SETTINGS_NAME, current_index
from provico.typed_json import build
from provico.workspace.store import CACHE_GB, GIGABYTE, ObjectStore, checked_address, checked_gigabytes

FORMAT_VERSION = 1
ADDRESS_NAME = "address.txt"
DISK_FULL = (
    "The disk is full. Free some space, then run the same command again. Nothing complete is lost, and what "
    "is there can be viewed."
)


@dataclass(frozen=True, kw_only=True)
class CollectionSettings:
    """What `collection.json` says."""

    source: str
    """The folder, the list, the file or the address that was opened."""
    current: str | None = None
    """The folder of the current index, below this one."""
    former: str | None = None
    """That of the index that was current before, until there is one again."""
    checkpoint: str | None = None
    """The encoder that was named, if one was."""
    backbone: str | None = None
    """The frozen network of an encoder that was made of the videos themselves."""
    fitted_on: int = 0
    """How many videos that encoder was made of."""
    measured: float | None = None
    """How often half of a video finds its other half, with the current encoder."""
    is_learnt: bool = False
    """Whether the current encoder was pretrained on the collection."""
    cache_gb: float = CACHE_GB
    """What copies of videos on an object store may take."""
    format_version: int = FORMAT_VERSION

    def without_index(self) -> CollectionSettings:
        """Settings without a current index, until another one is there."""
        return dataclasses.replace(self, current=None, former=self.current or self.former)


class Workspace:
    """The folder of one collection."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock: Lock | None = None

    @classmethod
    def open(
        cls,
        source: Path | str,
        *,
        folder: Path | None = None,
        checkpoint: str | None = None,
        backbone: str | None = None,
        cache_gb: float | None = None,
    ) -> Workspace:
        """The folder for these videos, made if it is not there."""
        if is_address(source):
            address = checked_address(str(source))
            workspace = cls(_own_place(address) if folder is None else folder.absolute())
            workspace._prepare(address, checkpoint, backbone)
            if cache_gb is not None:
                workspace.change(cache_gb=checked_gigabytes(cache_gb))
            return workspace
        if cache_gb is not None:
            raise ConfigError(f"--cache-gb is for videos on an object store, not for {source}.")
        given = Path(os.path.normpath(Path(source).expanduser().absolute()))
        if not given.exists():
            raise CatalogError(
                f"{given} does not exist. Give a folder of videos, a list of them, an index or s3://bucket/prefix."
            )
        workspace = cls(_place(given) if folder is None else folder.absolute())
        workspace._prepare(str(given), checkpoint, backbone)
        return workspace

    def _prepare(self, source: str, checkpoint: str | None, backbone: str | None) -> None:
        private_folder(self.path)
        known = before = self.settings if (self.path / COLLECTION_NAME).is_file() else None
        if known is not None and known.source != source:
            if is_address(known.source) or is_address(source) or Path(known.source).exists():
                raise ConfigError(
                    f"{self.path} belongs to {known.source}, not to {source}. Choose another --folder."
                )
            known = dataclasses.replace(known, source=source)  # the videos were moved, with all of it
        if checkpoint is not None and known is not None and known.checkpoint != checkpoint:
            known = known.without_index()  # another encoder, so another index
        settings = known or CollectionSettings(source=source)
        if checkpoint is not None:
            settings = dataclasses.replace(settings, checkpoint=checkpoint, backbone=None)
        elif backbone is not None and backbone != settings.backbone:
            settings = dataclasses.replace(settings.without_index(), backbone=backbone, checkpoint=None)
        if settings != before:  # what is there can be looked at on a disk that is full
            self.settings = settings

    @property
    def settings(self) -> CollectionSettings:
        """What is written down of the collection."""
        path = self.path / COLLECTION_NAME
        try:
            return build(CollectionSettings, json.loads(path.read_text(encoding="utf-8")))
        except (OSError, TypeError, ValueError, RecursionError) as error:
            raise ConfigError(
                f"{path} cannot be read ({error}). Remove it: it is made again, and decisions stay."
            ) from error

    @settings.setter
    def settings(self, settings: CollectionSettings) -> None:
        replace_text(self.path / COLLECTION_NAME, json.dumps(dataclasses.asdict(settings), indent=2) + "\n")

    def change(self, **values: object) -> None:
        """Write other values down."""
        self.settings = dataclasses.replace(self.settings, **values)  # type: ignore[arg-type]

    def catalog(self) -> Catalog:
        """The videos as they are now; of those on an object store, the ones that have been copied."""
        is_far = is_address(self.settings.source)
        return open_catalog(self.copies if is_far else self.settings.source, allow_missing=True)

    @property
    def store(self) -> ObjectStore | None:
        """The object store that the videos lie on, if they do."""
        settings = self.settings
        if not is_address(settings.source):
            return None
        return ObjectStore(settings.source, self.copies, max_bytes=int(settings.cache_gb * GIGABYTE))

    @property
    def copies(self) -> Path:
        """Where copies of videos on an object store are kept."""
        return self.path / "objects"

    @property
    def root(self) -> Path | None:
        """The folder that was opened, or that of the list: nothing outside of it is ever moved.

        None for an object store, on which nothing is changed.
        """
        if is_address(self.settings.source):
            return None
        source = Path(self.settings.source)
        return source if source.is_dir() else source.parent

    @property
    def index(self) -> Path | None:
        """The current index."""
        return current_index(self.path)

    def drop_unusable(self) -> str | None:
        """Have another index made if this version cannot read the current one; why, if so."""
        current = self.index
        if current is None:
            return None
        from provico.search.store.folder import IndexFolder  # which needs torch: pages are there before it

        try:
            IndexFolder(current).read_settings()
        except VideoIndexError as error:
            self.settings = self.settings.without_index()
            return str(error)
        return None

    def next_index(self) -> Path:
        """A folder for another index."""
        numbers = [int(path.name.partition("-")[2]) for path in self.path.glob("index-[0-9]*")]
        return self.path / f"index-{max(numbers, default=0) + 1}"

    def remove_others(self) -> None:
        """Remove indexes that are not the current one: what was replaced, or left over from a kill."""
        current = self.index
        for path in self.path.glob("index-[0-9]*"):
            if path != current and (current is not None or not (path / SETTINGS_NAME).is_file()):
                shutil.rmtree(path, ignore_errors=True)

    def take(self) -> bool:
        """Hold the folder for this process; False if another one serves it."""
        lock = Lock(self.path / ".lock", of="handle")
        if not lock.take(wait=False):
            lock.file.close()
            return False
        self._lock = lock
        return True

    def let_go(self) -> None:
        """Let others have it."""
        (self.path / ADDRESS_NAME).unlink(missing_ok=True)
        if self._lock is not None:
            self._lock.file.close()
            self._lock = None

    @property
    def address(self) -> str | None:
        """Where it is served, as far as is known."""
        try:
            return (self.path / ADDRESS_NAME).read_text(encoding="utf-8").strip() or None
        except OSError:
            return None

    @address.setter
    def address(self, address: str) -> None:
        replace_text(self.path / ADDRESS_NAME, address)


def _place(source: Path) -> Path:
    """Beside the videos, or in the user's own folder where that is not possible."""
    if source.is_dir():
        beside = source / HIDDEN_NAME
    else:
        beside = source.parent / f"{HIDDEN_NAME}-{source.stem}"
    return beside if beside.is_dir() or os.access(beside.parent, os.W_OK) else _own_place(str(source))


def _own_place(source: str) -> Path:
    digest = hashlib.blake2b(os.fsencode(source), digest_size=6).hexdigest()
    return home_folder() / "collections" / f"{Path(source).name[:100]}-{digest}"


def is_address(source: Path | str) -> bool:
    """Whether videos are asked for that do not lie on this machine."""
    return "://" in str(source)


def why_not(error: Exception) -> str:
    """An error in words, for people."""
    if is_disk_full(error):
        return DISK_FULL
    if isinstance(error, ProvicoError):
        return str(error)
    return disk_problem(error) or f"{type(error).__name__}: {error}"
