"""Verbs that take what people say of hits."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import tyro

from provico.cli.arguments import Json, announce, print_json
from provico.errors import ConfigError, OutputExistsError


def select(
    index: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="INDEX")],
    *,
    num: int = 50,
    by_lot: bool = False,
    max_error: float = 0.1,
    out: Path | None = None,
    as_json: Json = False,
) -> None:
    """Choose the hits to judge first: those that teach the most, or a draw by lot for a guarantee.

    Args:
        index: folder of the index.
        num: how many queries to choose, each of another recording.
        by_lot: draw them by lot, for `provico search --max-error`, and keep that draw with the index.
        max_error: the share of wrong answers that the draw is for.
        out: write them to this csv file, for `provico judge`, with an empty column for the verdict.
    """
    from provico.files import replace_rows
    from provico.progress import progress_bar
    from provico.search.index import Index
    from provico.search.judgements import COLUMNS

    if out is not None and out.exists():
        raise OutputExistsError(f"{out} exists already. Choose another --out, or remove it.")
    with progress_bar("Searching") as progress:
        found = Index.open(index).select(num=num, by_lot=by_lot, max_error=max_error, progress=progress)
    if out is not None:
        rows = ({"query": one.query, "hit": one.hit} for one in found)
        replace_rows(out, COLUMNS[:3], rows)
        announce(f"{len(found)} queries written to {out}: write right or wrong beside each.")
    if as_json:
        print_json([{"query": one.query, "hit": one.hit, "is_drawn": one.is_drawn} for one in found])
    elif out is None:
        for one in found:
            print(f"{one.query}  ->  {one.hit}")


def judge(
    index: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="INDEX")],
    judgements: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="JUDGEMENTS.csv")],
    *,
    as_json: Json = False,
) -> None:
    """Import which hits are right or wrong from a csv file, and calibrate the index by them.

    Args:
        index: folder of the index.
        judgements: a csv file with the columns query, hit and verdict (right or wrong); lines without a
            verdict are left out.
    """
    from provico.search.index import Index
    from provico.search.judgements import read_judgements
    from provico.show import show_calibration

    opened, new = Index.open(index), read_judgements(judgements)
    opened.judge(new)
    known = opened.judgements.read()
    for line in known.damaged:
        announce(line)
    try:
        calibration = opened.calibrate(source="judgements")
    except ConfigError as error:
        calibration = None
        announce(f"Not calibrated by judgements: {error}")
    if as_json:
        summary = None if calibration is None else calibration.to_dict()
        print_json({"imported": len(new), "judged": len(known.current), "calibration": summary})
        return
    print(f"{len(new):,} judgements imported; {len(known.current):,} hits of the index are judged.")
    if calibration is not None:
        show_calibration(calibration)
