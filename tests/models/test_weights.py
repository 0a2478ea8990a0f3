"""Weights are read only from safe formats, and only if they fit."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from provico.errors import WeightsError
from provico.models.weights import load_into, read_weights


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
