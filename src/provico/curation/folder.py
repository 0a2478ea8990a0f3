"""The folder of a curation: proposals, decisions, and the resulting collection.

    proposals.csv      one row per video: bucket, reason, uncertainty
    segments.csv       the parts of videos that are proposed to keep
    decisions.jsonl    the user's decisions (see `decisions`)
    manifest.csv     the videos to keep, which every command accepts as DATA; the others are listed, too, with
                     a status that excludes them

A decision overrides a proposal. Without a decision, `review` is left out, and `trim` is trimmed.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from provico.curation.decisions import Decision, DecisionLog, Segment
from provico.curation.proposals import BUCKETS, Bucket
from provico.data.scan import ScannedVideo
from provico.errors import ConfigError
from provico.files import replace_rows
from provico.locations import CURATION_NAME, DECISIONS_NAME, home_of

MANIFEST_NAME = "manifest.csv"
PROPOSALS_NAME = "proposals.csv"
_KEPT_STATUS = "readable"  # what `provico scan` writes for usable videos
_MANIFEST_COLUMNS = (
    *("path", "id", "label", "group", "split", "start_seconds", "end_seconds", "status", "reason"),
)


@dataclass(frozen=True, kw_only=True)
class CuratedVideo:
    """A row of proposals.csv, whose columns are the fields except the segments."""

    path: str
    id: str
    label: str = ""
    group: str = ""
    split: str = ""
    duration_seconds: float = 0.0
    bucket: Bucket
    reason: str
    detail: str = ""
    """The values behind the reason; empty if there are none."""
    kind: str = ""
    """The reason in one word: a kind of `JUNK`, or duplicate; otherwise empty."""
    uncertainty: float | None = None
    """None if the video could not be embedded; also for the next field."""
    disagreement: float | None = None
    segments: tuple[Segment, ...] = ()

    @classmethod
    def of(cls, video: ScannedVideo, **proposed: Any) -> CuratedVideo:
        """A row from the scan of a video, and its proposal."""
        known = ("path", "id", "label", "group", "split", "duration_seconds")
        if video.start_seconds is not None and video.end_seconds is not None:  # it is already a part
            proposed = proposed | {"segments": ((video.start_seconds, video.end_seconds),)}
        return cls(**{name: getattr(video, name) for name in known}, **proposed)

    def decided(self, decision: Decision | None) -> CuratedVideo:
        """A copy with the decision in place of the proposal."""
        if decision is None:
            return self
        return replace(self, bucket=decision.choice, reason="decided", segments=decision.segments)


class CurationFolder:
    """The files of a curation, which are replaced atomically or grow by whole lines."""

    @classmethod
    def of(cls, index: Path) -> CurationFolder:
        """That of an index, or of the collection that it is of."""
        return cls(home_of(index) / CURATION_NAME)

    def __init__(self, path: Path) -> None:
        self.path = path
        self.decisions = DecisionLog(path / DECISIONS_NAME)

    @property
    def manifest(self) -> Path:
        """The current collection."""
        return self.path / MANIFEST_NAME

    def write(self, videos: Sequence[CuratedVideo]) -> None:
        """Write the proposals, and the manifest that follows from them and from the decisions."""
        self.path.mkdir(parents=True, exist_ok=True)
        columns = [field.name for field in fields(CuratedVideo) if field.name != "segments"]
        replace_rows(
            self.path / "segments.csv", ("id", "start_seconds", "end_seconds"), _segment_rows(videos)
        )
        replace_rows(self.path / PROPOSALS_NAME, columns, map(asdict, videos))
        self.__dict__.pop("proposed", None)
        self.write_manifest()

    @cached_property
    def proposed(self) -> tuple[CuratedVideo, ...]:
        """The proposals."""
        segments: dict[str, list[Segment]] = {}
        for row in _read_rows(self.path / "segments.csv"):
            try:
                segment = float(row["start_seconds"]), float(row["end_seconds"])
                segments.setdefault(row["id"], []).append(segment)
            except (KeyError, TypeError, ValueError) as error:
                raise ConfigError(
                    f"segments.csv is damaged ({error!r}). Run `provico curate` again with another --out."
                ) from error
        return tuple(
            _parsed(row, tuple(segments.get(row["id"], ()))) for row in _read_rows(self.path / PROPOSALS_NAME)
        )

    @property
    def is_written(self) -> bool:
        """Whether there are proposals."""
        return (self.path / PROPOSALS_NAME).is_file()

    def current(self) -> tuple[CuratedVideo, ...]:
        """The proposals, overridden by decisions."""
        decided = self.decisions.current()
        return tuple(video.decided(decided.get(video.id)) for video in self.proposed)

    def write_manifest(self, proposed: Sequence[CuratedVideo] | None = None) -> Path:
        """Update the manifest from decisions and proposals."""
        decided = self.decisions.current()
        videos = self.proposed if proposed is None else proposed
        rows = [row for video in videos for row in _manifest_rows(video.decided(decided.get(video.id)))]
        replace_rows(self.manifest, _MANIFEST_COLUMNS, rows)
        return self.manifest


def _manifest_rows(video: CuratedVideo) -> Iterator[dict[str, Any]]:
    status = _KEPT_STATUS if video.bucket in ("keep", "trim") else video.bucket
    row = asdict(video) | {"status": status}
    for start, end in video.segments or ((None, None),):
        yield row | {"start_seconds": start, "end_seconds": end}


def _segment_rows(videos: Iterable[CuratedVideo]) -> Iterator[dict[str, Any]]:
    for video in videos:
        for start, end in video.segments:
            yield {"id": video.id, "start_seconds": start, "end_seconds": end}


def _parsed(row: dict[str, str], segments: tuple[Segment, ...]) -> CuratedVideo:
    if "ambiguity" in row:
        raise ConfigError(
            "proposals.csv has the column ambiguity, which provico 0.1.0 wrote. Run `provico curate` again "
            "with another --out."
        )
    try:
        if row["bucket"] not in BUCKETS:
            raise ValueError(f"there is no bucket {row['bucket']!r}, only {', '.join(BUCKETS)}")
        values: dict[str, Any] = dict(row)
        for name in ("uncertainty", "disagreement"):
            values[name] = float(row[name]) if row[name] else None
        duration = float(row["duration_seconds"])
        return CuratedVideo(**values | {"duration_seconds": duration, "segments": segments})
    except (KeyError, TypeError, ValueError) as error:
        raise ConfigError(
            f"proposals.csv is damaged at {row.get('id')!r} ({error}). Run `provico curate` again with "
            "another --out."
        ) from error


def _read_rows(path: Path) -> Iterator[dict[str, str]]:
    if not path.is_file():
        raise ConfigError(f"{path.parent} has no {path.name}, so it was not written by `provico curate`.")
    with path.open(newline="", encoding="utf-8", errors="surrogateescape") as file:
        try:
            yield from csv.DictReader(file)
        except csv.Error as error:
            raise ConfigError(f"{path} is damaged ({error}). Run `provico curate` again.") from error
