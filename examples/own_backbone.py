"""Use your own network under ProViCo's heads, from pretraining to search.

    python examples/own_backbone.py

An external frozen network needs no code: --backbone hf:OWNER/NAME, timm:NAME or FILE.onnx.
"""

from __future__ import annotations

import dataclasses
import tempfile
from pathlib import Path

import torch
from torch import Tensor, nn

from prepared import videos
from provico import BACKBONES, Encoder, Index, open_catalog, pretrain
from provico.demo import demo_recipe
from provico.models import BackboneSpec, InputSpec


class MotionEnergy(nn.Module):
    """Absolute frame differences on a coarse grid, with a small network on top."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Flatten(), nn.Linear(3 * 4 * 8 * 8, 64), nn.ReLU(), nn.Linear(64, 32))

    def forward(self, clips: Tensor) -> Tensor:
        """Return features of clips "batch 3 time height width"."""
        change = (clips[:, :, 1:] - clips[:, :, :-1]).abs()
        return self.layers(nn.functional.adaptive_avg_pool3d(change, (4, 8, 8)))


BACKBONES["motion-energy"] = BackboneSpec(
    build=MotionEnergy, feature_dim=32, input=InputSpec(size=32, num_frames=8, frame_step=2)
)


def main() -> None:
    """Pretrain the network for a few steps, and search with it."""
    recipe = demo_recipe()
    config = dataclasses.replace(
        recipe,
        model=dataclasses.replace(recipe.model, backbone="motion-energy", dim=16, num_frames=None, size=None),
        optimiser=dataclasses.replace(recipe.optimiser, epochs=4, warmup_epochs=1, batch_size=12),
    )
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        report = pretrain(videos(), out=Path(folder) / "run", config=config)
        encoder = Encoder.from_pretrained(report.encoder_folder)
        index = Index.create(Path(folder) / "index", encoder, num_clips=2)
        index.add(open_catalog(videos()))
        answer = index.search(index.ids[0], k=3, exclude_same="group", max_chance=None)
        print(f"{index.ids[0]} is like {', '.join(hit.id for hit in answer.hits)}.")


if __name__ == "__main__":
    main()
