"""Rankings are those of the definition, and depend on nothing but the videos and the seed."""

from __future__ import annotations

import dataclasses
import json
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from provico.errors import ConfigError
from provico.evaluation import embedded_search
from provico.evaluation.retrieval import retrieve
from provico.probability.distances import DISTANCES
from provico.probability.gaussian import Gaussian
from provico.probability.matching import MatchCurve
from provico.probability.mixture import Mixture
from provico.probability.seeded_samples import seeded_samples

CURVE = MatchCurve(torch.tensor(3.0), torch.tensor(2.0))
KS = (1, 2, 5)


def reordered(embeddings, order):
    clips = embeddings.videos.clips
    return dataclasses.replace(
        embeddings,
        ids=tuple(embeddings.ids[i] for i in order),
        videos=Mixture(Gaussian(clips.mean[order], clips.log_var[order])),
        labels=tuple(embeddings.labels[i] for i in order),
        groups=tuple(embeddings.groups[i] for i in order),
    )


@pytest.fixture(scope="module")
def queries(make_embeddings):
    return make_embeddings(9, seed=1, prefix="query", num_clips=3)


@pytest.fixture(scope="module")
def gallery(make_embeddings):
    return make_embeddings(14, seed=2, prefix="gallery")


def check_against(expected, queries, gallery, report):
    """Compare a report with a matrix of scores, as nested lists, by sorting it the plain way."""
    hits = dict.fromkeys(KS, 0)
    for row, scores in enumerate(expected):
        order = sorted(range(len(scores)), key=lambda place: -scores[place])
        assert report.nearest[row].tolist() == order[: max(KS)]
        assert report.score[row].item() == pytest.approx(scores[order[0]], rel=1e-4, abs=1e-5)
        assert report.correct[row].item() == (gallery.labels[order[0]] == queries.labels[row])
        for k in KS:
            hits[k] += any(gallery.labels[place] == queries.labels[row] for place in order[:k])
    assert report.recalls == pytest.approx({k: count / len(queries) for k, count in hits.items()})


@pytest.mark.parametrize("draw", ["moments", "clips"])
def test_match_equals_a_loop_over_samples(queries, gallery, draw):
    report = retrieve(queries, gallery, curve=CURVE, ks=KS, num_samples=4, seed=5, draw=draw)
    ours, theirs = (
        seeded_samples(of.ids, of.videos, num_samples=4, seed=5, draw=draw, stream=stream).double()
        for of, stream in ((queries, "query"), (gallery, "gallery"))
    )

    def log_match(query, other):
        logits = [2 - 3 * math.dist(x, y) for x in query.tolist() for y in other.tolist()]
        return math.log(sum(1 / (1 + math.exp(-logit)) for logit in logits) / len(logits))

    expected = [[log_match(query, other) for other in theirs] for query in ours]
    check_against(expected, queries, gallery, report)


def test_certain_videos_are_ranked_by_the_distance_of_their_means(make_embeddings):
    """Without noise the samples are the means, so this needs no function of ours."""
    queries = make_embeddings(6, seed=1, num_clips=1, log_var=-40.0)
    gallery = make_embeddings(9, seed=2, num_clips=1, log_var=-40.0)
    report = retrieve(queries, gallery, curve=CURVE, ks=KS, num_samples=2)
    means = [of.videos.clips.mean[:, 0].tolist() for of in (queries, gallery)]
    expected = [[-math.log1p(math.exp(3 * math.dist(x, y) - 2)) for y in means[1]] for x in means[0]]
    check_against(expected, queries, gallery, report)


def test_cosine_equals_a_loop_over_means(queries, gallery):
    report = retrieve(queries, gallery, metric="cosine", ks=KS)

    def cosine(x, y):
        return sum(a * b for a, b in zip(x, y, strict=True)) / (math.hypot(*x) * math.hypot(*y))

    means = [of.videos.clips.mean.mean(dim=1).tolist() for of in (queries, gallery)]
    check_against([[cosine(x, y) for y in means[1]] for x in means[0]], queries, gallery, report)


def test_expected_distance_equals_a_loop_over_moments(queries, gallery):
    """|mu - mu'|^2 and both variances: what the mean over infinitely many samples would be."""
    report = retrieve(queries, gallery, metric="squared_euclidean_expected", ks=KS)

    def moments(of):
        clips = of.videos.clips
        mean = clips.mean.mean(dim=1)
        spread = clips.mean.var(dim=1, correction=0) + clips.log_var.exp().mean(dim=1)
        return list(zip(mean.tolist(), spread.sum(dim=1).tolist(), strict=True))

    expected = [[-(math.dist(x, y) ** 2 + v + w) for y, w in moments(gallery)] for x, v in moments(queries)]
    check_against(expected, queries, gallery, report)


def test_sampled_distance_equals_a_loop_over_samples(queries, gallery):
    report = retrieve(
        queries, gallery, metric="squared_euclidean_sampled", ks=KS, num_samples=3, seed=2, draw="clips"
    )
    ours, theirs = (
        seeded_samples(of.ids, of.videos, num_samples=3, seed=2, draw="clips", stream=stream).tolist()
        for of, stream in ((queries, "query"), (gallery, "gallery"))
    )
    expected = [
        [-sum(math.dist(x, y) ** 2 for x in query for y in other) / 9 for other in theirs] for query in ours
    ]
    check_against(expected, queries, gallery, report)


@pytest.mark.parametrize("metric", ["match", "cosine", *DISTANCES])
def test_every_metric_finds_a_video_in_itself(make_embeddings, metric):
    """Certain videos: whatever is measured, nothing is nearer than the video itself."""
    videos = make_embeddings(7, seed=5, num_clips=1, log_var=-8.0)
    report = retrieve(videos, videos, metric=metric, curve=CURVE, ks=(1,), num_samples=2)
    assert report.nearest[:, 0].tolist() == list(range(7))


def test_ranks_survive_where_probabilities_underflow(make_embeddings):
    far = make_embeddings(6, seed=1, num_clips=1, log_var=-40.0)
    steep = MatchCurve(torch.tensor(2000.0), torch.tensor(0.0))
    report = retrieve(far, far, curve=steep, ks=(1, 5), exclude_same="video")
    assert report.score.exp().max() == 0
    distances = torch.cdist(far.videos.mean, far.videos.mean).fill_diagonal_(torch.inf)
    assert torch.equal(report.nearest, distances.argsort(dim=1)[:, :5])


@given(seed=st.integers(0, 2**31), metric=st.sampled_from(["match", "cosine"]))
@settings(max_examples=10)
def test_recall_grows_with_k_until_all_is_found(make_embeddings, seed, metric):
    queries, gallery = make_embeddings(5, seed=seed), make_embeddings(8, seed=seed + 1)
    report = retrieve(queries, gallery, metric=metric, curve=CURVE, ks=range(1, 9), num_samples=2)
    recalls = list(report.recalls.values())
    assert recalls == sorted(recalls)
    assert report.recalls[1] == report.correct.double().mean().item()
    findable = [label in gallery.labels for label in queries.labels]
    assert recalls[-1] == pytest.approx(sum(findable) / 5)


@given(order=st.permutations(range(9)), metric=st.sampled_from(["match", "cosine"]))
@settings(max_examples=10)
def test_the_order_of_the_queries_changes_no_number(queries, gallery, order, metric):
    report = retrieve(queries, gallery, metric=metric, curve=CURVE, ks=KS)
    shuffled = retrieve(reordered(queries, order), gallery, metric=metric, curve=CURVE, ks=KS)
    assert torch.equal(shuffled.nearest, report.nearest[order])
    assert torch.equal(shuffled.correct, report.correct[order])
    torch.testing.assert_close(shuffled.score, report.score[order])


def test_the_order_of_the_gallery_changes_no_score(queries, gallery):
    report = retrieve(queries, gallery, curve=CURVE, ks=KS)
    order = list(reversed(range(14)))
    turned = retrieve(queries, reordered(gallery, order), curve=CURVE, ks=KS)
    assert torch.equal(13 - turned.nearest, report.nearest)
    torch.testing.assert_close(turned.score, report.score)


@pytest.mark.parametrize("metric", ["match", "cosine"])
@pytest.mark.parametrize("at_once", [1, 4, 100])
def test_how_many_are_scored_at_once_changes_no_result(queries, gallery, metric, at_once, monkeypatch):
    report = retrieve(queries, gallery, metric=metric, curve=CURVE, ks=KS)
    monkeypatch.setattr(embedded_search, "QUERIES_AT_ONCE", at_once)
    again = retrieve(queries, gallery, metric=metric, curve=CURVE, ks=KS)
    assert torch.equal(again.nearest, report.nearest)
    torch.testing.assert_close(again.score, report.score)


def test_the_seed_decides_the_samples(queries, gallery):
    first, same, other = (
        retrieve(queries, gallery, curve=CURVE, ks=KS, num_samples=3, seed=seed) for seed in (0, 0, 1)
    )
    assert torch.equal(first.score, same.score)
    assert not torch.isclose(first.score, other.score).any()


@pytest.mark.parametrize("draw", ["moments", "clips"])
def test_samples_have_the_moments_of_their_video(make_embeddings, draw):
    videos = make_embeddings(3, seed=4).videos
    samples = seeded_samples("abc", videos, num_samples=40_000, seed=0, draw=draw)
    torch.testing.assert_close(samples.mean(dim=1), videos.mean, atol=0.03, rtol=0)
    torch.testing.assert_close(samples.var(dim=1), videos.within + videos.between, atol=0, rtol=0.05)


def test_samples_belong_to_the_id_and_the_stream(make_embeddings):
    videos = make_embeddings(2, seed=4).videos
    alike = Mixture(Gaussian(videos.clips.mean[[0, 0]], videos.clips.log_var[[0, 0]]))
    samples = seeded_samples("ab", alike, num_samples=5, seed=0)
    assert torch.equal(seeded_samples("ba", alike, num_samples=5, seed=0), samples.flip(0))
    assert not torch.isclose(samples[0], samples[1]).any()
    assert not torch.isclose(seeded_samples("ab", alike, num_samples=5, seed=0, stream="x"), samples).any()


@pytest.mark.parametrize("metric", ["match", "cosine"])
def test_a_set_can_be_searched_against_itself(make_embeddings, metric):
    groups = ["a", "a", "a", "b", "b", None, None, "c"]
    videos = make_embeddings(8, seed=7, groups=groups, num_clips=1, log_var=-8.0)

    def found(exclude_same, k):
        options = {"metric": metric, "curve": CURVE, "ks": (k,)}
        return retrieve(videos, videos, exclude_same=exclude_same, **options).nearest.tolist()

    assert [row[0] for row in found("nothing", 1)] == list(range(8))
    for number, row in enumerate(found("video", 7)):
        assert sorted(row) == [other for other in range(8) if other != number]
    for number, row in enumerate(found("group", 5)):
        for other in row:
            assert other != number
            assert groups[number] is None or groups[other] != groups[number]


def test_videos_without_a_group_are_not_one_group(make_embeddings):
    videos = make_embeddings(8, seed=7)
    report = retrieve(videos, videos, metric="cosine", ks=(7,), exclude_same="group")
    for number, row in enumerate(report.nearest.tolist()):
        assert sorted(row) == [other for other in range(8) if other != number]


def test_equal_scores_keep_the_order_of_the_gallery(make_embeddings):
    videos = make_embeddings(5, seed=3)
    clips = videos.videos.clips
    same = dataclasses.replace(videos, videos=Mixture(Gaussian(clips.mean[[0] * 5], clips.log_var[[0] * 5])))
    report = retrieve(same, same, metric="cosine", ks=(5,))
    assert report.nearest.tolist() == [[0, 1, 2, 3, 4]] * 5


def test_labels_are_compared_by_name(make_embeddings):
    videos = make_embeddings(4, seed=3, num_clips=1, log_var=-8.0)
    queries = dataclasses.replace(videos, labels=("cat", "dog", "dog", "owl"))
    gallery = dataclasses.replace(videos, labels=("dog", "dog", "cat", "cat"))
    report = retrieve(queries, gallery, curve=CURVE, ks=(1,))
    assert report.correct.tolist() == [False, True, False, False]


def test_the_summary_is_json_and_counts_failures(make_embeddings):
    queries = dataclasses.replace(make_embeddings(4, seed=1), failed=(("x.avi", "no frames"),))
    gallery = dataclasses.replace(make_embeddings(6, seed=2), failed=(("y.avi", "empty"), ("z.avi", "empty")))
    summary = json.loads(json.dumps(retrieve(queries, gallery, metric="cosine", ks=(6, 1)).summary()))
    assert list(summary) == ["metric", "R@1", "R@6", "num_queries", "num_gallery", "num_failed"]
    assert (summary["num_queries"], summary["num_gallery"], summary["num_failed"]) == (4, 6, 3)
    assert retrieve(queries, queries, metric="cosine", ks=(1,)).num_failed == 1


def test_what_cannot_work_is_refused(queries, gallery, make_embeddings):
    with pytest.raises(ConfigError, match=r"R@20 needs 20 candidates.* only 14 of the 14 videos"):
        retrieve(queries, gallery, curve=CURVE)
    with pytest.raises(ConfigError, match=r"only 8 of the 9 videos .* exclude_same='video'"):
        retrieve(queries, queries, curve=CURVE, ks=(9,), exclude_same="video")
    with pytest.raises(ConfigError, match=r"curve=encoder\.match_curve\(\)"):
        retrieve(queries, gallery, ks=KS)
    with pytest.raises(ConfigError, match="k is 0"):
        retrieve(queries, gallery, curve=CURVE, ks=(0, 1))
    with pytest.raises(ConfigError, match="There is no metric 'cosinus'"):
        retrieve(queries, gallery, metric="cosinus", ks=KS)
    with pytest.raises(ConfigError, match="Embed both with the same encoder"):
        retrieve(queries, make_embeddings(9, seed=0, dim=5), curve=CURVE, ks=KS)
    unlabelled = dataclasses.replace(queries, labels=(None, *queries.labels[1:]))
    with pytest.raises(ConfigError, match=r"1 of 9 videos of the queries have no label, .* query0"):
        retrieve(unlabelled, gallery, curve=CURVE, ks=KS)
