"""The index that a command is to add to: the one that is there, or a new one."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

from provico.defaults import TEST_CLIPS
from provico.errors import ConfigError
from provico.extras import require
from provico.models.backbones.registry import full_name
from provico.models.encoder import Encoder
from provico.models.saved import open_encoder
from provico.search.index import Index
from provico.search.store.folder import IndexFolder, StorePlace
from provico.search.store.server import trust


def open_or_create(
    path: Path | str,
    checkpoint: Path | None,
    *,
    untrained: tuple[str, Callable[[], Encoder]] | None = None,
    num_clips: int | None = None,
    short_side: int | None = None,
    store: str | None = None,
    allow_import: bool = False,
) -> Index:
    """The index if it is there, else a new one for the encoder of a run, a folder or a checkpoint.

    What is given must be as it is in the index.

    untrained: instead of a checkpoint, the name of a frozen network, and what makes an encoder of it.
    """
    if untrained is not None and checkpoint is not None:
        raise ConfigError("--backbone makes an encoder and --checkpoint names one. Give only one of them.")
    encoder: Encoder | None = None
    if not IndexFolder(Path(path)).is_complete:  # said before an encoder is made, which takes minutes
        require("postgres" if StorePlace(address=store).is_server else "search", what="An index")
    if IndexFolder(Path(path)).is_complete and untrained is not None:
        _check_backbone(path, untrained[0])
        allow_import = True  # whoever names a network by hand trusts its code
    elif untrained is not None:
        encoder = untrained[1]()
    if checkpoint is not None:
        encoder = open_encoder(checkpoint, allow_import=allow_import)
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
            f"{path} is not an index yet. Name the encoder that is to make it, with --checkpoint RUN, or a "
            "frozen network, with --backbone efficientnet_motion."
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


def _check_backbone(path: Path | str, backbone: str) -> None:
    """Refuse another network than that of the index."""
    found = IndexFolder(Path(path)).read_settings().embedding.encoder_config.backbone
    if found != full_name(backbone):
        raise ConfigError(
            f"--backbone is {backbone}, but the index {path} was made with {found}. Leave out --backbone, or "
            "choose another --out."
        )
