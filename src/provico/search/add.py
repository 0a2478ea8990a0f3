"""Bringing an index up to date with a catalog: only what is new or has changed is computed.

A file that was moved, renamed, copied or touched is known again by its content, and not computed either. Rows
are committed some at a time, and only then reported as done: whatever kills the process, what was reported
stays, and the same call goes on from there.

Several processes, as torchrun starts them, share the work: the first plans, each embeds and commits its part,
the first tidies up.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from provico.data.catalog import Catalog, part_of
from provico.data.library import Library
from provico.embedding.driver import embed_batches
from provico.embedding.features import check_any
from provico.errors import VideoIndexError
from provico.files import Signature, content_hash
from provico.models.encoder import Encoder
from provico.processes import ALONE, Processes
from provico.progress import Progress, silent
from provico.renamed import moved_names
from provico.search.follow import Content, Names
from provico.search.row_writer import RowWriter, Wanted, sample_columns
from provico.search.store.folder import IndexFolder, IndexSettings
from provico.search.store.video_store import BLOBS, TEXT, Rows, VideoStore

ROWS_AT_ONCE = 256
"""How many rows are rewritten together when only words of them have changed."""

_WORDS = ("path", "label", "group", "subset")  # what the data say, which can change without the file


@dataclass(frozen=True, kw_only=True)
class AddReport:
    """What came of adding a catalog to an index."""

    path: Path
    num_videos: int
    """In the index now."""
    num_added: int
    """Were not in the index before."""
    num_changed: int
    """Files that had changed, and were embedded again."""
    num_relabelled: int
    """Files that had not changed but whose path, label, group, subset or time of change had."""
    num_recognised: int
    """Files that were moved, renamed or copied: their content was indexed under another id already."""
    num_unchanged: int
    vanished: tuple[str, ...]
    """Ids of indexed videos whose files are gone, or which belong to another part of the data set."""
    num_removed: int
    """How many of these were removed from the index."""
    failed: tuple[tuple[str, str], ...]
    """Ids of the videos that could not be read, with the reasons. They are not in the index."""

    @property
    def has_changed(self) -> bool:
        """Whether the index is not as it was."""
        return bool(
            self.num_added + self.num_changed + self.num_relabelled + self.num_recognised + self.num_removed
        )

    def summary(self) -> dict[str, Any]:
        """As plain values, for JSON."""
        return dataclasses.asdict(self) | {
            "path": str(self.path),
            "vanished": list(self.vanished),
            "failed": dict(self.failed),
        }


@dataclass(frozen=True)
class _Known:
    """A row of the index."""

    id: str
    row: int
    file: Signature
    content_hash: str
    preview: str
    words: Rows

    @property
    def content(self) -> Content:
        """Equal if the bytes of two files are equal."""
        return self.file.num_bytes, self.content_hash

    @property
    def is_gone(self) -> bool:
        """Whether its file no longer exists; unknown for a name that could not be written down as text."""
        path = self.words["path"]
        return "\\udc" not in path and not Path(path).exists()


@dataclass(frozen=True)
class _Plan:
    """What is to be done about each video of a catalog."""

    todo: list[Wanted]
    """To embed."""
    reused: list[tuple[Wanted, _Known]]
    """Their content is in the index, but with other words, another time of change or under another id."""
    vanished: list[str]
    """Ids of rows that are not in the catalog and whose files are gone."""
    moved: list[str]
    """Ids of rows of that kind whose files were found elsewhere."""
    renamed: dict[str, str]
    """What videos are called now whose content was under another id before, and is no longer."""
    indexed: frozenset[str]
    """Ids that need not be embedded."""
    names: Names
    """What logs call the videos."""


def add_videos(
    folder: IndexFolder,
    settings: IndexSettings,
    encoder: Encoder,
    catalog: Catalog,
    *,
    prune: bool = False,
    num_workers: int = 0,
    device: torch.device | str | None = None,
    library: Library | None = None,
    progress: Progress = silent,
    processes: Processes = ALONE,
) -> AddReport:
    """Add a catalog to an index; see `Index.add`."""
    library = library or Library()
    if parts := [video.id for video in catalog if video.span is not None]:
        raise VideoIndexError(
            f"An index holds whole files, but {len(parts)} of {len(catalog)} videos are only a part of one, "
            f"such as {parts[0]}. Give whole files; --span searches for a part of one."
        )
    with folder.changing(settings, processes) as store:
        known: dict[str, _Known] = {}
        plan: _Plan | None = None
        if processes.is_first:
            known = _known(store)
            folder.remove_orphans({row.preview for row in known.values()})
            plan = _make_plan(catalog, known, folder.path)
            with plan.names.changing(plan.renamed, indexed=plan.indexed, vanished=plan.vanished):
                _reuse(store, settings, plan.reused)
                store.remove(plan.moved)
        # Only the first has looked at the files, so that all speak of the same ones.
        todo = processes.gather([] if plan is None else plan.todo)[0]
        mine = todo[processes.rank :: processes.world_size]
        writer = RowWriter(folder, store, settings, library, num_threads=max(1, num_workers))
        batches = embed_batches(
            encoder,
            dataclasses.replace(catalog, videos=tuple(one.video for one in mine)),
            num_clips=settings.embedding.num_clips,
            short_side=settings.embedding.short_side,
            num_workers=num_workers,
            device=device,
            max_broken_share=1.0,
            library=library,
            timelines=True,
        )
        writer.take_all(batches, {one.video.id: one for one in mine}, progress)
        failed = {name: why for part in processes.gather(writer.failed) for name, why in part.items()}
        report: AddReport | None = None
        if plan is not None:
            plan.names.end(
                indexed={one.video.id for one in todo} - failed.keys(),
                failed={name: known[name].content for name in failed if name in known},
            )
            # What the index says of a file that has changed and can no longer be read is no longer true.
            store.remove([name for name in failed if name in known])
            if prune:
                store.remove(plan.vanished)
                plan.names.settle()
            if todo or plan.reused or (prune and plan.vanished):
                store.tidy()
            with closing(folder.open_store(settings)) as newest:
                num_videos = len(newest.ids)
            report = _report(folder.path, catalog, known, plan, failed, num_videos=num_videos, prune=prune)
        report = processes.gather(report)[0]
        assert report is not None
    check_any(len(catalog) - len(failed), catalog, failed)
    return report


def _known(store: VideoStore) -> dict[str, _Known]:
    rows = store.read(("num_bytes", "modified_ns", "content_hash", "preview", *_WORDS))
    files = map(Signature, rows["num_bytes"].tolist(), rows["modified_ns"].tolist())
    return {
        name: _Known(
            name,
            row,
            file,
            rows["content_hash"][row],
            rows["preview"][row],
            {word: rows[word][row] for word in _WORDS},
        )
        for row, (name, file) in enumerate(zip(store.ids, files, strict=True))
    }


def _make_plan(catalog: Catalog, known: dict[str, _Known], index: Path) -> _Plan:
    wanted = [Wanted(video, Signature.of(video.path)) for video in catalog]
    _check_same_files(wanted, known)
    by_content: dict[tuple[int, str], _Known] = {}
    for there in known.values():
        by_content.setdefault(there.content, there)
    ids = {one.video.id for one in wanted}
    names = Names(
        index, {name: there.content for name, there in known.items() if name in ids or there.is_gone}
    )
    sizes = {num_bytes for num_bytes, _ in (*by_content, *names.contents.values())}
    todo, reused = [], []
    contents: dict[str, Content] = {}
    for one in wanted:
        row: _Known | None = known.get(one.video.id)
        if row is None or row.file != one.file:
            content = _content(one) if one.file.num_bytes in sizes else None
            if content is not None:
                contents[one.video.id] = content
                row = row if row is not None and row.content == content else by_content.get(content)
            else:
                row = None
        else:
            contents[one.video.id] = row.content
        if row is None:
            todo.append(one)
        elif (row.id, row.file, row.words) != (one.video.id, one.file, one.words):
            reused.append((one, row))

    def elsewhere_now(there: _Known) -> bool:
        number, num_parts = catalog.part or (1, 1)
        return part_of(there.id, there.words["group"], num_parts) != number

    gone = sorted(
        name for name, there in known.items() if name not in ids and (there.is_gone or elsewhere_now(there))
    )
    elsewhere = {there.id for one, there in reused if there.id != one.video.id}
    may_have_left = {
        name: content
        for name, content in names.contents.items()
        if name in ids or not (catalog.root / name).exists()  # of a part, others are there
    }
    return _Plan(
        todo,
        reused,
        vanished=[name for name in gone if name not in elsewhere],
        moved=[name for name in gone if name in elsewhere],
        renamed=moved_names(may_have_left, contents),
        indexed=frozenset(ids - {one.video.id for one in todo}),
        names=names,
    )


def _content(one: Wanted) -> Content | None:
    """What is in a file; None if it cannot be read, or is being written."""
    try:
        content = content_hash(one.video.path)
    except OSError:
        return None  # embedding it will say why
    return (one.file.num_bytes, content) if Signature.of(one.video.path) == one.file else None


def _check_same_files(wanted: Sequence[Wanted], known: dict[str, _Known]) -> None:
    """Ids are relative to the root of their catalog, so those of two folders can be the same."""
    for one in wanted:
        row = known.get(one.video.id)
        if row is None or row.words["path"] == one.words["path"]:
            continue
        paths = Path(row.words["path"]), one.video.path
        if all(path.exists() for path in paths) and not paths[0].samefile(paths[1]):
            raise VideoIndexError(
                f"{one.video.id} is in the index already as {row.words['path']}, which is another file than "
                f"{one.video.path}. Give a folder above both of them as DATA, or use one index for each."
            )


def _reuse(store: VideoStore, settings: IndexSettings, pairs: Sequence[tuple[Wanted, _Known]]) -> None:
    """Write rows anew with what the data say now; what the encoder says of their content stays."""
    names = [*TEXT, *settings.columns, *BLOBS]
    for first in range(0, len(pairs), ROWS_AT_ONCE):
        part = pairs[first : first + ROWS_AT_ONCE]
        # Of the version that was opened, so that it does not matter what was written meanwhile.
        rows = store.read(names, [there.row for _, there in part])
        rows |= {word: [one.words[word] for one, _ in part] for word in _WORDS}
        rows["id"] = [one.video.id for one, _ in part]
        rows["modified_ns"] = rows["modified_ns"].copy()
        rows["modified_ns"][:] = [one.file.modified_ns for one, _ in part]
        # Samples follow from the id.
        store.write(rows | sample_columns(rows, settings))


def _report(
    path: Path,
    catalog: Catalog,
    known: dict[str, _Known],
    plan: _Plan,
    failed: dict[str, str],
    *,
    num_videos: int,
    prune: bool,
) -> AddReport:
    num_changed = sum(one.video.id in known and one.video.id not in failed for one in plan.todo)
    num_recognised = sum(one.video.id != row.id for one, row in plan.reused)
    return AddReport(
        path=path,
        num_videos=num_videos,
        num_added=len(plan.todo) - num_changed - len(failed),
        num_changed=num_changed,
        num_relabelled=len(plan.reused) - num_recognised,
        num_recognised=num_recognised,
        num_unchanged=len(catalog) - len(plan.todo) - len(plan.reused),
        vanished=tuple(plan.vanished),
        num_removed=len(plan.vanished) if prune else 0,
        failed=tuple(failed.items()),
    )
