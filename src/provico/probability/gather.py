"""Pairs across processes: the loss and gradient equal those of one process with the whole batch.

Each process encodes its own videos. Then all exchange the Gaussians of their clips, draw identical samples
(from generators with one seed), and compute the loss of the *whole* batch. Gaussians from other processes
have no gradient here, but they have one there. In detail, with W processes:

1. `gather_videos` puts the local tensor with its gradient among the detached tensors of the others. The
   gradient on process r is then the part of dL/dtheta that flows through the videos of r.
2. DistributedDataParallel *averages* gradients, where these parts must be *summed*: `for_averaging`
   multiplies the loss by W.
3. A parameter that enters the loss directly, such as a and b of the match curve, does not pass through a
   video: every process already has its whole gradient, which step 2 would count W times. `shared_parameter`
   divides it by W.

Processes may hold different numbers of videos, since training skips broken ones. Without several processes
every function returns its input.
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from jaxtyping import Float, Shaped
from torch import Tensor

from provico.probability.gaussian import Gaussian
from provico.probability.mixture import Mixture


def world_size() -> int:
    """The number of processes that train together; one without a process group."""
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def gather_videos(local: Shaped[Tensor, "videos *rest"]) -> Shaped[Tensor, "all_videos *rest"]:
    """The videos of all processes, in the order of their ranks, with the gradient of the local ones.

    All processes must call it with the same trailing shape and type; the number of videos may differ.
    """
    if world_size() == 1:
        return local
    sizes = _gather_sizes(len(local), device=local.device)
    # Collectives need equal shapes: pad to the longest, cut afterwards.
    padded = local.new_zeros((max(sizes), *local.shape[1:]))
    padded[: len(local)] = local.detach()
    received = [torch.empty_like(padded) for _ in sizes]
    dist.all_gather(received, padded)
    parts = [part[:size] for part, size in zip(received, sizes, strict=True)]
    parts[dist.get_rank()] = local
    return torch.cat(parts)


def gather_mixture(local: Mixture) -> Mixture:
    """The videos of all processes as mixtures of their clips."""
    return Mixture(Gaussian(gather_videos(local.clips.mean), gather_videos(local.clips.log_var)))


def for_averaging(loss: Float[Tensor, ""]) -> Float[Tensor, ""]:
    """The loss to call `backward` on if gradients are then averaged over processes."""
    return loss if world_size() == 1 else loss * world_size()


def shared_parameter(parameter: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """The value unchanged, its gradient divided by the number of processes."""
    if world_size() == 1:
        return parameter
    part = parameter / world_size()
    return part + (parameter - part).detach()


def _gather_sizes(num_videos: int, *, device: torch.device) -> list[int]:
    own = torch.tensor([num_videos], device=device)
    received = [torch.empty_like(own) for _ in range(world_size())]
    dist.all_gather(received, own)
    return [int(size) for size in received]
