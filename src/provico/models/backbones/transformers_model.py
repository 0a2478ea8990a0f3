"""Networks of the library transformers, from a folder, without running any code from it.

`FAMILIES` defines for each model type how it takes a clip and what it returns: pooled features, and tokens by
position. Unlisted types get single frames. Weights are read as float32, which CPUs compute with: other types
would silently run in half precision.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from provico.errors import ConfigError
from provico.extras import require
from provico.models.backbones.changes import LookAndChange, Maps, as_maps, over_frames, probe_blocks
from provico.models.backbones.frozen import FrozenBackbone
from provico.models.backbones.hub import check_weights
from provico.models.backbones.preprocessing import read_preprocessing
from provico.models.pixels import InputSpec
from provico.models.weights import weights_hash

Clips = Float[Tensor, "clips time 3 height width"]
Look = tuple[Float[Tensor, "clips feature"], Maps | None]

FRAMES, FRAME_STEP = 4, 3
"""Clips for networks of single frames: few frames that still show motion."""
_NOT_THE_NETWORK = ("transformers_version", "_name_or_path", "torch_dtype", "dtype", "architectures")


@dataclass(frozen=True, kw_only=True)
class Family:
    """The properties of one model type."""

    see: Callable[[Any, Clips], Look]
    loads: str = "AutoModel"
    """The class of transformers with only the vision part, if there is one."""
    frame_step: int = FRAME_STEP
    """The frame stride of its training, which none of its files states."""
    num_frames: str | None = None
    """The setting of its config with its number of frames; None if it takes single frames."""
    is_fixed: bool = False
    """Whether it takes only this number of frames and this size."""
    has_words: bool = False
    """Whether its pooled features share a space with texts (`text_tower`)."""


def _frames(clips: Clips) -> Float[Tensor, "frames 3 height width"]:
    return clips.flatten(0, 1)


def _see_frames(model: Any, clips: Clips) -> Look:
    """Networks of single images that take any size."""
    return _of_frames(model, model(pixel_values=_frames(clips)), clips)


def _see_towers(model: Any, clips: Clips) -> Look:
    """The image towers of CLIP and SigLIP, whose positions must be interpolated for another size."""
    other_size = clips.shape[-1] != model.config.image_size
    found = model(pixel_values=_frames(clips), interpolate_pos_encoding=other_size)
    return _of_frames(model, found, clips)


def _see_patches(model: Any, clips: Clips) -> Look:
    """SigLIP 2 for any aspect, which takes the pixels of patches, a mask and the shape."""
    frames, side = _frames(clips), model.config.patch_size
    num_high, num_wide = frames.shape[2] // side, frames.shape[3] // side
    patches = frames.reshape(frames.shape[0], 3, num_high, side, num_wide, side)
    patches = patches.permute(0, 2, 4, 3, 5, 1).flatten(3).flatten(1, 2)
    found = model(
        pixel_values=patches,
        pixel_attention_mask=torch.ones(patches.shape[:2], dtype=torch.int32, device=frames.device),
        spatial_shapes=torch.tensor([[num_high, num_wide]], device=frames.device).expand(frames.shape[0], 2),
    )
    return _of_frames(model, found, clips)


def _of_frames(model: Any, found: Any, clips: Clips) -> Look:
    tokens = found.last_hidden_state
    pooled = getattr(found, "image_embeds", None)
    pooled = getattr(found, "pooler_output", None) if pooled is None else pooled
    if pooled is None:
        pooled = tokens.mean(dim=(2, 3) if tokens.ndim == 4 else 1)
    return over_frames(pooled.flatten(1), clips), as_maps(_places(model, tokens, clips), clips)


def _places(model: Any, tokens: Tensor, clips: Clips) -> Tensor:
    """Tokens with a position: without the leading ones, for the class or as registers."""
    side = _patch_size(model.config)
    if tokens.ndim != 3 or side is None:
        return tokens
    num_places = (clips.shape[-2] // side) * (clips.shape[-1] // side)
    return tokens[:, max(0, tokens.shape[1] - num_places) :]


def _see_tubes(model: Any, clips: Clips) -> Look:
    """VideoMAE: tokens of tubes, first in time, then in space; pooled by their mean."""
    return _of_tubes(model, model(pixel_values=clips).last_hidden_state, clips)


def _see_jepa(model: Any, clips: Clips) -> Look:
    """V-JEPA 2: as VideoMAE; the predictor that it is trained with is not run."""
    return _of_tubes(model, model.get_vision_features(clips), clips)


def _of_tubes(model: Any, tokens: Tensor, clips: Clips) -> Look:
    steps = clips.shape[1] // model.config.tubelet_size
    return tokens.mean(dim=1), tokens.reshape(clips.shape[0], steps, -1, tokens.shape[2])


def _see_divided(model: Any, clips: Clips) -> Look:
    """TimeSformer: a token for the class, then tokens first in space, then in time."""
    tokens = model(pixel_values=clips).last_hidden_state
    places = tokens[:, 1:].reshape(clips.shape[0], -1, clips.shape[1], tokens.shape[2])
    return tokens[:, 0], places.transpose(1, 2)


def _see_messages(model: Any, clips: Clips) -> Look:
    """X-CLIP: frames that exchange messages, then one vector of the video."""
    found = model.get_video_features(clips)
    tokens = found.last_hidden_state
    return found.pooler_output, as_maps(tokens[:, 1:], clips)


_IMAGES = Family(see=_see_frames)
FAMILIES: dict[str, Family] = {
    "dinov2": _IMAGES,
    "dinov2_with_registers": _IMAGES,
    "dinov3_vit": _IMAGES,
    "dinov3_convnext": _IMAGES,
    "clip": Family(see=_see_towers, loads="CLIPVisionModelWithProjection", has_words=True),
    "siglip": Family(see=_see_towers, loads="SiglipVisionModel", has_words=True),
    "siglip2": Family(see=_see_patches, loads="Siglip2VisionModel", has_words=True),
    "xclip": Family(see=_see_messages, num_frames="num_frames", frame_step=8, is_fixed=True, has_words=True),
    "videomae": Family(see=_see_tubes, num_frames="num_frames", frame_step=4, is_fixed=True),
    "vjepa2": Family(see=_see_jepa, num_frames="frames_per_clip", frame_step=2),
    "timesformer": Family(see=_see_divided, num_frames="num_frames", frame_step=8, is_fixed=True),
}
"""Model types by their name in config.json. Others get single frames."""


class TransformersNetwork(LookAndChange):
    """A model of transformers, as a backbone."""

    def __init__(self, model: nn.Module, family: Family) -> None:
        super().__init__()
        self.model, self.family = model, family
        self.sees_pictures = family.num_frames is None

    def look(self, clips: Clips) -> Look:
        """The model's features of clips."""
        return self.family.see(self.model, clips)


def made_for(folder: Path, values: dict[str, Any], called: str) -> InputSpec:
    """The clips that the model expects."""
    family, vision = find_family(values), _vision(values)
    num_frames = FRAMES if family.num_frames is None else _setting(vision, family.num_frames, values, called)
    return read_preprocessing(folder, num_frames=num_frames, frame_step=family.frame_step, called=called)


def open_model(folder: Path, values: dict[str, Any], clips: InputSpec, called: str) -> FrozenBackbone:
    """Open the model as a backbone, after a check that it can take these clips."""
    wanted = made_for(folder, values, called)
    family = find_family(values)
    takes = check_clips(clips, wanted, values, called=called)
    require("hf", what=called)
    check_weights(folder, called=called)
    import transformers

    kind = getattr(transformers, family.loads)
    with quietly():
        try:
            model, found = kind.from_pretrained(
                str(folder),
                dtype=torch.float32,
                local_files_only=True,
                trust_remote_code=False,
                use_safetensors=True,
                output_loading_info=True,
            )
        except Exception as error:  # third-party code may raise anything
            reason = str(error).strip().partition("\n")[0]
            raise ConfigError(
                f"{called} cannot be opened with transformers {transformers.__version__} "
                f"({type(error).__name__}: {reason})."
            ) from error
    _check_complete(found, called)
    network = TransformersNetwork(model.eval().requires_grad_(False), family)
    spec = probe_blocks(network, clips, called=called, takes=takes)
    return FrozenBackbone(network, spec, hash=_identity(model, values), use_engine=True)


def find_family(values: dict[str, Any]) -> Family:
    """The family of a model."""
    return FAMILIES.get(values["model_type"], _IMAGES)


def check_clips(clips: InputSpec, wanted: InputSpec, values: dict[str, Any], *, called: str) -> str:
    """Refuse clips that the model would refuse or silently truncate; return what it takes, in words."""
    family, vision = find_family(values), _vision(values)
    side, tube = _patch_size(vision), int(_get(vision, "tubelet_size") or 1)
    frames = "any number of frames" if family.num_frames is None else f"{wanted.num_frames} frames"
    size = f"{wanted.size} x {wanted.size} pixels"
    if not family.is_fixed:
        frames += f" (or another multiple of {tube})" if tube > 1 else ""
        size += f" (or another multiple of {side})" if side else ""
    takes = f"clips of {frames} of {size}"
    if clips.motion:
        raise ConfigError(f"{called} takes frames, not their differences. Leave out --motion.")
    is_other = (clips.num_frames, clips.size) != (wanted.num_frames, wanted.size)
    is_cut = clips.num_frames % tube or (side is not None and clips.size % side)
    if (family.is_fixed and is_other) or is_cut:
        raise ConfigError(
            f"{called} takes {takes}, but clips have {clips.num_frames} frames of {clips.size} x "
            f"{clips.size} pixels. Leave out --num-frames and --size, or give what it takes."
        )
    return takes


def _setting(vision: Any, name: str, values: dict[str, Any], called: str) -> int:
    found = _get(vision, name) or values.get(name) or _default(values["model_type"], name)
    if found is None:
        raise ConfigError(f"The config.json of {called} lacks {name}, which is needed.")
    return int(found)


def _default(model_type: str, name: str) -> Any:
    """The default of transformers for a setting that a config.json lacks."""
    require("hf", what=f"A network of the type {model_type}")
    from transformers import AutoConfig

    config = AutoConfig.for_model(model_type)
    return getattr(getattr(config, "vision_config", config), name, None)


def _vision(values: dict[str, Any]) -> dict[str, Any]:
    """The vision part of the settings."""
    found: dict[str, Any] = values.get("vision_config") or values
    return found


def _get(config: Any, name: str) -> Any:
    return config.get(name) if isinstance(config, dict) else getattr(config, name, None)


def _patch_size(config: Any) -> int | None:
    """The side of the patches of a frame in pixels; None without patches."""
    found = _get(config, "patch_size")
    found = found[0] if isinstance(found, list | tuple) else found
    return int(found) if found else None


def _check_complete(found: dict[str, Any], called: str) -> None:
    """Refuse weights that leave a part of the network random."""
    missing = sorted(found.get("missing_keys", ())) + sorted(map(str, found.get("mismatched_keys", ())))
    if missing:
        named = ", ".join(missing[:3]) + (", ..." if len(missing) > 3 else "")
        raise ConfigError(
            f"The weights of {called} lack {len(missing)} tensors of the network ({named}), which would be "
            "random. Give a complete network."
        )


def _identity(model: nn.Module, values: dict[str, Any]) -> str:
    """The identity of a network: its used weights and its config.json."""
    said = {key: value for key, value in values.items() if key not in _NOT_THE_NETWORK}
    text = json.dumps(said, sort_keys=True) + weights_hash(model.state_dict())
    return hashlib.sha256(text.encode()).hexdigest()[:16]


@contextlib.contextmanager
def quietly() -> Iterator[None]:
    """Silence reports about unused weights, such as those for text, and progress bars."""
    import transformers

    logging: Any = transformers.utils.logging
    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()
