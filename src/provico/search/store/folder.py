"""An index on disk: one folder with all that a search needs.

INDEX/
  index.json      which encoder, how many clips and samples; written last, so a folder with it is complete
  encoder/        the encoder itself, so that a file can be a query
  store/          the rows, if the engine keeps them here
  calibration.json   how often hits are right; absent if the index is not calibrated
  chance.npz      some videos, and what unrelated ones score; absent until `provico index` has measured it
  judgements.csv  what people said of hits
  lots.json       queries drawn by lot, for guarantees
  previews/       short videos, each named by a row; what no row names is removed by the next writer
  .lock           held by the one process that writes, however that ends, or by all that write together
  .commit-lock    held by one of these while it commits
  .names-lock     held while videos get other names (`search/follow.py`)

Which engine keeps the rows follows from the address of the store (`StorePlace`); the rest is always here:

    (none)                  LanceDB, in the folder of the index
    s3://bucket/folder      LanceDB, in an object store
    postgresql://host/name  PostgreSQL with pgvector, which many machines can use at once
"""

from __future__ import annotations

import dataclasses
import json
import os
import re
import shutil
import uuid
from collections.abc import Collection, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import torch

from provico.defaults import MAX_SAMPLES
from provico.embedding.file import EmbeddingHeader
from provico.errors import ConfigError, OutputExistsError, ProvicoError, VideoIndexError
from provico.files import Lock, is_partial, private_folder, remove_partials, replace_text
from provico.locations import SERVERS, SETTINGS_NAME
from provico.models.encoder import Encoder, encoder_hash
from provico.probability.calibration import Calibration
from provico.probability.matching import MatchCurve
from provico.processes import ALONE, Processes
from provico.search.store.lance import LanceStore
from provico.search.store.postgres import PostgresStore
from provico.search.store.server import check_address, check_trusted, trust
from provico.search.store.video_store import Column, VideoStore, number_columns
from provico.typed_json import build

OBJECT_STORES = ("s3", "gs", "az")


@dataclass(frozen=True, kw_only=True)
class StorePlace:
    """Where the rows of an index are."""

    address: str | None = None
    """None: in the folder of the index."""
    name: str = "videos"
    """Of the table, or of the schema in a database, so that many indexes can share an address."""

    def __post_init__(self) -> None:
        try:
            urlsplit(self.address or "")
        except ValueError as error:
            raise ConfigError(f"The store is {self.address!r}, which is not an address.") from error
        if not re.fullmatch(r"[A-Za-z0-9_]{1,60}", self.name):  # it stands in SQL, and in a path
            raise ConfigError(f"The rows are named {self.name!r}, but letters, digits and _ are needed.")

    @classmethod
    def new(cls, address: str | None) -> StorePlace:
        """A place for the rows of a new index."""
        if address is None:
            return cls()
        scheme = urlsplit(address).scheme
        if scheme in SERVERS:
            check_address(address)
        elif scheme not in OBJECT_STORES:
            raise ConfigError(
                f"The store is {address!r}, but it must begin with one of "
                f"{', '.join(f'{known}://' for known in (SERVERS[0], *OBJECT_STORES))}. Without --store the "
                "rows are kept in the folder of the index."
            )
        trust(address)
        return cls(address=address, name=f"provico_{uuid.uuid4().hex[:16]}")

    @property
    def is_server(self) -> bool:
        """Whether the engine is a server that can search by itself."""
        return self.address is not None and urlsplit(self.address).scheme in SERVERS

    def create(self, folder: Path, columns: dict[str, Column], *, about: str) -> None:
        """Make an empty store; a server is told what the index says of itself."""
        if self.is_server:
            assert self.address is not None
            PostgresStore.create(self.address, self.name, columns, about=about)
        else:
            LanceStore.create(self.address or folder, self.name, columns)

    def open(self, folder: Path, columns: dict[str, Column], *, to_write: bool = False) -> VideoStore:
        """The store at its newest version.

        to_write: keep out other writers, wherever they run, until it is closed.
        """
        if self.is_server:
            return self.open_server(columns, to_write=to_write)
        if self.address is not None:
            check_trusted(self.address)
        return LanceStore(self.address or folder, self.name, columns)

    def open_server(self, columns: dict[str, Column], *, to_write: bool = False) -> PostgresStore:
        """Open the rows on a PostgreSQL server."""
        assert self.address is not None
        check_trusted(self.address)
        return PostgresStore(self.address, self.name, columns, to_write=to_write)


FORMAT_VERSION = 4
"""Raised when a column comes to mean something else."""
_CALIBRATION_NAME = "calibration.json"
_LOCK_NAME, _COMMIT_LOCK_NAME, NAMES_LOCK_NAME = ".lock", ".commit-lock", ".names-lock"
_LOCKS = {_LOCK_NAME, _COMMIT_LOCK_NAME, NAMES_LOCK_NAME}
_PARTS = ("encoder", "store", "previews")
_held: set[Path] = set()  # locks of this process: the system's are between processes only


@dataclass(frozen=True, kw_only=True)
class IndexSettings:
    """What all videos of an index have in common."""

    embedding: EmbeddingHeader
    """Encoder, match curve, clips and frame size."""
    num_samples: int
    """K samples of each video, which follow from its id and the seed."""
    seed: int
    place: StorePlace
    """Where the rows are."""
    words_dim: int | None = None
    """Coordinates of the space of words; None if the network of the encoder knows none."""
    format_version: int = FORMAT_VERSION

    def __post_init__(self) -> None:
        for name, value in (("num_clips", self.embedding.num_clips), ("num_samples", self.num_samples)):
            if value < 1:
                raise ConfigError(f"{name} is {value}, but it must be at least 1.")
        if self.num_samples > MAX_SAMPLES or not 0 <= self.seed < 2**63:
            raise ConfigError(
                f"There are {self.num_samples} samples of seed {self.seed}, but at most {MAX_SAMPLES} and a "
                "seed from 0 to 2^63 - 1 are possible."
            )

    @property
    def columns(self) -> dict[str, Column]:
        """The columns of numbers of its rows."""
        return number_columns(
            dim=self.embedding.encoder_config.dim,
            num_clips=self.embedding.num_clips,
            words_dim=self.words_dim,
        )

    @property
    def curve(self) -> MatchCurve:
        """From distance to match probability."""
        curve = self.embedding.match_curve
        return MatchCurve(torch.tensor(curve["a"]), torch.tensor(curve["b"]), curve["sigmoid_scale"])

    def to_json(self) -> str:
        """As text that `from_json` reads."""
        return json.dumps(dataclasses.asdict(self), indent=2) + "\n"

    @classmethod
    def from_json(cls, text: str, *, encoder: Path | str = "ENCODER") -> IndexSettings:
        """The settings in such a text; raises ValueError, KeyError or TypeError for another text.

        encoder: of the index, from which it can be made anew.
        """
        values = json.loads(text)
        if not isinstance(values, dict) or not isinstance(values.get("format_version"), int):
            raise TypeError("it does not say its format")
        found = values["format_version"]
        if found != FORMAT_VERSION:
            way_out = (
                "Update provico."
                if found > FORMAT_VERSION
                else f"Rebuild it: provico index VIDEOS --checkpoint {encoder} --out NEW"
            )
            raise VideoIndexError(
                f"The index is in format {found}, but this version of provico knows format {FORMAT_VERSION}. "
                + way_out
            )
        embedding = EmbeddingHeader.from_json(json.dumps(values.pop("embedding")))
        return build(cls, values | {"embedding": embedding})


@dataclass(frozen=True)
class IndexFolder:
    """Where the parts of an index lie."""

    path: Path

    @property
    def is_complete(self) -> bool:
        """Whether there is an index."""
        return (self.path / SETTINGS_NAME).is_file()

    @property
    def encoder(self) -> Path:
        """The encoder's folder."""
        return self.path / "encoder"

    @property
    def previews(self) -> Path:
        """The folder that the names of previews are relative to."""
        return self.path / "previews"

    def create(self, settings: IndexSettings, encoder: Encoder) -> None:
        """Make an empty index in a folder that is new, or empty, or left over from a kill in the middle."""
        paths = self.path.iterdir() if self.path.is_dir() else ()
        found = {path.name for path in paths if not is_partial(path)}
        if SETTINGS_NAME in found:
            raise OutputExistsError(f"{self.path} is an index already. Open it to add to it, or remove it.")
        # The lock tells that the folder is ours: nothing of anybody else's is ever removed.
        is_left_over = _LOCK_NAME in found and found <= {*_PARTS, *_LOCKS}
        if (found and not is_left_over) or self.path.is_file():
            raise OutputExistsError(
                f"{self.path} is not an index but exists already. Choose another --out, or remove it."
            )
        with self.writing():
            if self.is_complete:  # made by another process just now
                raise OutputExistsError(f"{self.path} is an index already. Open it to add to it.")
            for part in _PARTS:
                shutil.rmtree(self.path / part, ignore_errors=True)
                (self.path / part).mkdir()
            encoder.save_pretrained(self.encoder)
            settings.place.create(self.path / "store", settings.columns, about=settings.to_json())
            remove_partials(self.path)
            replace_text(self.path / SETTINGS_NAME, settings.to_json())

    def read_settings(self) -> IndexSettings:
        """What the index says of itself."""
        path = self.path / SETTINGS_NAME
        if not self.is_complete:
            raise VideoIndexError(
                f"{self.path} has no {SETTINGS_NAME}, so it is not an index, or not a complete one. Make one "
                f"with `provico index DATA --checkpoint RUN --out {self.path}`."
            )
        try:
            return IndexSettings.from_json(path.read_text(encoding="utf-8"), encoder=self.encoder)
        except VideoIndexError:
            raise
        except (OSError, KeyError, TypeError, ValueError, RecursionError, ProvicoError) as error:
            raise VideoIndexError(f"{path} was damaged ({error}). Rebuild the index.") from error

    def open_encoder(self, settings: IndexSettings, *, allow_import: bool = False) -> Encoder:
        """The encoder of all videos; refused if it is no longer the one that embedded them.

        A frozen backbone is only named in the folder, so that its weights can change behind that name.
        """
        encoder = Encoder.from_pretrained(self.encoder, allow_import=allow_import)
        found, made_with = encoder_hash(encoder), settings.embedding.encoder_hash
        if found != made_with:
            raise VideoIndexError(
                f"The encoder of {self.path} has other weights ({found}) than the one that embedded its "
                f"videos ({made_with}), so nothing can be compared with them. Restore the weights of its "
                "backbone, or rebuild the index with `provico index`."
            )
        return encoder

    def read_calibration(self) -> Calibration | None:
        """How often hits are right, if that is known."""
        path = self.path / _CALIBRATION_NAME
        try:
            return Calibration.from_dict(json.loads(path.read_text(encoding="utf-8")))
        except FileNotFoundError:
            return None
        except (OSError, KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
            raise VideoIndexError(
                f"{path} was damaged ({error}). Remove it, or calibrate again with `provico calibrate "
                f"{self.path}`."
            ) from error

    def write_calibration(self, calibration: Calibration) -> None:
        """Keep it with the index, in place of an older one."""
        with self.writing():
            text = json.dumps(calibration.to_dict(), indent=2) + "\n"
            replace_text(self.path / _CALIBRATION_NAME, text)

    @property
    def chance(self) -> Path:
        """The file that says what unrelated videos score."""
        return self.path / "chance.npz"

    def open_store(self, settings: IndexSettings) -> VideoStore:
        """The rows, at their newest version."""
        return settings.place.open(self.path / "store", settings.columns)

    @contextmanager
    def changing(self, settings: IndexSettings, processes: Processes = ALONE) -> Iterator[VideoStore]:
        """The rows, for one writer at a time or for processes that write together; readers need not ask."""
        with self.writing(processes):
            store = settings.place.open(self.path / "store", settings.columns, to_write=processes.is_first)
            with closing(store):
                yield store

    @contextmanager
    def writing(self, processes: Processes = ALONE) -> Iterator[None]:
        """The folder, for one writer at a time; processes that write together hold it until the last ends."""
        key = self.path.resolve()
        busy = VideoIndexError(f"The index {self.path} is being written. Wait until this is finished.")
        if key in _held:
            raise busy
        with _lock(self.path, _LOCK_NAME) as lock:
            is_ours = lock.take(wait=False) if processes.is_first else True
            if not processes.gather(is_ours)[0]:
                raise busy
            if processes.world_size > 1:
                # The first lets the others in without ever letting go.
                lock.take(is_shared=True)
            _held.add(key)
            try:
                yield
            finally:
                _held.remove(key)

    @contextmanager
    def committing(self) -> Iterator[None]:
        """For processes that write together, one after the other."""
        with _lock(self.path, _COMMIT_LOCK_NAME) as lock:
            lock.take()
            yield

    def remove_orphans(self, named: Collection[str]) -> int:
        """Remove previews that no row names, such as those of a writer that was killed; how many."""
        orphans = [
            Path(folder) / name
            for folder, _, names in os.walk(self.previews)
            for name in names
            if f"{Path(folder).name}/{name}" not in named
        ]
        for orphan in orphans:
            orphan.unlink(missing_ok=True)
        return len(orphans)


def _lock(folder: Path, name: str) -> Lock:
    try:
        private_folder(folder)
        return Lock(folder / name, of="process")
    except OSError as error:
        raise VideoIndexError(f"{folder} cannot be written to ({error.strerror}).") from error
