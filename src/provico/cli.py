"""The command line: one function a verb, each a few lines. Torch is imported inside, so help is instant."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from provico.config import DataChoice, PretrainConfig, Reading
from provico.defaults import NUM_FRAMES, SHORT_SIDE, STORE
from provico.errors import ConfigError, ProvicoError
from provico.recipes import DEFAULT_RECIPE, find_recipe

if TYPE_CHECKING:
    from provico.data.catalog import Catalog

Json = Annotated[bool, tyro.conf.arg(name="json", help="Print the result for machines.")]


def demo(*, out: Path = Path("demo"), num_workers: int | None = None) -> None:
    """Run the main job from end to end on the embedded demo set.

    Args:
        out: folder for everything the demo makes; the demo set in it is made once and used again.
        num_workers: processes to use; one per core if not given.
    """
    from provico.demo import run

    run(out, num_workers=num_workers)


def demo_data(
    out: Annotated[Path, tyro.conf.Positional],
    *,
    videos_per_class: int = 24,
    seed: int = 0,
    num_workers: int | None = None,
) -> None:
    """Write the demo set: small videos whose class only their motion tells, some ambiguous on purpose.

    Args:
        out: folder to write; it must not exist yet.
        videos_per_class: how many videos each class gets.
        seed: another seed gives another set; the same seed gives the same bytes.
        num_workers: processes to use; one per core if not given.
    """
    from provico.data.synthetic import write_demo_set
    from provico.progress import progress_bar

    with progress_bar("Writing videos") as progress:
        made = write_demo_set(
            out, videos_per_class=videos_per_class, seed=seed, num_workers=num_workers, progress=progress
        )
    print(f"{made.num_videos} videos of {len(made.classes)} classes written to {out}")


def scan(
    choice: DataChoice,
    *,
    reading: Reading = Reading(),
    out: Path = Path("scan"),
    min_frames: int = NUM_FRAMES,
    as_json: Json = False,
) -> None:
    """Read every video once: what can be used, what cannot and why, what looks wrong.

    Writes manifest.csv (which every command accepts as DATA), bad_videos.csv and summary.json. An interrupted
    scan goes on where it stopped.

    Args:
        choice: which videos to use.
        reading: how files are read.
        out: folder for the results.
        min_frames: videos with fewer frames are flagged as short.
    """
    from provico.data.scan import scan as scan_videos
    from provico.progress import progress_bar
    from provico.show import show_scan

    catalog = _open(choice)
    with progress_bar("Scanning") as progress:
        report = scan_videos(
            catalog,
            min_frames=min_frames,
            num_workers=reading.num_workers,
            timeout_seconds=reading.timeout_seconds,
            progress=progress,
        )
    manifest = report.write(out)
    if as_json:
        _print_json(report.summary())
    else:
        show_scan(report, manifest)


def prepare(
    choice: DataChoice,
    *,
    reading: Reading = Reading(),
    store: Literal["jpeg", "raw", "mp4"] = STORE,
    short_side: int = SHORT_SIDE,
    out: Path | None = None,
    as_json: Json = False,
) -> None:
    """Store the frames at training size once, so that loading is many times faster ever after.

    Loading uses what is prepared by itself. An interrupted run goes on where it stopped; videos that changed
    are done again.

    Args:
        choice: which videos to use.
        reading: how files are read.
        store: jpeg is fast; raw is the fastest and needs twelve times its disk; mp4 is the smallest.
        short_side: pixels of the shorter side of the stored frames.
        out: folder for the frames; ProViCo's own cache folder if not given.
    """
    from provico.data.cache import prepare as prepare_videos
    from provico.progress import progress_bar
    from provico.show import show_prepared

    catalog = _open(choice)
    with progress_bar("Preparing") as progress:
        report = prepare_videos(
            catalog,
            folder=out,
            store=store,
            short_side=short_side,
            num_workers=reading.num_workers,
            timeout_seconds=reading.timeout_seconds,
            announce=lambda text: print(text, file=sys.stderr),
            progress=progress,
        )
    if as_json:
        _print_json(report.summary())
    else:
        show_prepared(report)


def pretrain(
    choice: DataChoice,
    *,
    settings: Annotated[PretrainConfig, tyro.conf.arg(name="")],
    out: Path = Path("run"),
    recipe: str = DEFAULT_RECIPE,
    resume: bool = False,
    checkpoint: Path | None = None,
    as_json: Json = False,
) -> None:
    """Learn an encoder from videos without labels.

    A recipe sets every option below; an option that is given changes it. The result is OUT/encoder, and
    OUT/report.html shows how the run went. Ctrl-C stops after the step at hand, and --resume goes on.
    Several processes: torchrun --nproc-per-node 2 -m provico pretrain ...

    Args:
        choice: which videos to use.
        settings: what the recipe sets.
        out: folder of the run; it must not exist yet, unless the run is resumed.
        recipe: frozen (heads on a frozen network, the default), tiny (from scratch on a CPU), small (one
            GPU), paper or paper-r3d50.
        resume: go on with the run in OUT.
        checkpoint: start from the weights of an encoder, a run or a checkpoint.
    """
    from provico.models.allocator import keep_freed_memory
    from provico.progress import progress_bar
    from provico.show import show_pretrained
    from provico.training.pretrain import pretrain as run

    keep_freed_memory()
    with progress_bar("Pretraining") as progress:
        report = run(
            _open(choice),
            out=out,
            config=settings,
            resume=resume,
            checkpoint=checkpoint,
            announce=lambda text: print(text, file=sys.stderr),
            progress=progress,
        )
    if as_json:
        _print_json(report.summary())
    else:
        show_pretrained(report)


def doctor(*, as_json: Json = False) -> None:
    """Say what works on this machine: versions, decoders, accelerators, folders."""
    from provico.doctor import examine, show

    checks = examine()
    if as_json:
        _print_json({check.name: {"works": check.works, "found": check.found} for check in checks})
    else:
        show(checks)


VERBS: dict[str, Callable[..., None]] = {
    "demo": demo,
    "demo-data": demo_data,
    "scan": scan,
    "prepare": prepare,
    "pretrain": pretrain,
    "doctor": doctor,
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point: a user's mistake is one sentence and exit status 2, never a traceback."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in given
    given = [argument for argument in given if argument != "--debug"]
    try:
        _dispatch(given)
    except ProvicoError as error:
        if debug:
            raise
        print(f"provico: {error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        print("provico: interrupted. What was finished is kept.", file=sys.stderr)
        sys.exit(130)
    except BrokenPipeError:
        # The reader of our output, such as `head`, has gone: no more to say.
        sys.stderr.close()
        sys.exit(1)


def _dispatch(given: list[str]) -> None:
    """Only the verb that was given is parsed: the overview and each verb's help then come at once."""
    verb, *rest = given or ["--help"]
    if verb in ("--help", "-h"):
        print(_overview())
    elif verb == "--version":
        from importlib.metadata import version

        print(f"provico {version('provico')}")
    elif verb not in VERBS:
        near = get_close_matches(verb, VERBS, n=1)
        hint = f"Did you mean {near[0]}?" if near else f"There are {', '.join(VERBS)}."
        raise ConfigError(f"There is no command {verb!r}. {hint}")
    else:
        tyro.cli(
            _with_recipe(pretrain, rest) if verb == "pretrain" else VERBS[verb],
            prog=f"provico {verb}",
            args=rest,
            config=(tyro.conf.OmitArgPrefixes, tyro.conf.FlagCreatePairsOff),
        )


def _with_recipe(function: Callable[..., None], given: list[str]) -> Callable[..., None]:
    """The function with the chosen recipe as its default, so that help shows the recipe's own numbers."""
    name = DEFAULT_RECIPE
    for number, argument in enumerate(given):
        if argument == "--recipe" and number + 1 < len(given):
            name = given[number + 1]
        elif argument.startswith("--recipe="):
            name = argument.removeprefix("--recipe=")
    return partial(function, settings=find_recipe(name))


def _overview() -> str:
    verbs = [f"  {verb:<11}{(function.__doc__ or '').splitlines()[0]}" for verb, function in VERBS.items()]
    return "\n".join(
        [
            "usage: provico COMMAND [options]",
            "",
            "Learn from unlabelled videos, find similar ones, and know how unsure the answer is.",
            "",
            *verbs,
            "",
            "provico COMMAND --help shows the options of a command; provico --version tells the version.",
            "Add --debug to any command to see where an error comes from.",
        ]
    )


def _open(choice: DataChoice) -> Catalog:
    from provico.data.catalog import open_catalog

    catalog = open_catalog(
        choice.data,
        layout=choice.layout,
        split=choice.split,
        subset=choice.subset,
        allow_missing=choice.allow_missing,
    )
    if catalog.missing:
        total = len(catalog) + len(catalog.missing)
        print(f"{len(catalog.missing)} of {total} listed videos are missing.", file=sys.stderr)
    return catalog


def _print_json(value: Any) -> None:
    print(json.dumps(value, indent=2))
