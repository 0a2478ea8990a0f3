"""Which map from match probability to frequency? Judged on hits of unseen videos.

    python benchmarks/calibration.py DATA RUN [--splits 1 2 3]

The training videos are the gallery. Maps are fitted to their own hits among each other (other recordings
only) and judged on the ten best hits of each test video: expected calibration error, log loss in nats, and
what was promised on average where the stated share of hits is right.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from scipy.optimize import minimize
from torch import Tensor

from provico import open_encoder
from provico.config.evaluation import FeatureReading, SetsChoice
from provico.embedding.driver import embed_features
from provico.embedding.embeddings import Embeddings
from provico.evaluation.embedded_search import Sampling, SearchedEmbeddings, hits_of
from provico.evaluation.protocols import features_of, open_all
from provico.probability import expected_calibration_error, log_odds
from provico.probability.calibration import fit_platt
from provico.search.calibrate import labelled_pairs

Map = Callable[[Tensor], Tensor]
"""From log match probability to frequency."""


def raw(log_p: Tensor, is_match: Tensor) -> Map:
    return lambda at: at.double().exp()


def constant(log_p: Tensor, is_match: Tensor) -> Map:
    share = float(is_match.double().mean())
    return lambda at: torch.full_like(at.double(), share)


def platt(log_p: Tensor, is_match: Tensor) -> Map:
    slope, intercept = fit_platt(log_odds(log_p), is_match)
    return lambda at: (slope * log_odds(at) + intercept).sigmoid()


def platt_on_log(log_p: Tensor, is_match: Tensor) -> Map:
    slope, intercept = fit_platt(log_p.double(), is_match)
    return lambda at: (slope * at.double() + intercept).sigmoid()


def beta(log_p: Tensor, is_match: Tensor) -> Map:
    """logit q = a log p - b log(1 - p) + c with a, b >= 0: Platt's is the case a = b."""

    def inputs(at: Tensor) -> Tensor:
        log_q = at.double().clamp(max=-1e-12)
        return torch.stack([log_q, log_odds(at) - log_q, torch.ones_like(log_q)], dim=1)

    known, target = inputs(log_p), is_match.double()

    def loss(weights: Any) -> tuple[float, Any]:
        at = torch.tensor(weights, requires_grad=True)
        value = F.binary_cross_entropy_with_logits(known @ at, target)
        value.backward()
        assert at.grad is not None
        return float(value.detach()), at.grad.numpy()

    found = minimize(loss, [1.0, 1.0, 0.0], jac=True, bounds=[(0, None), (0, None), (None, None)])
    return lambda at: (inputs(at) @ torch.tensor(found.x)).sigmoid()


def isotonic(log_p: Tensor, is_match: Tensor) -> Map:
    """Pool adjacent violators: the non-decreasing steps of least squared error."""
    order = log_p.argsort()
    blocks: list[list[float]] = []
    for value in is_match[order].double().tolist():
        blocks.append([value, 1.0])
        while len(blocks) > 1 and blocks[-2][0] / blocks[-2][1] >= blocks[-1][0] / blocks[-1][1]:
            total, count = blocks.pop()
            blocks[-1][0] += total
            blocks[-1][1] += count
    steps = np.repeat([total / count for total, count in blocks], [int(count) for _, count in blocks])
    places = log_p[order].double().numpy()
    return lambda at: torch.from_numpy(np.interp(at.double().numpy(), places, steps))


MAPS = {
    "raw": raw,
    "constant": constant,
    "platt on logit p": platt,
    "platt on log p": platt_on_log,
    "beta": beta,
    "isotonic": isotonic,
}


def judged(probability: Tensor, is_match: Tensor) -> dict[str, float]:
    clipped = probability.clamp(1e-6, 1 - 1e-6)
    return {
        "ece": expected_calibration_error(probability, is_match),
        "log_loss": float(F.binary_cross_entropy(clipped, is_match.double())),
        "promised": float(probability.mean()),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", type=Path)
    parser.add_argument("run", type=Path)
    parser.add_argument("--splits", type=int, nargs="+", default=[1])
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    encoder = open_encoder(arguments.run)
    curve = encoder.match_curve().fixed()
    all_sets = open_all(SetsChoice(data=arguments.data, splits=tuple(arguments.splits)))
    features = features_of(encoder, all_sets, FeatureReading(num_workers=0), 10)

    def embedded(catalog: Any) -> Embeddings:
        found = features(catalog)
        return embed_features(encoder, found.features, found.catalog)

    results: dict[str, Any] = {}
    for sets in all_sets:
        gallery = SearchedEmbeddings(embedded(sets.train), curve, Sampling(10))
        log_p, right = hits_of(embedded(sets.test), gallery, k=10)
        log_p, right = log_p.flatten(), right.flatten()
        pairs = labelled_pairs(gallery)
        rows = {
            name: judged(fit(pairs.log_probability, pairs.is_match)(log_p), right)
            for name, fit in MAPS.items()
        }
        results[sets.name] = {"right": float(right.double().mean()), "maps": rows}
    names = list(next(iter(results.values()))["maps"])
    print(f"share of hits that are right: {[round(one['right'], 3) for one in results.values()]}")
    for name in names:
        rows = [one["maps"][name] for one in results.values()]
        cells = "   ".join(f"{row['ece']:.3f} {row['log_loss']:.3f} {row['promised']:.3f}" for row in rows)
        mean = f"{np.mean([row['ece'] for row in rows]):.3f} {np.mean([row['log_loss'] for row in rows]):.3f}"
        print(f"{name:35s} {cells}   mean {mean}")
    if arguments.out:
        arguments.out.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
