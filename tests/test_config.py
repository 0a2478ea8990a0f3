"""Settings survive JSON, refuse what cannot work, and say how they differ; every recipe can be built."""

from __future__ import annotations

import dataclasses
import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest
import torch

from provico.config import MiningSettings, PretrainConfig, read_config
from provico.errors import ConfigError
from provico.models.backbones.efficientnet import WEIGHTS_PACKAGE
from provico.models.saved import build_encoder
from provico.recipes import DEFAULT_RECIPE, RECIPES, find_recipe
from provico.training.objective import OBJECTIVES, Provico, check_objective

SMALL = PretrainConfig.from_dict(
    {
        "model": {"backbone": "tiny", "size": 32, "num_frames": 4, "dim": 16},
        "mining": {"mine_from": None, "threshold": "adaptive"},
        "optimiser": {"epochs": 4, "batch_size": 6, "max_steps": None},
    }
)
every_recipe = pytest.mark.parametrize("name", RECIPES)


def changed(config: PretrainConfig, group: str, values: dict[str, Any]) -> PretrainConfig:
    return dataclasses.replace(config, **{group: dataclasses.replace(getattr(config, group), **values)})


# --- settings ----------------------------------------------------------------------------------------------


def test_the_config_survives_json(tmp_path: Path) -> None:
    text = json.dumps(SMALL.to_dict())
    assert PretrainConfig.from_dict(json.loads(text)) == SMALL
    (tmp_path / "config.json").write_text(text)
    assert read_config(tmp_path / "config.json") == SMALL


def test_what_is_not_given_is_the_default() -> None:
    assert PretrainConfig.from_dict({}) == PretrainConfig()
    given = PretrainConfig.from_dict({"mining": {"threshold": 0.2}})
    assert given == PretrainConfig(mining=MiningSettings(threshold=0.2))


def test_settings_are_frozen() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        SMALL.optimiser.epochs = 5  # type: ignore[misc]


def test_settings_that_cannot_work_are_refused_before_anything_is_read() -> None:
    for group, values, message in (
        ("objective", {"num_samples": 0}, "--num-samples is 0"),
        ("mining", {"among": "all", "mutual_top": None}, "--among all needs --mutual-top"),
        ("mining", {"among": "all", "threshold": "adaptive"}, "a fixed --threshold"),
        ("views", {"num_clips": 0}, "--num-clips is 0"),
        ("views", {"num_stored": 1}, "--num-stored is 1, fewer than --num-clips 2"),
        ("optimiser", {"batch_size": 1}, "at least 2 videos"),
        ("optimiser", {"learning_rate": 0.0}, "must be positive"),
        ("optimiser", {"epochs": 0}, "--epochs is 0"),
        ("optimiser", {"num_parts": 0}, "--num-parts is 0"),
        ("run", {"log_every": 0}, "--log-every is 0"),
        ("run", {"checkpoint_every": 0}, "--checkpoint-every is 0"),
    ):
        with pytest.raises(ConfigError, match=message):
            changed(SMALL, group, values)
    single = changed(SMALL, "views", {"num_clips": 1})
    with pytest.raises(ConfigError, match=r"--mean-contrast compares clips, but --num-clips is 1"):
        changed(single, "objective", {"mean_contrast": 1.0})


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"optimiser": {"epoch": 3}}, r"no setting optimiser.epoch. Did you mean optimiser.epochs"),
        ({"optimizer": {}}, r"no setting optimizer. Did you mean optimiser\?"),
        ({"model": {"zzz": 1}}, r"no setting model.zzz. There are backbone, dim, "),
        ({"zzz": {}}, r"no setting zzz. There are model, views, objective, mining, optimiser, run"),
        ({"run": 3}, r"The settings run. are 3, but a mapping of names to values is needed"),
        ([1, 2], r"The settings of a run are \[1, 2\]"),
    ],
)
def test_unknown_names_are_refused_with_the_nearest(values: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        PretrainConfig.from_dict(values)


def test_a_file_that_is_no_config_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"config\.json cannot be read"):
        read_config(tmp_path / "config.json")
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(ConfigError, match=r"config\.json cannot be read"):
        read_config(tmp_path / "config.json")


def test_differences_name_every_setting_that_is_not_the_same() -> None:
    assert SMALL.differences(SMALL) == {}
    other = changed(changed(SMALL, "optimiser", {"epochs": 5}), "mining", {"mine_from": 2})
    assert SMALL.differences(other) == {"mining.mine_from": (None, 2), "optimiser.epochs": (4, 5)}
    assert other.differences(SMALL) == {"mining.mine_from": (2, None), "optimiser.epochs": (5, 4)}
    # Every setting there is can be the one that differs.
    plain = PretrainConfig().to_dict()
    names = {f"{group}.{name}" for group, values in plain.items() for name in values}
    assert 30 < len(names) <= 40
    for group, values in plain.items():
        for name in values:
            moved = PretrainConfig()
            object.__setattr__(moved, group, dataclasses.replace(getattr(moved, group), **{name: "moved"}))
            assert PretrainConfig().differences(moved) == {f"{group}.{name}": (values[name], "moved")}


# --- recipes -----------------------------------------------------------------------------------------------


@every_recipe
def test_recipes_survive_json(name: str) -> None:
    recipe = find_recipe(name)
    assert PretrainConfig.from_dict(json.loads(json.dumps(recipe.to_dict()))) == recipe


@every_recipe
@pytest.mark.parametrize("method", [None, "infonce"])
def test_recipes_have_an_objective_that_can_work(name: str, method: str | None) -> None:
    recipe = find_recipe(name)
    check_objective(recipe if method is None else changed(recipe, "objective", {"method": method}))


@every_recipe
def test_recipes_build_an_encoder(name: str) -> None:
    model = RECIPES[name].model
    is_published = model.backbone.startswith("efficientnet")
    if is_published and importlib.util.find_spec(WEIGHTS_PACKAGE) is None:
        pytest.skip("the weights are not installed")
    # Published weights have to be really there; all others need only be possible.
    with torch.device("cpu" if is_published else "meta"):
        encoder = build_encoder(model)
    config, given = encoder.config, encoder.config.input
    assert (config.backbone, config.dim) == (model.backbone, model.dim)
    assert (config.parametrisation, config.hidden_dim) == (model.parametrisation, model.hidden_dim)
    for setting in ("size", "num_frames", "frame_step", "motion"):
        asked = getattr(model, setting)
        made_for = getattr(config.backbone_spec.input, setting)
        assert getattr(given, setting) == (made_for if asked is None else asked)
    means = getattr(encoder.head.mean, "streams", [encoder.head.mean])
    assert len(means) == config.backbone_spec.num_streams
    assert sum(head.layers[0].in_features for head in means) == config.backbone_spec.feature_dim
    assert sum(head.layers[-1].out_features for head in means) == model.dim
    assert encoder.head.log_var.layers[-1].out_features == model.dim
    assert len(encoder.head.log_var.layers) == (
        1 if config.log_var_hidden_dim is config.hidden_dim is None else 3
    )


def test_unknown_recipes_are_refused_with_the_nearest() -> None:
    assert find_recipe(DEFAULT_RECIPE) is RECIPES[DEFAULT_RECIPE]
    with pytest.raises(ConfigError, match=r"no recipe 'papre'. Did you mean paper\?"):
        find_recipe("papre")
    with pytest.raises(ConfigError, match=r"no recipe 'xyz'. There are frozen, "):
        find_recipe("xyz")


def test_paper_has_the_numbers_of_the_paper() -> None:
    recipe = RECIPES["paper"]
    optimiser, objective, mining = recipe.optimiser, recipe.objective, recipe.mining
    assert (optimiser.epochs, optimiser.max_steps, optimiser.batch_size) == (200, None, 96)
    assert (optimiser.warmup_epochs, optimiser.warmup_from, optimiser.weight_decay) == (20, 1e-4, 0)
    assert (objective.method, objective.num_samples, objective.kl_weight) == ("provico", 10, 1e-4)
    assert OBJECTIVES["provico"].loss == Provico(
        samples_from="moments", self_pairs="drop", reduction="mean", kl_mean_term=True
    )
    assert (mining.mine_from, mining.threshold) == (30, 0.15)
    assert mining.distance.startswith("bhattacharyya")
    assert (recipe.views.num_clips, recipe.views.augmentation) == (2, "crop")
    assert (recipe.model.backbone, recipe.model.hidden_dim) == ("r3d18", None)
    with torch.device("meta"):
        given = build_encoder(recipe.model).config.input
    assert (given.num_frames, given.frame_step, given.size, given.motion) == (16, 1, 112, False)


def test_the_r3d50_of_the_paper_differs_as_its_table_says() -> None:
    differences = RECIPES["paper"].differences(RECIPES["paper-r3d50"])
    assert {name: value for name, (_, value) in differences.items()} == {
        "model.backbone": "r3d50",
        "model.size": 224,
        "optimiser.batch_size": 512,
    }


@pytest.mark.parametrize(
    ("group", "values", "message"),
    [
        ("mining", {"among": "some"}, r"--among is 'some', but it must be batch or all"),
        ("optimiser", {"epochs": "many"}, r"--epochs is 'many', but it must be a whole number"),
        ("optimiser", {"epochs": True}, r"--epochs is True"),
        ("mining", {"threshold": "near"}, r"--threshold is 'near', but .* a number or adaptive or none"),
        ("views", {"num_stored": 1}, "fewer than --num-clips"),
    ],
)
def test_values_of_the_wrong_kind_are_refused(group: str, values: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        PretrainConfig.from_dict({group: values})


def test_whole_numbers_are_numbers() -> None:
    assert PretrainConfig.from_dict({"optimiser": {"learning_rate": 1}}).optimiser.learning_rate == 1
