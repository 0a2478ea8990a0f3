"""An adapter of encoders to mteb, for its video benchmark (MVEB) and its other video tasks.

    import mteb
    from provico import open_encoder
    from provico.evaluation.mteb_adapter import MtebEncoder

    model = MtebEncoder(open_encoder("run"), "me/my-encoder")
    mteb.evaluate(model, mteb.get_tasks(tasks=["UCF101VideoClustering"]))

A video is embedded from its own file, as by `provico embed`, not from frames chosen by others. Similarity is
the cosine of means.
"""

from __future__ import annotations

import dataclasses
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, as_tensor

from provico.data.catalog import Catalog, Video
from provico.defaults import TEST_CLIPS
from provico.embedding.driver import embed
from provico.errors import ConfigError
from provico.extras import require
from provico.models.encoder import Encoder

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import ArrayLike

VIDEOS_AT_ONCE = 64
"""Videos that are in temporary files at once, for data sets that contain the files."""


class MtebEncoder:
    """Follows `mteb.models.EncoderProtocol` for tasks whose only modality is video."""

    def __init__(
        self, encoder: Encoder, name: str, *, num_clips: int = TEST_CLIPS, num_workers: int = 0
    ) -> None:
        """Wrap an encoder.

        name: owner/name, under which mteb stores the results.
        num_clips: evenly spaced clips of each video.
        num_workers: processes that read ahead.
        """
        self.encoder, self.name = encoder, name
        self.num_clips, self.num_workers = num_clips, num_workers

    def encode(self, inputs: Any, **_: Any) -> NDArray[np.float32]:
        """The mean of each video, in the order of the data set.

        inputs: the DataLoader of mteb, with a column "video" of its data set.
        """
        dataset = inputs.dataset
        if set(dataset.features) & {"video", "text", "image", "audio"} != {"video"}:
            raise ConfigError(
                f"The task has the columns {', '.join(dataset.features)}, but this encoder takes only "
                "videos. Choose "
                'tasks with modalities=["video"].'
            )
        files = dataset.cast_column("video", dataclasses.replace(dataset.features["video"], decode=False))
        parts = []
        for first in range(0, len(files), VIDEOS_AT_ONCE):
            rows = range(first, min(first + VIDEOS_AT_ONCE, len(files)))
            with tempfile.TemporaryDirectory() as folder:
                videos = tuple(_videos((files[row]["video"] for row in rows), Path(folder)))
                found = embed(
                    self.encoder,
                    Catalog(Path(folder), "folder", videos),
                    num_clips=self.num_clips,
                    num_workers=self.num_workers,
                    max_broken_share=0.0,  # a benchmark needs a row for each video
                )
            parts.append(found.videos.mean.numpy())
        return np.concatenate(parts)

    def similarity(self, embeddings1: ArrayLike, embeddings2: ArrayLike) -> Tensor:
        """Cosines between all rows."""
        return _unit(embeddings1) @ _unit(embeddings2).T

    def similarity_pairwise(self, embeddings1: ArrayLike, embeddings2: ArrayLike) -> Tensor:
        """Cosines between corresponding rows."""
        return (_unit(embeddings1) * _unit(embeddings2)).sum(dim=-1)

    @property
    def mteb_model_meta(self) -> Any:
        """The metadata under which mteb stores the results."""
        require("mteb", what="An evaluation by mteb")
        from mteb.models.model_meta import ModelMeta, ScoringFunction

        known = {
            "name": self.name,
            "revision": "no_revision_available",
            "modalities": ["video"],
            "embed_dim": self.encoder.config.dim,
            "n_parameters": sum(one.numel() for one in self.encoder.parameters()),
            "framework": ["PyTorch"],
            "similarity_fn_name": ScoringFunction.COSINE,
        }
        return ModelMeta.create_empty(overwrites=known)


def _videos(cells: Iterator[dict[str, Any]], folder: Path) -> Iterator[Video]:
    """The files of a data set: on disk, or embedded in it, which are written to the folder."""
    for number, cell in enumerate(cells):
        path = Path(cell.get("path") or "video.mp4")
        if cell.get("bytes") is not None:
            path = folder / f"{number}{path.suffix or '.mp4'}"
            path.write_bytes(cell["bytes"])
        yield Video(path, f"{number}/{path.name}")


def _unit(rows: ArrayLike) -> Tensor:
    return F.normalize(as_tensor(np.asarray(rows)).float().reshape(-1, np.shape(rows)[-1]), dim=-1)
