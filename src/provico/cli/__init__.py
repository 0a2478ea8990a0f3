"""The command line: one small function per verb. Torch is imported inside them, so that help is instant."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Callable, Sequence
from pathlib import Path

import tyro

from provico.cli import evaluate
from provico.cli.curate import curate, dedup
from provico.cli.data import demo, demo_data, doctor, prepare, scan
from provico.cli.embed import embed, export, info
from provico.cli.evaluate import evaluate_uncertainty, reproduce, uncertainty
from provico.cli.help import REGISTRY, width, with_joined_lines
from provico.cli.learn import pretrain, pretrain_with_recipe
from provico.cli.search import calibrate, cut, index, judge, search, select
from provico.cli.serve import open_videos, serve
from provico.data.memory import limit_this_process
from provico.errors import ConfigError, ProvicoError, did_you_mean, lost_worker
from provico.files import disk_problem
from provico.threads import wait_considerately

VERBS: dict[str, Callable[..., None]] = {
    "open": open_videos,
    "demo": demo,
    "demo-data": demo_data,
    "scan": scan,
    "prepare": prepare,
    "pretrain": pretrain,
    "evaluate retrieval": evaluate.retrieval,
    "evaluate linear": evaluate.linear,
    "evaluate finetune": evaluate.finetune,
    "evaluate uncertainty": evaluate_uncertainty,
    "embed": embed,
    "index": index,
    "search": search,
    "cut": cut,
    "dedup": dedup,
    "select": select,
    "judge": judge,
    "calibrate": calibrate,
    "uncertainty": uncertainty,
    "serve": serve,
    "curate": curate,
    "reproduce": reproduce,
    "export": export,
    "info": info,
    "doctor": doctor,
}
"""The commands by name, of one or two words."""

WITH_RECIPE: dict[str, Callable[[list[str]], Callable[..., None]]] = {
    "pretrain": pretrain_with_recipe,
    "evaluate finetune": evaluate.finetune_with_recipe,
}
"""Commands whose defaults depend on the recipe that is chosen."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point. A user's mistake prints one sentence and exits with status 2; it never prints a
    traceback."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in given
    if "--trust-address" in given:
        from provico.search.store.server import trust_all

        trust_all()
    given = [argument for argument in given if argument not in ("--debug", "--trust-address")]
    limit_this_process()
    wait_considerately()
    try:
        _run(given, debug)
    finally:
        if (processes := sys.modules.get("provico.processes")) is not None:  # it imports torch
            processes.leave()


def _run(given: Sequence[str], debug: bool) -> None:
    try:
        _dispatch(given)
    except ProvicoError as error:
        if debug:
            raise
        print(f"provico: {error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        print("provico: interrupted. Finished work is kept.", file=sys.stderr)
        sys.exit(130)
    except BrokenPipeError:
        # The reader of our output, such as `head`, has closed the pipe.
        sys.stderr.close()
        sys.exit(1)
    except Exception as error:  # native libraries raise errors of any type
        problem = disk_problem(error) or lost_worker(error)
        if debug or problem is None:
            raise
        print(f"provico: {problem}", file=sys.stderr)
        sys.exit(2)


def _dispatch(given: Sequence[str]) -> None:
    """Parse only the given verb, which keeps the overview and the help of each verb fast."""
    if not given:
        from provico.cli.next_steps import next_steps

        print(next_steps(Path.cwd()))
        return
    verb, *rest = given
    if rest and f"{verb} {rest[0]}" in VERBS:
        verb, rest = f"{verb} {rest[0]}", rest[1:]
    if verb in ("--help", "-h"):
        print(_overview())
    elif _begins_commands(verb) and (not rest or rest[0] in ("--help", "-h")):
        print(_overview(verb))
    elif verb == "--version":
        from importlib.metadata import version

        print(f"provico {version('provico')}")
    elif verb not in VERBS:
        verb = " ".join(given[:2]) if _begins_commands(verb) else verb
        raise ConfigError(f"There is no command {verb!r}. {did_you_mean(verb, VERBS)}")
    else:
        function = WITH_RECIPE[verb](rest) if verb in WITH_RECIPE else VERBS[verb]
        tyro.cli(
            with_joined_lines(function),
            prog=f"provico {verb}",
            args=rest,
            registry=REGISTRY,
            config=(tyro.conf.OmitArgPrefixes, tyro.conf.FlagCreatePairsOff),
        )


def _begins_commands(word: str) -> bool:
    return any(verb.startswith(f"{word} ") for verb in VERBS)


def _overview(first_word: str = "") -> str:
    """The list of all commands, or of those that begin with a word."""
    indent = max(map(len, VERBS)) + 4
    verbs = [
        textwrap.fill(
            (function.__doc__ or "").splitlines()[0],
            width(),
            initial_indent=f"  {verb}".ljust(indent),
            subsequent_indent=" " * indent,
        )
        for verb, function in VERBS.items()
        if not first_word or verb.startswith(f"{first_word} ")
    ]
    return "\n".join(
        [
            "usage: provico COMMAND [options]",
            "",
            "Learn from unlabelled videos, find similar ones, and know how unsure the answer is.",
            "",
            *verbs,
            "",
            "provico COMMAND --help shows the options of a command; provico --version prints the version.",
            "Add --debug to any command to see where an error comes from, and --trust-address to connect to",
            "an address that is stored in somebody else's index.",
        ]
    )
