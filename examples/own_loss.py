"""Define your own objective: a function of the videos of a batch, and one line that registers it.

    python examples/own_loss.py

It combines alignment and uniformity (Wang and Isola, 2020) of means with the paper's variance regulariser.
"""

from __future__ import annotations

import dataclasses
import tempfile
from pathlib import Path

import torch
import torch.nn.functional as F

from prepared import videos
from provico import OBJECTIVES, Mixture, Objective, Outcome, StepContext, pretrain
from provico.demo import demo_recipe


def align_and_spread(batch: Mixture, step: StepContext) -> Outcome:
    """Pull clips of one video together, push videos apart, and keep variances near one."""
    clips = F.normalize(batch.clips.mean, dim=-1)
    alignment = 2 * clips.var(dim=1).sum(dim=-1).mean()
    apart = torch.pdist(F.normalize(batch.mean, dim=-1)).square()
    uniformity = apart.mul(-2).exp().mean().log()
    log_var = batch.clips.log_var
    spread = (log_var.exp() - 1 - log_var).mean() / 2
    parts = {"loss/alignment": alignment, "loss/uniformity": uniformity, "loss/spread": spread}
    loss = alignment + uniformity + step.settings.kl_weight * spread
    return Outcome(loss, {name: part.detach() for name, part in parts.items()})


OBJECTIVES["align-and-spread"] = Objective(loss=align_and_spread)


def main() -> None:
    """Pretrain with it for a few steps. On the command line: --method align-and-spread."""
    recipe = demo_recipe()
    config = dataclasses.replace(
        recipe,
        objective=dataclasses.replace(recipe.objective, method="align-and-spread"),
        optimiser=dataclasses.replace(recipe.optimiser, epochs=3, warmup_epochs=1, batch_size=12),
        run=dataclasses.replace(recipe.run, log_every=1),
    )
    with tempfile.TemporaryDirectory() as folder:
        report = pretrain(videos(), out=Path(folder) / "run", config=config)
        print(f"{report.num_steps} steps; the loss ended at {report.last['loss']:.3f}.")
        for name in ("loss/alignment", "loss/uniformity"):
            print(f"{name.removeprefix('loss/')}: {report.last[name]:.3f}")


if __name__ == "__main__":
    main()
