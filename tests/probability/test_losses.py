"""The objective against the printed equations in plain float64, and its laws."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from provico.errors import ConfigError
from provico.probability import (
    Gaussian,
    LossParts,
    MatchCurve,
    MatchLogProbabilities,
    Mixture,
    certainty_weights,
    match_log_probabilities,
    pair_weights,
    provico_loss,
    soft_contrastive,
)

seeds = st.integers(0, 2**31)


def draw(seed: int, *shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def random_pairs(seed: int, num_videos: int = 4) -> tuple[Tensor, Tensor, Tensor]:
    """Match probabilities, positives and log-uncertainties of a batch."""
    p = torch.sigmoid(draw(seed, num_videos, num_videos))
    positive = (draw(seed + 1, num_videos, num_videos) > 0.5) | torch.eye(num_videos, dtype=torch.bool)
    positive[0, 1] = False
    return p, positive, draw(seed + 2, num_videos)


def logs(p: Tensor) -> MatchLogProbabilities:
    return MatchLogProbabilities(p.log(), (1 - p).log())


@given(seed=seeds)
def test_is_the_printed_objective(seed: int) -> None:
    p, positive, log_uncertainty = random_pairs(seed)
    kl, kl_weight = draw(seed + 3, 4).abs(), 0.3
    var = log_uncertainty.exp()
    soft_total, regulariser, kl_total = 0.0, 0.0, 0.0
    for i, j in itertools.product(range(4), range(4)):
        soft = -math.log(p[i, j]) if positive[i, j] else -math.log(1 - p[i, j])
        soft_total += soft / (4 * float(var[i]) * float(var[j]))
        regulariser += 0.5 * (math.log(var[i]) + math.log(var[j]))
        kl_total += float(kl[i] + kl[j])

    def loss(reduction: Any) -> LossParts:
        return provico_loss(
            logs(p),
            positive,
            log_uncertainty=log_uncertainty,
            kl=kl,
            kl_weight=kl_weight,
            reduction=reduction,
        )

    # The mean over all ordered pairs has the optimum of the printed sum: it is the sum over B^2.
    mean = loss("mean")
    assert 16 * mean.attenuated_soft.item() == pytest.approx(soft_total)
    assert 16 * mean.regulariser.item() == pytest.approx(regulariser)
    assert 16 * mean.kl.item() == pytest.approx(kl_total)
    assert 16 * mean.total.item() == pytest.approx(soft_total + regulariser + kl_weight * kl_total)

    pair_loss = certainty_weights(log_uncertainty) * soft_contrastive(logs(p), positive)
    pair_loss = pair_loss + 0.5 * (log_uncertainty.unsqueeze(1) + log_uncertainty)
    pair_loss = pair_loss + kl_weight * (kl.unsqueeze(1) + kl)
    halves = 0.5 * pair_loss[positive].mean() + 0.5 * pair_loss[~positive].mean()
    assert loss("balanced").total.item() == pytest.approx(halves.item())
    assert pair_loss.mean().item() == pytest.approx(mean.total.item())


@given(seed=seeds)
def test_parts_for_the_log_are_plain_means(seed: int) -> None:
    p, positive, log_uncertainty = random_pairs(seed)
    parts = provico_loss(logs(p), positive, log_uncertainty=log_uncertainty, kl=log_uncertainty)
    assert parts.soft_positive.item() == pytest.approx(-p[positive].log().mean().item())
    assert parts.soft_negative.item() == pytest.approx(-(1 - p[~positive]).log().mean().item())


reductions = st.sampled_from(["mean", "balanced", "rows"])


@given(seed=seeds, order=st.permutations(range(4)), reduction=reductions)
def test_the_order_of_videos_does_not_matter(seed: int, order: list[int], reduction: Any) -> None:
    p, positive, log_uncertainty = random_pairs(seed)

    def total(index: list[int]) -> Tensor:
        return provico_loss(
            logs(p[index][:, index]),
            positive[index][:, index],
            log_uncertainty=log_uncertainty[index],
            kl=log_uncertainty[index].exp(),
            reduction=reduction,
            hardness=0.7,
        ).total

    torch.testing.assert_close(total(order), total([0, 1, 2, 3]))


def test_weights_of_pairs() -> None:
    positive = torch.eye(5, dtype=torch.bool)
    for reduction in ("mean", "balanced"):
        assert pair_weights(positive, reduction=reduction).sum().item() == pytest.approx(1)
    balanced = pair_weights(positive, reduction="balanced")
    assert balanced[positive].sum().item() == pytest.approx(0.5)
    everything = torch.ones(5, 5, dtype=torch.bool)
    assert pair_weights(everything, reduction="balanced").sum().item() == pytest.approx(1)


def rows_by_hand(positive: Tensor, p: Tensor, hardness: float) -> Tensor:
    """The weights of `rows`, one pair at a time."""
    num_videos = len(positive)
    weights = torch.zeros(num_videos, num_videos, dtype=torch.float64)
    for i in range(num_videos):
        num_positive = sum(bool(positive[i, j]) for j in range(num_videos))
        total = sum(float(p[i, j]) ** hardness for j in range(num_videos) if not positive[i, j])
        share = 0.5 if 0 < num_positive < num_videos else 1.0
        for j in range(num_videos):
            part = 1 / num_positive if positive[i, j] else float(p[i, j]) ** hardness / total
            weights[i, j] = share * part / num_videos
    return weights


@given(seed=seeds, hardness=st.floats(0, 5), density=st.floats(-3, 3))
def test_rows_share_their_weight_between_positives_and_negatives(
    seed: int, hardness: float, density: float
) -> None:
    p = torch.sigmoid(draw(seed, 5, 5))
    positive = draw(seed + 1, 5, 5) < density  # rows of one kind only occur too
    weights = pair_weights(
        positive, reduction="rows", log_match=p.log(), hardness=hardness, dtype=torch.float64
    )
    torch.testing.assert_close(weights, rows_by_hand(positive, p, hardness))
    torch.testing.assert_close(weights.sum(dim=1), torch.full((5,), 0.2, dtype=torch.float64))


def test_every_row_counts_alike_however_many_positives_it_has() -> None:
    positive = torch.tensor([[1, 0, 0, 0], [1, 1, 0, 0], [1, 1, 1, 0], [1, 1, 1, 1]], dtype=torch.bool)
    parts_of_24 = [[3, 1, 1, 1], [1.5, 1.5, 1.5, 1.5], [1, 1, 1, 3], [1.5, 1.5, 1.5, 1.5]]
    torch.testing.assert_close(pair_weights(positive, reduction="rows"), torch.tensor(parts_of_24) / 24)


@given(seed=seeds)
def test_one_positive_in_each_row_makes_rows_the_balanced_mean(seed: int) -> None:
    positive = torch.eye(4, dtype=torch.bool)[
        torch.randperm(4, generator=torch.Generator().manual_seed(seed))
    ]
    torch.testing.assert_close(
        pair_weights(positive, reduction="rows"), pair_weights(positive, reduction="balanced")
    )


def test_the_hardest_negative_takes_all_in_the_limit() -> None:
    # Log-probabilities as small as they come in training: p itself would underflow.
    log_match = torch.tensor([[-0.1, -900.0, -901.0], [-800.0, -0.1, -790.0], [-1.0, -2.0, -0.1]])
    weights = pair_weights(
        torch.eye(3, dtype=torch.bool), reduction="rows", log_match=log_match, hardness=50.0
    )
    expected = torch.tensor([[0.5, 0.5, 0.0], [0.0, 0.5, 0.5], [0.5, 0.0, 0.5]]) / 3
    torch.testing.assert_close(weights, expected)


def test_weights_of_pairs_have_no_gradient() -> None:
    log_match = draw(0, 3, 3).requires_grad_()
    positive = torch.eye(3, dtype=torch.bool)
    assert not pair_weights(positive, reduction="rows", log_match=log_match, hardness=1.0).requires_grad
    with pytest.raises(ConfigError, match="log_match"):
        pair_weights(positive, reduction="rows", hardness=1.0)


@given(seed=seeds, hardness=st.floats(0, 3))
def test_the_objective_by_rows_is_the_weighted_sum_of_its_pairs(seed: int, hardness: float) -> None:
    p, positive, log_uncertainty = random_pairs(seed)
    kl, kl_weight, var = draw(seed + 3, 4).abs(), 0.3, log_uncertainty.exp()
    weights = rows_by_hand(positive, p, hardness)
    total = 0.0
    for i, j in itertools.product(range(4), range(4)):
        soft = -math.log(p[i, j]) if positive[i, j] else -math.log(1 - p[i, j])
        pair = soft / (4 * float(var[i] * var[j])) + 0.5 * math.log(var[i] * var[j])
        total += float(weights[i, j]) * (pair + kl_weight * float(kl[i] + kl[j]))
    parts = provico_loss(
        logs(p),
        positive,
        log_uncertainty=log_uncertainty,
        kl=kl,
        kl_weight=kl_weight,
        reduction="rows",
        hardness=hardness,
    )
    assert parts.total.item() == pytest.approx(total)


@given(seed=seeds, reduction=reductions)
def test_uncertainty_can_learn_from_positives_alone(seed: int, reduction: Any) -> None:
    p, positive, log_uncertainty = random_pairs(seed)
    weights = pair_weights(positive, reduction=reduction, dtype=torch.float64)
    # d/du_i of every positive pair (i, j) and (j, i): of w [exp(-u_i - u_j) soft / 4 + (u_i + u_j) / 2].
    expected = torch.zeros(4, dtype=torch.float64)
    for i, j in itertools.product(range(4), range(4)):
        if positive[i, j]:
            fit = -float(p[i, j].log() * (-log_uncertainty[i] - log_uncertainty[j]).exp() / 4)
            for video in (i, j):
                expected[video] += float(weights[i, j]) * (0.5 - fit)

    def loss(uncertainty_from: Any) -> tuple[Tensor, list[Tensor]]:
        leaves = [p.clone().requires_grad_(), log_uncertainty.clone().requires_grad_()]
        total = provico_loss(
            logs(leaves[0]),
            positive,
            log_uncertainty=leaves[1],
            kl=torch.zeros(4, dtype=torch.float64),
            reduction=reduction,
            uncertainty_from=uncertainty_from,
        ).total
        return total, list(torch.autograd.grad(total, leaves))

    total, (match_grad, uncertainty_grad) = loss("positives")
    everything, (match_grad_of_all, _) = loss("all_pairs")
    torch.testing.assert_close(uncertainty_grad, expected)
    # The value, and all that the means learn, is as ever.
    assert torch.equal(total, everything)
    assert torch.equal(match_grad, match_grad_of_all)


def test_with_every_pair_positive_there_is_no_negative_mean() -> None:
    parts = provico_loss(
        logs(torch.full((2, 2), 0.5)),
        torch.ones(2, 2, dtype=torch.bool),
        log_uncertainty=torch.zeros(2),
        kl=torch.zeros(2),
        reduction="balanced",
    )
    assert parts.soft_negative.isnan()
    assert parts.total.item() == pytest.approx(math.log(2) / 4)


def test_the_best_variance_for_a_given_soft_loss() -> None:
    # Without KL the optimum of L / (4 s^4) + log s^2 is s^2 = sqrt(L / 2).
    log_uncertainty = torch.zeros(3, dtype=torch.float64, requires_grad=True)
    optimiser = torch.optim.LBFGS([log_uncertainty], max_iter=100, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        optimiser.zero_grad()
        # Every pair is positive with L_soft = 0.08.
        p = torch.full((3, 3), math.exp(-0.08), dtype=torch.float64)
        everything, nothing = torch.ones(3, 3, dtype=torch.bool), torch.zeros(3, dtype=torch.float64)
        total = provico_loss(logs(p), everything, log_uncertainty=log_uncertainty, kl=nothing).total
        total.backward()
        return total

    optimiser.step(closure)
    torch.testing.assert_close(
        log_uncertainty.detach().exp(), torch.full((3,), 0.2, dtype=torch.float64), rtol=1e-4, atol=0
    )


def test_a_detached_weight_has_no_gradient() -> None:
    log_uncertainty = draw(0, 3).requires_grad_()
    assert not certainty_weights(log_uncertainty, detach=True).requires_grad
    torch.testing.assert_close(
        certainty_weights(log_uncertainty), certainty_weights(log_uncertainty, detach=True)
    )


@given(seed=seeds)
def test_the_kl_of_a_video_is_at_most_the_mean_over_its_clips(seed: int) -> None:
    mixture = Mixture(Gaussian(draw(seed, 3, 4, 2), draw(seed + 1, 3, 4, 2)))
    clips = torch.distributions.Normal(mixture.clips.mean, mixture.clips.std)
    unit = torch.distributions.Normal(torch.zeros(2).double(), torch.ones(2).double())
    by_clip = torch.distributions.kl_divergence(clips, unit).sum(dim=-1).mean(dim=-1)
    kl = mixture.moment_matched.kl_to_unit()
    assert (kl <= by_clip + 1e-12).all()  # by convexity
    assert (mixture.moment_matched.kl_to_unit(mean_term=False) <= kl).all()


def whole_loss(mean: Tensor, log_var: Tensor, log_a: Tensor, b: Tensor, **options: Any) -> LossParts:
    """Clips to objective, as training does it."""
    mixture = Mixture(Gaussian(mean, log_var))
    video = mixture.moment_matched
    samples = video.sample(3, generator=torch.Generator().manual_seed(0))
    positive = torch.eye(len(mean), dtype=torch.bool)
    positive[0, 1] = True
    return provico_loss(
        match_log_probabilities(samples, curve=MatchCurve.from_raw(log_a, b)),
        positive,
        log_uncertainty=video.log_uncertainty,
        kl=video.kl_to_unit(),
        **options,
    )


@pytest.mark.parametrize("reduction", ["mean", "balanced", "rows"])
def test_gradients_are_right(reduction: str) -> None:
    inputs = [draw(0, 3, 2, 2), draw(1, 3, 2, 2), torch.tensor(0.1).double(), torch.tensor(1.0).double()]
    leaves = tuple(value.requires_grad_() for value in inputs)
    assert torch.autograd.gradcheck(lambda *values: whole_loss(*values, reduction=reduction).total, leaves)


@pytest.mark.parametrize("log_vars", [(-40.0, -40.0), (40.0, 40.0), (-40.0, 40.0), (0.0, 0.0)])
@pytest.mark.parametrize("spread", [0.0, 1.0])
def test_finite_at_extreme_variances_and_zero_distance(log_vars: tuple[float, float], spread: float) -> None:
    mean = (spread * draw(0, 96, 2, 128)).float().requires_grad_()
    log_var = torch.tensor(log_vars).repeat(48)[:, None, None].repeat(1, 2, 128).requires_grad_()
    log_a, b = torch.tensor(1.6, requires_grad=True), torch.tensor(5.0, requires_grad=True)
    parts = whole_loss(mean, log_var, log_a, b)
    parts.total.backward()
    for value in (parts.total, mean.grad, log_var.grad, log_a.grad, b.grad):
        assert value is not None
        assert value.isfinite().all()


def test_autocast_changes_nothing() -> None:
    mean, log_var = draw(0, 4, 2, 8).float(), draw(1, 4, 2, 8).float()
    plain = whole_loss(mean, log_var, torch.tensor(0.0), torch.tensor(2.0)).total
    with torch.autocast("cpu", dtype=torch.bfloat16):
        cast = whole_loss(mean, log_var, torch.tensor(0.0), torch.tensor(2.0)).total
    assert cast.dtype == torch.float32
    assert torch.equal(cast, plain)
