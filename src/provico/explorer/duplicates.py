"""Groups of duplicates: what `provico dedup INDEX --out INDEX/duplicates.json` found."""

from __future__ import annotations

import json
import logging
from pathlib import Path

from provico.files import Signature

NAME = "duplicates.json"
log = logging.getLogger("provico.explorer")


class DuplicateFile:
    """The groups in the file, read again when it changes."""

    def __init__(self, index: Path) -> None:
        self._path = index / NAME
        self._signature = Signature(-1, -1)
        self._groups: list[list[str]] | None = None

    @property
    def signature(self) -> Signature:
        """Another one for another content."""
        return Signature.of(self._path)

    def groups(self) -> list[list[str]] | None:
        """Ids of videos that show the same; None if nobody has looked for any."""
        signature = self.signature
        if signature != self._signature:
            self._groups, self._signature = self._read(), signature
        return self._groups

    def _read(self) -> list[list[str]] | None:
        try:
            groups = json.loads(self._path.read_text(encoding="utf-8"))["groups"]
            return [[str(group["keep"]), *map(str, group["drop"])] for group in groups]
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError) as error:
            log.warning("%s is not what `provico dedup --out` writes (%r). Make it again.", self._path, error)
            return None
