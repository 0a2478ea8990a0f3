"""One function and one line in a dict add a part, and a run can use it by name."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import provico
from provico.config import PretrainConfig
from provico.data.frames.encode import write_video
from provico.data.layouts.listing import DataPath, Entry, Layout, Listing
from provico.errors import ConfigError
from provico.models import BackboneSpec, InputSpec
from provico.training.run_log import read_metrics


def colours() -> torch.nn.Module:
    """A backbone: the mean colour of a clip, and eight features of it."""
    return torch.nn.Sequential(torch.nn.AdaptiveAvgPool3d(1), torch.nn.Flatten(), torch.nn.Linear(3, 8))


def furthest_coordinate(a, b) -> torch.Tensor:
    """A distance."""
    return (a.gaussian.mean.unsqueeze(1) - b.gaussian.mean).abs().amax(dim=-1)


def spread(videos: provico.Mixture, step: provico.StepContext) -> provico.Outcome:
    """An objective: keep the clips of a video together, and videos near each other by the distance."""
    means = videos.mean
    apart = provico.DISTANCES[step.mining.distance](*[_Only(videos.moment_matched)] * 2).mean()
    return provico.Outcome(
        videos.between.mean() + means.square().mean() + apart, {"loss/apart": apart.detach()}
    )


class _Only:
    def __init__(self, gaussian: provico.Gaussian) -> None:
        self.gaussian = gaussian


def read_reel(source: DataPath, splits: tuple[int, ...]) -> Listing | None:
    """A layout: the videos that a file `reel.txt` names."""
    lines = (source.path / "reel.txt").read_text().split()
    return Listing(source.path, tuple(Entry(name, source.path / name) for name in lines))


@pytest.fixture
def extended(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    size = InputSpec(size=16, num_frames=4)
    monkeypatch.setitem(provico.BACKBONES, "colours", BackboneSpec(build=colours, feature_dim=8, input=size))
    monkeypatch.setitem(provico.DISTANCES, "furthest", furthest_coordinate)
    monkeypatch.setitem(provico.OBJECTIVES, "spread", provico.Objective(loss=spread))
    monkeypatch.setitem(provico.AUGMENTATIONS, "flip", provico.Augmentation(flip_probability=0.5))
    monkeypatch.setitem(provico.STORES, "pixels", replace(provico.STORES["raw"], suffix=".pixels"))
    reel = Layout(
        recognise=lambda source: (source.path / "reel.txt").is_file(), read=read_reel, needs="a reel.txt"
    )
    others = dict(provico.LAYOUTS)
    provico.LAYOUTS.clear()  # the first that recognises the data reads it
    provico.LAYOUTS.update({"reel": reel, **others})
    yield
    del provico.LAYOUTS["reel"]


CONFIG = PretrainConfig.from_dict(
    {
        "model": {"backbone": "colours", "dim": 4},
        "views": {"augmentation": "flip", "store": "pixels"},
        "objective": {"method": "spread"},
        "mining": {"distance": "furthest"},
        "optimiser": {"epochs": 1, "batch_size": 4, "warmup_epochs": 0},
        "run": {"num_workers": 0, "log_every": 1, "device": "cpu"},
    }
)


@pytest.mark.usefixtures("without_charts")
def test_a_run_with_a_part_of_each_kind(tmp_path: Path, extended: None) -> None:
    names = [f"{number}.mp4" for number in range(8)]
    for number, name in enumerate(names):
        shades = np.linspace(20 * number, 90 + 20 * number, 12, dtype=np.uint8)
        write_video(tmp_path / name, (np.full((24, 32, 3), shade) for shade in shades), fps=12)
    (tmp_path / "reel.txt").write_text("\n".join(names))
    catalog = provico.open_catalog(tmp_path)
    assert catalog.layout == "reel"
    assert len(catalog) == 8
    library = provico.Library(tmp_path / "library")
    report = provico.pretrain(catalog, out=tmp_path / "run", config=CONFIG, library=library)
    assert (report.num_steps, report.is_finished) == (2, True)
    assert all("loss/apart" in record for record in read_metrics(tmp_path / "run" / "metrics.jsonl"))
    copy = library.prepared(catalog[0].path, short_side=18)
    assert copy is not None
    assert copy.file.suffix == ".pixels"
    encoder = provico.Encoder.from_pretrained(report.encoder_folder)
    assert encoder.config.backbone == "colours"


@pytest.mark.parametrize(
    ("group", "name", "value", "message"),
    [
        ("views", "augmentation", "filp", r"no augmentation 'filp'. Did you mean flip\?"),
        ("views", "store", "pixel", r"no store 'pixel'. Did you mean pixels\?"),
        ("objective", "method", "spred", r"no method 'spred'. Did you mean spread\?"),
        ("mining", "distance", "furthes", r"no distance 'furthes'. Did you mean furthest\?"),
        ("model", "backbone", "colour", r"colours"),
    ],
)
def test_wrong_names_are_refused_before_any_video_is_read(
    tmp_path: Path, extended: None, group: str, name: str, value: str, message: str
) -> None:
    unreadable = tmp_path / "videos"
    unreadable.mkdir()
    (unreadable / "a.mp4").write_bytes(b"no video")
    wrong = replace(CONFIG, **{group: replace(getattr(CONFIG, group), **{name: value})})
    with pytest.raises(ConfigError, match=message):
        provico.pretrain(unreadable, out=tmp_path / "run", config=wrong)
