"""EfficientNet as an ONNX graph, written layer by layer in milliseconds; an export takes half a minute.

Batch normalisation is folded into the convolutions in float64, and ReLU6 is one node that onnxruntime fuses
into the convolution before it.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from provico.models.backbones.efficientnet import (
    ConvNorm,
    EfficientNetLite0,
    InvertedResidual,
    MiddleLayers,
    same_padding,
)

OPSET, IR_VERSION = 17, 8  # supported by all recent versions of onnxruntime
IMAGES, FEATURES = "inputs", "features"


def write_graph(network: EfficientNetLite0 | MiddleLayers, size: int, path: Path) -> None:
    """Write the network as an ONNX file for any number of images (3, size, size)."""
    graph = _Graph(size)
    if isinstance(network, MiddleLayers):
        earlier = graph.blocks(network.early.children(), graph.layer(network.stem, IMAGES))
        maps = graph.flat(earlier)
        later = graph.mean(graph.blocks(network.late.children(), earlier))
        graph.add("Concat", [later, maps], FEATURES, axis=1)
    else:
        last = graph.layer(
            network.head, graph.blocks(network.blocks.children(), graph.layer(network.stem, IMAGES))
        )
        graph.add("Identity", [graph.mean(last)], FEATURES)
    graph.save(path)


class _Graph:
    """Nodes and weights, in order of execution."""

    def __init__(self, size: int) -> None:
        self._input = size
        self._size = {IMAGES: size}
        """Height and width of each map."""
        self._nodes: list[Any] = []
        self._weights: list[Any] = []
        self._bounds = [self._weight("zero", np.float32(0)), self._weight("six", np.float32(6))]

    def add(self, kind: str, inputs: list[str], output: str | None = None, **settings: Any) -> str:
        """Add a node and return the name of its output."""
        output = output or f"{kind.lower()}_{len(self._nodes)}"
        self._nodes.append(helper.make_node(kind, inputs, [output], **settings))
        return output

    def layer(self, layer: ConvNorm, images: str) -> str:
        """Add convolution, normalisation and ReLU6."""
        conv, norm = layer.conv, layer.norm
        assert norm.running_var is not None
        assert norm.running_mean is not None
        scale = norm.weight.double() / (norm.running_var.double() + norm.eps).sqrt()
        shift = norm.bias.double() - norm.running_mean.double() * scale
        weight = conv.weight.double() * scale.view(-1, 1, 1, 1)
        before, after = same_padding(self._size[images], layer.kernel_size, layer.step)
        name = f"layer_{len(self._nodes)}"
        weights = [
            self._weight(f"{name}.{key}", _floats(value)) for key, value in (("w", weight), ("b", shift))
        ]
        found = self.add(
            "Conv",
            [images, *weights],
            name,
            kernel_shape=[layer.kernel_size] * 2,
            strides=[layer.step] * 2,
            pads=[before, before, after, after],
            group=conv.groups,
        )
        self._size[found] = size = -(-self._size[images] // layer.step)
        if layer.activate:
            found = self.add("Clip", [found, *self._bounds])
            self._size[found] = size
        return found

    def blocks(self, blocks: Iterable[torch.nn.Module], images: str) -> str:
        """Add blocks in sequence."""
        for block in blocks:
            assert isinstance(block, InvertedResidual)
            wide = self.layer(block.expand, images) if isinstance(block.expand, ConvNorm) else images
            found = self.layer(block.project, self.layer(block.depthwise, wide))
            if block.adds_input:
                size = self._size[found]
                found = self.add("Add", [found, images])
                self._size[found] = size
            images = found
        return images

    def mean(self, maps: str) -> str:
        """Add a mean over positions."""
        return self.add("Flatten", [self.add("GlobalAveragePool", [maps])])

    def flat(self, maps: str) -> str:
        """Add a flattening of all values of an image."""
        return self.add("Flatten", [maps])

    def save(self, path: Path) -> None:
        """Write the file."""
        shape: list[str | int | None] = ["batch", 3, self._input, self._input]
        graph = helper.make_graph(
            self._nodes,
            "efficientnet",
            [helper.make_tensor_value_info(IMAGES, TensorProto.FLOAT, shape)],
            [helper.make_tensor_value_info(FEATURES, TensorProto.FLOAT, ["batch", None])],
            self._weights,
        )
        model = helper.make_model(
            graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION
        )
        onnx.save(model, str(path))

    def _weight(self, name: str, values: Any) -> str:
        self._weights.append(numpy_helper.from_array(np.asarray(values), name))
        return name


def _floats(values: torch.Tensor) -> NDArray[np.float32]:
    return values.detach().float().numpy()
