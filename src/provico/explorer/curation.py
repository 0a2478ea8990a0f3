"""What the page knows for curation: proposals, decisions and duplicates.

Proposals are those of `provico curate` or `provico open`, duplicates those of `provico dedup` or
`provico open`: the page computes neither, so it says what the commands say.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from provico.curation.decisions import Choice, Decision, Decisions, Segment
from provico.curation.folder import CuratedVideo, CurationFolder
from provico.curation.proposals import BUCKETS
from provico.duplicates.kept import KeptDuplicates
from provico.duplicates.report import DuplicateReport
from provico.errors import ConfigError
from provico.explorer.collection import IndexView
from provico.explorer.problems import Problem
from provico.files import Signature, is_disk_full

log = logging.getLogger("provico.explorer")
NOT_LOOKED_AT = "not looked at yet"


class Curation:
    """Proposals and decisions for the videos of a view; for any thread."""

    def __init__(self, path: Path) -> None:
        self._folder = CurationFolder(path)
        self._lock = threading.RLock()
        self._decided: tuple[Signature, Decisions] = (Signature(-1, -1), Decisions())
        self._buckets: tuple[IndexView | None, object, list[str]] = (None, None, [])
        self._proposed: tuple[IndexView | None, Signature, list[CuratedVideo]] = (
            None,
            Signature(-1, -1),
            [],
        )

    @property
    def revision(self) -> int:
        """Grows with every decision and every undo."""
        return self._read().revision

    @property
    def state(self) -> tuple[Signature, Signature]:
        """Another one whenever a bucket may be another one."""
        return Signature.of(self._folder.decisions.path), self._proposals_now()

    def decisions(self) -> dict[str, Decision]:
        """What holds for each video that was decided on."""
        return self._read().current

    def damaged(self) -> tuple[str, ...]:
        """What is wrong with damaged lines of the decisions."""
        return self._read().damaged

    def proposals(self, view: IndexView) -> list[CuratedVideo]:
        """What is proposed for each video of a view, by its number."""
        with self._lock:
            known, signature, proposed = self._proposed
            now = self._proposals_now()
            if known is not view or signature != now:
                proposed = self._propose(view, signature != now)
                self._proposed = view, now, proposed
            return proposed

    def buckets(self, view: IndexView) -> list[str]:
        """The bucket of each video of a view: as decided, or else as proposed."""
        with self._lock:
            state = self.state
            if self._buckets[:2] != (view, state):
                decided = self.decisions()
                buckets: list[str] = [
                    decided[one.id].choice if one.id in decided else one.bucket
                    for one in self.proposals(view)
                ]
                self._buckets = view, state, buckets
            return self._buckets[2]

    def counts(self, view: IndexView) -> dict[str, int]:
        """How many videos each bucket has."""
        found = Counter(self.buckets(view))
        return {bucket: found[bucket] for bucket in BUCKETS}

    def decide(
        self, view: IndexView, number: int, choice: Choice, segments: Sequence[Segment], seen: int | None
    ) -> Decision:
        """Decide about a video; the decision and the manifest are on the disk when it returns."""
        with self._lock:
            decision = self._folder.decisions.record(
                view.ids[number], choice, segments=segments, seen_revision=seen
            )
            self._write_manifest(view)
            return decision

    def undo(self, view: IndexView, seen: int | None) -> str | None:
        """Take back the last decision; the video that it was about."""
        with self._lock:
            name = self._folder.decisions.undo(seen_revision=seen)
            if name is not None:
                self._write_manifest(view)
            return name

    def _write_manifest(self, view: IndexView) -> None:
        """Once the decision is on the disk. It stays there if this fails."""
        try:
            self._bring_up_to_date(view)
        except OSError as error:
            if not is_disk_full(error):
                raise
            log.error("The manifest could not be written.", exc_info=error)
            raise Problem(
                507,
                "disk_full",
                "The decision is kept, but the disk is full: manifest.csv is as it was before.",
                "Free some space. The next decision updates it.",
            ) from error

    def _bring_up_to_date(self, view: IndexView) -> None:
        proposed = self.proposals(view)
        known = {one.id for one in proposed}
        others = self._folder.proposed if self._has_proposals else ()
        self._folder.write_manifest([*proposed, *(one for one in others if one.id not in known)])

    def _read(self) -> Decisions:
        with self._lock:
            signature, decided = self._decided
            now = Signature.of(self._folder.decisions.path)
            if signature != now:
                decided = self._folder.decisions.read()
                self._decided = now, decided
            return decided

    @property
    def _has_proposals(self) -> bool:
        return (self._folder.path / "proposals.csv").is_file()

    def _proposals_now(self) -> Signature:
        return Signature.of(self._folder.path / "proposals.csv")

    def _propose(self, view: IndexView, is_changed: bool) -> list[CuratedVideo]:
        if is_changed:
            self._folder = CurationFolder(self._folder.path)  # which remembers what it has read
        try:
            known = {one.id: one for one in self._folder.proposed} if self._has_proposals else {}
        except ConfigError as error:
            log.error("The proposals cannot be read.", exc_info=error)
            hint = "Run `provico curate` again, or remove the file."
            raise Problem(500, "damaged", "The proposals of the curation are damaged.", hint) from error
        if all(name in known for name in view.ids):
            return [known[name] for name in view.ids]
        paths = view.index.loaded.store.read(("path",))["path"]
        return [known.get(name) or _not_looked_at(view, row, paths[row]) for row, name in enumerate(view.ids)]

    def unreadable(self) -> list[CuratedVideo]:
        """The files that are not in the index since they cannot be read."""
        proposed = self._folder.proposed if self._has_proposals else ()
        return [one for one in proposed if one.kind == "unreadable"]


def _not_looked_at(view: IndexView, row: int, path: str) -> CuratedVideo:
    """A video that nobody has proposed anything for: it is kept."""
    return CuratedVideo(
        path=path,
        id=view.ids[row],
        label=view.words["label"][row] or "",
        group=view.words["group"][row] or "",
        split=view.words["subset"][row] or "",
        duration_seconds=float(view.numbers["duration_seconds"][row]),
        bucket="keep",
        reason=NOT_LOOKED_AT,
        uncertainty=float(view.numbers["uncertainty"][row]),
        disagreement=float(view.numbers["disagreement"][row]),
    )


class Duplicates:
    """The duplicates that are kept with the index, read again when they change; for any thread."""

    def __init__(self, index: Path) -> None:
        self.kept = KeptDuplicates(index)
        self._known: tuple[object, DuplicateReport | None] | None = None

    @property
    def signature(self) -> object:
        """Another one for another content."""
        return self.kept.signature

    def report(self) -> DuplicateReport | None:
        """What was found and not rejected; None if nobody has looked."""
        signature = self.signature
        if self._known is None or self._known[0] != signature:
            self._known = signature, self.kept.read()
        return self._known[1]

    def groups(self) -> list[list[str]]:
        """Ids of videos that show the same, the one to keep first."""
        report = self.report()
        if report is None:
            return []
        return [[group.keep.id, *(member.id for member in group.drop)] for group in report.groups]
