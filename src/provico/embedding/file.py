"""A file of embeddings: one row a video, and a header that says which encoder made them.

docs/embeddings.md describes it for those who read it by other means.
"""

from __future__ import annotations

import dataclasses
import json
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import numpy as np
import torch

from provico.data.catalog import Video
from provico.embedding.embeddings import Embeddings
from provico.embedding.formats import COLUMNS, FORMATS, TEXT, Columns
from provico.errors import ConfigError, EmbeddingFileError
from provico.models.encoder import Encoder, encoder_hash
from provico.models.encoder_config import EncoderConfig
from provico.probability.gaussian import Gaussian
from provico.probability.mixture import Mixture

FORMAT_VERSION = 2
"""Raised when a column comes to mean something else."""


@dataclass(frozen=True, kw_only=True)
class EmbeddingHeader:
    """What a file of embeddings says of itself."""

    encoder_hash: str
    """Which encoder; see `provico.models.encoder_hash`."""
    encoder_config: EncoderConfig
    match_curve: dict[str, float]
    """a, b and sigmoid_scale, from which the match probability follows."""
    num_clips: int
    short_side: int
    provico_version: str
    failed: tuple[tuple[str, str], ...] = ()
    """Ids of the videos that could not be read, with the reasons."""
    format_version: int = FORMAT_VERSION

    @classmethod
    def of(cls, encoder: Encoder, *, num_clips: int, short_side: int | None = None) -> EmbeddingHeader:
        """For what this encoder makes of so many clips."""
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
        """Refuse to mix embeddings that cannot be compared; `of` is where the other header was found."""
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
        """As text that `from_json` reads."""
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def from_json(cls, text: str) -> EmbeddingHeader:
        """The header in such a text; raises ValueError, KeyError or TypeError for another text."""
        values = json.loads(text)
        found = values["format_version"]
        if found != FORMAT_VERSION:
            advice = "Update provico." if found > FORMAT_VERSION else "Make them anew with `provico embed`."
            raise EmbeddingFileError(
                f"The embeddings are in format {found}, but this version of provico knows format "
                f"{FORMAT_VERSION}. {advice}"
            )
        config = EncoderConfig.from_json(json.dumps(values.pop("encoder_config")))
        failed = tuple((str(name), str(reason)) for name, reason in values.pop("failed"))
        return cls(encoder_config=config, failed=failed, **values)


def check_suffix(path: Path) -> None:
    """Refuse a name that does not say which format is meant."""
    if path.suffix not in FORMATS:
        raise ConfigError(
            f"{path.name} must end in {' or '.join(FORMATS)}, the formats for embeddings. Choose another "
            "--out."
        )


def path_text(path: Path) -> str:
    """A path as a column holds it: ids are always text, but the folder above may have a name that is none."""
    return str(path).encode(errors="backslashreplace").decode()


def columns_of(videos: Sequence[Video], clips: Columns) -> Columns:
    """Every column, from the videos and what is computed of their clips."""
    mixture = Mixture(Gaussian(torch.from_numpy(clips["clip_mean"]), torch.from_numpy(clips["clip_log_var"])))
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
    """What a file says of itself."""
    path = Path(path)
    check_suffix(path)
    with _reading(path):
        return EmbeddingHeader.from_json(FORMATS[path.suffix].read_header(path))


def iterate_columns(path: Path, names: Sequence[str] = COLUMNS) -> Iterator[Columns]:
    """The columns of these names, some rows at a time; all at once from an .npz, which has no rows."""
    read_header(path)  # refuses what is no such file
    with _reading(path):
        yield from FORMATS[path.suffix].read(path, names)


def read_columns(path: Path | str, names: Sequence[str] = COLUMNS) -> Columns:
    """The columns of these names: lists of words or None for text, arrays for numbers."""
    chunks = list(iterate_columns(Path(path), names))
    return {
        name: [word for chunk in chunks for word in chunk[name]]
        if name in TEXT
        else np.concatenate([chunk[name] for chunk in chunks])
        for name in names
    }


def read_embeddings(path: Path | str) -> Embeddings:
    """All videos of a file."""
    names = ("id", "label", "group", "start_seconds", "end_seconds", "clip_mean", "clip_log_var")
    columns = read_columns(path, names)
    clips = Gaussian(torch.from_numpy(columns["clip_mean"]), torch.from_numpy(columns["clip_log_var"]))
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
    except (OSError, KeyError, TypeError, ValueError, zipfile.BadZipFile) as error:
        raise EmbeddingFileError(
            f"{path} cannot be read as embeddings ({error}). A file that `provico embed` wrote is needed."
        ) from error
