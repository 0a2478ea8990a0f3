"""Frozen networks by onnxruntime: the same features, or torch."""

from __future__ import annotations

import copy
import importlib.util
import pickle
from pathlib import Path

import pytest
import torch
from torch import nn

from provico.files import home_folder
from provico.models import Encoder, EncoderConfig, FrozenBackbone, FrozenSpec, find_backbone
from provico.models.backbones import engine
from provico.models.backbones.engine import Engine
from provico.models.backbones.registry import made_for

from ..tiny_networks import NETWORKS, saver


class Small(nn.Module):
    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.conv = nn.Conv2d(3, 4, 3)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.conv(images).relu().mean(dim=(2, 3))


class ByItsMean(Small):
    """What it computes depends on a number that an export fixes."""

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return super().forward(images) * (1 if torch.compiler.is_compiling() else 2)


class NotExportable(Small):
    def forward(self, images: torch.Tensor) -> torch.Tensor:
        if torch.compiler.is_compiling():
            raise RuntimeError("no export")
        return super().forward(images)


def backbone(network: nn.Module) -> FrozenBackbone:
    return FrozenBackbone(network, FrozenSpec(feature_dim=4, takes="frames"), use_engine=True)


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROVICO_ENGINE", "onnxruntime")


def torch_alone(own: FrozenBackbone, clips: torch.Tensor) -> torch.Tensor:
    frames = clips.transpose(1, 2).flatten(0, 1)
    return own.network(frames).view(*clips.shape[::2][:2], -1).mean(dim=1)


def exports() -> list[Path]:
    return sorted((home_folder() / "engines").glob("*"))


@pytest.mark.usefixtures("at_once")
def test_one_export_for_all_batch_sizes_and_later_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    own = backbone(Small())
    assert own.engine is not None
    for num_clips in (2, 5, 1):
        clips = torch.randn(num_clips, 3, 2, 8, 8)
        expected = own.network(clips.transpose(1, 2).flatten(0, 1)).view(num_clips, 2, 4).mean(dim=1)
        torch.testing.assert_close(own(clips), expected, atol=1e-5, rtol=1e-4)
        assert own.engine.name == "onnxruntime"
    (path,) = exports()
    assert path.name.startswith(own.hash)

    def refuse(*_: object) -> None:
        raise AssertionError("exported again")

    monkeypatch.setattr(engine, "export", refuse)
    monkeypatch.setenv("PROVICO_ENGINE", "auto")
    again = backbone(Small())
    again(clips)
    assert again.engine is not None
    assert again.engine.name == "onnxruntime", "what was exported is used at once"
    other = backbone(Small(seed=1))
    assert other.hash != own.hash
    other(clips)
    assert other.engine is not None
    assert other.engine.name == "torch"


def test_an_export_waits_until_it_pays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROVICO_ENGINE", "auto")
    monkeypatch.setattr(engine, "WORTH_IT", 6)
    own = backbone(Small())
    assert own.engine is not None
    for names in ("torch", "torch", "onnxruntime"):
        own(torch.randn(2, 3, 2, 8, 8))  # four frames
        assert own.engine.name == names


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize(
    ("kind", "reason"), [(ByItsMean, "differs from torch"), (NotExportable, "cannot be exported")]
)
def test_torch_goes_on_where_the_engine_is_not_equal(kind: type[Small], reason: str) -> None:
    for _ in range(2):  # the second time without another export
        own = backbone(kind())
        clips = torch.randn(2, 3, 2, 8, 8)
        expected = own.network(clips.transpose(1, 2).flatten(0, 1)).view(2, 2, 4).mean(dim=1)
        assert torch.equal(own(clips), expected)
        assert own.engine is not None
        assert own.engine.name == "torch"
        assert reason in (own.engine.reason or "")
    assert any(path.suffix == ".failed" for path in exports())


@pytest.mark.usefixtures("at_once")
def test_torch_goes_on_without_onnxruntime(monkeypatch: pytest.MonkeyPatch) -> None:
    found = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "onnxruntime" else found(name)
    )
    own = backbone(Small())
    own(torch.randn(2, 3, 2, 8, 8))
    assert own.engine is not None
    assert own.engine.reason == "onnxruntime is not installed"


@pytest.mark.usefixtures("at_once")
def test_it_follows_the_threads_and_the_size() -> None:
    own = backbone(Small())
    own(torch.randn(2, 3, 2, 8, 8))
    assert own.engine is not None
    assert own.engine._session.get_session_options().intra_op_num_threads == 1
    try:
        torch.set_num_threads(2)
        own(torch.randn(2, 3, 2, 8, 8))
        assert own.engine._session.get_session_options().intra_op_num_threads == 2
    finally:
        torch.set_num_threads(1)
    own(torch.randn(2, 3, 2, 9, 9))
    assert len(exports()) == 2
    for copied in (copy.deepcopy(own), pickle.loads(pickle.dumps(own))):
        torch.testing.assert_close(copied(torch.ones(1, 3, 2, 8, 8)), own(torch.ones(1, 3, 2, 8, 8)))


def test_a_picture_is_seen_once_in_however_many_clips(monkeypatch: pytest.MonkeyPatch) -> None:
    """And graphs that are written are used from the first clip on."""
    monkeypatch.setenv("PROVICO_ENGINE", "auto")
    encoder = Encoder(EncoderConfig.for_backbone("efficientnet_motion", dim=8)).eval()
    backbone = encoder.backbone
    assert isinstance(backbone, FrozenBackbone)
    assert backbone.engine is not None
    pictures = torch.randint(256, (5, 32, 32, 3), dtype=torch.uint8)
    clips = pictures[torch.tensor([[0, 1, 2, 3], [1, 2, 3, 4], [4, 4, 4, 4]])]
    num_seen = []
    called = Engine.__call__

    def count(engine: Engine, inputs: torch.Tensor) -> torch.Tensor | None:
        num_seen.append(len(inputs))
        return called(engine, inputs)

    monkeypatch.setattr(Engine, "__call__", count)
    found = encoder.features(clips)
    assert num_seen == [5]
    assert backbone.engine.name == "onnxruntime"
    expected = backbone.network(encoder.normalisation(clips))
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-4)
    alone = torch.cat([encoder.features(clip.unsqueeze(0)) for clip in clips])
    torch.testing.assert_close(found, alone, atol=1e-6, rtol=1e-5)


def test_networks_of_users_are_run_as_they_are() -> None:
    """Their code may do anything, so a probe shows nothing."""
    assert FrozenBackbone(Small(), FrozenSpec(feature_dim=4, takes="frames")).engine is None


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize("model_type", ["efficientnet_motion", "efficientnet_lite0", "dinov2", "videomae"])
def test_real_networks_are_equal(model_type: str, made_once) -> None:
    name = model_type
    if model_type in NETWORKS:
        name = str(made_once(f"network-{model_type}", saver(model_type)))
    spec = made_for(name)
    own = find_backbone(name, clips=spec).build()
    clips = torch.randn(3, 3, spec.num_frames, spec.size, spec.size)
    assert isinstance(own, FrozenBackbone)
    assert isinstance(own.engine, Engine)
    found = own(clips)
    assert own.engine.name == "onnxruntime", own.engine.reason
    expected = own.network(clips) if own.spec.takes == "clips" else torch_alone(own, clips)
    assert float((found - expected).abs().max() / expected.abs().max()) < engine.TOLERANCE
