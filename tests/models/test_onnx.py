"""The exported file gives what the encoder gives."""

from __future__ import annotations

import dataclasses
import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import pytest
import torch

from provico.errors import MissingDependencyError, OutputExistsError, ProvicoError
from provico.extras import missing
from provico.models import (
    Encoder,
    EncoderConfig,
    FrozenSpec,
    InputSpec,
    encoder_hash,
    export_encoder,
    export_onnx,
)
from provico.models.export import OUTPUTS

needs_onnx = pytest.mark.skipif(
    bool(missing("onnx")),
    reason="the extra 'onnx' is not installed",
)


def make_encoder(backbone: str = "tiny") -> Encoder:
    torch.manual_seed(0)
    return Encoder(EncoderConfig.for_backbone(backbone, dim=8, input=InputSpec(size=32, num_frames=4)))


def with_evidence(encoder: Encoder) -> Encoder:
    """As a finished run leaves it."""
    torch.manual_seed(0)
    made = Encoder(dataclasses.replace(encoder.config, num_remembered=12))
    features = torch.randn(12, 3, made.head.feature_dim)
    assert made.evidence is not None
    with torch.no_grad():
        made.evidence.remember(features, made.head(features))
    return made


@needs_onnx
def test_parity_for_any_number_of_clips(tmp_path: Path) -> None:
    import onnxruntime

    encoder, path = with_evidence(make_encoder()), tmp_path / "tiny.onnx"
    parity = export_onnx(encoder, path)
    assert encoder.training
    assert max(parity.mean, parity.log_var) < 1e-4
    assert [file.name for file in tmp_path.iterdir()] == ["tiny.onnx"]

    encoder.eval()
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    for num_clips in (1, 5):
        pixels = torch.randint(0, 256, (num_clips, 4, 32, 32, 3), dtype=torch.uint8)
        mean, log_var = session.run(list(OUTPUTS), {"pixels": pixels.numpy()})
        with torch.no_grad():
            expected = encoder.encode_clips(pixels)
        torch.testing.assert_close(torch.from_numpy(mean), expected.mean, rtol=1e-3, atol=1e-4)
        torch.testing.assert_close(torch.from_numpy(log_var), expected.log_var, rtol=1e-3, atol=1e-4)

    with pytest.raises(OutputExistsError, match="exists already"):
        export_onnx(encoder, path)


@pytest.fixture
def make_frozen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Encoder]:
    """An encoder with a backbone that is exported in no time."""
    (tmp_path / "modules").mkdir()
    script = "def looks(pixels):\n    return pixels.flatten(2).mean(dim=2)\n"
    (tmp_path / "modules" / "looks.py").write_text(script)
    monkeypatch.syspath_prepend(str(tmp_path / "modules"))

    def make(takes: Literal["clips", "frames"] = "clips") -> Encoder:
        config = EncoderConfig.for_backbone(
            "looks:looks",
            dim=8,
            input=InputSpec(size=8, num_frames=4),
            frozen=FrozenSpec(feature_dim=3, takes=takes),
        )
        return Encoder(config)

    return make


@needs_onnx
def test_a_file_that_gives_something_else_is_not_kept(
    tmp_path: Path, make_frozen: Callable[..., Encoder], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("provico.models.export.TOLERANCE", -1.0)
    with pytest.raises(ProvicoError, match="was removed"):
        export_onnx(make_frozen(), tmp_path / "strict.onnx")
    assert not (tmp_path / "strict.onnx").exists()


@needs_onnx
def test_an_encoder_is_exported_as_a_folder_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make_frozen: Callable[..., Encoder]
) -> None:
    """A frozen backbone is in the file; here one that takes frames, and above one that takes clips.

    The file is checked with another number of clips than it was exported with.
    """
    encoder = with_evidence(make_frozen("frames")).eval()
    export_encoder(encoder, tmp_path / "a" / "onnx", format="onnx")
    assert sorted(path.name for path in (tmp_path / "a" / "onnx").iterdir()) == [
        "config.json",
        "encoder.onnx",
    ]
    export_encoder(encoder, tmp_path / "a" / "safe")
    read = Encoder.from_pretrained(tmp_path / "a" / "safe", allow_import=True)
    assert encoder_hash(read) == encoder_hash(encoder)
    with pytest.raises(OutputExistsError, match="exists already"):
        export_encoder(encoder, tmp_path / "a" / "safe")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingDependencyError):
        export_encoder(encoder, tmp_path / "a" / "refused", format="onnx")
    assert sorted(path.name for path in (tmp_path / "a").iterdir()) == ["onnx", "safe"]


def test_without_the_packages_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingDependencyError, match=r"needs onnx, .* pip install 'provico\[onnx\]'"):
        export_onnx(make_encoder(), tmp_path / "tiny.onnx")
