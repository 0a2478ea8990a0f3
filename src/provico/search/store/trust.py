"""Which addresses an index may make this machine connect to.

An index.json may come from a stranger and name any server. So an address is used only if this user has given
it: with `provico index --store`, in Python, or once with --trust-address. What was given is remembered.
"""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

from provico.data.library import home_folder
from provico.errors import VideoIndexError
from provico.files import private_folder, replace_text

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
            f"The rows of this index are at {shown(address)}, where you have not been before. To open it is "
            "to connect there, with the passwords and keys that your environment holds for it. If you trust "
            "whoever made the index, add --trust-address (once)."
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
