"""Verbs that learn."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated

import tyro

from provico.cli.arguments import Json, announce, named_option, open_choice, print_json
from provico.config import DataChoice, PretrainConfig
from provico.recipes import DEFAULT_RECIPE, find_recipe


def pretrain(
    choice: DataChoice,
    *,
    settings: Annotated[PretrainConfig, tyro.conf.arg(name="")],
    out: Path = Path("run"),
    recipe: str = DEFAULT_RECIPE,
    also: tuple[Path, ...] = (),
    resume: bool = False,
    checkpoint: Path | None = None,
    tensorboard: bool = False,
    as_json: Json = False,
) -> None:
    """Learn an encoder from videos without labels.

    A recipe sets every option below; an option that is given changes it. The result is OUT/encoder, and
    OUT/report.html shows how the run went. Ctrl-C stops after the current step; --resume continues.
    Several processes: torchrun --nproc-per-node 2 -m provico pretrain ...

    Args:
        choice: which videos to use.
        settings: what the recipe sets.
        out: folder of the run; it must not exist yet, unless the run is resumed.
        recipe: frozen (heads on a frozen network, the default), tiny or tiny-motion (from scratch on a CPU),
            small (one GPU), paper or paper-r3d50.
        also: more videos to learn from, of any source; their labels, if any, are not looked at.
        resume: go on with the run in OUT.
        checkpoint: start from the weights of an encoder, a run or a checkpoint.
        tensorboard: also write events for TensorBoard.
    """
    from provico.data.catalog import open_catalog
    from provico.models.allocator import keep_freed_memory
    from provico.progress import progress_bar
    from provico.show import show_pretrained
    from provico.training.pretrain import pretrain as run

    keep_freed_memory()
    more = (open_catalog(source, allow_missing=choice.allow_missing) for source in also)
    videos = open_choice(choice).joined(*more)
    with progress_bar("Pretraining") as progress:
        report = run(
            videos,
            out=out,
            config=settings,
            resume=resume,
            checkpoint=checkpoint,
            tensorboard=tensorboard,
            announce=announce,
            progress=progress,
        )
    if as_json:
        print_json(report.summary())
    else:
        show_pretrained(report)


def pretrain_with_recipe(given: list[str]) -> Callable[..., None]:
    """`pretrain` with the chosen recipe as its default, so that help shows the recipe's own numbers."""
    name = named_option("--recipe", given, default=DEFAULT_RECIPE)
    return partial(pretrain, settings=find_recipe(name))
