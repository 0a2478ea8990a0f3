"""A frozen network is what it computes, not where it is found."""

from __future__ import annotations

import functools
import importlib
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from provico.errors import ConfigError, WeightsError
from provico.models import BACKBONES, Encoder, EncoderConfig, FrozenSpec, InputSpec, encoder_hash
from provico.models.backbones.frozen import open_network, probe
from provico.models.backbones.identity import network_hash

CLIPS = InputSpec(size=6, num_frames=2)

MODULE = '''
import functools
import torch
from torch import nn

SCALE = torch.tensor([1.0, 2.0, 3.0])

def scaled(images, by=1.0):
    """Colours."""
    return means(images) * SCALE * by

def means(images):
    assert images.ndim == 4
    return images.mean(dim=(2, 3))

twice = functools.partial(scaled, by=2.0)

class Net(nn.Module):
    factor = 2

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 4)
        self.register_buffer("shift", torch.zeros(4), persistent=False)
        with torch.no_grad():
            self.linear.weight.fill_(0.5)
            self.linear.bias.fill_(0.25)

    def forward(self, clips):
        assert clips.ndim == 5
        return self.linear(clips.mean(dim=(2, 3, 4))) * self.factor + self.shift

class Caller:
    def __init__(self):
        self.weights = torch.ones(3)

    def __call__(self, images):
        return means(images) * self.weights

caller = Caller()
method = caller.__call__
'''


@pytest.fixture
def hash_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The hash of a network in a module of this text."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def found(name: str, text: str = MODULE) -> str:
        sys.modules.pop("own_net", None)
        (tmp_path / "own_net.py").write_text(text)
        importlib.invalidate_caches()
        sys.dont_write_bytecode, before = True, sys.dont_write_bytecode
        try:
            return open_network(f"own_net:{name}", CLIPS).hash
        finally:
            sys.dont_write_bytecode = before

    return found


NAMES = ("scaled", "twice", "Net", "caller", "method")


@pytest.mark.parametrize("name", NAMES)
def test_what_is_the_same_has_the_same_hash(hash_of, name: str) -> None:
    own = hash_of(name)
    assert hash_of(name) == own
    commented = MODULE.replace('"""Colours."""', '"""Of light."""  # and more').replace(
        "\nSCALE", "\n\n\nSCALE"
    )
    assert hash_of(name, commented) == own
    assert hash_of(name, MODULE + "\n\ndef other(images):\n    return images\n") == own


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("scaled", "* SCALE", "+ SCALE"),
        ("scaled", "by=1.0", "by=1.5"),
        ("scaled", "[1.0, 2.0, 3.0]", "[1.0, 2.0, 4.0]"),
        ("scaled", "images.mean(dim=(2, 3))", "images.amax(dim=(2, 3))"),
        ("twice", "by=2.0", "by=3.0"),
        ("twice", "[1.0, 2.0, 3.0]", "[1.0, 2.0, 4.0]"),
        ("Net", "fill_(0.5)", "fill_(0.6)"),
        ("Net", "torch.zeros(4)", "torch.ones(4)"),
        ("Net", "+ self.shift", "- self.shift"),
        ("Net", "factor = 2", "factor = 3"),
        ("caller", "torch.ones(3)", "torch.zeros(3)"),
        ("caller", "* self.weights", "/ self.weights"),
        ("method", "torch.ones(3)", "torch.zeros(3)"),
    ],
)
def test_what_differs_has_another_hash(hash_of, name: str, old: str, new: str) -> None:
    assert MODULE.count(old) == 1
    assert hash_of(name, MODULE.replace(old, new)) != hash_of(name)


def test_networks_in_one_place_are_told_apart(hash_of) -> None:
    assert len({hash_of(name) for name in NAMES}) == len(NAMES)


def test_a_function_may_load_its_weights_when_it_is_first_called(hash_of, monkeypatch) -> None:
    lazy = "import os, torch\nweights = None\ndef net(clips):\n    global weights\n"
    lazy += "    weights = torch.full((3,), float(os.environ['WEIGHT']))\n"
    lazy += "    return clips.mean(dim=(2, 3, 4)) * weights\n"
    found = []
    for weight in ("1", "1", "2"):
        monkeypatch.setenv("WEIGHT", weight)
        found.append(hash_of("net", lazy))
    assert found[0] == found[1] != found[2]


def test_code_of_other_packages_counts_by_name() -> None:
    one = functools.partial(torch.mean, dim=(2, 3, 4))
    assert network_hash(one, package="own") == network_hash(functools.partial(torch.mean, dim=(2, 3, 4)))
    assert network_hash(one, package="own") != network_hash(functools.partial(torch.mean, dim=(2, 3)))
    layers = [nn.Conv2d(3, 3, 1, stride=stride) for stride in (1, 2)]
    for layer in layers:
        nn.init.ones_(layer.weight)
        nn.init.ones_(layer.bias)
    assert network_hash(layers[0], package="own") != network_hash(layers[1], package="own")


def test_a_network_says_by_itself_what_it_takes(hash_of) -> None:
    hash_of("Net")
    assert open_network("own_net:Net", CLIPS).spec == FrozenSpec(feature_dim=4, takes="clips")
    assert open_network("own_net:scaled", CLIPS).spec == FrozenSpec(feature_dim=3, takes="frames")
    state = torch.get_rng_state()
    open_network("own_net:scaled", CLIPS)
    assert torch.equal(torch.get_rng_state(), state)
    encoder = Encoder(EncoderConfig.for_backbone("own_net:scaled", dim=4, input=CLIPS))
    assert encoder.config.frozen == FrozenSpec(feature_dim=3, takes="frames")
    assert encoder(torch.zeros(2, 1, 2, 6, 6, 3, dtype=torch.uint8)).mean.shape == (2, 4)


def test_a_network_that_takes_neither_is_refused_with_both_attempts() -> None:
    def net(inputs: torch.Tensor) -> torch.Tensor:
        if inputs.ndim == 5:
            raise RuntimeError("no clips, please")
        return inputs

    with pytest.raises(ConfigError, match="takes neither clips nor frames") as caught:
        probe(net, CLIPS, path="own:net")
    assert "for 2 clips, (2, 3, 2, 6, 6), it raised RuntimeError: no clips, please" in str(caught.value)
    assert "for 4 frames, (4, 3, 6, 6), it gave a tensor (4, 3, 6, 6)" in str(caught.value)


def test_an_encoder_refuses_another_network_than_its_own(hash_of, tmp_path: Path) -> None:
    was = hash_of("Net")
    encoder = Encoder(EncoderConfig.for_backbone("own_net:Net", dim=4, input=CLIPS))
    assert encoder.config.network_hash == was
    encoder.save_pretrained(tmp_path / "encoder")
    own = encoder_hash(encoder)
    assert encoder_hash(Encoder.from_pretrained(tmp_path / "encoder", allow_import=True)) == own

    now = hash_of("Net", MODULE.replace("fill_(0.5)", "fill_(0.6)"))
    with pytest.raises(WeightsError, match="weights or its code have changed") as caught:
        Encoder.from_pretrained(tmp_path / "encoder", allow_import=True)
    for word in (str(tmp_path / "encoder"), was, now, "own_net:Net", "provico"):
        assert word in str(caught.value)
    with pytest.raises(WeightsError, match="weights or its code have changed"):
        Encoder(encoder.config)
    other = Encoder(EncoderConfig.for_backbone("own_net:Net", dim=4, input=CLIPS))
    other.load_own_state_dict(encoder.own_state_dict())
    assert encoder_hash(other) != own, "the same heads on another network are another encoder"


def test_an_encoder_without_a_hash_is_accepted_only_on_a_network_of_ours(hash_of, tmp_path: Path) -> None:
    hash_of("Net")
    for name in ("own_net:Net", "efficientnet_motion"):
        folder = tmp_path / name.replace(":", "_")
        encoder = Encoder(EncoderConfig.for_backbone(name, dim=4))
        encoder.save_pretrained(folder)
        text = (folder / "config.json").read_text()
        assert encoder.config.network_hash is not None
        (folder / "config.json").write_text(text.replace(f'"{encoder.config.network_hash}"', "null"))
    assert encoder_hash(Encoder.from_pretrained(folder)) == encoder_hash(encoder)
    with pytest.raises(WeightsError, match=r"Pretrain again: provico pretrain VIDEOS --backbone own_net:Net"):
        Encoder.from_pretrained(tmp_path / "own_net_Net", allow_import=True)


def test_the_frozen_networks_of_ours_keep_their_hashes() -> None:
    """Otherwise every encoder that was made with them would be refused."""
    found = {name: spec.build().hash for name, spec in BACKBONES.items() if spec.is_frozen}
    assert found == {
        "efficientnet_lite0": "453908e1e34130ef",
        "efficientnet_motion": "16f5d0a4e5787a4d",
    }
