"""Frozen networks: a pretrained one, one of the user's own, or none for stored features.

A frozen backbone stays in evaluation mode and has no gradients. It is not saved with an encoder, which stores
its name and hash instead. Only the heads on top of it are trained.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from provico.errors import ConfigError
from provico.models.backbones.engine import Engine, LooksAtFrames
from provico.models.backbones.identity import network_hash
from provico.models.pixels import InputSpec, PixelNormalisation

Takes = Literal["clips", "frames"]

PIXELS_AT_ONCE = 2**22
"""Pixels of frames per forward pass: 64 clips of 4 frames of 128 x 128 pixels, or one clip of 64 frames of
256 x 256 pixels, which takes gigabytes."""

CLIPS_JOINED = 16
"""Clips that are assembled from their frames at once."""
_NUM_PROBED = 2  # clips that an unknown network is probed with


@dataclass(frozen=True, kw_only=True)
class FrozenSpec:
    """Facts about an external network, which `open_network` finds out."""

    feature_dim: int
    """Number of features."""

    takes: Takes = "clips"
    """`clips`: (batch, 3, time, height, width); `frames`: (batch, 3, height, width), averaged over a clip."""

    blocks: tuple[int, ...] | None = None
    """Sizes of consecutive groups of features, if there are several kinds."""

    def __post_init__(self) -> None:
        if self.feature_dim < 1:
            raise ConfigError(f"feature_dim is {self.feature_dim}, but a network has at least one feature.")
        if self.takes not in ("clips", "frames"):
            raise ConfigError(f"takes is {self.takes!r}, but a network takes either 'clips' or 'frames'.")
        if self.blocks is not None and (sum(self.blocks) != self.feature_dim or min(self.blocks) < 1):
            raise ConfigError(
                f"The blocks {self.blocks} do not add up to the {self.feature_dim} features of the network. "
                "Give the size of each block, in order."
            )


class FrozenBackbone(nn.Module):
    """Any callable from clips or frames to features, as a backbone without gradients."""

    def __init__(
        self,
        network: Callable[[Tensor], Tensor],
        spec: FrozenSpec,
        *,
        hash: str | None = None,
        use_engine: bool = False,
    ) -> None:
        """use_engine: let onnxruntime run it on a CPU; for networks without data-dependent control flow."""
        super().__init__()
        self.network = network  # registered as a submodule if it is a module, so that .to() moves it
        self.spec = spec
        self.hash = network_hash(network) if hash is None else hash
        """Hash of the network, independent of its location; see `identity`."""
        self.engine: Engine | None = None
        """The engine that runs the network on a CPU if possible."""
        self._joins_frames = isinstance(network, LooksAtFrames)
        self.looks_at_frames = spec.takes == "frames" or self._joins_frames
        """Whether the features of a frame do not depend on the other frames of its clip."""
        self.sees_pictures = self.looks_at_frames or bool(getattr(network, "sees_pictures", False))
        """Whether it takes a single picture."""
        if isinstance(network, nn.Module):
            network.eval().requires_grad_(False)
            self.engine = Engine(network, self.hash) if use_engine else None

    def train(self, mode: bool = True) -> FrozenBackbone:
        """Stay in evaluation mode: its batch statistics are frozen, too."""
        return super().train(False)

    @torch.no_grad()
    def forward(
        self, clips: Float[Tensor, "batch channels time height width"]
    ) -> Float[Tensor, "batch feature"]:
        """One feature vector per clip, for as many clips at a time as memory allows."""
        if torch.compiler.is_compiling():  # an exported network takes any number of clips
            return self._features(clips)
        size = max(1, PIXELS_AT_ONCE // clips[0, 0].numel()) if len(clips) else 1
        return torch.cat([self._features(part) for part in torch.split(clips, size)])

    @torch.no_grad()
    def of_frames(
        self,
        frames: Float[Tensor, "frames channels height width"],
        places: Int[Tensor, "batch time"],
    ) -> Float[Tensor, "batch feature"]:
        """The features of clips that share frames: `places` lists the frames of each clip.

        Only for networks that `looks_at_frames`; each frame is processed once.
        """
        size = max(1, PIXELS_AT_ONCE // frames[0, 0].numel())
        seen = torch.cat([self._look_at_frames(part) for part in torch.split(frames, size)])
        return self._of_seen(seen, places)

    def _features(self, clips: Tensor) -> Tensor:
        if self.looks_at_frames:
            num_clips, num_frames = clips.shape[0], clips.shape[2]
            seen = self._look_at_frames(_frames_of(clips))
            return self._joined(seen.view(num_clips, num_frames, -1))
        return self._checked(self._run(clips), clips)

    def _look_at_frames(self, frames: Tensor) -> Tensor:
        found = self._run(frames)
        if self._joins_frames and isinstance(found, Tensor):
            return found
        return self._checked(found, frames)

    def _of_seen(self, seen: Tensor, places: Tensor) -> Tensor:
        """Features of clips, a few at a time: those of a frame may be a whole map."""
        return torch.cat([self._joined(seen[part]) for part in torch.split(places, CLIPS_JOINED)])

    def _joined(self, seen: Float[Tensor, "batch time numbers"]) -> Float[Tensor, "batch feature"]:
        network: Any = self.network
        return self._checked(network.of_frames(seen), seen) if self._joins_frames else seen.mean(dim=1)

    def _run(self, inputs: Tensor) -> object:
        found = None
        if self.engine is not None and not torch.compiler.is_compiling():
            found = self.engine(inputs)
        if found is not None:
            return found
        network: Any = self.network
        return network.frame_features(inputs) if self._joins_frames else network(inputs)

    def _checked(self, features: object, inputs: Tensor) -> Tensor:
        expected = inputs.shape[0]  # not len(), which would make it constant in an export
        found = tuple(features.shape) if isinstance(features, Tensor) else type(features).__name__
        if not isinstance(features, Tensor) or found != (expected, self.spec.feature_dim):
            raise ConfigError(
                f"The frozen network returned {found} for {expected} {self.spec.takes}, but a tensor of "
                f"shape {(expected, self.spec.feature_dim)} is needed. Check its feature_dim and what it "
                "takes."
            )
        return features


class NoBackbone(nn.Module):
    """Placeholder for the backbone of an encoder of stored features."""

    def forward(
        self, clips: Float[Tensor, "batch channels time height width"]
    ) -> Float[Tensor, "batch feature"]:
        """Raise ConfigError: there is no network for pixels."""
        raise ConfigError(
            "This encoder takes stored features and has no backbone for pixels. Give it features instead: "
            "encoder.from_features(features)."
        )


def open_network(path: str, clips: InputSpec, spec: FrozenSpec | None = None) -> FrozenBackbone:
    """Open the network that `package.module:name` names; it is probed if no spec is given."""
    network = import_network(path)
    package = path.partition(":")[0].partition(".")[0]
    if isinstance(network, nn.Module):
        # Before the first call: a forward pass may change its buffers.
        found = network_hash(network.eval().requires_grad_(False), package=package)
        return FrozenBackbone(network, spec or probe(network, clips, path=path), hash=found)
    # A function may load its weights when it is first called.
    probed = probe(network, clips, path=path)
    return FrozenBackbone(network, spec or probed, hash=network_hash(network, package=package))


@torch.no_grad()
def probe(network: Callable[[Tensor], Tensor], clips: InputSpec, *, path: str) -> FrozenSpec:
    """Find out by a forward pass whether a network takes clips or frames, and its number of features.

    A network with several kinds of features declares them in its attribute `feature_blocks`.
    """
    size = (_NUM_PROBED, clips.num_frames, clips.size, clips.size, 3)
    pixels = torch.randint(256, size, dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    seen = PixelNormalisation(clips)(pixels)
    attempts: tuple[tuple[Takes, Tensor], ...] = (("clips", seen), ("frames", _frames_of(seen)))
    problems = []
    for takes, inputs in attempts:
        given = f"for {len(inputs)} {takes}, {tuple(inputs.shape)}, it"
        try:
            features: object = network(inputs)
        except Exception as error:  # user code may raise anything
            problems.append(f"{given} raised {type(error).__name__}: {error}")
            continue
        if isinstance(features, Tensor) and features.ndim == 2 and len(features) == len(inputs):
            blocks = getattr(network, "feature_blocks", None)
            return FrozenSpec(
                feature_dim=features.shape[1], takes=takes, blocks=None if blocks is None else tuple(blocks)
            )
        shape = (
            f"a tensor {tuple(features.shape)}" if isinstance(features, Tensor) else type(features).__name__
        )
        problems.append(f"{given} gave {shape}")
    raise ConfigError(
        f"The network {path} takes neither clips nor frames: {'; '.join(problems)}. It must return a tensor "
        "(batch, feature) for one of them. Name a class or function that does, or change what it sees with "
        "--size, --num-frames or --motion."
    )


def import_network(path: str) -> Callable[[Tensor], Tensor]:
    """The network that `package.module:name` names: a module or a function itself, or an instance of a class.

    Importing runs the code of that package, so the path must be trusted.
    """
    module_name, _, name = path.partition(":")
    try:
        target: Any = importlib.import_module(module_name)
        for part in name.split("."):
            target = getattr(target, part)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(
            f"No network was found at {path!r}: {error}. Name one in an installed package, as in "
            "'package.module:name'."
        ) from error
    if isinstance(target, type):
        target = target()
    if not callable(target):
        raise ConfigError(
            f"{path} is a {type(target).__name__}, but a torch.nn.Module or a function from pixels to "
            "features is needed."
        )
    network: Callable[[Tensor], Tensor] = target
    return network


def _frames_of(clips: Tensor) -> Tensor:
    return clips.transpose(1, 2).flatten(0, 1)
