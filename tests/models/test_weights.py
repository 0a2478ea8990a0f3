"""Weights are read only from safe formats, and only if they fit."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from provico.errors import WeightsError
from provico.models import BACKBONES, load_torchvision_weights, read_weights
from provico.models.weights import load_into, rename_torchvision_keys

NORM = ("weight", "bias", "running_mean", "running_var")


def torchvision_shapes(*, split: bool) -> dict[str, tuple[int, ...]]:
    """The state dict of torchvision's r3d_18 or r2plus1d_18, from the description of these networks."""
    shapes: dict[str, tuple[int, ...]] = {"fc.weight": (400, 512), "fc.bias": (400,)}

    def norm(prefix: str, channels: int) -> None:
        shapes.update({f"{prefix}.{leaf}": (channels,) for leaf in NORM})
        shapes[f"{prefix}.num_batches_tracked"] = ()

    def conv(prefix: str, cin: int, cout: int, mid: int) -> None:
        if split:
            shapes[f"{prefix}.0.weight"] = (mid, cin, 1, 3, 3)
            norm(f"{prefix}.1", mid)
            shapes[f"{prefix}.3.weight"] = (cout, mid, 3, 1, 1)
        else:
            shapes[f"{prefix}.weight"] = (cout, cin, 3, 3, 3)

    if split:
        shapes["stem.0.weight"] = (45, 3, 1, 7, 7)
        norm("stem.1", 45)
        shapes["stem.3.weight"] = (64, 45, 3, 1, 1)
        norm("stem.4", 64)
    else:
        shapes["stem.0.weight"] = (64, 3, 3, 7, 7)
        norm("stem.1", 64)
    cin = 64
    for stage, width in enumerate((64, 128, 256, 512), start=1):
        for block in range(2):
            name = f"layer{stage}.{block}"
            mid = (cin * width * 27) // (cin * 9 + 3 * width)
            conv(f"{name}.conv1.0", cin, width, mid)
            norm(f"{name}.conv1.1", width)
            conv(f"{name}.conv2.0", width, width, mid)
            norm(f"{name}.conv2.1", width)
            if cin != width:
                shapes[f"{name}.downsample.0.weight"] = (width, cin, 1, 1, 1)
                norm(f"{name}.downsample.1", width)
            cin = width
    return shapes


@pytest.mark.parametrize(("name", "split"), [("r3d18_full", False), ("r2plus1d18_full", True)])
def test_torchvision_names_become_ours(name: str, split: bool) -> None:
    with torch.device("meta"):
        network = BACKBONES[name].build()
        published = {key: torch.empty(shape) for key, shape in torchvision_shapes(split=split).items()}
    renamed = rename_torchvision_keys(published)
    assert {key: value.shape for key, value in renamed.items()} == {
        key: value.shape for key, value in network.state_dict().items()
    }


@pytest.mark.parametrize(
    ("split", "theirs", "ours"),
    [
        (False, "stem.1.bias", "stem.norm.bias"),
        (False, "layer1.1.conv2.0.weight", "stages.0.1.branch.conv2.weight"),
        (False, "layer4.0.conv1.1.running_var", "stages.3.0.branch.norm1.running_var"),
        (False, "layer2.0.downsample.0.weight", "stages.1.0.shortcut.conv.weight"),
        (True, "stem.1.bias", "stem.conv.norm.bias"),
        (True, "stem.4.bias", "stem.norm.bias"),
        (True, "layer3.1.conv2.0.0.weight", "stages.2.1.branch.conv2.spatial.weight"),
        (True, "layer3.1.conv2.0.1.running_mean", "stages.2.1.branch.conv2.norm.running_mean"),
        (True, "layer3.1.conv2.0.3.weight", "stages.2.1.branch.conv2.temporal.weight"),
        (True, "layer3.1.conv2.1.weight", "stages.2.1.branch.norm2.weight"),
        (True, "layer3.0.downsample.1.weight", "stages.2.0.shortcut.norm.weight"),
    ],
)
def test_single_names(split: bool, theirs: str, ours: str) -> None:
    published = {key: torch.empty(0) for key in torchvision_shapes(split=split)}
    renamed = rename_torchvision_keys(published)
    assert renamed[ours] is published[theirs]


def test_a_torchvision_file_is_loaded(tmp_path: Path) -> None:
    path = tmp_path / "r3d_18.pth"
    torch.manual_seed(0)
    published = {key: torch.rand(shape) for key, shape in torchvision_shapes(split=False).items()}
    torch.save(published, path)
    network = BACKBONES["r3d18_full"].build()
    load_torchvision_weights(network, path)
    assert torch.equal(network.stages[3][1].branch.conv2.weight, published["layer4.1.conv2.0.weight"])
    with pytest.raises(WeightsError, match=r"do not fit the network: .* missing .*; .* unknown"):
        load_torchvision_weights(BACKBONES["r2plus1d10"].build(), path)


class Attack:
    """Unpickling it would create a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


def test_a_pickle_of_objects_is_refused_unread(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    for name, write in (
        ("torch.pth", lambda path: torch.save({"weight": Attack(victim)}, path)),
        ("plain.pkl", lambda path: path.write_bytes(pickle.dumps(Attack(victim), protocol=2))),
    ):
        write(tmp_path / name)
        with pytest.raises(WeightsError, match="could run any code"):
            read_weights(tmp_path / name)
        assert not victim.exists()


@pytest.mark.parametrize("name", ["noise.safetensors", "noise.pth"])
def test_what_is_not_weights_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(bytes(range(200)))
    with pytest.raises(WeightsError, match="cannot be read as weights"):
        read_weights(tmp_path / name)
    with pytest.raises(WeightsError, match="no file of weights"):
        read_weights(tmp_path / "absent.safetensors")


def test_other_content_is_refused_and_nested_state_dicts_are_found(tmp_path: Path) -> None:
    torch.save([torch.ones(2)], tmp_path / "list.pth")
    with pytest.raises(WeightsError, match="holds list, but a dictionary"):
        read_weights(tmp_path / "list.pth")
    torch.save({"epoch": 3, "state_dict": {"weight": torch.ones(2)}}, tmp_path / "nested.pth")
    assert read_weights(tmp_path / "nested.pth").keys() == {"weight"}


def test_misfits_are_named(tmp_path: Path) -> None:
    save_file({"weight": torch.zeros(3, 2), "extra": torch.zeros(1)}, tmp_path / "w.safetensors")
    network = nn.Linear(2, 4)
    before = network.weight.clone()
    with pytest.raises(WeightsError) as caught:
        load_into(network, read_weights(tmp_path / "w.safetensors"), source="w.safetensors")
    assert "1 missing (bias); 1 unknown (extra); 1 of another shape (weight (3, 2) instead of (4, 2))" in str(
        caught.value
    )
    assert torch.equal(network.weight, before)
