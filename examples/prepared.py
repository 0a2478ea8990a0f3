"""Shared by the other examples: small videos, an encoder trained on them, and an index.

    python examples/prepared.py

They are created once, in about a minute, in the folder `examples-demo` or the one that PROVICO_DEMO names.
Nothing is downloaded. For your own videos, run `provico pretrain VIDEOS --out run`.
"""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

from provico import Encoder, Index, open_catalog, open_encoder, pretrain, write_demo_set
from provico.demo import demo_recipe

FOLDER = Path(os.environ.get("PROVICO_DEMO", "examples-demo"))


def videos() -> Path:
    """Return the folder of 48 videos of 8 classes, which differ in motion alone."""
    folder = FOLDER / "data"
    if not folder.exists():
        FOLDER.mkdir(parents=True, exist_ok=True)
        write_demo_set(folder, videos_per_class=6)
    return folder


def encoder() -> Encoder:
    """Return a small encoder trained on these videos without labels."""
    run = FOLDER / "run"
    if not (run / "encoder").is_dir():
        recipe = demo_recipe()
        short = dataclasses.replace(recipe.optimiser, epochs=12, warmup_epochs=1, batch_size=16)
        pretrain(videos(), out=run, config=dataclasses.replace(recipe, optimiser=short))
    return open_encoder(run)


def index() -> Index:
    """Return an index of all these videos."""
    folder = FOLDER / "index"
    if not folder.exists():
        Index.create(folder, encoder()).add(open_catalog(videos()))
    return Index.open(folder)


if __name__ == "__main__":
    print(f"{len(index())} videos are ready in {FOLDER}.")
