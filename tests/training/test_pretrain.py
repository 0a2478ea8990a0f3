"""Runs as users start them: they end, go on after a kill bit by bit, refuse what is not the same run."""

from __future__ import annotations

import json
import os
import random
import signal
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from provico.cli import main
from provico.config import PretrainConfig, read_config
from provico.data.catalog import Catalog, open_catalog
from provico.data.clips import ClipSpec
from provico.data.library import Library
from provico.data.loader import ClipLoader, ClipSettings
from provico.embedding.driver import embed
from provico.errors import ConfigError, OutputExistsError, WeightsError
from provico.models.encoder import Encoder
from provico.models.saved import checkpoints, load_checkpoint
from provico.models.weights import read_weights
from provico.probability import MinedPairs, Mixture
from provico.recipes import find_recipe
from provico.training.objective import OBJECTIVES, Objective, Outcome, Provico, StepContext
from provico.training.pretrain import pretrain
from provico.training.run_log import read_metrics

from ..warm_processes import INTERRUPTED, all_succeed
from .small_run import SMALL, changed, losses

pytestmark = pytest.mark.usefixtures("without_charts")

TWO_STREAMS_AMONG_ALL = changed(
    SMALL,
    model={"backbone": "tiny_two_streams"},
    objective={"mean_contrast": 1.0},
    mining={"among": "all", "mutual_top": 8, "threshold": 100.0},
)
"""Two networks and a memory of all videos, which must be the same after a resume and in all processes."""


def weights(run: Path) -> dict[str, torch.Tensor]:
    return read_weights(run / "encoder" / "model.safetensors")


def assert_same_run(a: Path, b: Path) -> None:
    assert losses(a) == losses(b)
    left, right = weights(a), weights(b)
    assert left.keys() == right.keys()
    assert all(torch.equal(left[name], right[name]) for name in left)


@pytest.fixture(scope="module")
def whole(
    tmp_path_factory: pytest.TempPathFactory, catalog: Catalog, library: Library, without_charts: Any
) -> Path:
    """A run that nothing interrupted, with the charts of its page."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("provico.training.report._draw", without_charts)
        report = pretrain(catalog, out=folder, config=SMALL, library=library)
    assert report.is_finished
    assert report.num_steps == 8
    return folder


def test_a_run_leaves_all_that_it_promises(whole, catalog):
    assert read_config(whole / "config.json") == SMALL
    records = read_metrics(whole / "metrics.jsonl")
    assert [record["step"] for record in records] == list(range(1, 9))
    assert [record["stage"] for record in records] == [1, 1, 1, 1, 2, 2, 2, 2]
    last = records[-1]
    for name in (
        "loss/soft_positive",
        "health/noise_to_signal",
        "health/effective_rank",
        "curve/a",
        "mining/precision",
        "monitor/recall_at_1",
        "time/data_share",
    ):
        assert last[name] is not None, name
    assert last["mining/num_pairs"] > 0
    assert last["loss"] == pytest.approx(
        last["loss/attenuated_soft"] + last["loss/regulariser"] + 1e-4 * last["loss/kl"], rel=1e-5
    )
    assert "<svg" in (whole / "report.html").read_text()
    assert [path.name for path in checkpoints(whole / "checkpoints")] == [
        "step-000000006.pt",
        "step-000000008.pt",
    ]
    encoder = Encoder.from_pretrained(whole / "encoder")
    assert encoder.config.input.size == 32
    assert (whole / "bad_videos.csv").read_text().splitlines() == ["video,reason"]


def test_the_same_seed_gives_the_same_run_and_another_another(whole, tmp_path, catalog, library):
    pretrain(catalog, out=tmp_path / "again", config=changed(SMALL, run={"num_workers": 2}), library=library)
    assert_same_run(whole, tmp_path / "again")
    other = changed(SMALL, run={"seed": 1}, optimiser={"epochs": 1, "warmup_epochs": 0})
    pretrain(catalog, out=tmp_path / "other", config=other, library=library)
    assert losses(tmp_path / "other")[0]["loss"] != losses(whole)[0]["loss"]


def command(videos: Path, out: Path, config: PretrainConfig, *options: str) -> list[str]:
    """The command line for these settings: a recipe, and an option for all that is not as in it."""
    given = []
    for name, (_, value) in find_recipe("tiny").differences(config).items():
        option = name.partition(".")[2].replace("_", "-")
        if isinstance(value, bool):
            given.append(f"--{option}" if value else f"--no-{option}")
        else:
            given += [f"--{option}", str(value)]
    chosen = ["--recipe", "tiny", "--subset", "train", "--out", str(out)]
    return [sys.executable, "-m", "provico", "pretrain", str(videos), *chosen, *given, *options]


def environment(library: Library) -> dict[str, str]:
    return os.environ | {"PROVICO_HOME": str(library.folder)}


def test_a_killed_run_goes_on_as_if_nothing_had_happened(videos, tmp_path, library, fork_server):
    """kill -9 twice, at moments nobody chose, through the real command line."""
    config = changed(TWO_STREAMS_AMONG_ALL, optimiser={"epochs": 8})
    env = environment(library)
    pretrain(open_catalog(videos, subset="train"), out=tmp_path / "whole", config=config, library=library)
    words = command(videos, tmp_path / "killed", config)[1:]
    for num_lines, *resume in ((random.randint(4, 5),), (random.randint(3, 5), "--resume")):
        # At least one checkpoint exists by then, and the run is not over.
        process = fork_server.start(INTERRUPTED, num_lines, "SIGKILL", *words, *resume, environment=env)
        assert process.wait() == -signal.SIGKILL, process.stderr
        assert checkpoints(tmp_path / "killed" / "checkpoints")
        assert not (tmp_path / "killed" / "encoder").exists()
    all_succeed([fork_server.start(*words, "--resume", environment=env)])
    assert len(losses(tmp_path / "killed")) == 16
    assert_same_run(tmp_path / "whole", tmp_path / "killed")


def test_a_signal_saves_and_the_run_goes_on_from_that_very_step(videos, tmp_path, library, fork_server):
    config = changed(SMALL, optimiser={"epochs": 40}, run={"checkpoint_every": 1000})
    words = command(videos, tmp_path / "run", config)[1:]
    process = fork_server.start(INTERRUPTED, 4, "SIGTERM", *words, environment=environment(library))
    assert process.wait() == 0, process.stderr
    assert "stopped; --resume continues" in process.stdout
    (checkpoint,) = checkpoints(tmp_path / "run" / "checkpoints")
    step = load_checkpoint(checkpoint)["trainer"]["step"]
    assert len(losses(tmp_path / "run")) == step
    assert not (tmp_path / "run" / "encoder").exists()
    catalog = open_catalog(videos, subset="train")
    assert read_config(tmp_path / "run" / "config.json") == config
    with pytest.raises(ConfigError, match=r"--epochs was 40 and is 41"):
        pretrain(
            catalog,
            out=tmp_path / "run",
            config=changed(config, optimiser={"epochs": 41}),
            resume=True,
            library=library,
        )


def test_more_videos_can_be_learnt_from_also(videos, tmp_path, library, monkeypatch, capsys):
    """The training videos are in both sources and count once; labels are those of the first alone."""
    monkeypatch.setenv("PROVICO_HOME", str(library.folder))
    short = changed(SMALL, optimiser={"epochs": 1})
    main(command(videos, tmp_path / "run", short, "--also", str(videos), "--json")[3:])
    assert json.loads(capsys.readouterr().out)["num_videos"] == len(open_catalog(videos))
    assert "monitor/recall_at_1" in losses(tmp_path / "run")[-1]
    with pytest.raises(SystemExit) as refused:
        main(command(videos, tmp_path / "other", SMALL, "--also", "absent-folder")[3:])
    assert refused.value.code == 2
    assert "absent-folder does not exist" in capsys.readouterr().err


def test_an_objective_of_ones_own_is_told_which_videos_it_sees(tmp_path, catalog, library, monkeypatch):
    """So that a study can mine what labels say, although training knows of none."""
    labels = torch.tensor(catalog.labels)

    def oracle(videos: Mixture, step: StepContext) -> Outcome:
        form, classes = Provico(), labels[step.indices]
        pairs = MinedPairs(classes.unsqueeze(1) == classes, threshold=1.0)
        return form.loss_of(videos, form.draw(videos, step), pairs, step)

    monkeypatch.setitem(OBJECTIVES, "oracle", Objective(loss=oracle))
    config = changed(SMALL, objective={"method": "oracle"}, optimiser={"epochs": 2})
    pretrain(catalog, out=tmp_path / "run", config=config, library=library)
    mining = [(record["mining/precision"], record["mining/recall"]) for record in losses(tmp_path / "run")]
    assert mining == [(1, 1)] * 4
    monkeypatch.delitem(OBJECTIVES, "oracle")
    with pytest.raises(ConfigError, match="There is no method 'oracle'"):
        pretrain(catalog, out=tmp_path / "run", config=config, library=library, resume=True)


def test_two_processes_give_the_losses_of_one(videos, catalog, tmp_path, library, fork_server):
    """Real processes; batch normalisation, pairs and samples span both.

    They add numbers in another order, and Adam's first steps, which hardly depend on the size of a gradient,
    blow the rounding up: hence the small learning rate, and a tolerance that grows from the first step on.
    """
    optimiser = {"learning_rate": 1e-4, "warmup_from": 1e-5, "batch_size": 12, "epochs": 6}
    # A single network: two of them agree on nothing in so small a collection, and mine nothing.
    config = changed(TWO_STREAMS_AMONG_ALL, model={"backbone": "tiny"}, optimiser=optimiser)
    words = command(videos, tmp_path / "two", config)[1:]
    all_succeed(fork_server.start_together(*words, environment=environment(library)))
    pretrain(catalog, out=tmp_path / "one", config=config, library=library)
    one, two = losses(tmp_path / "one"), losses(tmp_path / "two")
    assert len(one) == len(two) == 6
    for step, (left, right) in enumerate(zip(one, two, strict=True)):
        assert right["loss"] == pytest.approx(left["loss"], abs=1e-5 if step == 0 else 5e-4)
        assert right["mining/num_pairs"] == left["mining/num_pairs"]
        assert step < 2 or left["mining/num_pairs"] > 0
        assert right["health/effective_rank"] == pytest.approx(left["health/effective_rank"], rel=1e-3)
        assert right["health/gradient_norm"] == pytest.approx(left["health/gradient_norm"], rel=1e-2)


def test_what_is_not_the_same_run_is_refused_with_the_difference(whole, tmp_path, catalog, library):
    with pytest.raises(OutputExistsError, match=r"not empty. Resume its run with --resume"):
        pretrain(catalog, out=whole, config=SMALL, library=library)
    other = changed(SMALL, optimiser={"learning_rate": 0.5}, mining={"threshold": 0.2})
    with pytest.raises(
        ConfigError,
        match=r"--threshold was 1.0 and is 0.2; --learning-rate was 0.001 and is 0.5",
    ):
        pretrain(catalog, out=whole, config=other, resume=True, library=library)
    with pytest.raises(ConfigError, match="videos differ from those"):
        pretrain(catalog.subset(range(7)), out=whole, config=SMALL, resume=True, library=library)
    with pytest.raises(ConfigError, match="holds no run"):
        pretrain(catalog, out=tmp_path / "nothing", config=SMALL, resume=True, library=library)
    with pytest.raises(ConfigError, match="Give only one of them"):
        pretrain(catalog, out=whole, config=SMALL, resume=True, checkpoint=whole, library=library)


def test_what_does_not_change_the_result_may_change_on_resume(whole, catalog, library):
    before = losses(whole), weights(whole)
    report = pretrain(
        catalog, out=whole, config=changed(SMALL, run={"log_every": 5}), resume=True, library=library
    )
    assert report.is_finished
    assert losses(whole) == before[0]
    assert all(torch.equal(value, before[1][name]) for name, value in weights(whole).items())


def test_a_checkpoint_starts_a_new_run_from_its_weights(whole, tmp_path, catalog, library):
    still = changed(SMALL, optimiser={"epochs": 1, "learning_rate": 1e-12, "warmup_epochs": 0})
    newest = checkpoints(whole / "checkpoints")[-1]
    for number, start in enumerate((whole, whole / "encoder", newest)):
        pretrain(catalog, out=tmp_path / str(number), config=still, checkpoint=start, library=library)
        for name, value in weights(whole).items():
            if value.is_floating_point() and "running" not in name and not name.startswith(LAST_STEP):
                torch.testing.assert_close(weights(tmp_path / str(number))[name], value, atol=1e-9, rtol=1e-6)
    with pytest.raises(WeightsError, match="neither an encoder"):
        pretrain(catalog, out=tmp_path / "a", config=still, checkpoint=tmp_path, library=library)
    wider = changed(still, model={"dim": 24})
    with pytest.raises(WeightsError, match="do not fit"):
        pretrain(catalog, out=tmp_path / "b", config=wider, checkpoint=whole, library=library)


LAST_STEP = ("evidence.", "match_scale.")
"""What is fitted anew at the end of every run."""

FROZEN = PretrainConfig.from_dict(
    {
        "model": {"backbone": "colours:mean_and_motion", "dim": 16},
        "views": {"augmentation": "none", "num_stored": 4},
        "objective": {"num_samples": 4},
        "mining": {"mine_from": 60},
        "optimiser": {"epochs": 100, "batch_size": 6, "warmup_epochs": 0, "learning_rate": 3e-3},
        "run": {"num_workers": 0, "log_every": 1, "device": "cpu"},
    }
)


@pytest.fixture
def network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A network of the user's own, in a module of theirs: colours of twelve cells, and how they change."""
    (tmp_path / "colours.py").write_text(
        "import torch\n"
        "def mean_and_motion(clips):\n"
        "    cells = torch.nn.functional.adaptive_avg_pool3d(clips, (clips.shape[2], 2, 2)).flatten(3)\n"
        "    change = (cells[:, :, 1:] - cells[:, :, :-1]).abs().mean(2)\n"
        "    return torch.cat([cells.mean(2), change], dim=1).flatten(1)\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))


@pytest.mark.parametrize("method", ["provico", "infonce"])
def test_heads_on_stored_features_learn(tmp_path, catalog, library, network, method):
    # With a hidden layer heads start at random: at the axes of the features little is left to learn.
    shorter = {"mining": {"mine_from": 40}, "optimiser": {"epochs": 60}}
    config = changed(FROZEN, model={"hidden_dim": 32}, objective={"method": method}, **shorter)
    pretrain(catalog, out=tmp_path / "run", config=config, library=library)
    values = [record["loss"] for record in losses(tmp_path / "run")]
    assert np.mean(values[-40:]) < np.mean(values[:20]) - 0.05


def test_features_are_stored_once_and_give_the_same_run(tmp_path, catalog, library, network):
    config = changed(FROZEN, mining={"mine_from": 2}, optimiser={"epochs": 4})
    said: list[str] = []
    for run in ("one", "two"):
        pretrain(catalog, out=tmp_path / run, config=config, library=library, announce=said.append)
    assert "Features of 12 videos: 0 computed, the rest from the cache." in said
    assert_same_run(tmp_path / "one", tmp_path / "two")


def test_the_default_recipe_runs_out_of_the_box(tmp_path, catalog, library):
    """The real frozen network on real videos; only shorter."""
    said: list[str] = []
    config = changed(find_recipe("frozen"), optimiser={"max_steps": 6}, run={"device": "cpu", "log_every": 1})
    report = pretrain(catalog, out=tmp_path / "run", config=config, library=library, announce=said.append)
    assert report.num_steps == 6
    assert any("A batch is 12 videos instead of 256" in text for text in said)
    encoder = Encoder.from_pretrained(tmp_path / "run" / "encoder")
    assert bool(encoder.head.standardisation.shift.any())
    assert any("Views agree on" in text for text in said)
    assert 0 <= losses(tmp_path / "run")[-1]["mining/estimated_precision"] <= 1
    # From pixels the encoder gives what its heads make of the stored features.
    found = embed(encoder, catalog, num_clips=8, library=library)
    spec = encoder.config.input
    settings = ClipSettings(
        num_clips=8,
        spec=ClipSpec(spec.num_frames, spec.frame_step),
        sampling="uniform",
        short_side=spec.size,
        crop_size=spec.size,
    )
    (batch,) = ClipLoader(catalog.subset([3]), settings, batch_size=1, library=library)
    with torch.no_grad():
        clips = encoder(batch.pixels).clips
    torch.testing.assert_close(clips.mean[0], found.videos.clips.mean[3], rtol=1e-3, atol=1e-3)


def test_the_last_step_can_lie_within_an_epoch(tmp_path, catalog, library, network):
    config = changed(FROZEN, optimiser={"max_steps": 7, "batch_size": 4})
    report = pretrain(catalog, out=tmp_path / "run", config=config, library=library)
    assert (report.num_steps, report.is_finished) == (7, True)
    records = losses(tmp_path / "run")
    assert [record["step"] for record in records] == list(range(1, 8))
    assert 0 < records[-1]["learning_rate"] < 0.2 * records[0]["learning_rate"]
    json.dumps(report.summary(), allow_nan=False)


def test_a_run_that_was_refused_before_its_first_step_can_be_started_again(tmp_path, catalog, library):
    frozen = {"backbone": "efficientnet_motion", "size": None, "num_frames": None}
    refused = changed(SMALL, model=frozen)
    with pytest.raises(ConfigError, match="--augmentation none"):
        pretrain(catalog, out=tmp_path / "run", config=refused, library=library)
    mended = changed(SMALL, optimiser={"epochs": 1, "warmup_epochs": 0})
    assert pretrain(catalog, out=tmp_path / "run", config=mended, library=library).is_finished
    assert read_config(tmp_path / "run" / "config.json") == mended


def test_in_parts_the_gradient_is_that_of_the_whole_batch(tmp_path, catalog, library, network):
    """Exact where nothing is normalised over the batch, as in heads."""
    short = changed(FROZEN, mining={"mine_from": 2}, optimiser={"epochs": 4})
    pretrain(catalog, out=tmp_path / "whole", config=short, library=library)
    parts = changed(short, optimiser={"num_parts": 3})
    pretrain(catalog, out=tmp_path / "parts", config=parts, library=library)
    for one, two in zip(losses(tmp_path / "whole"), losses(tmp_path / "parts"), strict=True):
        assert two["loss"] == pytest.approx(one["loss"], rel=1e-4, abs=1e-5)
    for name, value in weights(tmp_path / "whole").items():
        if not name.startswith(LAST_STEP):
            torch.testing.assert_close(weights(tmp_path / "parts")[name], value, rtol=1e-3, atol=1e-4)


def test_frames_are_prepared_in_the_library_of_the_run(tmp_path, catalog):
    own = Library(tmp_path / "home")
    short = changed(SMALL, optimiser={"epochs": 1, "warmup_epochs": 0})
    pretrain(catalog, out=tmp_path / "run", config=short, library=own)
    assert all(own.prepared(video.path, short_side=36) is not None for video in catalog)
