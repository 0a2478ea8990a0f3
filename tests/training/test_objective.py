"""The objective of a step against the printed equations, sample by sample and pair by pair."""

from __future__ import annotations

import dataclasses
import itertools
import math
from typing import Any

import pytest
import torch
from torch import Tensor

from provico.config import MiningSettings, ObjectiveSettings
from provico.probability import Gaussian, MatchCurve, Mixture
from provico.training.memory import Remembered
from provico.training.objective import OBJECTIVES, Moment, Outcome, draw, infonce, provico

B, N, D = 4, 2, 3
EPOCH = 30
UNGUARDED = MiningSettings(mutual_top=None, max_share=None)
CURVE = MatchCurve(torch.tensor(1.3).double(), torch.tensor(2.0).double())


def moment(*, epoch: int = 0, seed: int = 0) -> Moment:
    return Moment(epoch=epoch, generator=torch.Generator().manual_seed(seed))


def random_videos(seed: int = 0, num_videos: int = B) -> Mixture:
    generator = torch.Generator().manual_seed(seed)
    mean, log_var = torch.randn(2, num_videos, N, D, generator=generator, dtype=torch.float64)
    return Mixture(Gaussian(mean.requires_grad_(), (0.5 * log_var - 1).requires_grad_()))


def loss_of(
    videos: Mixture, *, mining: MiningSettings = UNGUARDED, epoch: int = 0, seed: int = 0, **settings: Any
) -> Outcome:
    objective = ObjectiveSettings(**{"num_samples": 4, **settings})
    at = moment(epoch=epoch, seed=seed)
    return OBJECTIVES[objective.method](videos, curve=CURVE, objective=objective, mining=mining, at=at)


def moments_by_hand(videos: Mixture) -> tuple[Tensor, Tensor]:
    """Mean and variance of each video (eq. A3)."""
    mean, var = videos.clips.mean.detach(), videos.clips.var.detach()
    video_mean = mean.mean(dim=1)
    return video_mean, (var + mean.square()).mean(dim=1) - video_mean.square()


def match_probability(first: Tensor, second: Tensor, scored: list[tuple[int, int]]) -> float:
    """Eq. (9), over these pairs of samples."""
    total = 0.0
    for k, other in scored:
        distance = math.sqrt(float((first[k] - second[other]).square().sum()) + 1e-6)
        total += 1 / (1 + math.exp(-(float(CURVE.b) - float(CURVE.a) * distance)))
    return total / len(scored)


def objective_by_hand(videos: Mixture, objective: ObjectiveSettings, positive: Tensor, seed: int) -> float:
    """Eq. (12) as a mean over all ordered pairs."""
    generator = torch.Generator().manual_seed(seed)
    drawn = draw(videos, objective, generator)
    samples = drawn.samples.detach()
    others = samples
    if objective.self_pairs == "independent":
        others = draw(videos, objective, generator).samples.detach()
    mean, var = moments_by_hand(videos)
    kl_var, kl_mean = (var, mean) if objective.kl_of == "moment" else (videos.clips.var, videos.clips.mean)
    kl = 0.5 * (kl_var - kl_var.log() - 1 + kl_mean.square() * objective.kl_mean_term).sum(dim=-1).detach()
    kl = kl if objective.kl_of == "moment" else kl.mean(dim=1)
    uncertainty = [math.prod(row) ** (1 / D) for row in var.tolist()]
    every = list(itertools.product(range(objective.num_samples), repeat=2))
    total = 0.0
    for i, j in itertools.product(range(len(samples)), repeat=2):
        scored = every
        if i == j and objective.self_pairs == "drop":
            scored = [(k, other) for k, other in every if k != other]
        if i == j and objective.self_pairs == "across_clips":
            scored = [(k, other) for k, other in every if drawn.clip[i, k] != drawn.clip[i, other]]
        p = match_probability(samples[i], others[j], scored)
        soft = -math.log(p if positive[i, j] else 1 - p)
        total += soft / (4 * uncertainty[i] * uncertainty[j])
        total += 0.5 * math.log(uncertainty[i] * uncertainty[j])
        total += objective.kl_weight * float(kl[i] + kl[j])
    return total / len(samples) ** 2


@pytest.mark.parametrize(
    "settings",
    [
        {"self_pairs": "drop"},
        {"self_pairs": "keep", "num_samples": 1},
        {"self_pairs": "independent"},
        {"self_pairs": "drop", "samples_from": "clips", "kl_of": "clip"},
        {"self_pairs": "keep", "samples_from": "clips", "kl_mean_term": False},
        {"self_pairs": "independent", "samples_from": "clips"},
        {"self_pairs": "across_clips", "samples_from": "clips", "num_samples": 3},
    ],
)
def test_is_the_printed_objective(settings: dict[str, Any]) -> None:
    videos = random_videos()
    objective = ObjectiveSettings(**{"num_samples": 4, "kl_weight": 0.1, **settings})
    for seed in (0, 1):
        outcome = provico(videos, curve=CURVE, objective=objective, mining=UNGUARDED, at=moment(seed=seed))
        expected = objective_by_hand(videos, objective, torch.eye(B, dtype=torch.bool), seed)
        assert outcome.loss.item() == pytest.approx(expected)


def test_mined_pairs_count_as_positive() -> None:
    videos = random_videos()
    objective = ObjectiveSettings(num_samples=4)
    mining = dataclasses.replace(UNGUARDED, threshold=0.13)
    outcome = provico(videos, curve=CURVE, objective=objective, mining=mining, at=moment(epoch=EPOCH))
    assert 0 < outcome.pairs.num_mined < B * (B - 1)
    expected = objective_by_hand(videos, objective, outcome.pairs.positive, 0)
    assert outcome.loss.item() == pytest.approx(expected)


# --- the two stages ----------------------------------------------------------------------------------------


def test_in_the_first_stage_a_video_matches_only_itself() -> None:
    alike = Mixture(Gaussian(torch.zeros(B, N, D), torch.zeros(B, N, D)))
    for mining, epoch in (
        (MiningSettings(mine_from=30, threshold=9.0), 29),
        (MiningSettings(mine_from=None, threshold=9.0), 10**6),
    ):
        pairs = loss_of(alike, mining=mining, epoch=epoch).pairs
        assert torch.equal(pairs.positive, torch.eye(B, dtype=torch.bool))
        assert pairs.threshold is None
    second = loss_of(alike, mining=dataclasses.replace(UNGUARDED, threshold=9.0), epoch=30).pairs
    assert second.positive.all()


def bhattacharyya_by_hand(videos: Mixture) -> Tensor:
    """Expected distance of samples, with each coordinate's own variance (eq. 5)."""
    mean, var = moments_by_hand(videos)
    distances = torch.zeros(len(mean), len(mean), dtype=torch.float64)
    for i, j in itertools.product(range(len(mean)), repeat=2):
        for d in range(D):
            v, w, gap = float(var[i, d]), float(var[j, d]), float(mean[i, d] - mean[j, d])
            width = 0.25 * math.log(0.25 * (v / w + w / v + 2))
            distances[i, j] += (width + (gap**2 + v + w) / (16 * (v + w))) / D
    return distances


def test_the_second_stage_mines_below_a_rising_threshold() -> None:
    videos = random_videos(3, num_videos=6)
    distances = bhattacharyya_by_hand(videos)
    mining = dataclasses.replace(UNGUARDED, threshold=0.18, threshold_ramp=3)
    num_mined = []
    for epoch, share in ((30, 1 / 4), (31, 2 / 4), (32, 3 / 4), (33, 1.0), (200, 1.0)):
        pairs = loss_of(videos, mining=mining, epoch=epoch).pairs
        assert pairs.threshold == pytest.approx(0.18 * share)
        expected = (distances < 0.18 * share) | torch.eye(6, dtype=torch.bool)
        assert torch.equal(pairs.positive, expected)
        num_mined.append(pairs.num_mined)
    assert 0 == num_mined[0] < num_mined[2] < num_mined[3] == num_mined[4]


def test_without_a_threshold_the_guards_decide() -> None:
    videos = random_videos(3, num_videos=6)
    mining = MiningSettings(mine_from=0, threshold=None, mutual_top=1, always_top=None, max_share=None)
    pairs = loss_of(videos, mining=mining).pairs
    distances = bhattacharyya_by_hand(videos).fill_diagonal_(math.inf)
    nearest = distances.argmin(dim=1).tolist()
    expected = torch.eye(6, dtype=torch.bool)
    for i, j in enumerate(nearest):
        expected[i, j] = nearest[j] == i
    assert torch.equal(pairs.positive, expected)
    assert pairs.num_mined > 0
    spared = loss_of(videos, mining=dataclasses.replace(mining, always_top=1)).pairs
    for i, j in enumerate(nearest):
        expected[i, j] = expected[j, i] = True
    assert torch.equal(spared.positive, expected)
    capped = loss_of(videos, mining=dataclasses.replace(mining, mutual_top=None, max_share=0.2)).pairs
    assert 0 < capped.num_mined <= 0.2 * 30


def test_among_all_videos_the_nearest_are_those_that_were_last_seen() -> None:
    """Videos 0 and 1 are each other's nearest in the batch, but one that is not in it lies between them."""
    means = torch.tensor([[0.0], [2.0], [1.0], [9.0]], dtype=torch.float64)
    everyone = Gaussian(means, torch.zeros(4, 1, dtype=torch.float64))
    clips = means[[1, 0, 3]].unsqueeze(1).expand(3, 2, 1)
    videos = Mixture(Gaussian(clips, torch.zeros(3, 2, 1, dtype=torch.float64)))
    at = dataclasses.replace(
        moment(epoch=EPOCH), remembered=Remembered(everyone=everyone, place=torch.tensor([1, 0, 3]))
    )
    for mutual_top, expected in ((1, []), (2, [(0, 1)])):
        mining = MiningSettings(
            mine_from=0,
            distance="squared_euclidean_means",
            threshold=None,
            mutual_top=mutual_top,
            among="all",
            max_share=None,
        )
        outcome = provico(
            videos, curve=CURVE, objective=ObjectiveSettings(num_samples=4), mining=mining, at=at
        )
        mined = outcome.pairs.positive & ~torch.eye(3, dtype=torch.bool)
        assert [(i, j) for i, j in mined.nonzero().tolist() if i < j] == expected


@pytest.mark.parametrize("among", ["batch", "all"])
def test_networks_side_by_side_must_both_find_a_pair(among: str) -> None:
    """Videos 0 and 1 are near, but in the second coordinate 4 lies between them; 2 and 3 are near in both."""
    means = torch.tensor([[0, 0], [1, 3], [9, 9], [9.5, 9.5], [30, 1]], dtype=torch.float64)
    everyone = Gaussian(means, torch.full_like(means, -20))
    videos = Mixture(Gaussian(*(part.unsqueeze(1).repeat(1, 2, 1) for part in (means, everyone.log_var))))
    at = dataclasses.replace(moment(), remembered=Remembered(everyone=everyone, place=torch.arange(5)))
    mining = MiningSettings(
        mine_from=0, distance="squared_euclidean_means", threshold=None, mutual_top=1, among=among
    )
    for num_streams, expected in ((1, [(0, 1), (2, 3)]), (2, [(2, 3)])):
        objective = ObjectiveSettings(num_samples=4)
        outcome = provico(
            videos, curve=CURVE, objective=objective, mining=mining, at=at, num_streams=num_streams
        )
        assert [(i, j) for i, j in outcome.pairs.positive.nonzero().tolist() if i < j] == expected
        assert outcome.pairs.num_cut_not_agreed == (0 if num_streams == 1 else 2)


@pytest.mark.parametrize("method", OBJECTIVES)
def test_networks_side_by_side_are_contrasted_each_by_itself(method: str) -> None:
    """The contrast is the mean of theirs, whatever the lengths of their means are."""
    generator = torch.Generator().manual_seed(0)
    mean, log_var = torch.randn(2, B, N, 6, generator=generator, dtype=torch.float64)
    videos = Mixture(Gaussian(mean, log_var))
    settings = ObjectiveSettings(method=method, num_samples=4, mean_contrast=1.0)
    options = {"curve": CURVE, "objective": settings, "mining": UNGUARDED, "at": moment()}

    def contrast(videos: Mixture, num_streams: int) -> float:
        outcome = OBJECTIVES[method](videos, **options, num_streams=num_streams)
        return float(outcome.parts.get("loss/mean_contrast", outcome.loss))

    parts = [contrast(Mixture(part), 1) for part in videos.clips.marginals(2)]
    assert contrast(videos, 2) == pytest.approx(sum(parts) / 2)
    longer = Mixture(Gaussian(mean * torch.tensor([9.0] * 3 + [1.0] * 3), log_var))
    assert contrast(longer, 2) == pytest.approx(sum(parts) / 2)
    assert contrast(longer, 1) != pytest.approx(contrast(videos, 1))


def test_the_adaptive_threshold_is_the_mean_distance_of_a_video_to_itself() -> None:
    videos = random_videos(0)
    mining = dataclasses.replace(UNGUARDED, threshold="adaptive", distance="squared_euclidean_sampled")
    pairs = loss_of(videos, mining=mining, epoch=EPOCH).pairs
    samples = draw(videos, ObjectiveSettings(num_samples=4), moment().generator).samples.detach()
    own, between = 0.0, torch.zeros(B, B, dtype=torch.float64)
    for i, j, k, other in itertools.product(range(B), range(B), range(4), range(4)):
        squared = (samples[i, k] - samples[j, other]).square().sum()
        between[i, j] += squared / 16
        own += float(squared) / (12 * B) if i == j and k != other else 0.0
    assert pairs.threshold == pytest.approx(own)
    assert torch.equal(pairs.positive, (between < own) | torch.eye(B, dtype=torch.bool))
    assert pairs.num_mined > 0


# --- what both methods promise ----------------------------------------------------------------------------


@pytest.mark.parametrize("reduction", ["mean", "sum", "balanced", "rows"])
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
    first, again = (loss_of(videos, method=method, seed=7).loss for _ in range(2))
    other = loss_of(videos, method=method, seed=8).loss
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
        "kl_of": "clip",
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
    outcome = provico(
        videos,
        curve=MatchCurve(a, b),
        objective=ObjectiveSettings(),
        mining=MiningSettings(),
        at=moment(epoch=EPOCH),
    )
    outcome.loss.backward()
    for leaf in (videos.clips.mean, videos.clips.log_var, a, b):
        assert bool(leaf.grad.isfinite().all())
        assert float(leaf.grad.abs().sum()) > 0


def test_infonce_is_the_two_view_contrast_and_knows_no_variance() -> None:
    videos = random_videos()
    a, b = (value.clone().requires_grad_() for value in (CURVE.a, CURVE.b))
    at = moment(epoch=EPOCH)
    before = at.generator.get_state()
    outcome = infonce(
        videos,
        curve=MatchCurve(a, b),
        objective=ObjectiveSettings(method="infonce", temperature=0.2),
        mining=MiningSettings(),
        at=at,
    )
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
    assert torch.equal(at.generator.get_state(), before)


def test_samples_come_from_the_video_or_from_its_clips() -> None:
    videos = random_videos()
    mean, var = moments_by_hand(videos)
    for source in ("moments", "clips"):
        drawn = draw(videos, ObjectiveSettings(num_samples=20_000, samples_from=source), moment().generator)
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
