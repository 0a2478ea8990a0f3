"""Features of a frozen network are computed once for a file as it is, and are those of its clips."""

from __future__ import annotations

import dataclasses
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from provico.data.catalog import Catalog, open_catalog
from provico.data.clips import ClipSpec, uniform_clips
from provico.data.frames.encode import write_video
from provico.data.frames.video import index_video, read_frames
from provico.data.library import Library
from provico.data.loader import ClipSettings
from provico.embedding.clips import clip_settings
from provico.embedding.features import ClipFeatures, clip_features, feature_batches, maker_name
from provico.errors import TooManyBrokenError, UnreadableVideoError
from provico.models import Encoder, EncoderConfig, FrozenSpec, InputSpec

SPEC = InputSpec(size=32, num_frames=3, frame_step=2)
NUM_VIDEOS = 5


def write(path: Path, seed: int, num_frames: int = 12) -> None:
    """A picture of coarse colours, 32 pixels high and 48 wide, that drifts from frame to frame."""
    rng = np.random.default_rng(seed)
    start, drift = rng.integers(0, 200, (4, 6, 3)), rng.integers(-4, 5, (4, 6, 3))
    frames = (np.clip(start + number * drift, 0, 255) for number in range(num_frames))
    write_video(path, (frame.repeat(8, 0).repeat(8, 1).astype(np.uint8) for frame in frames))


@pytest.fixture(scope="module")
def originals(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("originals")
    for number in range(NUM_VIDEOS):
        write(folder / f"{number}.mp4", number)
    return folder


@pytest.fixture
def folder(originals: Path, tmp_path: Path) -> Path:
    """Videos that a test may break."""
    return Path(shutil.copytree(originals, tmp_path / "videos"))


@pytest.fixture
def library(tmp_path: Path) -> Library:
    return Library(tmp_path / "home")


@pytest.fixture
def encoder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Encoder:
    """A network of the user's own: mean and last frame of every colour, left and right."""
    (tmp_path / "sides.py").write_text(
        "import torch\n"
        "def sides(clips):\n"
        "    cells = clips.unflatten(4, (2, -1)).mean(dim=(3, 5))\n"
        "    return torch.cat([cells.mean(2), cells[:, :, -1]], dim=1).flatten(1)\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    frozen = FrozenSpec(feature_dim=12)
    return Encoder(EncoderConfig.for_backbone("sides:sides", dim=4, input=SPEC, frozen=frozen))


def features_of(encoder: Encoder, catalog: Catalog, library: Library, **options: Any) -> ClipFeatures:
    return clip_features(
        encoder, catalog, **{"num_clips": 3, "short_side": 32, "library": library, **options}
    )


def by_hand(path: Path, num_clips: int) -> torch.Tensor:
    """The clips decoded one by one, their middle cut out and normalised, and the network in plain words."""
    frames = uniform_clips(12, num_clips=num_clips, spec=ClipSpec(SPEC.num_frames, SPEC.frame_step))
    rows = []
    for clip in frames:
        pixels = read_frames(path, clip, index=index_video(path))[:, :, 8:40].astype(np.float64)
        normalised = (pixels / 255 - np.array(SPEC.pixel_mean)) / np.array(SPEC.pixel_std)
        halves = [normalised[:, :, side].mean(axis=(1, 2)) for side in (slice(0, 16), slice(16, 32))]
        cells = np.stack(halves, axis=-1)  # time, colour, side
        rows.append(np.concatenate([cells.mean(axis=0), cells[-1]]).reshape(-1))
    return torch.from_numpy(np.stack(rows)).float()


@pytest.mark.parametrize("num_workers", [0, 1])
def test_features_are_those_of_evenly_spaced_clips(
    folder: Path, encoder: Encoder, library: Library, num_workers: int
) -> None:
    catalog = open_catalog(folder)
    progress: list[tuple[int, int]] = []
    found = features_of(
        encoder, catalog, library, num_workers=num_workers, progress=lambda *place: progress.append(place)
    )
    expected = torch.stack([by_hand(video.path, 3) for video in catalog])
    torch.testing.assert_close(found.features, expected, rtol=1e-4, atol=1e-5)
    assert found.features.dtype == torch.float32
    assert (found.catalog, found.broken, found.num_computed) == (catalog, {}, NUM_VIDEOS)
    assert progress[-1] == (NUM_VIDEOS, NUM_VIDEOS)


@pytest.fixture
def forbid_work(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """From its call on, whoever decodes or computes fails."""

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("worked although everything was remembered")

    def forbid() -> None:
        monkeypatch.setattr("provico.data.loader.read_scaled", refuse)
        monkeypatch.setattr("provico.data.library.index_video", refuse)
        monkeypatch.setattr(Encoder, "features", refuse)

    return forbid


def test_the_second_time_nothing_is_decoded_or_computed(
    folder: Path, encoder: Encoder, library: Library, forbid_work: Callable[[], None]
) -> None:
    catalog = open_catalog(folder)
    first = features_of(encoder, catalog, library)
    forbid_work()
    # By another process, of other videos too, in another order.
    again = features_of(encoder, catalog, Library(library.folder))
    assert torch.equal(again.features, first.features)
    assert again.num_computed == 0
    some = features_of(encoder, catalog.subset([3, 1]), library)
    assert torch.equal(some.features, first.features[[3, 1]])
    with pytest.raises(AssertionError, match="worked although"):
        features_of(encoder, catalog, library, num_clips=2)


def test_only_what_is_not_known_yet_is_computed(folder: Path, encoder: Encoder, library: Library) -> None:
    catalog = open_catalog(folder)
    features_of(encoder, catalog.subset([0, 4]), library)
    found = features_of(encoder, catalog, library)
    assert found.num_computed == NUM_VIDEOS - 2
    torch.testing.assert_close(
        found.features, torch.stack([by_hand(video.path, 3) for video in catalog]), rtol=1e-4, atol=1e-5
    )


def test_a_replaced_file_is_computed_anew(folder: Path, encoder: Encoder, library: Library) -> None:
    catalog = open_catalog(folder)
    first = features_of(encoder, catalog, library)
    write(catalog[2].path, seed=99)
    found = features_of(encoder, catalog, library)
    assert found.num_computed == 1
    others = [0, 1, 3, 4]
    assert torch.equal(found.features[others], first.features[others])
    torch.testing.assert_close(found.features[2], by_hand(catalog[2].path, 3), rtol=1e-4, atol=1e-5)
    assert not torch.allclose(found.features[2], first.features[2], atol=0.01)


def test_broken_videos_are_named_and_left_out(folder: Path, encoder: Encoder, library: Library) -> None:
    (folder / "1.mp4").write_text("no video")
    catalog = open_catalog(folder)
    (folder / "3.mp4").unlink()
    for _ in range(2):
        found = features_of(encoder, catalog, library, max_broken_share=0.5)
        assert found.broken.keys() == {"1.mp4", "3.mp4"}
        assert "cannot be opened" in found.broken["1.mp4"].reason
        assert "no such file" in found.broken["3.mp4"].reason
        assert [video.id for video in found.catalog] == ["0.mp4", "2.mp4", "4.mp4"]
        for video, features in zip(found.catalog, found.features, strict=True):
            torch.testing.assert_close(features, by_hand(video.path, 3), rtol=1e-4, atol=1e-5)


def test_the_share_of_broken_videos_is_of_all_not_of_those_left_to_compute(
    folder: Path, encoder: Encoder, library: Library
) -> None:
    catalog = open_catalog(folder)
    features_of(encoder, catalog.subset([0, 1, 2]), library)
    (folder / "4.mp4").write_text("no video")
    found = features_of(encoder, catalog, library, max_broken_share=0.2)  # 1 of 5, though 1 of 2 computed
    assert list(found.broken) == ["4.mp4"]
    with pytest.raises(TooManyBrokenError, match=r"4\.mp4"):
        features_of(encoder, catalog, library, max_broken_share=0.1)


def test_all_that_features_depend_on_is_in_the_name_of_their_maker(encoder: Encoder) -> None:
    config = encoder.config
    clips = ClipSettings(num_clips=3, short_side=32, sampling="uniform")

    def name(settings: ClipSettings = clips, **changes: Any) -> str:
        return maker_name(Encoder(dataclasses.replace(config, **changes)), settings)

    assert name().startswith("sides:sides ")
    others = [
        name(dataclasses.replace(clips, num_clips=4)),
        name(dataclasses.replace(clips, short_side=48)),
        name(input=dataclasses.replace(SPEC, size=24)),
        name(input=dataclasses.replace(SPEC, frame_step=1)),
        name(input=dataclasses.replace(SPEC, motion=True)),
        name(frozen=FrozenSpec(feature_dim=12, takes="frames")),
    ]
    assert len({name(), *others}) == 7
    # The heads come after the features.
    assert name(dim=8) == name(parametrisation="long") == name(hidden_dim=5) == name()


def test_makers_of_ours_keep_their_names() -> None:
    """Otherwise all that is remembered of videos would be computed again."""
    names = []
    for name in ("efficientnet_motion", "efficientnet_lite0"):
        encoder = Encoder(EncoderConfig.for_backbone(name, dim=4))
        names.append(maker_name(encoder, clip_settings(encoder.config, num_clips=10)))
    assert names == ["efficientnet_motion 9c940dc5053af3a6", "efficientnet_lite0 224e4acbeb72ed9d"]


def test_a_network_that_learns_is_named_by_its_weights() -> None:
    clips = ClipSettings(num_clips=3, short_side=32, sampling="uniform")
    config = EncoderConfig.for_backbone("tiny", dim=4, input=SPEC)
    encoder, other = Encoder(config), Encoder(config)
    assert maker_name(encoder, clips) != maker_name(other, clips)
    other.backbone.load_state_dict(encoder.backbone.state_dict())
    assert maker_name(encoder, clips) == maker_name(other, clips)  # the heads come after the features


def test_a_network_that_learns_is_remembered_only_on_demand(folder: Path, library: Library) -> None:
    torch.manual_seed(0)
    encoder = Encoder(EncoderConfig.for_backbone("tiny", dim=4, input=SPEC)).train()
    catalog = open_catalog(folder)
    found = features_of(encoder, catalog, library, num_clips=2)
    assert encoder.training
    again = features_of(encoder.eval(), catalog, library, num_clips=2)
    assert again.num_computed == found.num_computed == NUM_VIDEOS
    torch.testing.assert_close(again.features, found.features)  # those of its evaluation, both times
    for is_computed in (True, False):
        batches = feature_batches(encoder, catalog, num_clips=2, remember=True, library=library)
        (batch,) = (batch for batch in batches if len(batch.catalog))
        assert batch.catalog == catalog
        assert batch.num_computed == (NUM_VIDEOS if is_computed else 0)


def test_features_of_another_number_of_clips_are_others_and_both_are_kept(
    folder: Path, encoder: Encoder, library: Library
) -> None:
    catalog = open_catalog(folder).subset([0, 1])
    counts = [features_of(encoder, catalog, library, num_clips=clips).num_computed for clips in (3, 2, 3, 2)]
    assert counts == [2, 2, 0, 0]
    assert features_of(encoder, catalog, library, num_clips=2).features.shape == (2, 2, 12)


# --- where they are kept -----------------------------------------------------------------------------------


@given(
    num_clips=st.integers(1, 5),
    feature_dim=st.integers(1, 7),
    seed=st.integers(0, 2**31),
    maker=st.text(max_size=20).filter(lambda text: "\x00" not in text and text.isprintable()),
)
@settings(max_examples=8)
def test_the_library_gives_back_what_it_was_given(
    originals: Path,
    tmp_path_factory: pytest.TempPathFactory,
    num_clips: int,
    feature_dim: int,
    seed: int,
    maker: str,
) -> None:
    library = Library(tmp_path_factory.mktemp("home"))
    path = originals / "0.mp4"
    features = np.random.default_rng(seed).standard_normal((num_clips, feature_dim)).astype(np.float32)
    assert library.features(path, maker=maker) is None
    library.remember_features(path, features[::-1].T.copy().T, maker=maker)  # of any memory layout
    again = Library(library.folder)
    assert np.array_equal(again.features(path, maker=maker), features[::-1])
    assert again.features(path, maker=maker + "x") is None
    assert again.features(originals / "1.mp4", maker=maker) is None
    again.remember_features(path, features + 1, maker=maker)
    assert np.array_equal(library.features(path, maker=maker), features + 1)


def test_the_library_forgets_the_features_of_a_changed_file(folder: Path, library: Library) -> None:
    path = folder / "0.mp4"
    features = np.ones((2, 3), np.float32)
    library.remember_features(path, features, maker="a")
    status = path.stat()
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns + 1_000_000))
    assert library.features(path, maker="a") is None
    library.remember_features(path, features, maker="a")
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert library.features(path, maker="a") is None, "only the newest is kept"
    path.unlink()
    with pytest.raises(UnreadableVideoError, match="no such file"):
        library.features(path, maker="a")
