"""Image networks of the library timm: `timm:NAME` with its published weights, or a folder of its format.

timm itself imports torchvision, which must therefore work. Pixels are made as by timm's evaluation
transforms: scaled to a short side of size / crop_pct with Pillow, then centre-cropped.
"""

from __future__ import annotations

import hashlib
import json
import math
from pathlib import Path
from typing import Any

from jaxtyping import Float
from torch import Tensor, nn

from provico.defaults import SCALINGS
from provico.errors import ConfigError, MissingDependencyError
from provico.extras import require
from provico.models.backbones.changes import LookAndChange, Maps, as_maps, over_frames, probe_blocks
from provico.models.backbones.frozen import FrozenBackbone, FrozenSpec
from provico.models.backbones.hub import check_weights
from provico.models.backbones.transformers_model import FRAME_STEP, FRAMES
from provico.models.pixels import Channels, InputSpec
from provico.models.weights import weights_hash

PREFIX = "timm:"


class TimmNetwork(LookAndChange):
    """An image network of timm, as a backbone."""

    sees_pictures = True

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def look(
        self, clips: Float[Tensor, "clips time 3 height width"]
    ) -> tuple[Float[Tensor, "clips feature"], Maps | None]:
        """The output of the last layer, pooled and as maps."""
        model: Any = self.model
        maps = model.forward_features(clips.flatten(0, 1))
        pooled = model.forward_head(maps, pre_logits=True)
        if maps.ndim == 4 and str(getattr(model, "output_fmt", "NCHW")) == "NHWC":
            maps = maps.permute(0, 3, 1, 2)
        if maps.ndim == 3:
            maps = maps[:, int(getattr(model, "num_prefix_tokens", 0)) :]
        return over_frames(pooled.flatten(1), clips), as_maps(maps, clips)


def made_for(name: str) -> InputSpec:
    """The clips that `timm:NAME` expects; nothing is downloaded for that."""
    timm = _import(name)
    try:
        found = timm.models.get_pretrained_cfg(_model_name(name), allow_unregistered=False)
    except (RuntimeError, ValueError, AttributeError):
        found = None
    if found is None:
        near = timm.list_models(f"*{_model_name(name).partition('.')[0]}*")[:3]
        hint = f" Did you mean {' or '.join(f'timm:{one}' for one in near)}?" if near else ""
        raise ConfigError(f"timm {timm.__version__} has no network {_model_name(name)!r}.{hint}")
    return _input_spec(found.to_dict(), name)


def open_named(name: str, clips: InputSpec, frozen: FrozenSpec | None = None) -> FrozenBackbone:
    """`timm:NAME` with its published weights, which are downloaded if they are not in the cache."""
    wanted, timm = made_for(name), _import(name)
    try:
        model = _create(timm, _model_name(name), clips, wanted, pretrained=True)
    except Exception as error:  # third-party code may raise anything
        reason = str(error).strip().partition("\n")[0]
        raise ConfigError(
            f"{name} cannot be opened with timm {timm.__version__} ({type(error).__name__}: {reason})."
        ) from error
    return _backbone(model, clips, wanted, called=name, said=_model_name(name))


def folder_made_for(folder: Path, values: dict[str, Any], called: str) -> InputSpec:
    """The clips that the network in a folder expects."""
    return _input_spec(values.get("pretrained_cfg") or values, called)


def open_folder(folder: Path, values: dict[str, Any], clips: InputSpec, called: str) -> FrozenBackbone:
    """Open the network in a folder written by timm."""
    wanted, timm = folder_made_for(folder, values, called), _import(called)
    check_weights(folder, called=called)
    try:
        model = _create(timm, f"local-dir:{folder}", clips, wanted, pretrained=True)
    except Exception as error:  # third-party code may raise anything
        reason = str(error).strip().partition("\n")[0]
        raise ConfigError(
            f"{called} cannot be opened with timm {timm.__version__} ({type(error).__name__}: {reason})."
        ) from error
    said = json.dumps([values["architecture"], values.get("model_args")], sort_keys=True)
    return _backbone(model, clips, wanted, called=called, said=said)


def _create(timm: Any, name: str, clips: InputSpec, wanted: InputSpec, *, pretrained: bool) -> nn.Module:
    """A network without its classifier, built for the given image size if it depends on it."""
    try:
        if clips.size == wanted.size:
            model = timm.create_model(name, pretrained=pretrained, num_classes=0)
        else:
            model = timm.create_model(name, pretrained=pretrained, num_classes=0, img_size=clips.size)
    except TypeError:  # convolutional networks take any size and have no such argument
        model = timm.create_model(name, pretrained=pretrained, num_classes=0)
    built: nn.Module = model.float().eval().requires_grad_(False)
    return built


def _backbone(
    model: nn.Module, clips: InputSpec, wanted: InputSpec, *, called: str, said: str
) -> FrozenBackbone:
    if clips.motion:
        raise ConfigError(f"{called} takes frames, not their differences. Leave out --motion.")
    network = TimmNetwork(model)
    takes = f"any number of frames of {wanted.size} x {wanted.size} pixels"
    patch = getattr(getattr(model, "patch_embed", None), "patch_size", None) or (1, 1)
    if clips.size % patch[0]:  # timm would silently ignore the rest of the frame
        raise ConfigError(
            f"{called} expects {takes} or multiples of {patch[0]}, but frames have "
            f"{clips.size} x {clips.size} pixels. Leave out --size, or give a multiple."
        )
    spec = probe_blocks(network, clips, called=called, takes=takes)
    text = said + weights_hash(model.state_dict())
    return FrozenBackbone(network, spec, hash=hashlib.sha256(text.encode()).hexdigest()[:16], use_engine=True)


def _model_name(name: str) -> str:
    return name.removeprefix(PREFIX)


def _input_spec(values: dict[str, Any], called: str) -> InputSpec:
    channels, height, width = values["input_size"]
    if channels != 3 or height != width:
        raise ConfigError(
            f"{called} expects {channels} channels of {height} x {width} pixels, but only square colour "
            "frames are supported. Choose another network."
        )
    scaling = f"pil-{values.get('interpolation', 'bicubic')}"
    if scaling not in SCALINGS:
        raise ConfigError(
            f"{called} needs frames scaled by {scaling.removeprefix('pil-')}, which is not supported."
        )
    squash = values.get("crop_mode", "center") == "squash"
    return InputSpec(
        size=height,
        num_frames=FRAMES,
        frame_step=FRAME_STEP,
        pixel_mean=_three(values["mean"]),
        pixel_std=_three(values["std"]),
        scaling=scaling,
        short_side=height if squash else max(height, math.floor(height / values.get("crop_pct", 0.875))),
        squash=squash,
    )


def _three(values: Any) -> Channels:
    red, green, blue = map(float, values)
    return red, green, blue


def _import(name: str) -> Any:
    require("timm", what=name)
    try:
        import timm
    except (ImportError, RuntimeError) as error:
        raise MissingDependencyError(
            f"{name} needs timm, which is installed but cannot be imported ({error}). It needs a torchvision "
            "that fits torch. Run: pip install 'provico[timm]'"
        ) from error
    return timm
