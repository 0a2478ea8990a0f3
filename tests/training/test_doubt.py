"""What is learnt from spoilt clips, and that nothing else changes."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch

from provico.cli import main
from provico.data.catalog import Catalog, open_catalog
from provico.data.library import Library
from provico.embedding.driver import embed
from provico.errors import ConfigError
from provico.models import Encoder, EncoderConfig
from provico.models.backbones.frozen import FrozenSpec
from provico.models.encoder import encoder_hash
from provico.training.doubt import DoubtReport, learn_doubt

pytestmark = pytest.mark.usefixtures("short_doubt")

NUM_LOOKS = 160


@pytest.fixture(scope="module")
def catalog(shaded_videos: Path) -> Catalog:
    return open_catalog(shaded_videos)


@pytest.fixture(scope="module")
def before(shaded_encoder: Path) -> Encoder:
    return Encoder.from_pretrained(shaded_encoder)


@pytest.fixture(scope="module")
def learnt(
    before: Encoder, catalog: Catalog, library: Library, short_doubt: None
) -> tuple[Encoder, DoubtReport]:
    return learn_doubt(before, catalog, num_looks=NUM_LOOKS, library=library)


def test_only_the_variance_and_the_match_curve_change(before, learnt, catalog, library):
    after, _ = learnt
    old, new = (embed(encoder, catalog, num_clips=3, library=library).videos for encoder in (before, after))
    assert torch.equal(old.clips.mean, new.clips.mean)
    assert not torch.allclose(old.clips.log_var, new.clips.log_var)
    changed = {
        name
        for name, value in after.state_dict().items()
        if name not in before.state_dict() or not torch.equal(value, before.state_dict()[name])
    }
    assert {name.split(".")[0] for name in changed} == {"head", "match_scale"}
    assert all(name.startswith(("head.log_var.", "match_scale.")) for name in changed)
    assert encoder_hash(before) != encoder_hash(after)


def test_the_variance_predicts_how_far_another_clip_is(learnt):
    """In videos that were held back; the encoder was never trained, so it had no idea."""
    _, report = learnt
    assert report.nll_after < report.nll_before
    for level in report.levels:
        assert level.num_clips > 0
    before, after = (
        sum(level.num_clips * abs(getattr(level, when) / level.distance - 1) for level in report.levels)
        for when in ("before", "after")
    )
    assert after < before


def test_the_report_counts(learnt, catalog):
    _, report = learnt
    assert report.num_held_back == len(catalog) // 5
    assert report.num_videos + report.num_held_back == len(catalog)
    assert report.failed == ()
    assert [level.kind for level in report.levels] == sorted(
        (level.kind for level in report.levels), key=["whole", "masked", "mixed"].index
    )
    # A fifth as many looks at these as at the others, in whole batches of all eight.
    assert sum(level.num_clips for level in report.levels) == NUM_LOOKS // 5


def test_the_seed_decides_everything(before, learnt, catalog, library):
    again, report = learn_doubt(before, catalog, num_looks=NUM_LOOKS, library=library)
    assert report == learnt[1]
    assert encoder_hash(again) == encoder_hash(learnt[0])
    other, _ = learn_doubt(before, catalog, num_looks=NUM_LOOKS, seed=1, library=library)
    assert encoder_hash(other) != encoder_hash(again)


def test_what_cannot_be_read_is_named(before, shaded_videos, library, tmp_path):
    folder = tmp_path / "videos"
    shutil.copytree(shaded_videos, folder)
    (folder / "blue" / "0.mp4").write_bytes(b"no video")
    _, report = learn_doubt(before, open_catalog(folder), num_looks=80, library=library)
    assert [name for name, _ in report.failed] == ["blue/0.mp4"]


def test_bad_input_is_refused(before, catalog):
    with pytest.raises(ConfigError, match="There are 5 videos, but at least 15"):
        learn_doubt(before, catalog.subset(range(5)))
    with pytest.raises(ConfigError, match="num_looks is 3"):
        learn_doubt(before, catalog, num_looks=3)
    config = EncoderConfig.for_backbone("features", dim=8, frozen=FrozenSpec(feature_dim=6))
    with pytest.raises(ConfigError, match="features without their network"):
        learn_doubt(Encoder(config), catalog)


def test_the_command_writes_an_encoder_that_others_take(shaded_videos, shaded_encoder, tmp_path, capsys):
    out = tmp_path / "doubting"
    asked = [
        "doubt",
        str(shaded_videos),
        "--checkpoint",
        str(shaded_encoder),
        "--out",
        str(out),
        "--num-looks",
        "80",
    ]
    main(asked)
    said = capsys.readouterr().out
    assert "Learnt from 32 videos; 0 failed" in said
    assert "noise frames: 1" in said
    assert "videos in it: 2" in said
    written = json.loads((out / "doubt.json").read_text())
    assert written["num_videos"] == 32
    main(
        [
            "uncertainty",
            str(shaded_videos),
            "--checkpoint",
            str(out),
            "--out",
            str(tmp_path / "unsure"),
            "--json",
        ]
    )
    assert len(json.loads(capsys.readouterr().out)["videos"]) == 40
    with pytest.raises(SystemExit):
        main(asked)
    assert "is not empty" in capsys.readouterr().err
