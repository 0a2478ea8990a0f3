"""The verb that opens the explorer."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Annotated

import tyro

from provico.cli.arguments import announce
from provico.errors import ConfigError
from provico.extras import require


def serve(
    index: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="INDEX")],
    *,
    run: tuple[Path, ...] = (),
    reports: tuple[Path, ...] = (),
    curation: Path | None = None,
    root: tuple[Path, ...] = (),
    host: str = "127.0.0.1",
    port: int = 8420,
    allow_host: tuple[str, ...] = (),
    token: str | None = None,
    no_token: bool = False,
    open: bool = False,
    allow_import: bool = False,
) -> None:
    """Serve a web page to search, inspect and clean a collection. Ctrl-C stops it.

    Args:
        index: folder of the index.
        run: folders of pretraining runs to show, or folders that hold some.
        reports: folders of reports to show, or folders that hold some.
        curation: folder that `provico curate` wrote, or is to hold decisions; in the index if not given.
        root: serve source files only below these folders; below the indexed ones if not given.
        host: address to bind to; 0.0.0.0 lets other machines in.
        port: port to bind to; 0 takes any free port.
        allow_host: host names to accept, besides localhost and IP addresses.
        token: refuse requests without this token; "auto" generates one. Other machines need one.
        no_token: let other machines in without a token.
        open: show the page in a browser.
        allow_import: allow the encoder to import a network by name, which runs its code.
    """
    require("explorer", what="The page")
    from provico.explorer.server import address_of, is_local, listen
    from provico.explorer.server import serve as serve_until_ended
    from provico.explorer.settings import ExplorerSettings

    if token is not None and no_token:
        raise ConfigError("--token and --no-token contradict each other. Give one of them.")
    if token == "auto" or (  # nosec B105
        token is None and not no_token and not is_local(host)
    ):
        token = secrets.token_urlsafe(16)
    with listen(host, port) as opened:
        address = address_of(opened)
        settings = ExplorerSettings(
            index=index,
            runs=run,
            reports=reports,
            curation=curation,
            roots=root,
            hosts=allow_host,
            token=token,
            cookie_name=f"provico-{opened.getsockname()[1]}",
            allow_import=allow_import,
        )
        link = address if token is None else f"{address}/login?token={token}"

        def ready() -> None:
            announce(f"{index} is open at {link} (Ctrl-C ends it).")
            if open:
                import webbrowser

                webbrowser.open(link)

        serve_until_ended(settings, opened, ready=ready)
