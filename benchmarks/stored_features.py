"""Features of a data set as files, one for each split, for studies of heads and of trust on any network.

    python benchmarks/stored_features.py ../shared/data/ucf101-5 --splits 1 2 3 --out stored
    python benchmarks/stored_features.py ../shared/data/ucf101-5 --backbone mc3 --num-clips 3 --out stored
    python benchmarks/stored_features.py ../shared/data/ucf101-5 --backbone i3d --num-clips 3 --out stored
    python benchmarks/trust_errors.py stored/ucf101-5-mc3.npz frozen --splits 1 2 3
    python benchmarks/methods.py stored/ucf101-5-efficientnet_motion.npz stored/ucf101-5-mc3.npz

`demo` is the embedded demo set; Weizmann is divided by people (`benchmarks/trust_errors.py`).
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch

import i3d
import mc3
from provico import Encoder, EncoderConfig, FeatureFile
from provico.data.library import Library
from provico.embedding.features import clip_features
from trust_errors import sets_of

OWN = {"mc3": ("mc3:Mc3", mc3.CLIPS), "i3d": ("i3d:I3d", i3d.CLIPS)}
"""Networks of one's own in this folder, with the clips that they were made for."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("data")
    parser.add_argument("--backbone", default="efficientnet_motion")
    parser.add_argument("--num-clips", type=int, default=10)
    parser.add_argument("--splits", type=int, nargs="+", default=[1])
    parser.add_argument("--out", type=Path, default=Path("stored"))
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    name, clips = OWN.get(given.backbone, (given.backbone, None))
    config = EncoderConfig.for_backbone(name, input=clips)
    encoder, library = Encoder(config), Library()
    for split in given.splits:
        parts = [
            clip_features(encoder, catalog, num_clips=given.num_clips, library=library)
            for catalog in sets_of(given.data, split, given.out)
        ]
        videos = [(video, part) for part in parts for video in part.catalog]
        FeatureFile(
            tuple(video.id for video, _ in videos),
            torch.cat([part.features for part in parts]),
            labels=tuple(video.label for video, _ in videos),
            groups=tuple(video.group for video, _ in videos),
            subsets=tuple("train" if part is parts[0] else "test" for _, part in videos),
            blocks=encoder.config.backbone_spec.feature_blocks,
        ).save(given.out / f"{Path(given.data).name}-{given.backbone}-{split}.npz")


if __name__ == "__main__":
    main()
