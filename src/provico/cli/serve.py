"""The verbs that open the page: for a folder of videos, which is processed, or for an existing index."""

from __future__ import annotations

import secrets
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from provico.cli.arguments import announce
from provico.errors import ConfigError
from provico.extras import require

if TYPE_CHECKING:
    from provico.workspace.folder import Workspace
    from provico.workspace.worker import Worker


@dataclass(frozen=True, kw_only=True)
class Listening:
    """Who can reach the page."""

    host: str = "127.0.0.1"
    """Address to bind to; 0.0.0.0 lets other machines in."""
    port: int = 8420
    """Port to bind to; 0 takes any free port."""
    allow_host: tuple[str, ...] = ()
    """Host names to accept, besides localhost and IP addresses."""
    token: str | None = None
    """Refuse requests without this token; "auto" generates one. Other machines need one."""
    no_token: bool = False
    """Let other machines connect without a token."""


ON_THIS_MACHINE = Listening()
SECONDS_BETWEEN_LOOKS = 0.5
"""Interval at which finished stages of the work are looked for."""


def open_videos(
    videos: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="VIDEOS")],
    *,
    checkpoint: str | None = None,
    backbone: str | None = None,
    learn: bool = False,
    watch: bool = False,
    folder: Path | None = None,
    cache_gb: float | None = None,
    words: Path | None = None,
    listening: Listening = ON_THIS_MACHINE,
    no_browser: bool = False,
    allow_import: bool = False,
) -> None:
    """Open a folder of videos: what is in it, duplicates, junk, and what to do about them.

    The page opens at once and fills while the videos are read. Ctrl-C stops it; the same command resumes.
    Nothing in the folder changes unless you change it on the page; removed files go into a trash folder.

    Args:
        videos: a folder of videos, a list of them, an index, or s3://bucket/prefix.
        checkpoint: embed the videos with this encoder: a run, an encoder folder or hf:OWNER/NAME.
        backbone: embed them with this frozen network; efficientnet_motion if not given.
        learn: also pretrain on these videos, and use the new encoder if it is better.
        watch: also read files that are added or changed later.
        folder: folder for all output; .provico in the folder of the videos if not given.
        cache_gb: most gigabytes of copies of videos from an object store; 20 unless set before.
        words: names for groups: a file with a phrase on each line; needs an encoder with a text tower.
        listening: who can reach the page.
        no_browser: do not open a browser.
        allow_import: allow the encoder to import a network by name, which runs its code.
    """
    from provico.locations import COLLECTION_NAME, SETTINGS_NAME

    if checkpoint is not None and backbone is not None:
        raise ConfigError("Give either --backbone, which makes an encoder, or --checkpoint, which names one.")
    given = Path(videos)
    if (given / SETTINGS_NAME).is_file():
        if checkpoint or backbone or learn or watch or folder or cache_gb:
            raise ConfigError(
                f"{given} is an index, which already has an encoder and a folder. Give the folder of its "
                "videos, or leave out --checkpoint, --backbone, --learn, --watch, --folder and --cache-gb."
            )
        _serve(
            given,
            listening=listening,
            browser=not no_browser,
            allow_import=allow_import,
            words=_phrases(words),
        )
        return
    require("explorer", what="The page")
    from provico.workspace.folder import Workspace
    from provico.workspace.worker import Worker, WorkerOptions

    if (given / COLLECTION_NAME).is_file() and folder is None:
        folder, videos = given, Workspace(given).settings.source
    workspace = Workspace.open(
        videos, folder=folder, checkpoint=checkpoint, backbone=backbone, cache_gb=cache_gb
    )
    if not workspace.take():
        address = workspace.address
        if address is None:
            raise ConfigError(f"{videos} is being opened by another process. Try again in a moment.")
        announce(f"{videos} is open already, at {address}")
        if not no_browser:
            _show(address)
        return
    try:
        worker = Worker(workspace, WorkerOptions(learn=learn, watch=watch, allow_import=allow_import))
        _serve(
            workspace.path,
            listening=listening,
            browser=not no_browser,
            allow_import=allow_import,
            workspace=workspace,
            worker=worker,
            words=_phrases(words),
        )
    finally:
        workspace.let_go()


def serve(
    index: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="INDEX")],
    also: Annotated[tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="INDEX...")] = (),
    *,
    run: tuple[Path, ...] = (),
    reports: tuple[Path, ...] = (),
    curation: Path | None = None,
    root: tuple[Path, ...] = (),
    words: Path | None = None,
    listening: Listening = ON_THIS_MACHINE,
    open: bool = False,
    allow_import: bool = False,
) -> None:
    """Serve the page for an existing index: nothing is computed and no file is moved. Ctrl-C stops it.

    Args:
        index: folder of the index.
        also: more indexes, shown together with it as one: folders, or postgresql://user@host/database.
        run: folders of pretraining runs to show, or folders that hold some.
        reports: folders of reports to show, or folders that hold some.
        curation: folder written by `provico curate --out`; the one in the index if not given.
        root: serve source files only from these folders; from the indexed folders if not given.
        words: names for groups: a file with a phrase on each line; needs an encoder with a text tower.
        listening: who can reach the page.
        open: open the page in a browser.
        allow_import: allow the encoder to import a network by name, which runs its code.
    """
    _serve(
        index,
        listening=listening,
        browser=open,
        allow_import=allow_import,
        also=also,
        runs=run,
        reports=reports,
        curation=curation,
        roots=root,
        words=_phrases(words),
    )


def _phrases(path: Path | None) -> tuple[str, ...]:
    """The phrases in a file, one per line."""
    if path is None:
        return ()
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"--words {path} cannot be read ({error}). Give a text file.") from error
    found = tuple(dict.fromkeys(line.strip() for line in lines if line.strip()))
    if not found:
        raise ConfigError(f"--words {path} has no phrase in it. Write one per line.")
    return found


def _serve(
    index: Path,
    *,
    listening: Listening,
    browser: bool,
    allow_import: bool,
    workspace: Workspace | None = None,
    worker: Worker | None = None,
    **settings_given: Any,
) -> None:
    require("explorer", what="The page")
    from provico.explorer.server import address_of, is_local, listen
    from provico.explorer.server import serve as serve_until_ended
    from provico.explorer.settings import ExplorerSettings

    token = listening.token
    if token is not None and listening.no_token:
        raise ConfigError("--token and --no-token contradict each other. Give one of them.")
    if token == "auto" or (  # nosec B105
        token is None and not listening.no_token and not is_local(listening.host)
    ):
        token = secrets.token_urlsafe(16)
    port = _free_port(listening) if workspace is not None else listening.port
    with listen(listening.host, port) as opened:
        address = address_of(opened)
        settings = ExplorerSettings(
            index=index,
            workspace=workspace,
            worker=worker,
            hosts=listening.allow_host,
            token=token,
            cookie_name=f"provico-{opened.getsockname()[1]}",
            allow_import=allow_import,
            **settings_given,
        )
        link = address if token is None else f"{address}/login?token={token}"
        what = index if workspace is None else workspace.settings.source

        def ready() -> None:
            if workspace is not None:
                with suppress(OSError):  # on a full disk, where the page says so
                    workspace.address = link
            announce(f"{what} is open at {link} (Ctrl-C ends it).")
            if workspace is not None and workspace.store is not None:
                gigabytes = workspace.settings.cache_gb
                announce(
                    f"Copies and answers are kept in {workspace.path}; copies take {gigabytes:g} GB at most."
                )
            if worker is not None:
                Thread(target=_tell_of, args=(worker,), daemon=True).start()
            if browser:
                _show(link)

        def before() -> None:
            if workspace is not None and (why := workspace.drop_unusable()) is not None:
                announce(f"The index is rebuilt; decisions and the trash are kept. {why}")

        serve_until_ended(settings, opened, ready=ready, before=before)


def _tell_of(worker: Worker) -> None:
    """Print the outcome of each stage of the work as it ends; the page shows the same."""
    from provico.workspace.status import STAGES

    told: set[str] = set()
    while not worker.has_started:
        time.sleep(SECONDS_BETWEEN_LOOKS)
    while True:
        status = worker.status()
        for stage in status.stages:
            if stage.state in ("done", "failed") and stage.name not in told:
                told.add(stage.name)
                if stage.note:
                    announce(f"{STAGES.get(stage.name, stage.name)}: {stage.note}")
        if not status.is_working:
            if status.problem:
                announce(status.problem)
            return
        time.sleep(SECONDS_BETWEEN_LOOKS)


def _free_port(listening: Listening) -> int:
    """The requested port, or another one if the default port is taken by another collection."""
    from provico.explorer.server import listen

    if listening.port != Listening.port:
        return listening.port
    try:
        listen(listening.host, listening.port).close()
    except ConfigError:
        return 0
    return listening.port


def _show(link: str) -> None:
    import webbrowser

    webbrowser.open(link)
