"""What is served, to whom, and within which limits."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from provico.curation.folder import CurationFolder
from provico.errors import ConfigError
from provico.locations import current_index
from provico.workspace.folder import Workspace
from provico.workspace.worker import Worker

MEGABYTE = 2**20
PICTURE_CACHING = f"private, max-age={7 * 24 * 3600}, immutable"
"""Of pictures whose addresses change when the files do."""
MAX_CONNECTIONS = 256
"""Who comes while so many are there is told to try again."""


@dataclass(frozen=True, kw_only=True)
class ExplorerSettings:
    """Everything that the explorer can be told."""

    index: Path
    """Folder of the index, or of the collection."""
    also: tuple[str, ...] = ()
    """Other indexes that are shown as one with it: folders, or addresses of servers."""
    workspace: Workspace | None = None
    """The collection that was opened on this command line, whose files may be moved; None for an index."""
    worker: Worker | None = None
    """Who works for it."""
    words: tuple[str, ...] = ()
    """What groups may be called, where the encoder knows words."""
    runs: tuple[Path, ...] = ()
    """Folders of pretraining runs, or folders that hold such folders."""
    reports: tuple[Path, ...] = ()
    """Folders of reports, or folders that hold such folders."""
    roots: tuple[Path, ...] = ()
    """Only source files below these are served; below the indexed folders if none are given."""
    curation: Path | None = None
    """Folder of proposals and decisions; `curation` in the index if not given."""
    hosts: tuple[str, ...] = ()
    """Names, besides localhost and IP addresses, under which the page may be asked for."""
    token: str | None = None
    """Who does not know it is refused; None lets everybody in who can connect."""
    cookie_name: str = "provico"
    """Cookies know no ports, so servers of one host need different names."""
    allow_import: bool = False
    """Let the encoder of the index import a network by name, whose code is then run."""
    max_upload_bytes: int = 512 * MEGABYTE
    max_uploads: int = 8
    """How many uploads may be under way at once, from the first byte to the answer."""
    upload_seconds: float = 120.0
    """How long it may take to receive an upload, and then again to decode and embed it."""
    frame_seconds: float = 20.0
    """How long it may take to decode one frame."""
    cut_seconds: float = 600.0
    """How long it may take to cut a part out of a video."""

    def __post_init__(self) -> None:
        if self.token is not None and not self.token.strip():
            raise ConfigError(
                "--token is empty, and would admit everybody. Give one that is hard to guess, or --token "
                "auto. --no-token serves without one."
            )

    @property
    def all_runs(self) -> tuple[Path, ...]:
        """Also that of the collection."""
        own = () if self.workspace is None else (self.workspace.path / "run",)
        return (*self.runs, *own)

    @property
    def curation_folder(self) -> Path:
        """Where proposals and decisions lie."""
        return self.curation or CurationFolder.of(current_index(self.index) or self.index / "index").path
