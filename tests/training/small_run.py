"""A run of a few seconds: its settings, and what it logs."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from provico.config import PretrainConfig
from provico.training.run_log import read_metrics

SMALL = PretrainConfig.from_dict(
    {
        "model": {"backbone": "tiny", "size": 32, "num_frames": 4, "dim": 16},
        "views": {"store": "raw", "augmentation": "contrastive"},
        "objective": {"num_samples": 4},
        "mining": {"mine_from": 2, "threshold": 1.0},
        "optimiser": {"epochs": 4, "batch_size": 6, "warmup_epochs": 1},
        "run": {"num_workers": 0, "log_every": 1, "checkpoint_every": 3, "device": "cpu"},
    }
)


def changed(config: PretrainConfig, **groups: dict[str, Any]) -> PretrainConfig:
    """The settings with some of them changed, by group."""
    values = {name: dataclasses.replace(getattr(config, name), **new) for name, new in groups.items()}
    return dataclasses.replace(config, **values)


def losses(run: Path) -> list[dict[str, float | None]]:
    """The log of a run without what depends on the clock."""
    return [
        {name: value for name, value in record.items() if not name.startswith("time/")}
        for record in read_metrics(run / "metrics.jsonl")
    ]
