"""Measure how well the uncertainty of an encoder predicts wrong answers, with labels.

python examples/measure_uncertainty.py
"""

from __future__ import annotations

import torch

from prepared import encoder, videos
from provico import metrics, open_catalog
from provico.embedding.driver import embed


def main() -> None:
    """Find the nearest other video of each video, and compare doubts with errors."""
    catalog = open_catalog(videos())
    found = embed(encoder(), catalog, num_clips=4)
    means = torch.nn.functional.normalize(found.videos.mean, dim=-1)
    cosine = (means @ means.T).fill_diagonal_(-1)
    nearest = cosine.argmax(dim=1)
    labels = [video.label for video in catalog]
    correct = torch.tensor([labels[row] == labels[near] for row, near in enumerate(nearest.tolist())])
    doubts = {"uncertainty": found.videos.uncertainty, "distance": -cosine.amax(dim=1)}
    print(f"The nearest video has the same label in {correct.double().mean():.0%} of cases.")
    for name, doubt in doubts.items():
        area, risk = metrics.r_auroc(doubt, correct), metrics.aurc(doubt, correct)
        print(f"{name:12} R-AUROC {area:.2f}, AURC {risk:.2f}")
    rank, spread = metrics.effective_rank(found.videos.mean), metrics.uniformity(found.videos.clips.mean)
    print(f"The means span {rank:.1f} directions; uniformity {spread:.2f}.")


if __name__ == "__main__":
    main()
