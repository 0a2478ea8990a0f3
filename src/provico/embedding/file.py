"""A file of embeddings: one row per video, and a header that identifies the encoder.

docs/embeddings.md describes the format.
"""

from __future__ import annotations

import dataclasses
import json
import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from provico.data.catalog import Video
from provico.defaults import MAX_CLIPS, MAX_SHORT_SIDE
from provico.embedding.embeddings import Embeddings
from provico.errors import ConfigError, EmbeddingFileError
from provico.files import ARCHIVE_ERRORS
from provico.models.encoder import Encoder, encoder_hash
from provico.models.encoder_config import EncoderConfig
from provico.probability.gaussian import Gaussian
from provico.probability.mixture import Mixture
from provico.typed_json import build

TEXT = ("id", "path", "label", "group", "subset")
"""Columns of text; all but the first two may be empty."""
NUMBERS: dict[str, type[np.generic]] = {
    "num_bytes": np.int64,
    "modified_ns": np.int64,
    "uncertainty": np.float32,
    "disagreement": np.float32,
    "mean": np.float32,
    "log_var": np.float32,
    "start_seconds": np.float64,
    "end_seconds": np.float64,
    "clip_mean": np.float32,
    "clip_log_var": np.float32,
}
"""Numeric columns and their types."""
COLUMNS = (*TEXT, *NUMBERS)
"""Every column, in order; docs/embeddings.md says what they mean."""

Columns = dict[str, Any]
"""Some rows: for each column a list of text and None, or an array with a row for each video."""

HEADER = "provico"
"""The key of the header in the metadata of a .parquet, and the name of its array in an .npz."""


@dataclass(frozen=True)
class FileFormat:
    """How a file is written and read."""

    write: Callable[[Path, str, Iterable[Columns], int, Path], None]
    """path, header, rows, number of rows, and a folder for temporary files."""
    read_header: Callable[[Path], str]
    read: Callable[[Path, Sequence[str]], Iterator[Columns]]
    """The columns of these names, some rows at a time."""


# --- parquet -----------------------------------------------------------------------------------------------


def _write_parquet(path: Path, header: str, chunks: Iterable[Columns], num_rows: int, scratch: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    def table(columns: Columns) -> Any:
        arrays = {name: pa.array(columns[name], pa.string()) for name in TEXT}
        arrays |= {name: _nested(columns[name].astype(kind)) for name, kind in NUMBERS.items()}
        return pa.table(arrays).replace_schema_metadata({HEADER: header})

    tables = map(table, chunks)
    first = next(tables)
    # A dictionary does not help for numbers that never repeat.
    with pq.ParquetWriter(path, first.schema, compression="zstd", use_dictionary=list(TEXT[2:])) as writer:
        for rows in chain([first], tables):
            writer.write_table(rows)  # one row group each


def _nested(values: NDArray[Any]) -> Any:
    """An array of several axes as lists of fixed size."""
    import pyarrow as pa

    array = pa.array(values.reshape(-1))
    for size in reversed(values.shape[1:]):
        array = pa.FixedSizeListArray.from_arrays(array, size)
    return array


def _read_parquet_header(path: Path) -> str:
    import pyarrow.parquet as pq

    return str(pq.read_schema(path).metadata[HEADER.encode()].decode())


def _read_parquet(path: Path, names: Sequence[str]) -> Iterator[Columns]:
    import pyarrow.parquet as pq

    with pq.ParquetFile(path) as file:
        for number in range(file.num_row_groups):
            rows = file.read_row_group(number, columns=list(names))
            yield {
                name: rows[name].to_pylist() if name in TEXT else _flat(rows[name].combine_chunks())
                for name in names
            }


def _flat(array: Any) -> NDArray[Any]:
    """The inverse of `_nested`."""
    import pyarrow as pa

    shape = [len(array)]
    while pa.types.is_fixed_size_list(array.type):
        shape.append(array.type.list_size)
        array = array.flatten()
    numbers: NDArray[Any] = array.to_numpy().reshape(shape)
    return numbers


# --- npz ---------------------------------------------------------------------------------------------------


def _write_npz(path: Path, header: str, chunks: Iterable[Columns], num_rows: int, scratch: Path) -> None:
    """Write one file per column, then combine them: an .npz is an archive of such files."""
    words: dict[str, list[str]] = {name: [] for name in TEXT}
    numbers: dict[str, NDArray[Any]] = {}
    place = 0
    for columns in chunks:
        for name in TEXT:
            words[name] += [word or "" for word in columns[name]]
        for name, kind in NUMBERS.items():
            rows = columns[name]
            if name not in numbers:
                shape = (num_rows, *rows.shape[1:])
                file = scratch / f"{name}.npy"
                numbers[name] = np.lib.format.open_memmap(file, "w+", np.dtype(kind), shape)
            numbers[name][place : place + len(rows)] = rows
        place += len(columns["id"])
    numbers.clear()  # flushes to disk
    for name in TEXT:
        np.save(scratch / f"{name}.npy", np.array(words[name]))
    np.save(scratch / f"{HEADER}.npy", np.array(header))
    with zipfile.ZipFile(path, "w") as archive:
        for name in (HEADER, *COLUMNS):
            archive.write(scratch / f"{name}.npy", f"{name}.npy")
            (scratch / f"{name}.npy").unlink()


def _read_npz_header(path: Path) -> str:
    with path.open("rb") as file, np.load(file, allow_pickle=False) as stored:
        return str(stored[HEADER])


def _read_npz(path: Path, names: Sequence[str]) -> Iterator[Columns]:
    with path.open("rb") as file, np.load(file, allow_pickle=False) as stored:
        yield {
            name: [word or None for word in stored[name].tolist()] if name in TEXT else stored[name]
            for name in names
        }


FORMATS = {
    ".parquet": FileFormat(_write_parquet, _read_parquet_header, _read_parquet),
    ".npz": FileFormat(_write_npz, _read_npz_header, _read_npz),
}
"""Every format by its suffix."""


FORMAT_VERSION = 2
"""To be raised if the meaning of a column changes."""


@dataclass(frozen=True, kw_only=True)
class EmbeddingHeader:
    """The header of a file of embeddings."""

    encoder_hash: str
    """The hash of the encoder; see `provico.models.encoder_hash`."""
    encoder_config: EncoderConfig
    match_curve: dict[str, float]
    """a, b and sigmoid_scale, which define the match probability."""
    num_clips: int
    short_side: int
    provico_version: str
    failed: tuple[tuple[str, str], ...] = ()
    """Ids of the videos that could not be read, with the reasons."""
    format_version: int = FORMAT_VERSION

    @classmethod
    def of(cls, encoder: Encoder, *, num_clips: int, short_side: int | None = None) -> EmbeddingHeader:
        """The header for this encoder and number of clips."""
        curve = encoder.match_curve()
        return cls(
            encoder_hash=encoder_hash(encoder),
            encoder_config=encoder.config,
            match_curve={
                "a": float(curve.a.detach()),
                "b": float(curve.b.detach()),
                "sigmoid_scale": curve.sigmoid_scale,
            },
            num_clips=num_clips,
            short_side=encoder.config.short_side if short_side is None else short_side,
            provico_version=version("provico"),
        )

    def check_same(self, other: EmbeddingHeader, *, of: Path) -> None:
        """Raise an error if embeddings cannot be mixed; `of` is the path of the other header."""
        differences = [
            f"{words} {getattr(other, name)} instead of {getattr(self, name)}"
            for name, words in (
                ("encoder_hash", "the encoder"),
                ("num_clips", "the number of clips"),
                ("short_side", "the short side"),
            )
            if getattr(self, name) != getattr(other, name)
        ]
        if differences:
            raise EmbeddingFileError(
                f"{of} cannot be resumed: it has {', '.join(differences)}. Choose another --out, or "
                "remove it first."
            )

    def to_json(self) -> str:
        """JSON text for `from_json`."""
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def from_json(cls, text: str) -> EmbeddingHeader:
        """The header in such a text; raises ValueError, KeyError or TypeError for other text."""
        values = json.loads(text)
        if not isinstance(values, dict) or not isinstance(values.get("format_version"), int):
            raise TypeError("it does not say its format")
        found = values["format_version"]
        if found != FORMAT_VERSION:
            advice = (
                "Update provico."
                if found > FORMAT_VERSION
                else "Embed the videos again with `provico embed`."
            )
            raise EmbeddingFileError(
                f"The embeddings are in format {found}, but this version of provico reads format "
                f"{FORMAT_VERSION}. {advice}"
            )
        config = EncoderConfig.from_json(json.dumps(values.pop("encoder_config")))
        header = build(cls, values | {"encoder_config": config})
        if not 1 <= header.num_clips <= MAX_CLIPS or not 1 <= header.short_side <= MAX_SHORT_SIDE:
            raise ValueError(f"it has {header.num_clips} clips of {header.short_side} pixels")
        if missing := {"a", "b", "sigmoid_scale"} - header.match_curve.keys():
            raise KeyError(min(missing))
        return header


def check_suffix(path: Path) -> None:
    """Raise an error unless the suffix is that of a known format."""
    if path.suffix not in FORMATS:
        raise ConfigError(
            f"{path.name} must end in {' or '.join(FORMATS)}, the formats for embeddings. Choose another "
            "--out."
        )


def path_text(path: Path) -> str:
    """A path as text for a column; undecodable bytes of folder names are escaped."""
    return str(path).encode(errors="backslashreplace").decode()


def columns_of(videos: Sequence[Video], clips: Columns) -> Columns:
    """All columns, from the videos and the data of their clips."""
    mixture = Mixture(Gaussian.from_numpy(clips["clip_mean"], clips["clip_log_var"]))
    return clips | {
        "id": [video.id for video in videos],
        "path": [path_text(video.path) for video in videos],
        "label": [video.label for video in videos],
        "group": [video.group for video in videos],
        "subset": [video.subset for video in videos],
        "uncertainty": mixture.uncertainty.numpy(),
        "disagreement": mixture.disagreement.numpy(),
        "mean": mixture.mean.numpy(),
        "log_var": mixture.moment_matched.log_var.numpy(),
    }


def read_header(path: Path | str) -> EmbeddingHeader:
    """Read the header of a file."""
    path = Path(path)
    check_suffix(path)
    with _reading(path):
        return EmbeddingHeader.from_json(FORMATS[path.suffix].read_header(path))


def iterate_columns(path: Path, names: Sequence[str] = COLUMNS) -> Iterator[Columns]:
    """The columns of these names, in blocks of rows; an .npz is read at once."""
    read_header(path)  # raises if it is not such a file
    with _reading(path):
        yield from FORMATS[path.suffix].read(path, names)


def read_columns(path: Path | str, names: Sequence[str] = COLUMNS) -> Columns:
    """The columns of these names: lists of str or None for text, arrays for numbers."""
    chunks = list(iterate_columns(Path(path), names))
    return {
        name: [word for chunk in chunks for word in chunk[name]]
        if name in TEXT
        else np.concatenate([chunk[name] for chunk in chunks])
        for name in names
    }


def read_embeddings(path: Path | str) -> Embeddings:
    """Read all videos of a file."""
    names = ("id", "label", "group", "start_seconds", "end_seconds", "clip_mean", "clip_log_var")
    columns = read_columns(path, names)
    clips = Gaussian.from_numpy(columns["clip_mean"], columns["clip_log_var"])
    seconds = np.stack([columns["start_seconds"], columns["end_seconds"]], axis=-1)
    return Embeddings(
        ids=tuple(columns["id"]),
        videos=Mixture(clips),
        labels=tuple(columns["label"]),
        groups=tuple(columns["group"]),
        failed=read_header(path).failed,
        clip_seconds=torch.from_numpy(seconds),
    )


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    try:
        yield
    except ARCHIVE_ERRORS as error:
        raise EmbeddingFileError(
            f"{path} cannot be read as embeddings ({error}). Give a file written by `provico embed`."
        ) from error
