"""Verbs that index and search videos, and collect judgements of the hits."""

from __future__ import annotations

import functools
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from provico.cli.arguments import Embedding, Json, Videos, announce, give, open_choice, print_json
from provico.config.data import EmbedOptions
from provico.defaults import CALIBRATION_QUERIES, MAX_CHANCE
from provico.errors import ConfigError, OutputExistsError, ProvicoError
from provico.locations import parts_among

if TYPE_CHECKING:
    from provico.models.encoder import Encoder
    from provico.search.index import Index

_TIME = r"(?:\d+:)?(?:\d+:)?\d+(?:\.\d+)?"


def index(
    choice: Videos,
    *,
    checkpoint: Path | None = None,
    backbone: str | None = None,
    out: Path = Path("index"),
    prune: bool = False,
    no_calibrate: bool = False,
    store: str | None = None,
    options: Embedding = EmbedOptions(),
    as_json: Json = False,
) -> None:
    """Make videos searchable, or bring an index up to date: only new and changed videos are embedded.

    An interrupted run resumes if the same command is run again. docs/search.md describes the folder.
    Under torchrun all processes share the work.

    Args:
        choice: which videos to use.
        checkpoint: a run, an encoder folder, a checkpoint or hf:OWNER/NAME; not needed for an existing index.
        backbone: use this frozen network without pretraining (efficientnet_motion, hf:OWNER/NAME, timm:NAME,
            a folder, FILE.onnx or package.module:name); the encoder projects onto its principal axes on these
            videos.
        out: folder of the index.
        prune: remove videos from the index if their files are gone; with --part, also those of other parts.
        no_calibrate: do not calibrate match probabilities, even if there are labels.
        store: where to keep the rows of a new index, such as postgresql://user@host/database or
            s3://bucket/folder; in its folder if not given. Passwords come from the environment or ~/.pgpass.
        options: how videos are embedded.
    """
    from provico.processes import join, keep_freed_memory
    from provico.progress import progress_bar, silent
    from provico.search.open_or_create import open_or_create, remove_if_empty
    from provico.show import show_added

    keep_freed_memory()
    videos = functools.cache(lambda: open_choice(choice))  # after the index, whose errors come first
    with join(options.device) as processes, progress_bar("Indexing") as progress:

        def untrained(name: str) -> Encoder:
            from provico.training.start import untrained_encoder

            announce(f"Computing the principal axes of {len(videos()):,} videos; nothing is trained.")
            return untrained_encoder(
                name,
                videos(),
                num_clips=options.clips_of_a_video,
                short_side=options.short_side,
                num_workers=processes.num_readers(options.num_workers),
                device=processes.device,
                max_broken_share=1.0,
                progress=progress,
            )

        opened = processes.first_then_all(
            lambda: open_or_create(
                out,
                checkpoint,
                untrained=None if backbone is None else (backbone, lambda: untrained(backbone)),
                num_clips=options.num_clips,
                short_side=options.short_side,
                store=store,
                allow_import=options.allow_import,
            )
        )
        try:
            report = opened.add(
                videos(),
                prune=prune,
                num_workers=processes.num_readers(options.num_workers),
                device=processes.device,
                progress=progress if processes.is_first else silent,
                processes=processes,
            )
        except ProvicoError:
            if processes.is_first:
                remove_if_empty(opened)
            raise
    if not processes.is_first:
        return
    opened.keep_chance()
    if report.has_changed and not no_calibrate:
        try:
            opened.calibrate()
        except ConfigError as error:
            announce(f"Not calibrated: {error}")
    give(report, show_added, as_json=as_json)


def search(
    index: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="INDEX...")],
    queries: Annotated[tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="QUERY...")],
    *,
    k: int = 10,
    max_chance: float = MAX_CHANCE,
    min_probability: float | None = None,
    max_error: float | None = None,
    span: str | None = None,
    like: tuple[str, ...] = (),
    unlike: tuple[str, ...] = (),
    metric: str = "match",
    label: tuple[str, ...] = (),
    group: tuple[str, ...] = (),
    subset: tuple[str, ...] = (),
    max_uncertainty: float | None = None,
    min_seconds: float | None = None,
    max_seconds: float | None = None,
    exclude_same: Literal["nothing", "video", "group"] = "video",
    in_engine: bool = False,
    allow_import: bool = False,
    as_json: Json = False,
) -> None:
    """Find the videos with the highest match probability in one or more indexes, by exact search.

    Args:
        index: folder of the index. More may follow, which are searched as one: folders, and
            postgresql://user@host/database[#name] for an index that was made with --store.
        queries: ids of indexed videos, or video files; or words, if the encoder's network has a text tower
            (docs/moments.md).
        k: how many videos to find for each query.
        max_chance: drop hits that more than this many unrelated videos are expected to match as well by
            chance; inf keeps all.
        min_probability: drop hits with a lower probability of being right; needs labels or judgements.
        max_error: leave queries unanswered so that at most this share of the answers is wrong, such as 0.1,
            with 95 % confidence; `provico select` says how many hits must be judged for that.
        span: search with only this part of each query, such as 0:10-0:20 or 65.5-70.
        like: in a search by words, also rank by the resemblance to these indexed videos.
        unlike: in a search by words, rank down what resembles these indexed videos or words.
        metric: what to rank by: match, the match probability; cosine; or a name of DISTANCES, such as
            bhattacharyya.
        label: find only videos with one of these labels.
        group: find only videos of these recordings.
        subset: find only videos of train, val or test.
        max_uncertainty: find only videos of at most this uncertainty.
        min_seconds: find only videos that are at least this long.
        max_seconds: find only videos that are at most this long.
        exclude_same: exclude an indexed query itself; with group, its whole group.
        in_engine: let PostgreSQL find the candidates, instead of loading the index into memory.
        allow_import: allow the encoder to import a network by name, which runs its code.
    """
    more = parts_among(queries)
    indexes, queries = (index, *more), queries[len(more) :]
    if not (queries or like):
        raise ConfigError(
            "There is nothing to search for. Give the id of an indexed video, a video file, or words."
        )
    part = None if span is None else parse_span(span)
    announce(f"Opening {', '.join(map(str, indexes))}.")
    # What is imported takes longer than the search.
    from provico.progress import progress_bar
    from provico.search.index import Index as OneIndex
    from provico.search.parts import open_indexes
    from provico.search.query import Filter
    from provico.show import show_answer, show_words

    opened = open_indexes(indexes, in_engine=in_engine, allow_import=allow_import)
    chosen = Filter(
        labels=label or None,
        groups=group or None,
        subsets=subset or None,
        max_uncertainty=max_uncertainty,
        min_seconds=min_seconds,
        max_seconds=max_seconds,
    )
    if isinstance(opened, OneIndex) and (like or unlike or _are_words(opened, queries)):
        found = opened.search_words(
            *queries, like=like, unlike=unlike, k=k, max_chance=max_chance, filter=chosen
        )
        if as_json:
            print_json([found.summary()])
        else:
            show_words(found)
        return
    if like or unlike:
        raise ConfigError("--like and --unlike search one index. Name only one.")
    with progress_bar("Embedding queries") as progress:
        answers = opened.search_many(
            [query if part is None else (query, *part) for query in queries],
            k=k,
            metric=metric,
            max_chance=max_chance,
            min_probability=min_probability,
            max_error=max_error,
            filter=chosen,
            exclude_same=exclude_same,
            progress=progress,
        )
    if as_json:
        print_json([answer.summary() for answer in answers])
        return
    announce(f"{len(opened):,} videos in {', '.join(indexes)}")
    for answer in answers:
        show_answer(answer, opened)
    if max_error is not None:
        announce(opened.promise(max_error).in_words())


def cut(
    video: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="VIDEO")],
    *,
    span: str,
    out: Path,
    re_encode: bool = False,
    as_json: Json = False,
) -> None:
    """Write a part of a video, such as a moment that was found, as a file, exact to the frame.

    Packets are copied where the part lies between keyframes, and re-encoded elsewhere. Audio is dropped.

    Args:
        video: a video file.
        span: start and end, such as 0:10-0:20 or 65.5-70.
        out: file to write; .mp4, .mkv or .mov.
        re_encode: re-encode even where packets could be copied.
    """
    import dataclasses

    from provico.data.frames.cut import cut_video
    from provico.data.library import Library

    start, end = parse_span(span)
    done = cut_video(video, out, start, end, index=Library().index(video), re_encode=re_encode)
    if as_json:
        print_json(dataclasses.asdict(done) | {"path": str(done.path)})
        return
    how = "copied" if done.is_copy else "re-encoded"
    print(f"{done.num_frames:,} frames, {done.start_seconds:.2f} to {done.end_seconds:.2f} s, {how}: {out}")


def _are_words(index: Index, queries: tuple[str, ...]) -> bool:
    """Whether none of the queries is a video, and the index knows words."""
    knows_words = index.settings.words_dim is not None
    return knows_words and not any(query in index or Path(query).is_file() for query in queries)


def parse_span(text: str) -> tuple[float, float]:
    """Start and end in seconds of "0:10-0:20", "1:02:03-1:02:04.5" or "65.5-70"."""
    found = re.fullmatch(f"({_TIME})-({_TIME})", text.strip())
    if found is None:
        raise ConfigError(
            f"--span is {text!r}, but it must be a start and an end, such as 0:10-0:20 or 65.5-70."
        )
    start, end = (_seconds(time) for time in found.groups())
    return start, end


def _seconds(time: str) -> float:
    seconds = 0.0
    for part in time.split(":"):
        seconds = 60 * seconds + float(part)
    return seconds


def select(
    index: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="INDEX")],
    *,
    num: int = 50,
    by_lot: bool = False,
    max_error: float = 0.1,
    out: Path | None = None,
    as_json: Json = False,
) -> None:
    """Choose hits to judge: the most informative ones, or a random draw for a guarantee.

    Args:
        index: folder of the index.
        num: how many queries to choose, each from a different recording.
        by_lot: draw them at random, for `provico search --max-error`, and store the draw with the index.
        max_error: the share of wrong answers to guarantee with the draw.
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
        announce(f"{len(found)} queries written to {out}: write right or wrong in each row.")
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
    """Import judgements of hits from a csv file, and calibrate the index with them.

    Args:
        index: folder of the index.
        judgements: a csv file with the columns query, hit and verdict (right or wrong); lines without a
            verdict are ignored.
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


def calibrate(
    index: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="INDEX")],
    *,
    source: Literal["auto", "judgements", "labels"] = "auto",
    k: int = 10,
    num_queries: int = CALIBRATION_QUERIES,
    as_json: Json = False,
) -> None:
    """Measure how often the hits of an index are right, by labels or judgements, and store the result.

    Args:
        index: folder of the index.
        source: judgements uses those of `provico judge` and of the page; labels counts a hit as right if it
            has the query's label; auto uses judgements if there are enough.
        k: hits per query that are counted, with labels.
        num_queries: use at most this many videos of the index as queries.
    """
    from provico.search.index import Index
    from provico.show import show_calibration

    found = Index.open(index).calibrate(source=source, k=k, num_queries=num_queries)
    if as_json:
        print_json(found.to_dict())
    else:
        show_calibration(found)
