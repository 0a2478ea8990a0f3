"""Videos of noise, and the embedding of a few of them into a file."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from provico.data.catalog import Catalog, open_catalog
from provico.data.frames.encode import write_video
from provico.data.library import Library
from provico.embedding.job import EmbedReport, embed_to_file
from provico.models import Encoder

NUM_VIDEOS = 6
NUM_CLIPS = 4
FORMATS = ["e.parquet", "e.npz"]


def write(path: Path, seed: int, num_frames: int = 20) -> None:
    rng = np.random.default_rng(seed)
    write_video(path, rng.integers(0, 256, (num_frames, 36, 48, 3), np.uint8))


def run(encoder: Encoder, data: Path | Catalog, out: Path, library: Library, **options: int) -> EmbedReport:
    catalog = data if isinstance(data, Catalog) else open_catalog(data)
    return embed_to_file(encoder, catalog, out, library=library, **{"num_clips": NUM_CLIPS, **options})
