"""Several indexes that are searched as one: folders, and addresses of PostgreSQL servers.

    open_indexes(["index", "/mnt/other/index", "postgresql://host/videos"]).search("cooking/3.mp4")

Answers are those of one index with all videos, and have one proof. A part that cannot be reached is named in
each answer (`Answer.unreached`), which is then not proved. A part that is lost while it is asked is given
up, and the others are asked again.
"""

from __future__ import annotations

import dataclasses
import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from urllib.parse import urldefrag

import numpy as np

from provico.errors import ConfigError, ProvicoError, UnreachablePartError, VideoIndexError
from provico.files import home_folder
from provico.locations import current_index, is_address
from provico.models.encoder import Encoder
from provico.probability.gaussian import Gaussian
from provico.processes import ALONE, Processes
from provico.search.answer import Answer, Unreached
from provico.search.chance import Chance
from provico.search.guarantee import Promise
from provico.search.index import Index
from provico.search.loaded import LoadedVideos
from provico.search.parted import Part, PartedVideos, row_of
from provico.search.searchable import RankedVideos, Searchable
from provico.search.store.folder import IndexFolder, IndexSettings, StorePlace
from provico.search.store.server import check_address, indexes_at, shown, trust
from provico.search.store.video_store import Rows

RETRY_SECONDS = 30.0
"""A part that could not be reached is tried again after so long."""
log = logging.getLogger("provico.search")


def open_indexes(
    names: Sequence[Path | str], *, in_engine: bool = False, allow_import: bool = False
) -> Index | PartedIndex:
    """One index, or several as one.

    names: folders of indexes, or postgresql://user@host/database[#name], where an index was made by --store.
    in_engine: let servers search the rows that they keep, instead of loading them; by `match` only.
    allow_import: let their encoder import a network by name, whose code is then run.
    """

    def open_one(name: str) -> Index:
        folder = (
            ServerFolder.at(name)
            if is_address(name)
            else IndexFolder(current_index(Path(name)) or Path(name))
        )
        on_server = in_engine and (len(names) == 1 or folder.read_settings().place.is_server)
        return Index(folder, in_engine=on_server, allow_import=allow_import)

    if len(names) == 1:
        return open_one(str(names[0]))
    return PartedIndex([str(name) for name in names], open_one)


@dataclass(frozen=True)
class ServerFolder(IndexFolder):
    """An index of which only the rows can be reached, which somebody's index keeps on a server."""

    place: StorePlace

    @classmethod
    def at(cls, address: str) -> ServerFolder:
        """The index in this database, or that with the name after #."""
        address, name = urldefrag(address)
        check_address(address)
        trust(address)
        found = indexes_at(address)
        if name not in found and (name or len(found) != 1):
            known = ", ".join(found) or "none"
            raise VideoIndexError(
                f"{shown(address)} has {len(found)} indexes ({known}), so name one of them, as in "
                f"{shown(address)}#{next(iter(found), 'provico_...')}. `provico index --store` makes one."
            )
        return cls(Path(shown(address)), StorePlace(address=address, name=name or next(iter(found))))

    @property
    def previews(self) -> Path:
        """Where this user keeps what is made of videos that can be reached from here."""
        return home_folder() / "previews" / self.place.name

    def read_settings(self) -> IndexSettings:
        """What the index says of itself, as the server was told when it was made."""
        assert self.place.address is not None
        try:
            settings = IndexSettings.from_json(indexes_at(self.place.address)[self.place.name])
        except VideoIndexError:
            raise
        except (KeyError, TypeError, ValueError, RecursionError, ProvicoError) as error:
            raise VideoIndexError(
                f"The index {self.place.name} in {self.path} does not say how it was made ({error}), as "
                "those of earlier versions do not. Name its folder instead."
            ) from error
        return dataclasses.replace(settings, place=self.place)

    def open_encoder(self, settings: IndexSettings, *, allow_import: bool = False) -> Encoder:
        """Refused."""
        raise VideoIndexError(
            f"{self.path} has rows, but no encoder, so queries can only be its own videos. Also give the "
            "folder of its index, or of another one with the same encoder."
        )

    @contextmanager
    def writing(self, processes: Processes = ALONE) -> Iterator[None]:
        """Refused."""
        raise VideoIndexError(f"{self.path} can only be searched. Use the folder of its index to change it.")


class PartedIndex(Searchable):
    """Several indexes as one; `open_indexes` gives them."""

    def __init__(self, names: Sequence[str], open_one: Callable[[str], Index]) -> None:
        self._names, self._open_one = names, open_one
        self._indexes: dict[int, Index] = {}
        unreached: dict[int, Unreached] = {}
        for number, name in enumerate(names):
            try:
                self._indexes[number] = open_one(name)
            except VideoIndexError as error:
                log.warning("%s cannot be reached: %s", name, error)
                unreached[number], last = Unreached(name, str(error)), error
        if not self._indexes:
            raise last
        self._check_alike()
        parts = {
            number: Part(names[number], index._videos, index._previews)
            for number, index in self._indexes.items()
        }
        self._parts = PartedVideos(parts, unreached)
        self._retry_at = time.monotonic() + RETRY_SECONDS
        self._chances: tuple[PartedVideos, Chance] | None = None
        self.calibration = None  # that of a part says nothing of the others

    @property
    def settings(self) -> IndexSettings:
        """What all parts have in common."""
        return self._parts.settings

    @property
    def path(self) -> Path:
        """The folder of the first part."""
        return next(iter(self._indexes.values())).path

    @property
    def version(self) -> int:
        """Another one when a part has another one."""
        return sum(index.version for index in self._indexes.values())

    @property
    def unreached(self) -> tuple[Unreached, ...]:
        """Parts that cannot be asked at present."""
        return tuple(self._parts.unreached.values())

    @property
    def is_newest(self) -> bool:
        """Whether opening the parts again would give nothing else; those that are lost are tried seldom."""
        try:
            if not all(self._indexes[number].is_newest for number in self._parts.parts):
                return False
        except VideoIndexError:
            return False
        if not self._parts.unreached or time.monotonic() < self._retry_at:
            return True
        self._retry_at = time.monotonic() + RETRY_SECONDS
        for number in self._parts.unreached:
            try:
                self._open_one(self._names[number])
            except VideoIndexError:
                continue
            return False
        return True

    @property
    def encoder_folder(self) -> Path:
        """Where the encoder is that all parts have in common."""
        return self._with_encoder.encoder_folder

    @property
    def preview_folders(self) -> tuple[Path, ...]:
        """Where previews may be."""
        return tuple(part.previews for part in self._parts.parts.values())

    @property
    def encoder(self) -> Encoder:
        """The encoder of all videos."""
        return self._with_encoder.encoder

    @property
    def _with_encoder(self) -> Index:
        indexes = list(self._indexes.values())
        return next((index for index in indexes if index.encoder_folder.is_dir()), indexes[0])

    @cached_property
    def loaded(self) -> JoinedVideos:
        """All videos, in the order of their ids."""
        return JoinedVideos(self._parts)

    def promise(self, max_error: float) -> Promise:
        """Refused: what was judged of the hits of one index says nothing of those of others."""
        raise ConfigError(
            "A guarantee applies to one index. Leave out --max-error, or search one index by itself."
        )

    @property
    def _videos(self) -> PartedVideos:
        return self._parts

    @property
    def _previews(self) -> Path:
        return Path()  # rows say where they are

    def _chance_of(self, videos: RankedVideos) -> Chance:
        assert isinstance(videos, PartedVideos)
        if self._chances is None or self._chances[0] is not videos:
            self._chances = videos, Chance.measured(videos, self.version)
        return self._chances[1]

    def _answered(self, answers: Callable[[RankedVideos], list[Answer]]) -> list[Answer]:
        videos = self._parts
        while True:
            try:
                found = answers(videos)
            except UnreachablePartError as lost:
                log.warning("%s is lost: %s", videos.parts[lost.number].name, lost)
                videos = videos.without(lost)
                if not videos.parts:
                    raise
                self._parts = videos
            else:
                unreached = tuple(videos.unreached.values())
                return [dataclasses.replace(answer, unreached=unreached) for answer in found]

    def _check_alike(self) -> None:
        (first, own), *others = (
            (number, _comparable(index.settings)) for number, index in self._indexes.items()
        )
        for number, theirs in others:
            differences = [
                f"{name} {theirs[name]} instead of {own[name]}" for name in own if own[name] != theirs[name]
            ]
            if differences:
                raise ConfigError(
                    f"{self._names[number]} cannot be searched together with {self._names[first]}: it has "
                    f"{', '.join(differences)}. Make both with one encoder and the same options."
                )


def _comparable(settings: IndexSettings) -> Mapping[str, object]:
    """What must be equal for probabilities to mean the same."""
    embedding = settings.embedding
    return {
        "the encoder": embedding.encoder_hash,
        "the match curve": embedding.match_curve,
        "clips": embedding.num_clips,
        "the short side": embedding.short_side,
        "samples": settings.num_samples,
        "the seed": settings.seed,
    }


class JoinedVideos:
    """The videos of all parts in memory as one list, as a page shows them; each once."""

    def __init__(self, parts: PartedVideos) -> None:
        self._parts = parts
        found: dict[str, tuple[str, int]] = {}
        for number, part in parts.parts.items():
            if not isinstance(part.videos, LoadedVideos):
                raise ConfigError(
                    "A page shows all videos, so they have to be loaded: leave out --in-engine."
                )
            for row, (name, path) in enumerate(
                zip(part.videos.ids, part.videos.store.read(("path",))["path"], strict=True)
            ):
                first, _ = found.setdefault(name, (path, row_of(number, row)))
                if first != path:
                    raise ConfigError(
                        f"{name} is the id of two videos, {first} and {path}. To show both on one page, "
                        "index a folder above both of them."
                    )
        self.ids = tuple(sorted(found))
        self._paths = [found[name][0] for name in self.ids]
        self._rows = [found[name][1] for name in self.ids]
        self.row_of_id = {name: row for row, name in enumerate(self.ids)}
        known = parts.read(("label", "group", "subset", "mean", "log_var"), self._rows)
        self.words = {name: np.array(known[name], object) for name in ("label", "group", "subset")}
        self.videos = Gaussian.from_numpy(known["mean"], known["log_var"])

    @property
    def store(self) -> JoinedVideos:
        """Where columns are read."""
        return self

    def read(self, names: Sequence[str], rows: Sequence[int] | None = None) -> Rows:
        """These columns of some videos, or of all; paths are known, also of parts that are lost."""
        if tuple(names) == ("path",):
            return {"path": self._paths if rows is None else [self._paths[row] for row in rows]}
        return self._parts.read(names, self._rows if rows is None else [self._rows[row] for row in rows])
