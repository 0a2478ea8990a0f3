"""How good are the features of the frozen encoder that works out of the box, before anything is learnt?

Cosine of mean features, each test video against the training videos, on the three splits of the five-class
part of UCF101 (PROVICO_DATA, or ../shared/data): the floor that a trained head has to beat.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path

import torch
import torch.nn.functional as F

from provico import ClipLoader, ClipSettings, ClipSpec, Encoder, EncoderConfig, open_catalog


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    data = Path(os.environ.get("PROVICO_DATA", "../shared/data")) / "ucf101-5"
    parser.add_argument("--data", type=Path, default=data)
    parser.add_argument("--backbone", default="efficientnet_lite0")
    parser.add_argument("--num-clips", type=int, default=2)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/frozen.json"))
    options = parser.parse_args()

    catalog = open_catalog(options.data)
    began = time.perf_counter()
    features = embed(catalog, options.backbone, options.num_clips)
    seconds = time.perf_counter() - began
    number_of = {video.id: number for number, video in enumerate(catalog)}
    labels = torch.tensor(catalog.labels)
    recalls = []
    for split in (1, 2, 3):
        numbers = {
            subset: torch.tensor(
                [number_of[v.id] for v in open_catalog(options.data, split=split, subset=subset)]
            )
            for subset in ("train", "test")
        }
        similarity = features[numbers["test"]] @ features[numbers["train"]].T
        nearest = labels[numbers["train"]][similarity.argmax(dim=1)]
        recalls.append(100 * (nearest == labels[numbers["test"]]).double().mean().item())
    report = {
        "backbone": options.backbone,
        "clips": options.num_clips,
        "videos": len(catalog),
        "seconds": round(seconds, 1),
        "R@1 of splits 1-3": [round(recall, 1) for recall in recalls],
        "mean R@1": round(sum(recalls) / len(recalls), 1),
    }
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(report, indent=1) + "\n")
    print(json.dumps(report, indent=1))


@torch.inference_mode()
def embed(catalog, backbone: str, num_clips: int) -> torch.Tensor:
    encoder = Encoder(EncoderConfig.for_backbone(backbone)).eval()
    spec = encoder.config.input
    settings = ClipSettings(
        num_clips=num_clips,
        spec=ClipSpec(spec.num_frames, spec.frame_step),
        sampling="uniform",
        short_side=spec.size,
        crop_size=spec.size,
    )
    loader = ClipLoader(
        catalog, settings, batch_size=16, shuffle=False, drop_last=False, max_broken_share=0.0, num_workers=1
    )
    means = []
    for batch in loader:
        features = encoder.features(batch.pixels.flatten(0, 1)).view(len(batch), num_clips, -1)
        means.append(features.mean(dim=1))
    return F.normalize(torch.cat(means), dim=1)


if __name__ == "__main__":
    main()
