"""Encoders as runs make and leave them: built from settings, or opened where a run wrote them down.

An encoder lies in one of four places, and every command takes any of them: a run's folder (its `encoder/`,
or its newest checkpoint while it is not finished), an encoder's folder, a checkpoint inside a run, or a
repository of the Hugging Face Hub. Where the name of a frozen network stands instead, its features are used
as they are: nothing was trained.

A checkpoint is all that a run needs to go on as if it had never stopped. Its file appears under its name only
when it is complete and on disk, so a crash at any moment leaves the previous one. It holds tensors and plain
values only, and is read as such.
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
"""What damaged bytes lead to in PyTorch."""


def build_encoder(model: ModelSettings, *, frozen: FrozenSpec | None = None) -> Encoder:
    """The encoder that a run's settings ask for, its weights drawn from torch's random numbers.

    frozen: describes the features, where the backbone is `features`.
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
    """Where an encoder lies."""

    kind: Literal["run", "encoder", "checkpoint"]
    """What was named."""
    path: Path
    """The encoder's folder, or the checkpoint."""
    run: Path | None
    """The run that it is of, where that is known."""

    @property
    def is_checkpoint(self) -> bool:
        """Whether it is the state of a run, not a finished encoder."""
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
                f"{self.path} is not a checkpoint of a run, or one of provico 0.1.0: it has no encoder with "
                "its settings in it."
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

    A frozen network by name (`efficientnet_motion`, `hf:OWNER/NAME`, `timm:NAME`, a folder, `FILE.onnx`,
    `package.module:name`) gives an encoder that nothing was trained for: see `plain_encoder`.

    `allow_import` lets its settings name a network by import path, whose code is then run.
    """
    if is_network(path):
        return plain_encoder(str(path))
    saved = find_encoder(path)
    config, weights = saved.read()
    return Encoder.restored(config, weights, source=saved.path, allow_import=allow_import)


def plain_encoder(backbone: str) -> Encoder:
    """The features of a frozen network on a sphere, in as many coordinates as there are features.

    Its means can be compared by cosine. It knows no other videos, so all clips are equally unsure and match
    probabilities mean little; `training.start.untrained_encoder` gives both by a look at a collection.
    """
    spec = find_backbone(backbone)
    if not spec.is_frozen:
        raise ConfigError(
            f"{backbone} is a network that learns, so there is nothing to open before it has. Run `provico "
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
    """Whether a name means a network, not an encoder that was saved."""
    name = str(path)
    if name.startswith(hub.PREFIX):
        return not is_encoder_folder(hub.fetch(name))
    if Path(name).is_dir():
        return holds_network(Path(name))
    source = source_of(name)
    if source == FOLDER:
        return False  # there is no such folder, nor such a run
    return name in BACKBONES if source is None else True


def load_starting_point(encoder: Encoder, path: Path) -> None:
    """Give an encoder the weights of a run, an encoder's folder or a checkpoint."""
    saved = find_encoder(path)
    config, weights = saved.read()
    check_network(config, encoder.config, what=f"The encoder in {saved.path}")
    # Evidence is of the videos of that run, and is found anew at the end of this one.
    weights = {name: value for name, value in weights.items() if not name.startswith("evidence.")}
    encoder.load_own_state_dict(weights, source=saved.path)


def save_checkpoint(folder: Path, state: dict[str, Any], *, step: int, keep: int) -> Path:
    """Write the checkpoint of a step; of the older ones the newest stay, `keep` in all."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"step-{step:09d}.pt"
    # To a file, not to a path: PyTorch would put the name, which is another one each time, into its content.
    with replacing(path) as partial, partial.open("wb") as file:
        torch.save(state, file)
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
    """What was saved; a file that holds anything but tensors and plain values is refused."""
    try:
        with warnings.catch_warnings():
            # What is refused below need not be warned of before.
            warnings.filterwarnings("ignore", message="Detected pickle protocol")
            state = torch.load(path, map_location="cpu", weights_only=True)
    except _DAMAGE as error:
        reason = str(error).partition("\n")[0] or type(error).__name__
        raise WeightsError(f"{path} cannot be read as a checkpoint: {reason}") from error
    if not isinstance(state, dict):
        raise WeightsError(f"{path} holds a {type(state).__name__}, but a checkpoint is a dict.")
    return state
