"""Which engine keeps the rows of an index: the address of the store says it.

    (none)                  LanceDB, in the folder of the index
    s3://bucket/folder      LanceDB, in an object store
    postgresql://host/name  PostgreSQL with pgvector, which many machines can use at once

What is in the folder of the index stays there: settings, encoder, previews.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from provico.errors import ConfigError
from provico.search.store.lance import LanceStore
from provico.search.store.postgres import PostgresStore, check_address
from provico.search.store.video_store import Column, VideoStore

OBJECT_STORES = ("s3", "gs", "az")
SERVERS = ("postgresql", "postgres")


@dataclass(frozen=True, kw_only=True)
class StorePlace:
    """Where the rows of an index are."""

    address: str | None = None
    """None: in the folder of the index."""
    name: str = "videos"
    """Of the table, or of the schema in a database, so that many indexes can share an address."""

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
        return cls(address=address, name=f"provico_{uuid.uuid4().hex[:16]}")

    @property
    def is_server(self) -> bool:
        """Whether the engine is a server that can search by itself."""
        return self.address is not None and urlsplit(self.address).scheme in SERVERS

    def create(self, folder: Path, columns: dict[str, Column]) -> None:
        """Make an empty store."""
        if self.is_server:
            assert self.address is not None
            PostgresStore.create(self.address, self.name, columns)
        else:
            LanceStore.create(self.address or folder, self.name, columns)

    def open(self, folder: Path, columns: dict[str, Column], *, to_write: bool = False) -> VideoStore:
        """The store at its newest version.

        to_write: keep out other writers, wherever they run, until it is closed.
        """
        if self.is_server:
            return self.open_server(columns, to_write=to_write)
        return LanceStore(self.address or folder, self.name, columns)

    def open_server(self, columns: dict[str, Column], *, to_write: bool = False) -> PostgresStore:
        """Open the rows on a PostgreSQL server."""
        assert self.address is not None
        return PostgresStore(self.address, self.name, columns, to_write=to_write)
