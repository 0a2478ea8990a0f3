"""One process of the two that `test_gather.py` starts: `gather_worker.py FOLDER`.

It trains one step as a real job would: a DistributedDataParallel encoder, its own videos.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from torch import Tensor, nn

from provico.probability import (
    Gaussian,
    LossParts,
    MatchCurve,
    Mixture,
    Moments,
    Sampled,
    find_distance,
    for_averaging,
    gather_mixture,
    gather_videos,
    match_log_probabilities,
    mine_pairs,
    provico_loss,
    shared_parameter,
)
from provico.processes import join

NUM_VIDEOS = (5, 3)  # uneven, as when one process had to skip broken videos


class Encoder(nn.Module):
    """The smallest network that has all kinds of parameters."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.heads = nn.Linear(6, 8)
        self.log_a, self.b = nn.Parameter(torch.tensor(0.3)), nn.Parameter(torch.tensor(2.0))
        self.double()

    def forward(self, clips: Tensor) -> Tensor:
        out: Tensor = self.heads(clips)
        return out


def clips_of(rank: int) -> Tensor:
    generator = torch.Generator().manual_seed(10 + rank)
    return torch.randn(NUM_VIDEOS[rank], 2, 6, generator=generator, dtype=torch.float64)


def mixture_of(heads: Tensor) -> Mixture:
    return Mixture(Gaussian(heads[..., :4], heads[..., 4:] - 1))


def loss_of(mixture: Mixture, curve: MatchCurve) -> LossParts:
    """The loss of a whole batch, wherever its videos came from."""
    video = mixture.moment_matched
    samples = video.sample(4, generator=torch.Generator().manual_seed(20))
    sampled = Sampled(video, Moments.of_samples(samples))
    distances = find_distance("bhattacharyya_sampled")(sampled, sampled)
    pairs = mine_pairs(distances, threshold=float(distances.detach().median()))
    return provico_loss(
        match_log_probabilities(samples, curve=curve),
        pairs.positive,
        log_uncertainty=video.log_uncertainty,
        kl=video.kl_to_unit(),
    )


def main(folder: Path) -> None:
    with join("cpu") as processes:
        rank = processes.rank
        model = nn.parallel.DistributedDataParallel(Encoder())
        local = mixture_of(model(clips_of(rank)))
        curve = MatchCurve.from_raw(shared_parameter(model.module.log_a), shared_parameter(model.module.b))
        parts = loss_of(gather_mixture(local), curve)
        for_averaging(parts.total).backward()
        gradients = {name: parameter.grad for name, parameter in model.module.named_parameters()}
        # A process may also have nothing at all.
        empty = gather_videos(local.mean if rank == 0 else local.mean[:0])
        torch.save(
            {"loss": parts.total.detach(), "empty": empty.detach(), **gradients}, folder / f"rank{rank}.pt"
        )
    # The model outlives the group here, from which a process must not hang (`processes.py`).
    del model


if __name__ == "__main__":
    main(Path(sys.argv[1]))
