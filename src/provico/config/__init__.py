"""Every setting: frozen dataclasses, each default declared here and nowhere else.

Imports no torch, so that the command line can show all of it at once.
"""

from provico.config.data import DataChoice, Reading
from provico.config.pretraining import (
    MiningSettings,
    ModelSettings,
    ObjectiveSettings,
    OptimiserSettings,
    PretrainConfig,
    RunSettings,
    ViewSettings,
    read_config,
)

__all__ = [
    "DataChoice",
    "MiningSettings",
    "ModelSettings",
    "ObjectiveSettings",
    "OptimiserSettings",
    "PretrainConfig",
    "Reading",
    "RunSettings",
    "ViewSettings",
    "read_config",
]
