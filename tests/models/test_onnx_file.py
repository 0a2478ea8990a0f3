"""Any network as an ONNX file."""

from __future__ import annotations

import json
import shutil
import warnings
from pathlib import Path

import onnx
import pytest
import torch
from onnx import TensorProto, helper

from provico.errors import ConfigError
from provico.models import Encoder, EncoderConfig
from provico.models.backbones.registry import made_for

FLOAT, UINT8 = TensorProto.FLOAT, TensorProto.UINT8


def write(
    path: Path,
    shape: list[int | str],
    *,
    axes: list[int],
    kind: int = FLOAT,
    outputs: tuple[str, ...] = ("pooled",),
    num_inputs: int = 1,
    factor: float = 2.0,
) -> Path:
    """A network that gives twice the mean over some axes, and the input itself as its maps."""
    names = [f"input{number}" for number in range(num_inputs)]
    nodes = [
        helper.make_node("Cast", [names[0]], ["numbers"], to=FLOAT),
        helper.make_node(
            "Constant", [], ["axes"], value=helper.make_tensor("a", TensorProto.INT64, [len(axes)], axes)
        ),
        helper.make_node("Constant", [], ["two"], value=helper.make_tensor("t", FLOAT, [], [factor])),
        helper.make_node("ReduceMean", ["numbers", "axes"], ["mean"], keepdims=0),
        helper.make_node("Mul", ["mean", "two"], ["pooled"]),
        helper.make_node("Mul", ["numbers", "two"], ["maps"]),
    ]
    graph = helper.make_graph(
        nodes,
        "tiny",
        [helper.make_tensor_value_info(name, kind, shape) for name in names],
        [helper.make_tensor_value_info(name, FLOAT, None) for name in outputs],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    onnx.save(model, path)
    return path


def features(path: Path, clips: torch.Tensor) -> torch.Tensor:
    """Of normalised clips "clips time height width 3"."""
    encoder = Encoder(EncoderConfig.for_backbone(str(path), dim=4))
    return encoder.features(clips)


def direction(clips: torch.Tensor) -> torch.Tensor:
    changes = (clips[:, 1:] - clips[:, :-1]).abs().mean(dim=(1, 2, 3))
    return changes / changes.norm(dim=1, keepdim=True)


@pytest.mark.parametrize(
    ("shape", "axes"),
    [(["n", 3, 8, 8], [2, 3]), (["n", 8, 8, 3], [1, 2]), ([1, 3, 8, 8], [2, 3]), ([3, 3, 8, 8], [2, 3])],
)
def test_images_are_averaged_and_compared_over_time(tmp_path: Path, shape, axes) -> None:
    path = write(tmp_path / "net.onnx", shape, axes=axes)
    clips = torch.randn(2, 4, 8, 8, 3, generator=torch.Generator().manual_seed(0))
    expected = 2 * clips.mean(dim=(1, 2, 3))
    torch.testing.assert_close(features(path, clips), expected)
    if shape[1] == 3:
        write(path, shape, axes=axes, outputs=("maps", "pooled"))
        torch.testing.assert_close(features(path, clips), torch.cat([expected, direction(clips)], dim=1))
        write(path, shape, axes=axes, outputs=("maps",))
        torch.testing.assert_close(features(path, clips), torch.cat([expected, direction(clips)], dim=1))


@pytest.mark.parametrize(
    ("shape", "axes"),
    [(["n", 3, 4, 8, 8], [2, 3, 4]), (["n", 4, 3, 8, 8], [1, 3, 4]), ([1, 4, 8, 8, 3], [1, 2, 3])],
)
def test_clips_in_any_order_of_axes(tmp_path: Path, shape, axes) -> None:
    path = write(tmp_path / "net.onnx", shape, axes=axes)
    assert made_for(str(path)).num_frames == 4
    clips = torch.randn(3, 4, 8, 8, 3, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(features(path, clips), 2 * clips.mean(dim=(1, 2, 3)))


def test_bytes_are_given_as_decoded(tmp_path: Path) -> None:
    path = write(tmp_path / "net.onnx", ["n", 3, 8, 8], axes=[2, 3], kind=UINT8)
    clips = torch.randint(0, 256, (2, 4, 8, 8, 3), dtype=torch.uint8)
    torch.testing.assert_close(features(path, clips), 2 * clips.float().mean(dim=(1, 2, 3)))


def test_what_a_file_leaves_open_comes_from_beside_it(tmp_path: Path) -> None:
    path = write(tmp_path / "net.onnx", ["n", 3, "h", "w"], axes=[2, 3])
    assert made_for(str(path)).size == 224
    (tmp_path / "onnx").mkdir()
    path = write(tmp_path / "onnx" / "model.onnx", ["n", 3, "h", "w"], axes=[2, 3])
    values = {
        "size": {"height": 16, "width": 16},
        "image_mean": [0.1, 0.2, 0.3],
        "image_std": [0.4, 0.5, 0.6],
    }
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(values | {"resample": 3}))
    spec = made_for(str(path))
    assert (spec.size, spec.squash, spec.scaling) == (16, True, "pil-bicubic")
    assert (spec.pixel_mean, spec.pixel_std) == ((0.1, 0.2, 0.3), (0.4, 0.5, 0.6))


@pytest.mark.parametrize(
    ("shape", "options", "message"),
    [
        (["n", 3, 8, 8], {"num_inputs": 2}, "has the inputs input0, input1, but one input"),
        (["n", 4, 8, 8], {}, r"tensor\(float\) of shape"),
        (["n", 3], {}, "is needed"),
        (["n", 3, 8, 16], {}, "square frames"),
        (["n", 3, 8, 8], {"kind": TensorProto.DOUBLE}, r"tensor\(double\)"),
    ],
)
def test_files_with_other_inputs_are_refused(tmp_path: Path, shape, options, message: str) -> None:
    path = write(tmp_path / "net.onnx", shape, axes=[1], **options)
    with pytest.raises(ConfigError, match=message):
        made_for(str(path))


def test_clips_of_another_size_are_refused(tmp_path: Path) -> None:
    path = str(write(tmp_path / "net.onnx", ["n", 3, 4, 8, 8], axes=[2, 3, 4]))
    spec = made_for(path).changed(num_frames=5)
    with pytest.raises(ConfigError, match="It expects 4 frames of 8 x 8 pixels"):
        Encoder(EncoderConfig.for_backbone(path, input=spec))
    with pytest.raises(ConfigError, match="There is no file"):
        made_for(str(tmp_path / "none.onnx"))
    (tmp_path / "text.onnx").write_text("no network")
    with pytest.raises(ConfigError, match="cannot be opened as an ONNX file"):
        made_for(str(tmp_path / "text.onnx"))


def test_the_bytes_make_the_identity(tmp_path: Path) -> None:
    def hash_of(path: Path) -> str | None:
        return Encoder(EncoderConfig.for_backbone(str(path), dim=4)).config.network_hash

    path = write(tmp_path / "net.onnx", ["n", 3, 8, 8], axes=[2, 3])
    shutil.copy(path, tmp_path / "copy.onnx")
    assert hash_of(path) == hash_of(tmp_path / "copy.onnx")
    other = write(tmp_path / "other.onnx", ["n", 3, 8, 8], axes=[2, 3], factor=3.0)
    assert hash_of(path) != hash_of(other)


def test_weights_beside_the_file_count_too(tmp_path: Path) -> None:
    """Large files keep their weights in another one."""
    hashes = set()
    for seed in (0, 1):
        torch.manual_seed(seed)
        network = torch.nn.Sequential(torch.nn.Conv2d(3, 5, 8), torch.nn.Flatten())
        path = tmp_path / "big.onnx"
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.onnx.export(
                network, (torch.zeros(2, 3, 8, 8),), path, dynamo=True, external_data=True, verbose=False
            )
        hashes.add(Encoder(EncoderConfig.for_backbone(str(path), dim=4)).config.network_hash)
    assert len(hashes) == 2
