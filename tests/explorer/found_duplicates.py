"""Duplicates that were found, as they are kept with an index."""

from __future__ import annotations

from pathlib import Path

from provico.duplicates.kept import KeptDuplicates
from provico.duplicates.report import DuplicateReport, Member, Pair, group_duplicates
from provico.search.query import Span


def keep_duplicates(index: Path, *pairs: Pair) -> Path:
    """Keep these pairs, and return the file."""
    kept = KeptDuplicates(index)
    kept.write(
        DuplicateReport(
            num_videos=12,
            num_compared=len(pairs),
            min_probability=0.5,
            pairs=pairs,
            groups=group_duplicates(pairs),
            blank=(),
            failed=(),
        )
    )
    return kept.path


def same(first: str, second: str) -> Pair:
    members = [
        Member(
            id=name,
            path=name,
            label=None,
            subset=None,
            source="index",
            duration_seconds=3.0,
            num_pixels=6912,
            uncertainty=0.1,
            modified_ns=place,
        )
        for place, name in enumerate((first, second))
    ]
    whole = Span(0.0, 3.0)
    return Pair(
        first=members[0],
        second=members[1],
        probability=0.9,
        kind="duplicate",
        first_span=whole,
        second_span=whole,
        speed=1.0,
        is_mirrored=False,
        proof="motion",
        motion=0.9,
        appearance=0.9,
        repetition=0.0,
    )
