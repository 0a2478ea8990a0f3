"""Networks that are used as they are: a pretrained one, one of the user's own, or none but stored features.

A frozen backbone stays in evaluation mode, has no gradients and is not saved with an encoder, which names it
instead, and carries its hash. Trained on top of it are only the heads.
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
"""Pixels of frames that go through a network together: 64 clips of 4 frames of 128 pixels a side, or one of
64 frames of 256 pixels, which takes gigabytes."""

CLIPS_JOINED = 16
"""Clips that are made of their frames together."""
_NUM_PROBED = 2  # clips that an unknown network is shown


@dataclass(frozen=True, kw_only=True)
class FrozenSpec:
    """What must be known of a network that is not ours; `open_network` finds it out."""

    feature_dim: int
    """How many features it gives."""

    takes: Takes = "clips"
    """`clips`: (batch, 3, time, height, width); `frames`: (batch, 3, height, width), averaged over a clip."""

    blocks: tuple[int, ...] | None = None
    """How many features belong together, where there are several kinds side by side."""

    def __post_init__(self) -> None:
        if self.feature_dim < 1:
            raise ConfigError(f"feature_dim is {self.feature_dim}, but a network gives at least one feature.")
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
        """use_engine: let onnxruntime run it on a CPU; for networks that compute the same for all inputs."""
        super().__init__()
        self.network = network  # registered as a submodule if it is a module, so that .to() moves it
        self.spec = spec
        self.hash = network_hash(network) if hash is None else hash
        """Tells networks apart, wherever they were found; see `identity`."""
        self.engine: Engine | None = None
        """What runs the network on a CPU where it can."""
        self._joins_frames = isinstance(network, LooksAtFrames)
        self.looks_at_frames = spec.takes == "frames" or self._joins_frames
        """Whether what is seen of a frame does not depend on the others of its clip."""
        if isinstance(network, nn.Module):
            network.eval().requires_grad_(False)
            self.engine = Engine(network, self.hash) if use_engine else None

    def train(self, mode: bool = True) -> FrozenBackbone:
        """Stay in evaluation mode: its batch statistics are part of what is frozen."""
        return super().train(False)

    @torch.no_grad()
    def forward(
        self, clips: Float[Tensor, "batch channels time height width"]
    ) -> Float[Tensor, "batch feature"]:
        """One feature vector for each clip, of so many clips at a time as memory allows."""
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
        """The features of clips that share frames: `places` says which frames make each of them.

        Only where the network `looks_at_frames`; each is seen once.
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
        """Some clips at a time: what is seen of a frame may be a whole map."""
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
        expected = inputs.shape[0]  # not len(), which would fix their number when the encoder is exported
        found = tuple(features.shape) if isinstance(features, Tensor) else type(features).__name__
        if not isinstance(features, Tensor) or found != (expected, self.spec.feature_dim):
            raise ConfigError(
                f"The frozen network gave {found} for {expected} {self.spec.takes}, but a tensor of shape "
                f"{(expected, self.spec.feature_dim)} is needed. Check its feature_dim and what it takes."
            )
        return features


class NoBackbone(nn.Module):
    """Stands where the backbone would be in an encoder that is fed stored features."""

    def forward(
        self, clips: Float[Tensor, "batch channels time height width"]
    ) -> Float[Tensor, "batch feature"]:
        """Refuse: there is no network for pixels."""
        raise ConfigError(
            "This encoder works on stored features and has no backbone for pixels. Give it features instead: "
            "encoder.from_features(features)."
        )


def open_network(path: str, clips: InputSpec, spec: FrozenSpec | None = None) -> FrozenBackbone:
    """The network that `package.module:name` names, as a backbone; it is probed if there is no spec."""
    network = import_network(path)
    package = path.partition(":")[0].partition(".")[0]
    if isinstance(network, nn.Module):
        # Before it is called for the first time: a forward pass may change its buffers.
        found = network_hash(network.eval().requires_grad_(False), package=package)
        return FrozenBackbone(network, spec or probe(network, clips, path=path), hash=found)
    # A function may load its weights when it is first called.
    probed = probe(network, clips, path=path)
    return FrozenBackbone(network, spec or probed, hash=network_hash(network, package=package))


@torch.no_grad()
def probe(network: Callable[[Tensor], Tensor], clips: InputSpec, *, path: str) -> FrozenSpec:
    """Find out by a forward pass whether a network takes clips or frames, and how many features it gives.

    A network that gives several kinds of features side by side says so by an attribute `feature_blocks`.
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
        except Exception as error:  # whatever the user's code may raise
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
        f"The network {path} takes neither clips nor frames: {'; '.join(problems)}. It must give a tensor "
        "(batch, feature) for one of them. Name a class or function that does, or change what it sees with "
        "--size, --num-frames or --motion."
    )


def import_network(path: str) -> Callable[[Tensor], Tensor]:
    """The network that `package.module:name` names: a module or function as it is, a class constructed.

    Importing runs the code of that package, so the path must come from someone trusted.
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
