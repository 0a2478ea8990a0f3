"""A cache of the analysis of each file, which is reused while the file does not change.

`seen.json` in the folder of the curation. It can be deleted: missing or damaged entries are recomputed.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

from provico.curation.junk import JUNK, Junk
from provico.curation.proposals import Clear
from provico.data.scan import ScannedVideo
from provico.files import Signature, replace_text

SEEN_NAME = "seen.json"
NONE = "none"
_JUNK = "junk without bars"
"""The entry with the kind of junk; named anew where it is told in another way."""


class SeenVideos:
    """The cached analysis of the files of one curation."""

    def __init__(self, folder: Path, *, encoder: str) -> None:
        self._path, self._encoder = folder / SEEN_NAME, encoder
        try:
            known = json.loads(self._path.read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError):
            known = {}
        self._known: dict[str, Any] = known if isinstance(known, dict) else {}
        self._now: dict[str, Any] = {}

    def _of(self, video: ScannedVideo) -> dict[str, Any]:
        """The cached entry for the current file."""
        if video.id not in self._now:
            file = list(Signature.of(Path(video.path)))
            before = self._known.get(video.id)
            is_same = isinstance(before, dict) and before.get("file") == file
            self._now[video.id] = before if is_same else {"file": file}
        return cast(dict[str, Any], self._now[video.id])

    def junk(self, video: ScannedVideo, look: Callable[[], Junk | None]) -> Junk | None:
        """The kind of junk that the video looks like."""
        known = self._of(video)
        if known.get(_JUNK) not in (*JUNK, NONE):
            known[_JUNK] = look() or NONE
        return None if known[_JUNK] == NONE else cast(Junk, known[_JUNK])

    def clear(self, video: ScannedVideo, look: Callable[[ScannedVideo], Clear | None] | None) -> Clear | None:
        """The parts that are clear to this encoder; None if unknown and `look` is None."""
        known = self._of(video).get("clear", {})
        try:
            if known["encoder"] == self._encoder:
                segments = tuple((float(start), float(end)) for start, end in known["segments"])
                return Clear(segments=segments, why=str(known["why"]), detail=str(known["detail"]))
        except (KeyError, TypeError, ValueError):
            pass
        found = None if look is None else look(video)
        if found is not None:
            self._of(video)["clear"] = {
                "encoder": self._encoder,
                "segments": found.segments,
                "why": found.why,
                "detail": found.detail,
            }
        return found

    def write(self) -> None:
        """Write the cache."""
        replace_text(self._path, json.dumps(self._now))
