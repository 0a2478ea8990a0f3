"""Encoders that are shared: the model card, the metadata, and the Hub, stood in for on this machine."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from safetensors import safe_open

from provico.errors import ConfigError
from provico.models import Encoder, EncoderConfig, InputSpec, encoder_hash
from provico.models.export import publish_encoder

from ..hub_server import hub_server
from ..tiny_networks import save_network
from ..warm_processes import ForkServer, all_succeed

SESSION = """
import os
from provico.cli import main
from provico import Encoder, open_encoder
from provico.models import EncoderConfig, encoder_hash

folder, repo = {folder!r}, "own/tiny"
own = encoder_hash(open_encoder(folder))
open_encoder({local!r})  # asks the Hub for nothing
main(["export", folder, "--to-hub", repo])
opened = open_encoder("hf:own/tiny")
assert encoder_hash(opened) == own
assert encoder_hash(open_encoder("hf:own/tiny@main")) == own
main(["info", "hf:own/tiny"])
main(["info", "hf:own/dino"])
plain = open_encoder("hf:own/dino")
assert plain.config.untrained_on == 0
assert plain.config.backbone == "hf:own/dino"
for wrong in ("hf:own/none", "hf:own/pickled"):
    try:
        open_encoder(wrong)
    except Exception as error:
        print(type(error).__name__, error)
os.environ.pop("HF_TOKEN")
try:
    main(["export", folder, "--to-hub", repo])
except SystemExit as error:
    assert error.code == 2
"""


@pytest.fixture
def tiny(make_encoder, tmp_path: Path) -> tuple[Encoder, Path]:
    encoder = make_encoder()
    encoder.save_pretrained(tmp_path / "encoder")
    return encoder, tmp_path / "encoder"


def test_a_saved_encoder_says_what_it_is(tiny: tuple[Encoder, Path]) -> None:
    encoder, folder = tiny
    with safe_open(folder / "model.safetensors", framework="pt") as file:
        said = json.loads(file.metadata()["provico"])
    assert said["backbone"] == "tiny"
    assert said["encoder_hash"] == encoder_hash(encoder)
    card = (folder / "README.md").read_text()
    assert card.startswith("---\nlibrary_name: provico\n")
    for words in ("`tiny`", "4 frames, every 2, of 32 x 32 pixels", encoder_hash(encoder), "8 coordinates"):
        assert words in card
    assert "weights of the backbone are not in this folder" not in card


def test_the_card_of_a_frozen_network_says_what_is_missing(tmp_path: Path) -> None:
    encoder = Encoder(EncoderConfig.for_backbone("efficientnet_motion", dim=4))
    encoder.save_pretrained(tmp_path / "encoder", place="hf:own/name")
    card = (tmp_path / "encoder" / "README.md").read_text()
    assert f"frozen, of hash `{encoder.config.network_hash}`" in card
    assert "weights of the backbone are not in this folder" in card
    assert 'open_encoder("hf:own/name")' in card


def test_an_encoder_goes_to_the_hub_and_comes_back(
    tiny: tuple[Encoder, Path], tmp_path: Path, fork_server: ForkServer
) -> None:
    """In a process of its own, since huggingface_hub reads its settings when it is imported."""
    save_network("dinov2", tmp_path / "dino")
    with hub_server() as (address, repositories, asked):
        repositories["own/dino"] = {path.name: path.read_bytes() for path in (tmp_path / "dino").iterdir()}
        repositories["own/dino"] |= {"evil.py": b"raise SystemExit", "onnx/model.safetensors": b"no"}
        repositories["own/pickled"] = {
            name: data for name, data in repositories["own/dino"].items() if name.endswith(".json")
        }
        repositories["own/pickled"]["pytorch_model.bin"] = b"a pickle"
        settings = {"HF_ENDPOINT": address, "HF_HOME": str(tmp_path / "hf"), "HF_TOKEN": "secret"}
        settings |= {
            "HF_HUB_OFFLINE": "0",
            "HF_HUB_DISABLE_TELEMETRY": "1",
            "HF_HUB_DISABLE_PROGRESS_BARS": "1",
        }
        session = SESSION.format(folder=str(tiny[1]), local=str(tmp_path / "dino"))
        done = fork_server.start("-c", session, environment=os.environ | settings)
        all_succeed([done])
        assert set(repositories["own/tiny"]) == {"README.md", "config.json", "model.safetensors"}
        assert b'open_encoder("hf:own/tiny")' in repositories["own/tiny"]["README.md"]
    assert f"Encoder published: {address}/own/tiny/commit/" in done.stdout
    assert "There is no repository own/none on the Hugging Face Hub" in done.stdout
    assert "but weights as .safetensors are needed" in done.stdout
    assert "Log in with `hf auth login`" in done.stderr
    assert "features as they are" in done.stdout
    assert asked[0] == "POST /api/repos/create", "a folder never touches the network"
    fetched = [line for line in asked if "/resolve/" in line]
    assert fetched
    assert not [line for line in fetched if ".py" in line or "onnx/" in line or ".bin" in line]


def test_what_only_this_machine_has_is_not_published(tmp_path: Path) -> None:
    save_network("dinov2", tmp_path / "dino")
    encoder = Encoder(EncoderConfig.for_backbone(str(tmp_path / "dino"), dim=4))
    with pytest.raises(ConfigError, match="which exists only on this machine"):
        publish_encoder(encoder, "own/name")
    tiny = Encoder(EncoderConfig.for_backbone("tiny", dim=4, input=InputSpec(size=32, num_frames=4)))
    for wrong, message in (("name", "Write hf:OWNER/NAME"), ("own/name@v1", "Leave out the @")):
        with pytest.raises(ConfigError, match=message):
            publish_encoder(tiny, wrong)
