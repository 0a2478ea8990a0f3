"""The objective of a step against the printed equations, sample by sample and pair by pair."""

from __future__ import annotations

import dataclasses
import itertools
import math
from typing import Any

import pytest
import torch
from torch import Tensor

from provico.config import MiningSettings, PretrainConfig
from provico.errors import ConfigError
from provico.probability import Gaussian, MatchCurve, Mixture
from provico.training.objective import (
    OBJECTIVES,
    Provico,
    StepContext,
    check_objective,
    find_objective,
    infonce,
)

from .small_step import (
    CURVE,
    EPOCH,
    UNGUARDED,
    B,
    D,
    N,
    context,
    loss_of,
    moments_by_hand,
    random_videos,
)


def match_probability(first: Tensor, second: Tensor, scored: list[tuple[int, int]]) -> float:
    """Eq. (9), over these pairs of samples."""
    total = 0.0
    for k, other in scored:
        distance = math.sqrt(float((first[k] - second[other]).square().sum()) + 1e-6)
        total += 1 / (1 + math.exp(-(float(CURVE.b) - float(CURVE.a) * distance)))
    return total / len(scored)


def objective_by_hand(videos: Mixture, form: Provico, step: StepContext, positive: Tensor) -> float:
    """Eq. (12) as a mean over all ordered pairs."""
    drawn = form.draw(videos, step)
    samples = drawn.samples.detach()
    mean, var = moments_by_hand(videos)
    kl = 0.5 * (var - var.log() - 1 + mean.square() * form.kl_mean_term).sum(dim=-1).detach()
    uncertainty = [math.prod(row) ** (1 / D) for row in var.tolist()]
    every = list(itertools.product(range(step.settings.num_samples), repeat=2))
    total = 0.0
    for i, j in itertools.product(range(len(samples)), repeat=2):
        scored = every
        if i == j and form.self_pairs == "drop":
            scored = [(k, other) for k, other in every if k != other]
        if i == j and form.self_pairs == "across_clips":
            scored = [(k, other) for k, other in every if drawn.clip[i, k] != drawn.clip[i, other]]
        p = match_probability(samples[i], samples[j], scored)
        soft = -math.log(p if positive[i, j] else 1 - p)
        total += soft / (4 * uncertainty[i] * uncertainty[j])
        total += 0.5 * math.log(uncertainty[i] * uncertainty[j])
        total += step.settings.kl_weight * float(kl[i] + kl[j])
    return total / len(samples) ** 2


@pytest.mark.parametrize(
    ("form", "num_samples"),
    [
        (Provico(), 4),
        (Provico(self_pairs="keep"), 1),
        (Provico(samples_from="clips"), 4),
        (Provico(self_pairs="keep", samples_from="clips", kl_mean_term=False), 4),
        (Provico(self_pairs="across_clips", samples_from="clips"), 3),
    ],
)
def test_is_the_printed_objective(form: Provico, num_samples: int) -> None:
    videos = random_videos()
    for seed in (0, 1):
        outcome, expected = (
            compute(context(seed=seed, num_samples=num_samples, kl_weight=0.1))
            for compute in (
                lambda step: form(videos, step),
                lambda step: objective_by_hand(videos, form, step, torch.eye(B, dtype=torch.bool)),
            )
        )
        assert outcome.loss.item() == pytest.approx(expected)


def test_mined_pairs_count_as_positive() -> None:
    videos = random_videos()
    mining = dataclasses.replace(UNGUARDED, threshold=0.13)
    outcome = loss_of(videos, mining=mining, epoch=EPOCH)
    assert 0 < outcome.pairs.num_mined < B * (B - 1)
    expected = objective_by_hand(videos, Provico(), context(), outcome.pairs.positive)
    assert outcome.loss.item() == pytest.approx(expected)


# --- what both methods promise ----------------------------------------------------------------------------


@pytest.mark.parametrize("method", OBJECTIVES)
def test_networks_side_by_side_are_contrasted_each_by_itself(method: str) -> None:
    """The contrast is the mean of theirs, whatever the lengths of their means are."""
    generator = torch.Generator().manual_seed(0)
    mean, log_var = torch.randn(2, B, N, 6, generator=generator, dtype=torch.float64)
    videos = Mixture(Gaussian(mean, log_var))

    def contrast(videos: Mixture, num_streams: int) -> float:
        step = dataclasses.replace(context(mean_contrast=1.0), num_streams=num_streams)
        outcome = OBJECTIVES[method].loss(videos, step)
        return float(outcome.parts.get("loss/mean_contrast", outcome.loss))

    parts = [contrast(Mixture(part), 1) for part in videos.clips.marginals(2)]
    assert contrast(videos, 2) == pytest.approx(sum(parts) / 2)
    longer = Mixture(Gaussian(mean * torch.tensor([9.0] * 3 + [1.0] * 3), log_var))
    assert contrast(longer, 2) == pytest.approx(sum(parts) / 2)
    assert contrast(longer, 1) != pytest.approx(contrast(videos, 1))


@pytest.mark.parametrize("reduction", ["mean", "balanced", "rows"])
def test_the_parts_add_up(reduction: str) -> None:
    outcome = loss_of(random_videos(), reduction=reduction, hardness=0.5, kl_weight=0.2, epoch=EPOCH)
    parts = outcome.parts
    assert outcome.loss.item() == pytest.approx(
        float(parts["loss/attenuated_soft"] + parts["loss/regulariser"] + 0.2 * parts["loss/kl"])
    )
    assert not any(part.requires_grad for part in parts.values())


@pytest.mark.parametrize("method", OBJECTIVES)
def test_the_same_seed_gives_the_same_loss(method: str) -> None:
    videos = random_videos()
    first, again, other = (OBJECTIVES[method].loss(videos, context(seed=seed)).loss for seed in (7, 7, 8))
    assert torch.equal(first, again)
    assert first.shape == ()
    assert bool(first.isfinite())
    # Only the probabilistic one draws samples.
    assert torch.equal(first, other) == (method == "infonce")


def test_every_setting_of_the_loss_is_heeded() -> None:
    """With each one changed, the loss or what the variance learns is another."""

    def loss_and_slope(**settings: Any) -> tuple[float, ...]:
        videos = random_videos()
        chosen = {"reduction": "rows", "samples_from": "clips", "kl_weight": 0.1, **settings}
        outcome = loss_of(videos, **chosen)
        (slope,) = torch.autograd.grad(outcome.loss, [videos.clips.log_var])
        return outcome.loss.item(), float(slope.square().sum())

    plain = loss_and_slope()
    for name, value in {
        "num_samples": 5,
        "samples_from": "moments",
        "self_pairs": "across_clips",
        "reduction": "mean",
        "hardness": 1.0,
        "kl_weight": 0.2,
        "kl_mean_term": False,
    }.items():
        assert loss_and_slope(**{name: value})[0] != pytest.approx(plain[0]), name
    for name, value in {"detach_weight": True, "uncertainty_from": "positives"}.items():
        loss, slope = loss_and_slope(**{name: value})
        assert loss == plain[0]
        assert slope != pytest.approx(plain[1]), name


def test_provico_teaches_means_variances_and_curve() -> None:
    videos = random_videos()
    a, b = (value.clone().requires_grad_() for value in (CURVE.a, CURVE.b))
    outcome = Provico()(videos, context(mining=MiningSettings(), epoch=EPOCH, curve=MatchCurve(a, b)))
    outcome.loss.backward()
    for leaf in (videos.clips.mean, videos.clips.log_var, a, b):
        assert bool(leaf.grad.isfinite().all())
        assert float(leaf.grad.abs().sum()) > 0


def test_infonce_is_the_two_view_contrast_and_knows_no_variance() -> None:
    videos = random_videos()
    a, b = (value.clone().requires_grad_() for value in (CURVE.a, CURVE.b))
    step = context(mining=MiningSettings(), epoch=EPOCH, curve=MatchCurve(a, b), temperature=0.2)
    before = step.generator.get_state()
    outcome = infonce(videos, step)
    views = [
        [value / math.hypot(*clip) for value in clip] for clip in videos.clips.mean.flatten(0, 1).tolist()
    ]
    total = 0.0
    for query in range(B * N):
        scores = {
            key: math.exp(sum(x * y for x, y in zip(views[query], views[key], strict=True)) / 0.2)
            for key in range(B * N)
            if key != query
        }
        twin = query + 1 if query % 2 == 0 else query - 1
        total -= math.log(scores[twin] / sum(scores.values()))
    assert outcome.loss.item() == pytest.approx(total / (B * N))
    assert outcome.pairs is None
    outcome.loss.backward()
    assert float(videos.clips.mean.grad.abs().sum()) > 0
    assert all(leaf.grad is None for leaf in (videos.clips.log_var, a, b))
    assert torch.equal(step.generator.get_state(), before)


def test_samples_come_from_the_video_or_from_its_clips() -> None:
    videos = random_videos()
    mean, var = moments_by_hand(videos)
    for source in ("moments", "clips"):
        drawn = Provico(samples_from=source).draw(videos, context(num_samples=20_000))
        samples = drawn.samples.detach()
        torch.testing.assert_close(samples.mean(dim=1), mean, rtol=0, atol=0.06)
        torch.testing.assert_close(samples.var(dim=1), var, rtol=0.1, atol=0.02)
        if source == "clips":
            for clip in range(N):
                share = samples[0][drawn.clip[0] == clip]
                assert len(share) == 10_000
                torch.testing.assert_close(
                    share.mean(dim=0), videos.clips.mean[0, clip].detach(), rtol=0, atol=0.06
                )


@pytest.mark.parametrize("to_find", ["any", "each"])
def test_the_contrast_of_means_is_added_with_the_same_positives(to_find: str) -> None:
    videos = random_videos()
    plain, with_contrast = (
        loss_of(videos, mining=UNGUARDED, epoch=EPOCH, mean_contrast=weight, to_find=to_find)
        for weight in (0.0, 0.7)
    )
    assert with_contrast.pairs is not None
    assert "loss/mean_contrast" not in plain.parts
    cosines = [
        [float(torch.cosine_similarity(a, b, dim=0)) / 0.1 for b in videos.clips.mean.detach().flatten(0, 1)]
        for a in videos.clips.mean.detach().flatten(0, 1)
    ]
    video_of = [number // N for number in range(B * N)]
    losses = []
    for i, row in enumerate(cosines):
        others = [j for j in range(B * N) if j != i]
        matching = [j for j in others if with_contrast.pairs.positive[video_of[i], video_of[j]]]
        among_all = math.log(sum(math.exp(row[j]) for j in others))
        if to_find == "any":
            losses.append(among_all - math.log(sum(math.exp(row[j]) for j in matching)))
            continue
        (own,) = (among_all - row[j] for j in matching if video_of[j] == video_of[i])
        mined = [among_all - row[j] for j in matching if video_of[j] != video_of[i]]
        losses.append((own + sum(mined) / len(mined)) / 2 if mined else own)
    expected = sum(losses) / len(losses)
    assert float(with_contrast.parts["loss/mean_contrast"]) == pytest.approx(expected)
    total = float(with_contrast.loss.detach())
    assert total == pytest.approx(float(plain.loss.detach()) + 0.7 * expected)


@pytest.mark.parametrize("samples_from", ["moments", "clips"])
@pytest.mark.parametrize("mining", [UNGUARDED, dataclasses.replace(UNGUARDED, mine_from=None)])
def test_the_gradient_is_the_slope_of_the_loss(samples_from, mining) -> None:
    """By finite differences. Mining once looked at the variance first and left it without a gradient."""
    videos = random_videos()
    leaves = (videos.clips.mean, videos.clips.log_var)
    options = {"mining": mining, "epoch": EPOCH, "samples_from": samples_from, "kl_weight": 0.1}
    loss_of(videos, **options).loss.backward()
    generator = torch.Generator().manual_seed(1)
    for number, leaf in enumerate(leaves):
        direction = torch.randn(leaf.shape, generator=generator, dtype=leaf.dtype)
        losses = []
        for step in (1e-5, -1e-5):
            moved = [each.detach() + step * direction * (each is leaf) for each in leaves]
            losses.append(loss_of(Mixture(Gaussian(*moved)), **options).loss.item())
        slope = (losses[0] - losses[1]) / 2e-5
        assert float((leaf.grad * direction).sum()) == pytest.approx(slope, rel=1e-4), ("mean", "log_var")[
            number
        ]


# --- names and needs ----------------------------------------------------------------------------------------


def test_unknown_methods_are_refused_with_the_nearest() -> None:
    assert find_objective("infonce") is OBJECTIVES["infonce"]
    with pytest.raises(ConfigError, match=r"no method 'info-nce'. Did you mean infonce\?"):
        find_objective("info-nce")
    with pytest.raises(ConfigError, match=r"no method 'xyz'. There are provico, "):
        find_objective("xyz")


@pytest.mark.parametrize("method", OBJECTIVES)
def test_an_objective_says_how_many_clips_and_samples_it_needs(method: str) -> None:
    objective = OBJECTIVES[method]
    fewest = {"num_clips": objective.min_clips, "num_samples": objective.min_samples}
    check_objective(settings(method, **fewest))
    for name in [name for name, count in fewest.items() if count > 1]:
        with pytest.raises(
            ConfigError, match=rf"--method {method} compares 2 .*--{name.replace('_', '-')} is 1"
        ):
            check_objective(settings(method, **fewest | {name: 1}))
    # Fewer than it says are indeed too few, and so many are enough.
    clips = Gaussian(
        *(part.detach()[:, : objective.min_clips] for part in vars(random_videos().clips).values())
    )
    step = context(num_samples=objective.min_samples)
    assert objective.loss(Mixture(clips), step).loss.isfinite()


def settings(method: str, *, num_clips: int, num_samples: int) -> PretrainConfig:
    return PretrainConfig.from_dict(
        {"views": {"num_clips": num_clips}, "objective": {"method": method, "num_samples": num_samples}}
    )


def test_samples_across_clips_are_of_clips() -> None:
    with pytest.raises(ConfigError, match="samples_from='clips'"):
        Provico(self_pairs="across_clips")
