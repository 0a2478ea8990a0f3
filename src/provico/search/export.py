"""An index as a file for other programs.

csv        a line a video, without the distributions
parquet    what `provico embed` writes: distributions of videos and clips (docs/embeddings.md)
fiftyone   a folder that FiftyOne's importer of its own JSON format reads; videos stay where they are
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from provico.embedding.file import COLUMNS, FORMATS
from provico.errors import OutputExistsError, VideoIndexError
from provico.files import replacing
from provico.search.store.folder import IndexFolder, IndexSettings
from provico.search.store.video_store import Rows, VideoStore

ROWS_AT_ONCE = 256
CSV_COLUMNS = (
    *("id", "path", "label", "group", "subset", "duration_seconds"),
    *("uncertainty", "disagreement", "num_bytes", "modified_ns", "content_hash", "preview"),
)


def export_index(path: Path | str, out: Path | str, *, format: str) -> int:
    """Write all videos of an index, in the order of their ids; how many.

    format: a name of `TABLES`.
    """
    folder, out = IndexFolder(Path(path)), Path(out)
    settings = folder.read_settings()
    if out.exists():
        raise OutputExistsError(f"{out} exists already. Choose another --out, or remove it.")
    try:
        with closing(folder.open_store(settings)) as store:
            out.parent.mkdir(parents=True, exist_ok=True)
            with replacing(out) as partial:
                TABLES[format](partial, store, settings, folder.previews)
            return len(store.ids)
    except OSError as error:
        raise VideoIndexError(f"{out} cannot be written ({error.strerror}).") from error


def _write_csv(out: Path, store: VideoStore, settings: IndexSettings, previews: Path) -> None:
    with out.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, CSV_COLUMNS)
        writer.writeheader()
        for rows in _chunks(store, CSV_COLUMNS):
            writer.writerows(row | {"preview": str(previews / row["preview"])} for row in _each(rows))


def _write_parquet(out: Path, store: VideoStore, settings: IndexSettings, previews: Path) -> None:
    if not store.ids:
        raise VideoIndexError("The index has no videos, so there is nothing to export. Add some first.")
    rows = _chunks(store, COLUMNS)
    FORMATS[".parquet"].write(out, settings.embedding.to_json(), rows, len(store.ids), out.parent)


def _write_fiftyone(out: Path, store: VideoStore, settings: IndexSettings, previews: Path) -> None:
    """Its older layout, which its importer knows by metadata without a version.

    The newer one is a copy of its database, which changes with its versions.
    """
    (out / "frames").mkdir(parents=True)
    # Every video needs a file of labels of frames, and none has any.
    (out / "frames" / "none.json").write_text(json.dumps({"frames": {}}))
    info = {
        "description": f"Videos embedded by the encoder {settings.embedding.encoder_hash}",
        "match_curve": settings.embedding.match_curve,
    }
    metadata = {"name": previews.resolve().parent.name, "media_type": "video", "info": info}
    (out / "metadata.json").write_text(json.dumps(metadata, indent=1))
    separator = ""
    with (out / "samples.json").open("w", encoding="utf-8") as file:
        file.write('{"samples": [')
        for rows in _chunks(store, (*CSV_COLUMNS, "mean")):
            for row in _each(rows):
                file.write(separator + json.dumps(_fiftyone_sample(row, previews)))
                separator = ",\n"
        file.write("]}\n")


def _fiftyone_sample(row: Rows, previews: Path) -> dict[str, Any]:
    label = None if row["label"] is None else {"_cls": "Classification", "label": row["label"]}
    return {
        "filepath": row["path"],
        "tags": [row["subset"]] if row["subset"] else [],
        "metadata": {
            "_cls": "VideoMetadata",
            "size_bytes": row["num_bytes"],
            "duration": row["duration_seconds"],
        },
        "ground_truth": label,
        "video_id": row["id"],
        "recording": row["group"],
        "uncertainty": row["uncertainty"],
        "disagreement": row["disagreement"],
        "embedding": row["mean"],
        "preview": str(previews / row["preview"]),
        "frames": "frames/none.json",
    }


Table = Callable[[Path, VideoStore, IndexSettings, Path], None]
TABLES: dict[str, Table] = {"csv": _write_csv, "parquet": _write_parquet, "fiftyone": _write_fiftyone}
"""How each format is written: file or folder, rows, settings, folder of previews."""


def _chunks(store: VideoStore, names: Sequence[str]) -> Iterator[Rows]:
    """Some rows at a time, so that an export may be larger than memory."""
    for first in range(0, len(store.ids), ROWS_AT_ONCE):
        yield store.read(names, range(first, min(first + ROWS_AT_ONCE, len(store.ids))))


def _each(rows: Rows) -> Iterator[Rows]:
    """Row by row, as plain values."""
    columns = [values if isinstance(values, list) else values.tolist() for values in rows.values()]
    for values in zip(*columns, strict=True):
        yield dict(zip(rows, values, strict=True))
