"""What the page knows for curation: proposals, decisions and duplicates.

Proposals are those of `provico curate`, if it was run; for other videos they follow from the index by the
same rules, so that the page has a queue for every index. Groups of duplicates are those that
`provico dedup INDEX --out INDEX/duplicates.json` found.
"""

from __future__ import annotations

import json
import logging
import threading
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from provico.config.data import CurationRules
from provico.curation.decisions import Choice, Decision, Decisions, Segment
from provico.curation.folder import CuratedVideo, CurationFolder
from provico.curation.proposals import BUCKETS, Doubt, propose, robust_deviations
from provico.data.scan import ScannedVideo
from provico.errors import ConfigError
from provico.explorer.collection import View
from provico.explorer.problems import Problem
from provico.files import Signature, is_disk_full

log = logging.getLogger("provico.explorer")


class Curation:
    """Proposals and decisions for the videos of a view; for any thread."""

    def __init__(self, path: Path) -> None:
        self._folder = CurationFolder(path)
        self._lock = threading.RLock()
        self._decided: tuple[Signature, Decisions] = (Signature(-1, -1), Decisions())
        self._buckets: tuple[View | None, object, list[str]] = (None, None, [])
        self._proposed: tuple[View | None, Signature, list[CuratedVideo]] = (None, Signature(-1, -1), [])

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

    def proposals(self, view: View) -> list[CuratedVideo]:
        """What is proposed for each video of a view, by its number."""
        with self._lock:
            known, signature, proposed = self._proposed
            now = self._proposals_now()
            if known is not view or signature != now:
                proposed = self._propose(view, signature != now)
                self._proposed = view, now, proposed
            return proposed

    def buckets(self, view: View) -> list[str]:
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

    def counts(self, view: View) -> dict[str, int]:
        """How many videos each bucket has."""
        found = Counter(self.buckets(view))
        return {bucket: found[bucket] for bucket in BUCKETS}

    def decide(
        self, view: View, number: int, choice: Choice, segments: Sequence[Segment], seen: int | None
    ) -> Decision:
        """Decide about a video; the decision and the manifest are on the disk when it returns."""
        with self._lock:
            decision = self._folder.decisions.record(
                view.ids[number], choice, segments=segments, seen_revision=seen
            )
            self._write_manifest(view)
            return decision

    def undo(self, view: View, seen: int | None) -> str | None:
        """Take back the last decision; the video that it was about."""
        with self._lock:
            name = self._folder.decisions.undo(seen_revision=seen)
            if name is not None:
                self._write_manifest(view)
            return name

    def _write_manifest(self, view: View) -> None:
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
                "Make room. The next decision brings it up to date.",
            ) from error

    def _bring_up_to_date(self, view: View) -> None:
        proposed = self.proposals(view)
        known = {one.id for one in self._folder.proposed} if self._has_proposals else set()
        missing = [one for one in proposed if one.id not in known]
        if missing:
            before = self._folder.proposed if self._has_proposals else ()
            self._folder.write([*before, *missing])
        else:
            self._folder.write_manifest()

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

    def _propose(self, view: View, is_changed: bool) -> list[CuratedVideo]:
        if is_changed:
            self._folder = CurationFolder(self._folder.path)  # which remembers what it has read
        try:
            known = {one.id: one for one in self._folder.proposed} if self._has_proposals else {}
        except ConfigError as error:
            log.error("The proposals cannot be read.", exc_info=error)
            hint = "Run `provico curate` again with another --out, or remove the file."
            raise Problem(500, "damaged", "The proposals of the curation are damaged.", hint) from error
        own = _proposed_by_index(view) if any(name not in known for name in view.ids) else {}
        return [known.get(name) or own[name] for name in view.ids]


def _proposed_by_index(view: View) -> dict[str, CuratedVideo]:
    """By the rules of `provico curate`, for all that an index knows: nothing is read or embedded again."""
    if not len(view):
        return {}
    rules, smallest = CurationRules(), np.finfo(np.float32).tiny
    doubts = [robust_deviations(np.log(np.maximum(view.numbers[cause], smallest))) for cause in _UNCERTAINTY]
    paths = view.index.loaded.store.read(("path",))["path"]
    proposed = {}
    for number, name in enumerate(view.ids):
        video = ScannedVideo(
            path=paths[number],
            id=name,
            label=view.words["label"][number] or "",
            group=view.words["group"][number] or "",
            split=view.words["subset"][number] or "",
            duration_seconds=float(view.numbers["duration_seconds"][number]),
        )
        uncertainty, disagreement = (float(doubt[number]) for doubt in doubts)
        proposal = propose(video, Doubt(uncertainty=uncertainty, disagreement=disagreement), None, rules)
        proposed[name] = CuratedVideo.of(
            video,
            bucket=proposal.bucket,
            reason=proposal.reason,
            segments=proposal.segments,
            **{column: float(view.numbers[column][number]) for column in _UNCERTAINTY},
        )
    return proposed


_UNCERTAINTY = ("uncertainty", "disagreement")


DUPLICATES = "duplicates.json"


class DuplicateFile:
    """The groups in the file, read again when it changes."""

    def __init__(self, index: Path) -> None:
        self._path = index / DUPLICATES
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
