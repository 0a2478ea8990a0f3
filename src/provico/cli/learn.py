"""The verb that pretrains."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, update_wrapper
from pathlib import Path
from types import FunctionType
from typing import Annotated, Any, get_type_hints

import tyro

from provico.cli.arguments import Json, Videos, announce, give, named_option, open_choice
from provico.config import PretrainConfig
from provico.recipes import DEFAULT_RECIPE, find_recipe


def pretrain(
    choice: Videos,
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

    A recipe sets the defaults of all options below; --help-all shows all of them. The encoder is written to
    OUT/encoder, and OUT/report.html shows the progress of the run. Ctrl-C stops after the current step;
    --resume continues. To use several processes: torchrun --nproc-per-node 2 -m provico pretrain ...

    Args:
        choice: which videos to use.
        settings: the settings, whose defaults the recipe sets.
        out: folder of the run; it must not exist yet, unless a run is resumed.
        recipe: frozen (heads on a frozen network, the default), tiny or tiny-motion (from scratch on a CPU),
            paper or paper-r3d50 (GPUs).
        also: more videos to train on, from any source; their labels are not used.
        resume: resume the run in OUT.
        checkpoint: start from the weights of an encoder, a run or a checkpoint.
        tensorboard: also write events for TensorBoard.
    """
    from provico.data.catalog import open_catalog
    from provico.processes import keep_freed_memory
    from provico.progress import progress_bar
    from provico.show import show_pretrained
    from provico.training.pretrain import pretrain as run

    keep_freed_memory()
    more = (open_catalog(source, allow_missing=choice.allow_missing) for source in also)
    videos = open_choice(choice, features=True).joined(*more)
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
    give(report, show_pretrained, as_json=as_json)


MAIN_SETTINGS = (
    "backbone",
    "dim",
    "num_clips",
    "augmentation",
    "method",
    "mine_from",
    "epochs",
    "max_steps",
    "batch_size",
    "learning_rate",
    "seed",
    "device",
    "num_workers",
)
"""The settings that `--help` shows; `--help-all` also shows the rest."""


def pretrain_with_recipe(given: list[str]) -> Callable[..., None]:
    """`pretrain` with the chosen recipe as its default, so that help shows the recipe's own numbers."""
    recipe = find_recipe(named_option("--recipe", given, default=DEFAULT_RECIPE))
    if "--help-all" in given:
        given[:] = ["--help"]
    elif "--help" in given or "-h" in given:
        return _briefly(recipe)
    return partial(pretrain, settings=recipe)


def _briefly(recipe: PretrainConfig) -> Callable[..., None]:
    """`pretrain` as its help shows it, without the settings that are rarely changed."""

    brief: Any = update_wrapper(FunctionType(pretrain.__code__, pretrain.__globals__), pretrain)
    brief.__kwdefaults__ = pretrain.__kwdefaults__
    del brief.__wrapped__  # otherwise the parser uses the types of the original
    groups = {name: _brief_kind(type(group)) for name, group in vars(recipe).items()}
    config = _with_annotations(PretrainConfig, groups)
    brief.__annotations__ = pretrain.__annotations__ | {"settings": Annotated[config, tyro.conf.arg(name="")]}
    values = {name: kind(**vars(getattr(recipe, name))) for name, kind in groups.items()}
    return partial(brief, settings=config(**values))


def _brief_kind(kind: type[Any]) -> type[Any]:
    suppress: Any = tyro.conf.Suppress
    hints = get_type_hints(kind)
    hidden = {name: suppress[hint] for name, hint in hints.items() if name not in MAIN_SETTINGS}
    return _with_annotations(kind, hidden)


def _with_annotations(kind: type[Any], annotations: dict[str, Any]) -> type[Any]:
    """A subclass whose fields have these types for the command line."""
    return type(kind.__name__, (kind,), {"__annotations__": annotations, "__doc__": kind.__doc__})
