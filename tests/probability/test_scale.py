"""The units of the embedding: what each parametrisation promises, and that only some of them learn."""

from __future__ import annotations

import dataclasses
import importlib.util
import math
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from provico.defaults import PARAMETRISATION
from provico.probability import (
    PARAMETRISATIONS,
    Gaussian,
    Moments,
    Sampled,
    distances,
)

every = pytest.mark.parametrize("name", PARAMETRISATIONS)
dims = st.integers(2, 2048)


@every
@given(dim=dims)
def test_the_starting_variance_lies_within_its_bounds(name: str, dim: int) -> None:
    scale = PARAMETRISATIONS[name]
    low, high = scale.log_var_bounds(dim)
    assert low < scale.initial_log_var(dim) < high
    assert low > -41
    assert high < 41  # where every function of this package is still finite
    assert scale.initial_a(dim) > 0


@every
@given(dim=dims)
def test_relative_units_do_not_depend_on_the_embedding_size(name: str, dim: int) -> None:
    scale = PARAMETRISATIONS[name]
    noise = dim * math.exp(scale.initial_log_var(dim)) / scale.mean_norm(dim) ** 2
    if scale.variance_unit == "relative":
        assert noise == pytest.approx(scale.initial_variance)
    else:
        assert noise == pytest.approx(dim)  # the printed setting drowns its means the more, the larger D
    assert scale.initial_a(dim) * scale.mean_norm(dim) == pytest.approx(scale.curve_slope)


@every
@given(dim=dims, factor=st.floats(0.1, 10))
def test_longer_means_are_the_same_picture_in_larger_units(name: str, dim: int, factor: float) -> None:
    scale = PARAMETRISATIONS[name]
    longer = dataclasses.replace(scale, mean_factor=scale.mean_factor * factor)
    assert longer.mean_norm(dim) == pytest.approx(factor * scale.mean_norm(dim))
    assert longer.initial_a(dim) * factor == pytest.approx(scale.initial_a(dim))
    assert longer.initial_b(dim) == scale.initial_b(dim)
    shift = 2 * math.log(factor) if scale.variance_unit == "relative" else 0.0
    assert longer.initial_log_var(dim) == pytest.approx(scale.initial_log_var(dim) + shift)
    bounds = [bound + shift for bound in scale.log_var_bounds(dim)]
    assert longer.log_var_bounds(dim) == pytest.approx(bounds)


@given(dim=dims)
def test_where_the_match_curves_bend(dim: int) -> None:
    def cosine_of_even_odds(name: str) -> float:
        scale = PARAMETRISATIONS[name]
        distance = scale.initial_b(dim) / scale.initial_a(dim)
        return 1 - 0.5 * (distance / scale.mean_norm(dim)) ** 2

    assert cosine_of_even_odds("sqrt_dim") == pytest.approx(0.78, abs=0.005)
    assert cosine_of_even_odds("long") == pytest.approx(0.78, abs=0.005)
    assert cosine_of_even_odds("wide") == pytest.approx(0.41, abs=0.005)
    assert PARAMETRISATIONS["long"].mean_norm(dim) == pytest.approx(3 * math.sqrt(dim))


@given(dim=dims)
def test_the_printed_threshold_parts_twins_from_strangers(dim: int) -> None:
    # At the start two samples of a video are at 1/16 < tau = 0.15, and strangers (orthogonal means) beyond.
    scale = PARAMETRISATIONS[PARAMETRISATION]
    mean = torch.eye(2, dim, dtype=torch.float64) * scale.mean_norm(dim)
    gaussian = Gaussian(mean, torch.full_like(mean, scale.initial_log_var(dim)))
    videos = Sampled(gaussian, Moments.of_gaussian(gaussian))
    twins_and_strangers = distances.bhattacharyya_expected(videos, videos)
    assert twins_and_strangers.diagonal().max() < 0.15 < twins_and_strangers[0, 1]


def test_paper_literal_is_the_printed_setting() -> None:
    scale, self_pairs = load_toy().CANDIDATES["paper_literal"]
    for dim in (8, 128, 1024):
        assert scale.mean_norm(dim) == 1
        assert scale.initial_log_var(dim) == 0
        assert scale.initial_a(dim) == scale.initial_b(dim) == 5
    assert scale.sigmoid_scale == 1
    assert self_pairs == "keep"


def load_toy() -> ModuleType:
    path = Path(__file__).parents[2] / "benchmarks" / "scale_toy.py"
    spec = importlib.util.spec_from_file_location("scale_toy", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["scale_toy"] = module  # dataclasses look their module up by name
    spec.loader.exec_module(module)
    return module


def test_the_default_learns_where_the_paper_taken_literally_collapses() -> None:
    toy = load_toy()
    results = {
        name: toy.train(scale, self_pairs=self_pairs, dim=64, seed=0, num_steps=60, num_samples=4)
        for name, (scale, self_pairs) in toy.CANDIDATES.items()
        if name in (PARAMETRISATION, "paper_literal")
    }
    learnt, collapsed = results[PARAMETRISATION], results["paper_literal"]
    assert learnt.match_recall > 0.8  # chance is 0.09
    assert learnt.relative_noise < 0.5  # means stand out from the noise of their samples
    assert collapsed.match_recall < 0.15
    assert collapsed.cosine_recall < 0.4
    assert collapsed.relative_noise > 3  # samples are nothing but noise
