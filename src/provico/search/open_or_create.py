"""The index that a command is to add to: the one that is there, or a new one."""

from __future__ import annotations

import shutil
from pathlib import Path

from provico.defaults import TEST_CLIPS
from provico.errors import ConfigError
from provico.models.saved import open_encoder
from provico.search.index import Index
from provico.search.store.folder import IndexFolder
from provico.search.store.trust import trust


def open_or_create(
    path: Path | str,
    checkpoint: Path | None,
    *,
    num_clips: int | None = None,
    short_side: int | None = None,
    store: str | None = None,
    allow_import: bool = False,
) -> Index:
    """The index if it is there, else a new one for the encoder of a run, a folder or a checkpoint.

    What is given must be as it is in the index.
    """
    encoder = None if checkpoint is None else open_encoder(checkpoint, allow_import=allow_import)
    if store is not None:
        trust(store)
    if IndexFolder(Path(path)).is_complete:
        index = Index.open(path, allow_import=allow_import)
        index.check_encoder(encoder or index.encoder, num_clips=num_clips, short_side=short_side)
        if store not in (None, index.settings.place.address):
            raise ConfigError(
                f"The store is {store!r}, but the rows of {path} are in "
                f"{index.settings.place.address or 'its own folder'}. Leave out --store."
            )
        return index
    if encoder is None:
        raise ConfigError(
            f"{path} is not an index yet. Name the encoder that is to make it, with --checkpoint RUN."
        )
    return Index.create(
        path,
        encoder,
        num_clips=TEST_CLIPS if num_clips is None else num_clips,
        short_side=short_side,
        store=store,
    )


def remove_if_empty(index: Index) -> None:
    """Remove an index in which there is nothing, such as one for files of which none can be read.

    One whose rows are elsewhere stays: what is there may be shared.
    """
    if index.settings.place.address is None and not len(Index.open(index.path)):
        shutil.rmtree(index.path)
