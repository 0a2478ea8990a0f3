"""PostgreSQL servers: their addresses, connections to them, and which indexes they have.

An index.json may come from a stranger and name any server. So an address is used only if this user has given
it: with `provico index --store`, in Python, or once with --trust-address. What was given is remembered.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from provico.errors import ConfigError, VideoIndexError
from provico.extras import require
from provico.files import home_folder, private_folder, replace_text

if TYPE_CHECKING:
    import psycopg

PATIENCE: dict[str, Any] = {
    "connect_timeout": 10,
    "keepalives_idle": 15,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,
}
"""After how many seconds (the last one: milliseconds) a server that is cut off is given up; an address may
say otherwise, as in postgresql://host/videos?connect_timeout=3. The system's own limits are hours."""

_trusts_all = False


def trust_all() -> None:
    """In this process, trust what an index names, and remember it: the user has said so."""
    global _trusts_all
    _trusts_all = True


def trust(address: str) -> None:
    """Remember an address that the user has given."""
    if address not in _known():
        private_folder(home_folder())
        replace_text(_file(), "".join(f"{known}\n" for known in sorted({*_known(), address})))


def check_trusted(address: str) -> None:
    """Refuse an address that the user has never given."""
    if _trusts_all:
        trust(address)
    elif address not in _known():
        raise VideoIndexError(
            f"The rows of this index are at {shown(address)}, an address that you have not used before. "
            "Opening the index connects to it with the passwords and keys that your environment holds for "
            "it. If you trust the creator of the index, add --trust-address (once)."
        )


def shown(address: str) -> str:
    """An address without user and password."""
    try:
        parts = urlsplit(address)
        return f"{parts.scheme}://{parts.hostname or ''}{parts.path}"[:200]
    except ValueError:
        return "an address that cannot be read"


def _file() -> Path:
    return home_folder() / "trusted_addresses.txt"


def _known() -> set[str]:
    try:
        return set(_file().read_text(encoding="utf-8", errors="replace").splitlines())
    except OSError:
        return set()


def check_address(address: str) -> None:
    """Refuse an address that says a secret, which would be written into the index."""
    from psycopg import ProgrammingError
    from psycopg.conninfo import conninfo_to_dict

    try:
        parts = conninfo_to_dict(address)
    except ProgrammingError as error:
        raise ConfigError(
            f"The store is not an address of PostgreSQL ({error}). It looks like "
            "postgresql://user@host/database."
        ) from None
    if parts.get("password") or parts.get("sslpassword"):
        raise ConfigError(
            "The address of the store has a password in it, which would be written into the index. Leave it "
            "out, and put it into ~/.pgpass or the environment variable PGPASSWORD."
        )


@contextmanager
def explained(address: str) -> Iterator[None]:
    """A server that cannot be reached, or lacks something, is the user's to mend."""
    import psycopg

    try:
        yield
    except psycopg.Error as error:
        raise VideoIndexError(
            f"The index's rows in {address} cannot be read or written ({str(error).strip()}). What was "
            "committed is kept. Check that the server runs, has pgvector, and accepts this user."
        ) from error


def connect(address: str) -> psycopg.Connection[Any]:
    """A connection on which each statement is a transaction of its own."""
    require("postgres", what="An index in PostgreSQL")
    import psycopg
    from pgvector.psycopg import register_vector
    from psycopg.conninfo import conninfo_to_dict, make_conninfo

    with explained(address):
        connection = psycopg.connect(
            make_conninfo(**{**PATIENCE, **conninfo_to_dict(address)}), autocommit=True
        )
        connection.execute("set client_encoding = 'utf8'")
        with suppress(psycopg.ProgrammingError):  # there are no vectors until the first index is created
            register_vector(connection)
    return connection


def indexes_at(address: str) -> dict[str, str]:
    """The schema of each index in a database, and what it says of itself."""
    connection = connect(address)
    try:
        with explained(address):
            found = connection.execute(
                "select nspname, obj_description(oid, 'pg_namespace') from pg_namespace "
                "where nspname like 'provico\\_%' order by nspname"
            ).fetchall()
    finally:
        connection.close()
    return {name: about or "" for name, about in found}
