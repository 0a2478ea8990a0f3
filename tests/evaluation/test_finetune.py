"""Finetuning as users run it: it learns, goes on bit by bit after a kill, and looks at the test set once."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import shutil
import signal
from pathlib import Path

import numpy as np
import pytest
import torch

from provico.config.evaluation import FinetuneSettings
from provico.data.library import Library
from provico.errors import (
    CatalogError,
    ConfigError,
    OutputExistsError,
    TooManyBrokenError,
    UnhealthyRunError,
)
from provico.evaluation.recognition import finetune
from provico.evaluation.result import Result
from provico.evaluation.sets import Sets, open_sets
from provico.models import Encoder, EncoderConfig, FrozenSpec, InputSpec, encoder_hash
from provico.models.saved import checkpoints
from provico.models.weights import read_weights
from provico.training.classifier import Classifier
from provico.training.run_log import read_metrics

from ..warm_processes import INTERRUPTED, all_succeed

CLASSES = ("black", "blue", "green", "grey", "red", "yellow")
"""Of `colour_videos`: two training videos and one test video of each."""

SETTINGS = FinetuneSettings(
    epochs=15,
    batch_size=6,
    num_clips=4,
    num_samples=4,
    store="raw",
    num_workers=0,
    checkpoint_every=2,
    device="cpu",
)
SHORT = dataclasses.replace(SETTINGS, epochs=3, max_broken_share=0.2)


@pytest.fixture(scope="module")
def with_broken(colour_videos, tmp_path_factory) -> Path:
    """Sets with a file in each that is no video."""
    folder = tmp_path_factory.mktemp("with_broken") / "videos"
    shutil.copytree(colour_videos, folder)
    for place in ("train/red/broken.mp4", "test/blue/broken.mp4"):
        (folder / place).write_text("no video")
    return folder


def sets_in(folder: Path) -> Sets:
    return open_sets(folder / "train", test_data=folder / "test")


@pytest.fixture(scope="module")
def sets(colour_videos) -> Sets:
    return sets_in(colour_videos)


def small_encoder(seed: int) -> Encoder:
    torch.manual_seed(seed)
    spec = InputSpec(size=16, num_frames=2, frame_step=2)
    return Encoder(EncoderConfig.for_backbone("tiny", dim=16, input=spec)).eval()


@pytest.fixture(scope="module")
def encoder() -> Encoder:
    return small_encoder(5)


@dataclasses.dataclass(frozen=True)
class Finished:
    folder: Path
    result: Result

    @property
    def records(self) -> list[dict[str, float | None]]:
        return records(self.folder)


def records(run: Path) -> list[dict[str, float | None]]:
    """The log of a run without what depends on the clock."""
    found = read_metrics(run / "metrics.jsonl")
    return [{name: value for name, value in one.items() if not name.startswith("time/")} for one in found]


def assert_same_run(a: Path, b: Path) -> None:
    assert records(a) == records(b)
    for name in ("encoder/model.safetensors", "classifier.safetensors"):
        left, right = read_weights(a / name), read_weights(b / name)
        assert left.keys() == right.keys()
        assert all(torch.equal(left[key], right[key]) for key in left), name


@pytest.fixture(scope="module")
def whole(encoder, sets, library, tmp_path_factory) -> Finished:
    """A run that nothing interrupted."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    before = encoder_hash(encoder)
    result = finetune(encoder, sets, settings=SETTINGS, out=folder, library=library)
    assert encoder_hash(encoder) == before, "the encoder that was given must not change"
    assert not encoder.training
    return Finished(folder, result)


def test_it_learns_what_can_be_learnt(whole):
    losses = [record["loss"] for record in whole.records]
    assert len(losses) == 30
    assert losses[0] == pytest.approx(math.log(6), rel=1e-5)  # all classes are equally likely at first
    assert np.mean(losses[-6:]) < 0.5 * losses[0]
    assert np.mean([record["accuracy"] for record in whole.records[-6:]]) > 0.7
    assert whole.result.scores["top-1"].value > 0.6
    assert whole.result.scores["top-5"].value == 1.0


def test_the_learning_rate_is_half_a_period_of_cosine(whole, encoder, sets, library, tmp_path):
    for record in whole.records:
        epoch = (record["step"] - 1) / 2
        expected = 0.5 * 0.02 * (1 + math.cos(math.pi * epoch / 15))
        assert record["learning_rate"] == pytest.approx(expected)
        assert record["epoch"] == record["step"] / 2
    warm = dataclasses.replace(SHORT, epochs=2, warmup_epochs=1)
    finetune(encoder, sets, settings=warm, out=tmp_path / "run", library=library)
    rates = [record["learning_rate"] for record in records(tmp_path / "run")]
    assert rates[0] == pytest.approx(0.0002)
    assert rates[0] < rates[1] < rates[2] == pytest.approx(0.01)


def test_the_result_says_all_that_it_depends_on(whole, encoder, sets):
    result = whole.result
    card = result.card
    assert (card.protocol, card.data, card.split) == ("finetune", "test", "test videos of test")
    assert (card.num_train, card.num_test, card.num_failed, card.num_classes) == (12, 6, 0, 6)
    assert (card.encoder, card.backbone, card.dim) == (encoder_hash(encoder), "tiny", 16)
    assert (card.num_clips, card.num_frames, card.frame_step) == (4, 2, 2)
    assert card.settings["learning_rate"] == 0.02
    assert result.classes == CLASSES
    assert [guess.video for guess in result.predictions] == [video.id for video in sets.test]
    assert [guess.label for guess in result.predictions] == list(CLASSES)
    assert all(1 / 6 < guess.score <= 1 for guess in result.predictions)
    assert result.scores["top-1"].value == np.mean([guess.is_correct for guess in result.predictions])
    assert result.notes["epochs"] == 15
    last = [record["loss"] for record in whole.records[-2:]]
    assert result.notes["training loss of the last epoch"] == pytest.approx(np.mean(last), abs=1e-4)
    json.dumps(result.to_dict(), allow_nan=False)


def test_the_classifier_that_is_left_says_what_the_result_says(whole, sets, library):
    said = Classifier.from_folder(whole.folder).predict(sets.test, library=library)
    assert said.predicted == tuple(guess.predicted for guess in whole.result.predictions)
    assert said.probability.tolist() == pytest.approx([guess.score for guess in whole.result.predictions])


def test_a_finished_run_is_tested_again_and_not_trained(whole, encoder, sets, library):
    kept = {path: path.stat().st_mtime_ns for path in whole.folder.rglob("*.safetensors")}
    again = finetune(encoder, sets, settings=SETTINGS, out=whole.folder, library=library)
    assert again.to_dict() == whole.result.to_dict()
    assert again.predictions == whole.result.predictions
    assert {path: path.stat().st_mtime_ns for path in whole.folder.rglob("*.safetensors")} == kept
    assert len(whole.records) == 30


def test_all_learns_but_the_match_curve(whole, encoder):
    learnt = Classifier.from_folder(whole.folder).encoder
    for name, value in encoder.match_scale.state_dict().items():
        assert torch.equal(learnt.match_scale.state_dict()[name], value)
    for part in ("backbone", "head.mean", "head.log_var"):
        changed = learnt.get_submodule(part).state_dict()
        assert any(
            not torch.equal(value, changed[name])
            for name, value in encoder.get_submodule(part).state_dict().items()
        ), part


# --- stopping and going on ---------------------------------------------------------------------------------


def command(videos: Path, encoder: Encoder, out: Path, settings: FinetuneSettings) -> list[str]:
    saved = out.parent / "encoder"
    if not saved.exists():
        encoder.save_pretrained(saved)
    given = json.dumps(dataclasses.asdict(settings))
    return [str(Path(__file__).parent / "finetune_worker.py"), str(videos), str(saved), str(out), given]


def environment(library: Library) -> dict[str, str]:
    return os.environ | {"PROVICO_HOME": str(library.folder)}


def test_a_killed_run_goes_on_as_if_nothing_had_happened(
    whole, colour_videos, encoder, sets, library, tmp_path, fork_server
):
    out = tmp_path / "run"
    worker = command(colour_videos, encoder, out, SETTINGS)
    process = fork_server.start(INTERRUPTED, 7, "SIGKILL", *worker, environment=environment(library))
    assert process.wait() == -signal.SIGKILL, process.stderr
    assert checkpoints(out / "checkpoints")
    assert not (out / "classifier.json").exists()
    result = finetune(encoder, sets, settings=SETTINGS, out=out, library=library)
    assert_same_run(whole.folder, out)
    assert result.to_dict() == whole.result.to_dict()


def test_an_interrupt_saves_and_the_run_goes_on_from_that_very_step(whole, encoder, sets, library, tmp_path):
    def interrupt(done: int, total: int, note: str = "") -> None:
        if (done, total) == (5, 30):
            signal.raise_signal(signal.SIGINT)

    out = tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        finetune(encoder, sets, settings=SETTINGS, out=out, library=library, progress=interrupt)
    assert checkpoints(out / "checkpoints")[-1].name == "step-000000006.pt"
    seldom = dataclasses.replace(SETTINGS, checkpoint_every=100, num_workers=2)
    result = finetune(encoder, sets, settings=seldom, out=out, library=library)
    assert_same_run(whole.folder, out)
    assert result.notes == whole.result.notes


def test_what_is_not_the_same_run_is_refused_with_the_difference(whole, encoder, sets, library, tmp_path):
    other = dataclasses.replace(SETTINGS, learning_rate=0.5, epochs=16)
    with pytest.raises(ConfigError, match=r"--epochs was 15 and is 16; --learning-rate was 0.02 and is 0.5"):
        finetune(encoder, sets, settings=other, out=whole.folder, library=library)
    with pytest.raises(ConfigError, match=f"encoder was '{encoder_hash(encoder)}' and is"):
        finetune(small_encoder(1), sets, settings=SETTINGS, out=whole.folder, library=library)
    relabelled = tuple(dataclasses.replace(video, label="red") for video in sets.train)
    wrong = dataclasses.replace(sets, train=dataclasses.replace(sets.train, videos=relabelled))
    with pytest.raises(ConfigError, match="training videos was"):
        finetune(encoder, wrong, settings=SETTINGS, out=whole.folder, library=library)
    (tmp_path / "thesis.txt").write_text("all there is")
    with pytest.raises(OutputExistsError, match="not empty"):
        finetune(encoder, sets, settings=SETTINGS, out=tmp_path, library=library)


# --- several processes, broken videos ----------------------------------------------------------------------


@pytest.fixture(scope="module")
def broken_run(with_broken, encoder, library, tmp_path_factory) -> Finished:
    """One process, with a broken video in each set."""
    folder = tmp_path_factory.mktemp("broken_run") / "run"
    result = finetune(encoder, sets_in(with_broken), settings=SHORT, out=folder, library=library)
    return Finished(folder, result)


def test_broken_videos_are_counted_and_never_replaced(broken_run, with_broken, encoder, library, tmp_path):
    result = broken_run.result
    assert [name for name, _ in result.failed] == ["red/broken.mp4", "blue/broken.mp4"]
    assert result.card.num_failed == 2
    assert result.failure_line.startswith("2 of 20 videos failed")
    assert [guess.video for guess in result.predictions] == [f"{name}/0.mp4" for name in CLASSES]
    assert broken_run.records[-1]["data/num_broken"] == 1
    strict = dataclasses.replace(SHORT, max_broken_share=0.05)
    with pytest.raises(TooManyBrokenError, match=r"1 of 13 videos cannot be read"):
        finetune(encoder, sets_in(with_broken), settings=strict, out=tmp_path / "run", library=library)


def test_two_processes_give_the_losses_of_one(
    broken_run, with_broken, encoder, library, tmp_path, fork_server
):
    """Real processes, of which one has to skip a video; but for rounding."""
    out = tmp_path / "run"
    worker = command(with_broken, encoder, out, SHORT)
    all_succeed(fork_server.start_together(*worker, environment=environment(library)))
    one, two = broken_run.records, records(out)
    assert len(one) == len(two) == 6
    for left, right in zip(one, two, strict=True):
        assert right["loss"] == pytest.approx(left["loss"], abs=1e-4)
        assert right["accuracy"] == left["accuracy"]
        assert right["gradient_norm"] == pytest.approx(left["gradient_norm"], rel=1e-3)
    results = [json.loads((out / f"result-{rank}.json").read_text()) for rank in range(2)]
    assert results[0] == results[1]
    assert results[0]["failed"] == broken_run.result.to_dict()["failed"]
    assert results[0]["scored"] == pytest.approx(
        [guess.score for guess in broken_run.result.predictions], abs=1e-3
    )
    # What two processes began, one can go on with; here only the test is left.
    settings = dataclasses.replace(SHORT, checkpoint_every=1)
    again = finetune(encoder, sets_in(with_broken), settings=settings, out=out, library=library)
    assert again.failed == broken_run.result.failed


# --- starting points, and what cannot work -----------------------------------------------------------------


def test_from_scratch_ignores_the_weights_that_are_given(encoder, sets, library, tmp_path):
    scratch = dataclasses.replace(SHORT, from_scratch=True, epochs=1)
    one = finetune(encoder, sets, settings=scratch, out=tmp_path / "one", library=library)
    two = finetune(small_encoder(7), sets, settings=scratch, out=tmp_path / "two", library=library)
    assert_same_run(tmp_path / "one", tmp_path / "two")
    assert one.card == two.card
    assert one.card.encoder not in (encoder_hash(encoder), encoder_hash(small_encoder(7)))
    seeded = dataclasses.replace(scratch, seed=1)
    three = finetune(encoder, sets, settings=seeded, out=tmp_path / "three", library=library)
    assert three.card.encoder != one.card.encoder


def test_a_frozen_encoder_cannot_be_finetuned(sets, tmp_path):
    spec = FrozenSpec(feature_dim=8)
    frozen = Encoder(EncoderConfig.for_backbone("features", dim=4, frozen=spec))
    with pytest.raises(ConfigError, match="provico evaluate linear --train-heads"):
        finetune(frozen, sets, settings=SETTINGS, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_test_set_of_its_own_and_labels_are_needed(encoder, sets, tmp_path):
    one = Sets(sets.train, sets.train, "each video against all others")
    with pytest.raises(ConfigError, match="needs separate test videos"):
        finetune(encoder, one, settings=SETTINGS, out=tmp_path / "run")
    nameless = tuple(dataclasses.replace(video, label=None) for video in sets.test)
    unlabelled = dataclasses.replace(sets, test=dataclasses.replace(sets.test, videos=nameless))
    with pytest.raises(CatalogError, match="have no label"):
        finetune(encoder, unlabelled, settings=SETTINGS, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_batch_is_what_there_is(encoder, sets, library, tmp_path):
    said: list[str] = []
    large = dataclasses.replace(SHORT, batch_size=96, epochs=1, precision="bf16", max_gradient_norm=0.5)
    finetune(encoder, sets, settings=large, out=tmp_path / "run", library=library, announce=said.append)
    assert any("A batch is 12 videos instead of 96" in text for text in said)
    (record,) = records(tmp_path / "run")
    assert record["loss"] == pytest.approx(math.log(6), rel=1e-5)


def test_a_loss_that_is_not_finite_stops_the_run(encoder, sets, library, tmp_path):
    wild = dataclasses.replace(SHORT, learning_rate=1e30, checkpoint_every=1)
    with pytest.raises(UnhealthyRunError, match=r"must be finite. Lower --learning-rate from 1e\+30"):
        finetune(encoder, sets, settings=wild, out=tmp_path / "run", library=library)
