"""Laws of the variance that rests on evidence: what supports a video, what does not count, and damage."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
import torch
import torch.nn.functional as F

from provico.models.evidence import (
    BASE,
    CONFLICT,
    GAIN,
    MOST,
    MOST_FAR,
    SHARE,
    Evidence,
    tolerated_spread,
)
from provico.models.heads import WHITENING
from provico.models.recordings import SAME_RECORDING, SAME_VIDEO, found_recordings, recording_names
from provico.probability.gaussian import Gaussian
from provico.probability.scale import PARAMETRISATIONS

DIM = 18
BLOCKS = (15, 12)
UNIT = PARAMETRISATIONS["sqrt_dim"].mean_norm(DIM) ** 2 / DIM


def drawn(num_videos: int, seed: int = 0, *, kinds: int = 4, spread: float = 0.2) -> torch.Tensor:
    """Videos of a few kinds, in all their views, "videos clips feature"."""
    generator = torch.Generator().manual_seed(seed)
    centres = torch.randn(kinds, 1, sum(BLOCKS) + DIM, generator=torch.Generator().manual_seed(99))
    videos = centres[torch.arange(num_videos) % kinds]
    videos = videos + 0.8 * torch.randn(num_videos, 1, videos.shape[-1], generator=generator)
    return videos + spread * torch.randn(num_videos, 3, videos.shape[-1], generator=generator)


def parts(videos: torch.Tensor) -> tuple[torch.Tensor, Gaussian]:
    """Features, and what heads made of them."""
    means = videos[..., sum(BLOCKS) :]
    return videos[..., : sum(BLOCKS)], Gaussian(means, torch.zeros_like(means))


def lack_of(evidence: Evidence, videos: torch.Tensor, names: torch.Tensor | None = None) -> torch.Tensor:
    features, clips = parts(videos)
    return evidence.compare(features, clips.mean, names)[0]


def support_of(evidence: Evidence, videos: torch.Tensor) -> torch.Tensor:
    features, clips = parts(videos)
    looks = evidence._looks(features, clips.mean)
    return evidence._supports(looks, evidence._is_own(looks)).amax(dim=-1)


def evidence_of(
    videos: torch.Tensor,
    names: list[str | None] | None = None,
    *,
    blocks: tuple[int, ...] = BLOCKS,
    is_frozen: bool = True,
) -> Evidence:
    torch.manual_seed(0)
    evidence = Evidence(
        blocks,
        DIM,
        num_videos=len(videos),
        parametrisation=PARAMETRISATIONS["sqrt_dim"],
        is_frozen=is_frozen,
    )
    evidence.remember(*parts(videos), names)
    return evidence


def unrelated(num_videos: int, seed: int) -> torch.Tensor:
    """Videos of which no two are alike."""
    return torch.randn(num_videos, 3, sum(BLOCKS) + DIM, generator=torch.Generator().manual_seed(seed))


def whitened(known: torch.Tensor, asked: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Both centred and softly whitened, by the eigenvectors of the covariance of what is known."""
    centred = known - known.mean(dim=0)
    values, axes = torch.linalg.eigh(centred.T @ centred)
    axes = axes * (values / values.max()) ** (-WHITENING / 2)
    return (F.normalize((part - known.mean(dim=0)) @ axes, dim=-1) for part in (known, asked))


def expected_support(memory: torch.Tensor, query: torch.Tensor, allowed: list[int]) -> float:
    """By the definition, in float64, with a loop; every video of the memory is a recording of its own."""
    total = torch.zeros(len(memory), dtype=torch.float64)
    sizes = [*BLOCKS, DIM]
    for known, asked in zip(
        torch.split(memory.double().mean(1), sizes, dim=1),
        torch.split(query.double().mean(0), sizes),
        strict=True,
    ):
        known, asked = whitened(known, asked)
        mine = known @ asked
        for row in range(len(memory)):
            others = (known @ known[row])[torch.arange(len(memory)) != row]
            z = (mine[row] - mine.mean()) / mine.std(correction=0)
            z = z + (mine[row] - others.mean()) / others.std(correction=0)
            total[row] += z / 2 / len(sizes)
    return float(total[allowed].max())


def test_support_is_that_of_the_definition():
    memory, query = unrelated(24, 0), unrelated(3, 5)
    evidence = evidence_of(memory)
    assert evidence.recording.tolist() == list(range(24))
    found = support_of(evidence, query)
    expected = [expected_support(memory, one, list(range(24))) for one in query]
    torch.testing.assert_close(found.double(), torch.tensor(expected).double(), atol=1e-4, rtol=1e-4)


def test_with_one_block_the_nearest_other_recording_is_the_support():
    memory, query = unrelated(40, 0), unrelated(3, 5)
    evidence = evidence_of(memory, blocks=(sum(BLOCKS),))
    total = 0
    for sizes in (slice(0, sum(BLOCKS)), slice(sum(BLOCKS), None)):
        known, asked = memory.double().mean(1)[:, sizes], query.double().mean(1)[:, sizes]
        known, asked = whitened(known, asked)
        total = total + asked @ known.T
    torch.testing.assert_close(
        support_of(evidence, query).double(), total.amax(dim=1) / 2, atol=1e-5, rtol=1e-5
    )


def test_nearness_is_the_cosine_with_the_nearest_mean_of_another_recording():
    memory, query = unrelated(40, 0), unrelated(3, 5)
    names = [f"film {row // 2}" for row in range(40)]
    evidence = evidence_of(memory, names)
    looks = evidence._looks(parts(query)[0], parts(query)[1].mean)
    is_own = torch.zeros(3, 40, dtype=torch.bool)
    is_own[0] = True  # nothing is left
    is_own[1, 7:] = True
    found = evidence._best_cosine(looks, is_own)
    means = memory[..., sum(BLOCKS) :].double().mean(1)
    asked = query[..., sum(BLOCKS) :].double().mean(1)
    cosine = F.cosine_similarity(asked.unsqueeze(1), means, dim=-1)
    assert found[0] == -math.inf
    torch.testing.assert_close(found[1:].double(), torch.stack([cosine[1, :7].max(), cosine[2].max()]))
    assert evidence.nearness(found)[0] == 0


def test_a_video_between_two_kinds_is_less_certain():
    evidence = evidence_of(drawn(240, kinds=8))
    first, second = drawn(40, seed=1, kinds=8), drawn(41, seed=2, kinds=8)[1:]  # of the next kind, one by one
    assert (lack_of(evidence, (first + second) / 2) > lack_of(evidence, first)).float().mean() > 0.8


def test_memory_is_judged_without_its_own_recording():
    memory = drawn(24)
    names = [f"film {row // 2}" for row in range(24)]
    evidence = evidence_of(memory, names)
    lack = lack_of(evidence, memory, recording_names(names))
    assert lack.abs().max() <= 3 * MOST
    assert abs(float(lack.mean())) < 0.1  # in units of the memory's own
    # What is asked by name leaves out its recording, which knows it best.
    assert (lack >= lack_of(evidence, memory) - 1e-5).all()


def test_copies_of_a_remembered_video_do_not_support_it():
    memory = drawn(24)
    names = [f"film {row}" for row in range(24)]
    evidence = evidence_of(memory, names)
    copy = lack_of(evidence, memory[:1] + 1e-3)
    torch.testing.assert_close(
        copy, lack_of(evidence, memory[:1], recording_names(names[:1])), atol=0.05, rtol=0
    )


def test_what_is_merely_alike_supports():
    memory = drawn(24)
    evidence = evidence_of(memory, [f"film {row}" for row in range(24)])
    features, clips = parts(memory)
    looks = evidence._looks(features, clips.mean)
    alike = [0.62 * look[:1] + 0.38 * look[1:2] for look in looks]
    similarity = evidence._similarity(alike).mean(dim=0)[0, 0]
    assert 1 - SAME_RECORDING < similarity < 1 - SAME_VIDEO
    assert not evidence._is_own(alike)[0, 0]
    assert evidence._is_own([look[:1] for look in looks])[0].tolist() == [True] + 23 * [False]


def test_kinds_count_for_nothing_in_a_small_memory():
    first, second = drawn(40, seed=1, kinds=8), drawn(41, seed=2, kinds=8)[1:]
    for num_videos, weight in ((40, 0.0), (100, 0.0), (150, 0.5), (200, 1.0), (240, 1.0)):
        evidence = evidence_of(drawn(num_videos, kinds=8))
        lack = lack_of(evidence, (first + second) / 2)
        evidence.kinds.kind.zero_()  # all of one kind
        others = lack_of(evidence, (first + second) / 2)
        assert evidence.kinds.weight == weight
        assert (lack == others).all() == (weight == 0)


@pytest.mark.parametrize("blocks", [BLOCKS, (sum(BLOCKS),)])
def test_nearer_evidence_never_raises_the_variance(blocks: tuple[int, ...]):
    # The remembered video that supports the query best moves towards it in all views. All are of one kind:
    # a video of another kind that comes nearer would be a contradiction.
    memory, query = unrelated(60, 0), unrelated(1, 5)
    evidence = evidence_of(memory, blocks=blocks)
    evidence.kinds.kind.zero_()
    features, clips = parts(query)
    looks = evidence._looks(features, clips.mean)
    directions = [view(look) for view, look in zip(evidence.views, looks, strict=True)]
    similarity = [
        direction @ view.memory.T for view, direction in zip(evidence.views, directions, strict=True)
    ]
    if len(blocks) > 1:
        similarity = [view.surprise(part) for view, part in zip(evidence.views, similarity, strict=True)]
    best = int(sum(similarity).argmax())
    starts = [view.memory[best].clone() for view in evidence.views]
    mean, own_direction = evidence.directions[best].clone(), F.normalize(looks[-1][0], dim=0)
    variances = []
    for share in torch.linspace(0, 0.4, 12):
        for view, start, direction in zip(evidence.views, starts, directions, strict=True):
            view.memory[best] = F.normalize((1 - share) * start + share * direction[0], dim=0)
        evidence.directions[best] = F.normalize((1 - share) * mean + share * own_direction, dim=0)
        variances.append(evidence(features, clips).exp().mean().item())
    assert all(later <= earlier + 1e-6 for earlier, later in pairwise(variances))
    assert variances[-1] < variances[0]


def test_a_video_unlike_all_others_is_less_certain_than_one_of_a_known_kind():
    strange = unrelated(40, 3)
    # Many kinds, of which each is rare.
    evidence = evidence_of(drawn(200, kinds=40))
    assert lack_of(evidence, drawn(40, seed=1, kinds=40)).median() + 0.7 < lack_of(evidence, strange).median()


def test_views_that_contradict_each_other_leave_a_video_without_support():
    evidence = evidence_of(drawn(200, kinds=40))
    first, second = (
        drawn(40, seed=1, kinds=40),
        drawn(41, seed=2, kinds=40)[1:],
    )  # of another kind, one by one
    mixed = torch.cat([first[..., : BLOCKS[0]], second[..., BLOCKS[0] :]], dim=-1)
    assert (lack_of(evidence, mixed) > lack_of(evidence, first)).float().mean() > 0.6


def test_variance_is_the_sum_of_all_causes():
    evidence = evidence_of(drawn(24))
    features, clips = parts(drawn(4, seed=1))
    spread = clips.mean.var(dim=1, correction=1).mean(dim=1) / UNIT
    evidence.usual_spread.copy_(spread[0] / 3)  # so that some of the first video's counts
    evidence.halfway.zero_()
    evidence.distance.mean.sub_(4 * evidence.distance.std)  # so that all are strange
    lack, remoteness = evidence.compare(features, clips.mean)
    expected = BASE * torch.exp(GAIN * lack)
    strange = remoteness - MOST_FAR
    assert (strange > 0).all()
    conflict = (spread - tolerated_spread(3) * evidence.usual_spread).clamp(min=0)
    expected = expected + strange + CONFLICT * conflict
    var = evidence(features, clips).exp()
    torch.testing.assert_close(var, SHARE * UNIT * expected.view(4, 1, 1).expand_as(var))
    evidence.damage.load_state_dict(evidence.new_damage(0.7).state_dict())
    torch.testing.assert_close(evidence(features, clips).exp(), var + SHARE * UNIT * 0.7)
    # Of damage that whole clips seem to have, too, half counts; of half as much a seventeenth.
    evidence.tolerated.fill_(0.7)
    torch.testing.assert_close(evidence(features, clips).exp(), var + SHARE * UNIT * 0.35)
    evidence.tolerated.fill_(1.4)
    torch.testing.assert_close(evidence(features, clips).exp(), var + SHARE * UNIT * 0.7 / 17)


def test_a_video_far_from_all_is_strange_wherever_it_points():
    memory = drawn(120, kinds=20)
    evidence = evidence_of(memory)
    features, clips = parts(drawn(40, seed=1, kinds=20))
    lack, remoteness = evidence.compare(features, clips.mean)
    assert abs(float(remoteness.median())) < MOST_FAR
    centre = parts(memory)[0].mean(dim=(0, 1))
    far = centre + 8 * (features - centre)  # in the same directions
    lack_far, remoteness = evidence.compare(far, clips.mean)
    assert (remoteness > MOST_FAR + 1).all()
    torch.testing.assert_close(lack_far, lack, atol=1e-4, rtol=1e-4)  # which looks at directions alone
    # By the definition: the nearest video of another recording, in each block.
    looks = [part.mean(dim=1) for part in torch.split(far, list(BLOCKS), dim=-1)]
    expected = 0
    for view, look in zip(evidence.views, looks, strict=False):
        known = (
            parts(memory)[0].mean(dim=1)[:, : BLOCKS[0]]
            if view is evidence.views[0]
            else parts(memory)[0].mean(dim=1)[:, BLOCKS[0] :]
        )
        there = (known - view.centre) @ view.axes.T
        here = (look - view.centre) @ view.axes.T
        expected = expected + torch.cdist(here, there).amin(dim=1).log() / len(BLOCKS)
    found = evidence._log_distance(evidence._looks(far, clips.mean), torch.zeros(40, 120, dtype=torch.bool))
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4)


def test_a_network_that_learns_finds_nothing_strange():
    videos = drawn(24)
    evidence = evidence_of(videos, is_frozen=False)
    features, clips = parts(videos)
    var = evidence(features, clips)
    evidence.distance.mean.sub_(100.0)
    assert torch.equal(evidence(features, clips), var)


def test_a_video_whose_clips_contradict_each_other_is_less_certain():
    evidence = evidence_of(drawn(24))
    several = drawn(9, seed=1).view(3, 9, -1)  # three videos of three in one
    features, clips = parts(several)
    assert (evidence.spread(clips.mean) > tolerated_spread(3) * evidence.usual_spread).all()
    alike = Gaussian(clips.mean.mean(dim=1, keepdim=True).expand_as(clips.mean), clips.log_var)
    assert (evidence(features, clips) > evidence(features, alike)).all()


def test_the_usual_spread_of_clips_counts_for_nothing_and_one_clip_has_none():
    videos = drawn(24)
    evidence = evidence_of(videos)
    _, clips = parts(videos)
    above = evidence.spread(clips.mean) > tolerated_spread(3) * evidence.usual_spread
    assert above.float().mean() < 0.2
    assert torch.equal(evidence.spread(clips.mean[:, :1]), torch.zeros(24))
    assert tolerated_spread(10) == pytest.approx(2)
    assert tolerated_spread(2) == tolerated_spread(1) == 3
    # As many clips as one likes, the spread is of the same size.
    many = torch.randn(500, 10, DIM, generator=torch.Generator().manual_seed(0))
    ratio = evidence.spread(many[:, :2]).mean() / evidence.spread(many).mean()
    assert abs(float(ratio) - 1) < 0.1


def test_clips_that_are_usually_all_but_equal_may_differ_by_more():
    known = drawn(24, spread=0.01)
    evidence = evidence_of(known)
    features, clips = parts(drawn(24, seed=1, spread=0.1))
    assert (evidence.spread(clips.mean) > tolerated_spread(3) * evidence.usual_spread).all()
    alike = Gaussian(clips.mean.mean(dim=1, keepdim=True).expand_as(clips.mean), clips.log_var)
    torch.testing.assert_close(evidence(features, clips), evidence(features, alike))
    learning = evidence_of(known, is_frozen=False)
    assert (learning(features, clips) > learning(features, alike)).all()
    # What counts is whether they differ as clips of different videos do.
    means = parts(known)[1].mean
    between = means.mean(dim=1).var(dim=0).mean() / UNIT
    torch.testing.assert_close(evidence.halfway, (evidence.usual_spread + between) / 2)
    features, clips = parts(drawn(9, seed=1, spread=0.01).view(3, 9, -1))  # three videos of three in one
    alike = Gaussian(clips.mean.mean(dim=1, keepdim=True).expand_as(clips.mean), clips.log_var)
    assert (evidence(features, clips) > evidence(features, alike)).all()


def test_where_the_network_learns_the_head_knows_how_unsure_it_is():
    videos = drawn(24)
    features, clips = parts(videos)
    evidence = evidence_of(videos, blocks=(sum(BLOCKS),), is_frozen=False)
    evidence.usual_spread.fill_(1e3)
    usual = evidence(features, clips).exp()
    torch.testing.assert_close(usual, torch.full_like(usual, SHARE * BASE * UNIT))
    doubled = evidence(features, Gaussian(clips.mean, clips.log_var + math.log(2))).exp()
    torch.testing.assert_close(doubled, 2 * usual)
    # Of several networks side by side, what is far from its nearest video is less certain, too.
    evidence = evidence_of(videos, is_frozen=False)
    evidence.usual_spread.fill_(1e3)
    looks = evidence._looks(features, clips.mean)
    nearness = evidence.nearness(evidence._best_cosine(looks, evidence._is_own(looks)))
    found = evidence(features, clips).exp()
    expected = SHARE * BASE * UNIT * torch.exp(-GAIN * nearness.clamp(-MOST, MOST))
    torch.testing.assert_close(found, expected.view(-1, 1, 1).expand_as(found))


@pytest.mark.parametrize("num_videos", [1, 2, 3])
def test_few_videos_are_enough_to_give_a_number(num_videos: int):
    evidence = evidence_of(drawn(num_videos), ["one film"] * num_videos)
    log_var = evidence(*parts(drawn(5, seed=1, spread=0)), recording_names(["one film"] * 5))
    torch.testing.assert_close(log_var, torch.full_like(log_var, math.log(SHARE * BASE * UNIT)))


def test_no_video_has_no_number():
    features, clips = parts(drawn(5))
    nothing = Gaussian(clips.mean[:0], clips.log_var[:0])
    assert len(evidence_of(drawn(9))(features[:0], nothing)) == 0


def test_equal_videos_give_finite_numbers():
    evidence = evidence_of(torch.ones(8, 3, sum(BLOCKS) + DIM))
    assert evidence(*parts(drawn(5))).isfinite().all()


def test_recordings_are_named_or_found():
    near = torch.tensor([(0, 1), (1, 2), (4, 3)])
    assert found_recordings(near, [None] * 6).tolist() == [0, 0, 0, 3, 3, 5]
    # Names are trusted: videos that look alike are of two recordings if they are called so.
    assert found_recordings(near, ["a", "b", "a", None, None, "b"]).tolist() == [0, 1, 0, 3, 3, 1]
    first, again, other, unknown = recording_names(["a", "a", "b", None]).tolist()
    assert first == again != other
    assert unknown == 0
