"""Pretrain in several processes, on one machine or many. The losses are those of one process.

    torchrun --nproc-per-node 2 examples/pretrain_with_torchrun.py

The command line does the same: torchrun --nproc-per-node 2 -m provico pretrain VIDEOS --out run
"""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

from prepared import FOLDER, videos
from provico import pretrain
from provico.demo import demo_recipe


def main() -> None:
    """Pretrain; every process calls this. Samples, pairs and batch normalisation span all processes."""
    recipe = demo_recipe()
    config = dataclasses.replace(
        recipe,
        optimiser=dataclasses.replace(recipe.optimiser, epochs=2, warmup_epochs=1, batch_size=12),
        run=dataclasses.replace(recipe.run, device="cpu", num_workers=0),
    )
    out = Path(os.environ.get("OUT", FOLDER / "run-by-many"))
    report = pretrain(videos(), out=out, config=config, resume=(out / "config.json").is_file())
    if os.environ.get("RANK", "0") == "0":
        many = os.environ.get("WORLD_SIZE", "1")
        print(f"{report.num_steps} steps by {many} processes: {report.encoder_folder}")


if __name__ == "__main__":
    main()
