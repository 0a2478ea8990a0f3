"""A short description of a run, an encoder, a network, a checkpoint, a file of embeddings or an index."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from provico.config import PretrainConfig, read_config
from provico.embedding.file import COLUMNS, FORMATS, EmbeddingHeader, read_columns, read_header
from provico.locations import current_index
from provico.models.encoder import CONFIG_NAME, encoder_hash
from provico.models.encoder_config import EncoderConfig
from provico.models.saved import SavedEncoder, find_encoder, is_network, load_checkpoint, open_encoder
from provico.recipes import RECIPES
from provico.search.store.folder import IndexFolder
from provico.training.run_log import METRICS_FILE, read_metrics


@dataclass(frozen=True)
class Info:
    """Facts by name, in the order of display."""

    kind: Literal["run", "encoder", "network", "checkpoint", "embeddings", "index"]
    path: Path
    facts: dict[str, Any]
    """Plain values, or small dicts of them."""
    files: dict[str, int]
    """Name and size in bytes of every file of it."""

    def summary(self) -> dict[str, Any]:
        """As plain values, for JSON."""
        return {"kind": self.kind, "path": str(self.path), **self.facts, "files": self.files}


def describe(path: Path | str, *, allow_import: bool = False) -> Info:
    """Find out what is at a path and describe it; `allow_import` as for `open_encoder`."""
    path = Path(path)
    if path.suffix in FORMATS and path.is_file():
        return Info("embeddings", path, _embedding_facts(path), _files(path))
    if (index := current_index(path)) is not None:
        return Info("index", index, _index_facts(index), {"in all": sum(_files(index).values())})
    saved = None if is_network(path) else find_encoder(path)
    encoder = open_encoder(path, allow_import=allow_import)
    curve = encoder.match_curve()
    num_all = sum(value.numel() for value in encoder.parameters())
    num_frozen = sum(value.numel() for value in encoder.parameters() if not value.requires_grad)
    facts = {
        **({} if saved is None else _state(saved)),
        "encoder_hash": encoder_hash(encoder),
        **_encoder_facts(encoder.config),
        "parameters": {"learnt": num_all - num_frozen, "frozen": num_frozen},
        "match_curve": {"a": float(curve.a.detach()), "b": float(curve.b.detach())},
        **({} if saved is None else _run_facts(saved)),
    }
    if saved is None:
        return Info("network", path, facts, {})
    return Info(saved.kind, path, facts, _files(saved.path if saved.kind == "encoder" else path))


def _state(saved: SavedEncoder) -> dict[str, Any]:
    """The progress of the run."""
    finished = {"is_finished": not saved.is_checkpoint} if saved.kind == "run" else {}
    return finished | (
        {"step": load_checkpoint(saved.path)["trainer"]["step"]} if saved.is_checkpoint else {}
    )


def _encoder_facts(config: EncoderConfig) -> dict[str, Any]:
    clips = config.input
    return {
        "backbone": config.backbone,
        "is_frozen": config.backbone_spec.is_frozen,
        "dim": config.dim,
        "clips": {
            "num_frames": clips.num_frames,
            "frame_step": clips.frame_step,
            "size": clips.size,
            "short_side": config.short_side,
            "motion": clips.motion,
        },
        "parametrisation": config.parametrisation,
        **({} if config.training is None else {"training": config.training}),
    }


def _run_facts(saved: SavedEncoder) -> dict[str, Any]:
    """The nearest recipe, the settings that differ from it, and the last line of the log."""
    if saved.run is None or not (saved.run / CONFIG_NAME).is_file():
        return {}
    config = read_config(saved.run / CONFIG_NAME)
    changes = {name: _changes(config, recipe) for name, recipe in RECIPES.items()}
    nearest = min(changes, key=lambda name: len(changes[name]))
    log = saved.run / METRICS_FILE
    records = read_metrics(log) if log.is_file() else []
    return {
        "nearest_recipe": nearest,
        "changes": changes[nearest],
        "last_metrics": records[-1] if records else {},
    }


def _changes(config: PretrainConfig, recipe: PretrainConfig) -> dict[str, Any]:
    differences = config.differences(recipe)
    return {name: mine for name, (mine, _) in differences.items() if not name.startswith("run.")}


def _embedding_facts(path: Path) -> dict[str, Any]:
    header = read_header(path)
    return {
        "num_videos": len(read_columns(path, ("id",))["id"]),
        "num_failed": len(header.failed),
        **_header_facts(header),
        "columns": list(COLUMNS),
        "format_version": header.format_version,
        "provico_version": header.provico_version,
    }


def _index_facts(path: Path) -> dict[str, Any]:
    settings = IndexFolder(path).read_settings()
    store = IndexFolder(path).open_store(settings)
    calibration = IndexFolder(path).read_calibration()
    return {
        "num_videos": len(store.ids),
        "version": store.version,
        "calibrated_by": None if calibration is None else calibration.source,
        "store": settings.place.address or "in its folder",
        **_header_facts(settings.embedding),
        "num_samples": settings.num_samples,
        "seed": settings.seed,
        "format_version": settings.format_version,
        "provico_version": settings.embedding.provico_version,
    }


def _header_facts(header: EmbeddingHeader) -> dict[str, Any]:
    return {
        "encoder_hash": header.encoder_hash,
        **_encoder_facts(header.encoder_config),
        "match_curve": header.match_curve,
        "num_clips": header.num_clips,
        "short_side": header.short_side,
    }


def _files(path: Path) -> dict[str, int]:
    if path.is_file():
        return {path.name: path.stat().st_size}
    files = sorted(file for file in path.rglob("*") if file.is_file())
    return {str(file.relative_to(path)): file.stat().st_size for file in files}
