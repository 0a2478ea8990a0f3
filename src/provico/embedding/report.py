"""A report on the uncertainty of videos, and its course over time.

The uncertainty of a video is the geometric mean of the variances of its clips. `disagreement` is the
uncertainty added by differences between its clips. Over time, each clip has its own uncertainty, and a
`departure`: the mean squared deviation of its mean from that of the video, over the coordinates, in the same
units.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from provico.data.catalog import Catalog
from provico.data.library import Library
from provico.defaults import TEST_CLIPS
from provico.embedding.driver import embed
from provico.embedding.file import iterate_columns, path_text, read_header
from provico.errors import ConfigError, OutputExistsError, did_you_mean
from provico.files import replace_text
from provico.models.encoder import Encoder
from provico.probability.gaussian import Gaussian
from provico.probability.mixture import Mixture
from provico.progress import Progress, silent

COLUMNS = (
    *("id", "path", "label", "group", "subset"),
    *("uncertainty", "disagreement"),
    *("start_seconds", "end_seconds", "clip_mean", "clip_log_var"),
)
"""The input columns of a report; files of embeddings and indexes have them."""


@dataclass(frozen=True, eq=False)
class UncertaintyReport:
    """Videos with their uncertainty, in the given order."""

    ids: tuple[str, ...]
    paths: tuple[str, ...]
    labels: tuple[str | None, ...]
    groups: tuple[str | None, ...]
    subsets: tuple[str | None, ...]
    uncertainty: Float[Tensor, "videos"]
    disagreement: Float[Tensor, "videos"]
    clip_uncertainty: Float[Tensor, "videos clips"]
    """Geometric mean of the variance of each clip."""
    clip_departure: Float[Tensor, "videos clips"]
    """Deviation of the clip's mean from that of the video; see `Mixture.departure`."""
    clip_seconds: Float[Tensor, "videos clips 2"]
    failed: tuple[tuple[str, str], ...] = ()
    """Ids of the videos that could not be read, with the reasons."""

    def __len__(self) -> int:
        return len(self.ids)

    @classmethod
    def of_columns(
        cls, chunks: Iterable[Mapping[str, Any]], *, failed: Sequence[tuple[str, str]] = ()
    ) -> UncertaintyReport:
        """A report from blocks of rows with `COLUMNS`; only a few values per clip are kept."""
        parts = [_of_rows(chunk) for chunk in chunks if len(chunk["id"])]
        if not parts:
            raise ConfigError("There are no readable videos to report on. Give some that can be read.")
        joined = {
            field.name: [getattr(part, field.name) for part in parts] for field in dataclasses.fields(cls)
        }
        columns: dict[str, Any] = {
            name: torch.cat(values) if isinstance(values[0], Tensor) else tuple(chain.from_iterable(values))
            for name, values in joined.items()
        }
        return cls(**columns | {"failed": tuple(failed)})

    @classmethod
    def of_file(cls, path: Path) -> UncertaintyReport:
        """A report on the videos in a file written by `provico embed`."""
        return cls.of_columns(iterate_columns(path, COLUMNS), failed=read_header(path).failed)

    @classmethod
    def of_catalog(
        cls,
        encoder: Encoder,
        catalog: Catalog,
        *,
        num_clips: int = TEST_CLIPS,
        short_side: int | None = None,
        num_workers: int = 0,
        device: torch.device | str | None = None,
        library: Library | None = None,
        progress: Progress = silent,
    ) -> UncertaintyReport:
        """A report on the readable videos of a catalog; options are those of `embed`."""
        found = embed(
            encoder,
            catalog,
            num_clips=num_clips,
            short_side=short_side,
            num_workers=num_workers,
            device=device,
            max_broken_share=1.0,
            library=library,
            progress=progress,
        )
        video_of = {video.id: video for video in catalog}
        known = [video_of[name] for name in found.ids]
        assert found.clip_seconds is not None  # always known for videos
        return cls(
            ids=found.ids,
            paths=tuple(path_text(video.path) for video in known),
            labels=found.labels,
            groups=found.groups,
            subsets=tuple(video.subset for video in known),
            uncertainty=found.videos.uncertainty,
            disagreement=found.videos.disagreement,
            clip_uncertainty=found.videos.clips.uncertainty,
            clip_departure=found.videos.departure,
            clip_seconds=found.clip_seconds,
            failed=found.failed,
        )

    def row_of(self, name: str) -> int:
        """The row of a video, or an error that names the nearest."""
        if name not in self.ids:
            hint = did_you_mean(name, self.ids, otherwise="Give the id of one of them.")
            raise ConfigError(f"{name} is not among the {len(self):,} videos. {hint}")
        return self.ids.index(name)

    def most_certain(self, count: int) -> list[int]:
        """Rows of the most certain videos, the most certain first; ties keep their order."""
        return torch.sort(self.uncertainty, stable=True).indices[:count].tolist()

    def least_certain(self, count: int) -> list[int]:
        """Rows of the least certain videos, the least certain first."""
        return torch.sort(-self.uncertainty, stable=True).indices[:count].tolist()

    def summary(self) -> dict[str, Any]:
        """The whole report as plain values, for JSON."""
        values = self.uncertainty.double()
        quantiles = torch.quantile(values, torch.tensor([0.0, 0.25, 0.5, 0.75, 1.0], dtype=torch.float64))
        return {
            "num_videos": len(self),
            "failed": dict(self.failed),
            "quantiles": dict(zip(("min", "25%", "50%", "75%", "max"), quantiles.tolist(), strict=True)),
            "videos": self.video_table().to_pylist(),
        }

    def video_table(self) -> pa.Table:
        """A row for each video."""
        return pa.table(
            {
                "id": self.ids,
                "path": self.paths,
                "label": pa.array(self.labels, pa.string()),
                "group": pa.array(self.groups, pa.string()),
                "subset": pa.array(self.subsets, pa.string()),
                "uncertainty": self.uncertainty.numpy(),
                "disagreement": self.disagreement.numpy(),
                "most_uncertain_seconds": self._most_uncertain_seconds(),
            }
        )

    def clip_table(self) -> pa.Table:
        """A row for each clip, in the order of time within each video."""
        num_clips = self.clip_uncertainty.shape[1]
        return pa.table(
            {
                "id": [name for name in self.ids for _ in range(num_clips)],
                "clip": np.tile(np.arange(num_clips), len(self)),
                "start_seconds": self.clip_seconds[..., 0].flatten().numpy(),
                "end_seconds": self.clip_seconds[..., 1].flatten().numpy(),
                "uncertainty": self.clip_uncertainty.flatten().numpy(),
                "departure": self.clip_departure.flatten().numpy(),
            }
        )

    def write(self, folder: Path) -> None:
        """Write videos and clips as .csv and .parquet, and summary.json, to a new or empty folder."""
        check_folder(folder)
        folder.mkdir(parents=True, exist_ok=True)
        for name, table in (("videos", self.video_table()), ("clips", self.clip_table())):
            pyarrow.csv.write_csv(table, folder / f"{name}.csv")
            pyarrow.parquet.write_table(table, folder / f"{name}.parquet")
        text = json.dumps(self.summary() | {"videos": "videos.csv"}, indent=1)
        replace_text(folder / "summary.json", text + "\n")

    def _most_uncertain_seconds(self) -> NDArray[np.float64]:
        """The middle of the least certain clip of each video."""
        worst = self.clip_uncertainty.argmax(dim=1)
        middles = self.clip_seconds.mean(dim=2)
        return middles[torch.arange(len(self)), worst].numpy()


def check_folder(folder: Path) -> None:
    """Raise an error if the folder is not empty."""
    if folder.exists() and (folder.is_file() or any(folder.iterdir())):
        raise OutputExistsError(f"{folder} exists already and is not empty. Choose another with --out.")


def _of_rows(rows: Mapping[str, Any]) -> UncertaintyReport:
    # Copies: arrays from files may be read-only, which torch does not support.
    clips = Gaussian(torch.tensor(rows["clip_mean"]), torch.tensor(rows["clip_log_var"]))
    return UncertaintyReport(
        ids=tuple(rows["id"]),
        paths=tuple(rows["path"]),
        labels=tuple(rows["label"]),
        groups=tuple(rows["group"]),
        subsets=tuple(rows["subset"]),
        uncertainty=torch.tensor(rows["uncertainty"]),
        disagreement=torch.tensor(rows["disagreement"]),
        clip_uncertainty=clips.uncertainty,
        clip_departure=Mixture(clips).departure,
        clip_seconds=torch.from_numpy(np.stack([rows["start_seconds"], rows["end_seconds"]], axis=-1)),
    )
