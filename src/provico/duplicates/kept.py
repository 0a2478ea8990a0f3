"""What is known of the duplicates of an index, kept with it: pairs that were found, and what people reject.

    duplicates.json        what `provico dedup` and `provico open` found, for every command and the page
    not_duplicates.jsonl   pairs of which a person said that they are not the same, and what was taken back

A rejected pair is left out wherever duplicates are told, also when they are looked for again.
"""

from __future__ import annotations

import json
import logging
from pathlib import Path

from provico.duplicates.report import DuplicateReport
from provico.files import Signature, appending_json, replace_text, whole_lines
from provico.locations import REJECTED_NAME, home_of
from provico.renamed import names_in

DUPLICATES_NAME = "duplicates.json"
log = logging.getLogger("provico.duplicates")

Names = tuple[str, str]


class KeptDuplicates:
    """The duplicates of an index, or of the collection that it is of."""

    def __init__(self, index: Path) -> None:
        home = home_of(index)
        self.path, self._rejected = home / DUPLICATES_NAME, home / REJECTED_NAME

    @property
    def signature(self) -> tuple[Signature, Signature]:
        """Another one for another content."""
        return Signature.of(self.path), Signature.of(self._rejected)

    def write(self, report: DuplicateReport) -> None:
        """Keep what was found, in place of what was kept."""
        replace_text(self.path, json.dumps(report.to_dict(), indent=1) + "\n")

    def read(self) -> DuplicateReport | None:
        """What was found, without what was rejected; None if nobody has looked, or the file is damaged."""
        try:
            found = DuplicateReport.from_dict(json.loads(self.path.read_text(encoding="utf-8")))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            log.warning("%s is damaged (%r). Run `provico dedup` to rebuild it.", self.path, error)
            return None
        return found.without(self.rejected())

    def rejected(self) -> frozenset[Names]:
        """The pairs that people rejected, each in the order of the ids."""
        held: dict[Names, bool] = {}
        for line in whole_lines(self._rejected):
            try:
                said = json.loads(line)
                if (names := names_in(said)) is not None:
                    held = {
                        ordered(*(names.get(name, name) for name in pair)): is_rejected
                        for pair, is_rejected in held.items()
                    }
                    continue
                first, second = map(str, said["pair"])
                held[ordered(first, second)] = bool(said["rejected"])
            except (KeyError, TypeError, ValueError):
                log.warning("A line of %s is damaged and does not count.", self._rejected)
        return frozenset(pair for pair, is_rejected in held.items() if is_rejected)

    def reject(self, pairs: list[Names], *, rejected: bool = True) -> None:
        """Remember that these pairs are not the same, or take that back; on the disk when it returns."""
        with appending_json(self._rejected) as write:
            for first, second in pairs:
                write({"pair": ordered(first, second), "rejected": rejected})


def ordered(first: str, second: str) -> Names:
    """A pair under one name, whichever comes first."""
    return (first, second) if first <= second else (second, first)
