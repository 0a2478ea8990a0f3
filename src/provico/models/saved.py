"""Encoders of runs: built from settings, or opened from a run's files.

An encoder is in one of four places, and every command takes any of them: a run's folder (its `encoder/`, or
its newest checkpoint while it is unfinished), an encoder's folder, a checkpoint inside a run, or a repository
of the Hugging Face Hub. The name of a frozen network also works: its features are then used untrained.

A checkpoint is all that a run needs to resume exactly. Its file gets its name only when it is complete and on
disk, so a crash at any moment leaves the previous one. It holds only tensors and plain values, and is read as
such.
"""

from __future__ import annotations

import dataclasses
import pickle
import re
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from provico.config import ModelSettings
from provico.errors import ConfigError, WeightsError
from provico.files import ARCHIVE_ERRORS, remove_partials, replacing
from provico.models.backbones import hub
from provico.models.backbones.folder import holds_network, is_encoder_folder
from provico.models.backbones.frozen import FrozenBackbone, FrozenSpec
from provico.models.backbones.registry import BACKBONES, FOLDER, find_backbone, made_for, source_of
from provico.models.encoder import CONFIG_NAME, WEIGHTS_NAME, Encoder, check_network, read_encoder
from provico.models.encoder_config import EncoderConfig
from provico.models.heads import MeanHead

_PATTERN = re.compile(r"step-(\d{9})\.pt")
_DAMAGE = (
    *ARCHIVE_ERRORS,
    pickle.UnpicklingError,
    LookupError,
    AttributeError,
    AssertionError,
    ArithmeticError,
)
"""Errors that PyTorch raises for damaged files."""


def build_encoder(model: ModelSettings, *, frozen: FrozenSpec | None = None) -> Encoder:
    """Build the encoder of a run's settings, with random weights from torch's generator.

    frozen: describes the features if the backbone is `features`.
    """
    given = {
        name: value
        for name in ("size", "num_frames", "frame_step", "motion")
        if (value := getattr(model, name)) is not None
    }
    config = EncoderConfig.for_backbone(
        model.backbone,
        dim=model.dim,
        parametrisation=model.parametrisation,
        hidden_dim=model.hidden_dim,
        log_var_hidden_dim=model.log_var_hidden_dim,
        input=made_for(model.backbone, frozen=frozen).changed(**given),
        frozen=frozen,
    )
    return Encoder(config)


@dataclass(frozen=True)
class SavedEncoder:
    """The location of a saved encoder."""

    kind: Literal["run", "encoder", "checkpoint"]
    """What the given path is."""
    path: Path
    """The encoder's folder, or the checkpoint."""
    run: Path | None
    """The run that it belongs to, if known."""

    @property
    def is_checkpoint(self) -> bool:
        """Whether it is a checkpoint of a run rather than a finished encoder."""
        return self.path.is_file()

    def read(self) -> tuple[EncoderConfig, dict[str, Tensor]]:
        """Its settings and its own weights, without those of a frozen backbone."""
        if not self.is_checkpoint:
            return read_encoder(self.path)
        state = load_checkpoint(self.path)
        try:
            text, weights = state["trainer"]["encoder_config"], state["trainer"]["encoder"]
        except (KeyError, TypeError) as error:
            raise WeightsError(
                f"{self.path} is not a checkpoint of a run, or comes from provico 0.1.0: it does not contain "
                "an encoder with its settings."
            ) from error
        return EncoderConfig.from_json(text), weights


def find_encoder(path: Path | str) -> SavedEncoder:
    """Find the encoder of a run's folder, an encoder's folder, a checkpoint or `hf:OWNER/NAME`."""
    if str(path).startswith(hub.PREFIX):
        return SavedEncoder("encoder", hub.fetch(str(path)), None)
    path = Path(path)
    if path.is_file():
        run = path.absolute().parent.parent
        return SavedEncoder("checkpoint", path, run if (run / CONFIG_NAME).is_file() else None)
    if (path / "encoder" / CONFIG_NAME).is_file():
        return SavedEncoder("run", path / "encoder", path)
    if (path / WEIGHTS_NAME).is_file():
        run = path.absolute().parent
        return SavedEncoder("encoder", path, run if (run / "checkpoints").is_dir() else None)
    if found := checkpoints(path / "checkpoints"):
        return SavedEncoder("run", found[-1], path)
    if not path.exists():
        raise WeightsError(f"{path} does not exist. Name the folder that `provico pretrain` wrote.")
    raise WeightsError(
        f"{path} is neither an encoder, nor a run with a checkpoint, nor a checkpoint. Name the folder "
        "that `provico pretrain` wrote."
    )


def open_encoder(path: Path | str, *, allow_import: bool = False) -> Encoder:
    """The encoder of a run, an encoder's folder, a checkpoint or `hf:OWNER/NAME`, in evaluation mode.

    The name of a frozen network (`efficientnet_motion`, `hf:OWNER/NAME`, `timm:NAME`, a folder, `FILE.onnx`,
    `package.module:name`) opens an untrained encoder; see `plain_encoder`.

    `allow_import` lets its settings name a network by import path, which runs its code.
    """
    if is_network(path):
        return plain_encoder(str(path))
    saved = find_encoder(path)
    config, weights = saved.read()
    return Encoder.restored(config, weights, source=saved.path, allow_import=allow_import)


def plain_encoder(backbone: str) -> Encoder:
    """An untrained encoder: the features of a frozen network, projected onto a sphere.

    Its means can be compared by cosine. It has no memory of other videos, so all clips have the same
    uncertainty and match probabilities mean little; `training.start.untrained_encoder` fits both.
    """
    spec = find_backbone(backbone)
    if not spec.is_frozen:
        raise ConfigError(
            f"{backbone} is a network that must be trained before it can be opened. Run `provico "
            f"pretrain VIDEOS --backbone {backbone}`, or name a frozen network such as efficientnet_motion."
        )
    config = EncoderConfig.for_backbone(backbone)
    network = config.backbone_spec.build()
    assert isinstance(network, FrozenBackbone)
    dim = network.spec.feature_dim
    encoder = Encoder(dataclasses.replace(config, dim=dim, untrained_on=0), backbone=network)
    assert isinstance(encoder.head.mean, MeanHead)
    encoder.head.mean.pass_on()
    encoder.head.log_var.start_alike()
    return encoder.eval()


def is_network(path: Path | str) -> bool:
    """Whether a name means a network, not a saved encoder."""
    name = str(path)
    if name.startswith(hub.PREFIX):
        return not is_encoder_folder(hub.fetch(name))
    if Path(name).is_dir():
        return holds_network(Path(name))
    source = source_of(name)
    if source == FOLDER:
        return False  # no such folder or run
    return name in BACKBONES if source is None else True


def load_starting_point(encoder: Encoder, path: Path) -> None:
    """Initialise an encoder with the weights of a run, an encoder's folder or a checkpoint."""
    saved = find_encoder(path)
    config, weights = saved.read()
    check_network(config, encoder.config, what=f"The encoder in {saved.path}")
    # Evidence belongs to the videos of that run, and is fitted again at the end of this one.
    weights = {name: value for name, value in weights.items() if not name.startswith("evidence.")}
    encoder.load_own_state_dict(weights, source=saved.path)


def save_checkpoint(folder: Path, state: dict[str, Any], *, step: int, keep: int) -> Path:
    """Write the checkpoint of a step and keep only the `keep` newest ones."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"step-{step:09d}.pt"
    # To a file object: given a path, PyTorch writes its name, which varies, into the content.
    with replacing(path) as partial, partial.open("wb") as file:
        try:
            torch.save(state, file)
        except RuntimeError as error:
            # What PyTorch says when it ends a file that could not be written hides why.
            if isinstance(error.__context__, OSError):
                raise error.__context__ from None
            raise
    for old in checkpoints(folder)[:-keep]:
        old.unlink()
    remove_partials(folder)
    return path


def checkpoints(folder: Path) -> list[Path]:
    """The complete checkpoints in a folder, oldest first."""
    if not folder.is_dir():
        return []
    return sorted(path for path in folder.iterdir() if _PATTERN.fullmatch(path.name))


def load_checkpoint(path: Path) -> dict[str, Any]:
    """Load a checkpoint; a file with anything but tensors and plain values is refused."""
    try:
        with warnings.catch_warnings():
            # No warning is needed for what is refused below.
            warnings.filterwarnings("ignore", message="Detected pickle protocol")
            state = torch.load(path, map_location="cpu", weights_only=True)
    except _DAMAGE as error:
        reason = str(error).partition("\n")[0] or type(error).__name__
        raise WeightsError(f"{path} cannot be read as a checkpoint: {reason}") from error
    if not isinstance(state, dict):
        raise WeightsError(f"{path} holds a {type(state).__name__}, but a checkpoint is a dict.")
    return state
