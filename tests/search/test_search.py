"""What is found is what comparing with every video, one by one in float64, would find."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from provico.cli import main
from provico.data.catalog import open_catalog
from provico.data.frames.encode import write_video
from provico.embedding.driver import embed
from provico.errors import ConfigError, VideoIndexError
from provico.probability.seeded_samples import seeded_samples
from provico.search.index import Index
from provico.search.query import Filter, Span, embed_query

NUM_CLIPS, NUM_SAMPLES, SEED = 3, 5, 7

METRICS = ("match", "cosine", "squared_euclidean_expected", "bhattacharyya", "wasserstein2_squared")


@pytest.fixture(scope="module")
def index(encoder, colour_videos, library, tmp_path_factory) -> Index:
    made = Index.create(
        tmp_path_factory.mktemp("index"),
        encoder,
        num_clips=NUM_CLIPS,
        num_samples=NUM_SAMPLES,
        seed=SEED,
    )
    made.add(open_catalog(colour_videos), library=library)
    return made


@pytest.fixture(scope="module")
def scores(encoder, colour_videos, library) -> dict[str, dict[str, dict[str, float]]]:
    """metric -> query -> video -> score, by the definitions, a pair at a time."""
    videos = embed(encoder, open_catalog(colour_videos), num_clips=NUM_CLIPS, library=library)
    gaussians = videos.videos.moment_matched
    means, variances = gaussians.mean.double(), gaussians.log_var.double().exp()
    drawn = {
        stream: seeded_samples(
            videos.ids, videos.videos, num_samples=NUM_SAMPLES, seed=SEED, stream=stream
        ).double()
        for stream in ("query", "gallery")
    }
    curve = encoder.match_curve()

    def score(metric: str, q: int, g: int) -> Tensor:
        if metric == "match":
            distances = (drawn["query"][q].unsqueeze(1) - drawn["gallery"][g]).square().sum(dim=-1)
            a, b = float(curve.a.detach()), float(curve.b.detach())
            return torch.sigmoid(curve.sigmoid_scale * (b - a * (distances + 1e-6).sqrt())).mean().log()
        if metric == "cosine":
            return means[q] @ means[g] / (means[q].norm() * means[g].norm())
        gap, deviations = (means[q] - means[g]).square().sum(), variances.sqrt()
        if metric == "squared_euclidean_expected":
            return -(gap + variances[q].sum() + variances[g].sum())
        if metric == "wasserstein2_squared":
            return -(gap + (deviations[q] - deviations[g]).square().sum())
        middle = (variances[q] + variances[g]) / 2
        logs = middle.log() - (variances[q].log() + variances[g].log()) / 2
        return -((means[q] - means[g]).square() / middle / 8 + logs / 2).sum()

    return {
        metric: {
            asked: {name: float(score(metric, q, g)) for g, name in enumerate(videos.ids) if g != q}
            for q, asked in enumerate(videos.ids)
        }
        for metric in METRICS
    }


@pytest.mark.parametrize("metric", METRICS)
def test_every_answer_is_that_of_a_loop_over_all_videos(index, scores, metric):
    answers = index.search_many(list(index.ids), metric=metric, k=5)
    for answer in answers:
        expected = scores[metric][answer.query]
        best = sorted(expected, key=expected.__getitem__, reverse=True)[:5]
        assert [hit.id for hit in answer.hits] == best
        assert [hit.score for hit in answer.hits] == pytest.approx([expected[n] for n in best], rel=1e-9)
        for hit in answer.hits:
            match = scores["match"][answer.query][hit.id]
            assert hit.log_probability == pytest.approx(match, rel=1e-9)
            assert hit.probability == pytest.approx(math.exp(match), rel=1e-9)
        assert answer.certificate.is_exact
        assert answer.certificate.num_allowed == len(index) - 1
    # Together or alone makes no difference.
    assert index.search(answers[3].query, metric=metric, k=5) == answers[3]


def test_hits_say_why(index, encoder, colour_videos, library):
    videos = embed(encoder, open_catalog(colour_videos), num_clips=NUM_CLIPS, library=library)
    place = {name: number for number, name in enumerate(videos.ids)}
    means, variances = videos.videos.clips.mean.double(), videos.videos.clips.log_var.double().exp()
    assert videos.clip_seconds is not None
    answer = index.search("train/red/0.mp4", k=4)
    query = place["train/red/0.mp4"]
    assert answer.uncertainty == pytest.approx(float(videos.videos.uncertainty[query]))
    for hit in answer.hits:
        found = place[hit.id]
        distances = {
            (i, j): float((means[query, i] - means[found, j]).square().sum())
            + float(variances[query, i].sum() + variances[found, j].sum())
            for i in range(NUM_CLIPS)
            for j in range(NUM_CLIPS)
        }
        i, j = min(distances, key=distances.__getitem__)
        assert hit.clip_squared_distance == pytest.approx(distances[i, j], rel=1e-9)
        assert [hit.query_clip.start_seconds, hit.query_clip.end_seconds] == (
            videos.clip_seconds[query, i].tolist()
        )
        assert [hit.clip.start_seconds, hit.clip.end_seconds] == videos.clip_seconds[found, j].tolist()
        gap = videos.videos.mean[query].double() - videos.videos.mean[found].double()
        assert hit.mean_distance == pytest.approx(float(gap.norm()), rel=1e-9)
        assert hit.uncertainty == pytest.approx(float(videos.videos.uncertainty[found]))
        assert hit.label == hit.id.split("/")[1]
        assert Path(hit.preview) == index.preview(hit.id)


def test_filters_and_exclusions_are_exact(index, scores):
    query = "train/red/0.mp4"
    expected = scores["match"][query]

    def found(**options: object) -> list[str]:
        return [hit.id for hit in index.search(query, k=18, **options).hits]

    everything = sorted(expected, key=expected.__getitem__, reverse=True)
    assert found() == everything
    assert query in found(exclude_same="nothing")
    for metric in ("match", "bhattacharyya"):
        labels = index.search(query, k=18, metric=metric, filter=Filter(labels=["blue", "red"])).hits
        assert len(labels) == 5
        assert {hit.label for hit in labels} == {"blue", "red"}
    assert found(filter=Filter(labels=["blue", "red"])) == [
        name for name in everything if name.split("/")[1] in ("blue", "red")
    ]
    middle = sorted(hit.uncertainty for hit in index.search(query, k=18).hits)[8]
    sure = index.search(query, k=18, filter=Filter(max_uncertainty=middle)).hits
    assert [hit.id for hit in sure] == [
        hit.id for hit in index.search(query, k=18).hits if hit.uncertainty <= middle
    ]
    assert found(filter=Filter(min_seconds=0.5, max_seconds=0.7)) == everything
    nothing = index.search(query, filter=Filter(min_seconds=1.0))
    assert (nothing.hits, nothing.best_probability, nothing.certificate.num_allowed) == ((), None, 0)
    with pytest.raises(ConfigError, match=r"label 'rde'. Did you mean red"):
        found(filter=Filter(labels=["rde"]))


def test_what_cannot_be_promised_is_refused(index):
    for wrong in (-1.0, math.nan):
        with pytest.raises(ConfigError, match="--max-chance is"):
            index.search("test/green/0.mp4", max_chance=wrong)
    with pytest.raises(ConfigError, match="from 0 to 1"):
        index.search("test/green/0.mp4", min_probability=1.5)
    with pytest.raises(ConfigError, match=r"not calibrated. Label some videos .* --max-chance"):
        index.search("test/green/0.mp4", min_probability=0.5)


def test_a_file_is_a_query(index, colour_videos, library, tmp_path, monkeypatch):
    name = "test/yellow/0.mp4"
    # The file that was indexed is known; a copy is decoded and embedded.
    assert index.search(colour_videos / name, library=library) == index.search(name)
    copy = Path(shutil.copy(colour_videos / name, tmp_path / "copy.mp4"))
    answer = Index.open(index.path).search(copy, k=18, library=library)
    (original,) = (hit for hit in answer.hits if hit.id == name)
    assert original.mean_distance == pytest.approx(0, abs=1e-5)
    assert answer.uncertainty == pytest.approx(original.uncertainty, rel=1e-5)
    monkeypatch.chdir(tmp_path)
    assert index.search("copy.mp4", k=18, library=library).hits == answer.hits
    with pytest.raises(VideoIndexError, match=r"nor a file. Did you mean test/yellow/0.mp4"):
        index.search("test/yelow/0.mp4")


def test_a_span_is_seen_as_if_it_were_all(index, encoder, library, tmp_path):
    rng = np.random.default_rng(0)
    path = tmp_path / "long.mp4"
    write_video(path, rng.integers(0, 256, (100, 40, 52, 3), np.uint8))
    options = {"num_clips": NUM_CLIPS, "short_side": index.settings.embedding.short_side, "library": library}
    whole = embed_query(encoder, path, Span(0.0, 60.0), **options)
    expected = encoder.embed(path, **options)
    assert whole.clips == expected.clips
    assert torch.equal(whole.gaussians.mean, expected.gaussians.mean)
    # Frames 50 to 74; a clip is 7 frames long.
    part = embed_query(encoder, path, Span(2.0, 3.0), **options)
    assert [clip.frames[0] for clip in part.clips] == [50, 59, 68]
    assert part.clips[-1].end_seconds == pytest.approx(3.0)
    answer = index.search((path, 2.0, 3.0), library=library)
    assert answer.span == Span(2.0, 3.0)
    assert all(2.0 <= hit.query_clip.start_seconds < hit.query_clip.end_seconds <= 3.0 for hit in answer.hits)
    with pytest.raises(ConfigError, match=r"0:09.0-0:10.0 of long.mp4 has no frame"):
        index.search((path, 9.0, 10.0), library=library)
    # A part of an indexed video does not find that video, either.
    own = index.search(("test/red/0.mp4", 0.2, 0.5), k=18, library=library)
    assert len(own.hits) == 17
    assert "test/red/0.mp4" not in {hit.id for hit in own.hits}


def test_the_command_line_indexes_and_finds(encoder, colour_videos, tmp_path, capsys):
    data, out = Path(shutil.copytree(colour_videos / "train", tmp_path / "videos")), tmp_path / "index"
    encoder.save_pretrained(tmp_path / "encoder")

    def provico(*words: object) -> str:
        main([str(word) for word in words])
        return capsys.readouterr().out

    index_it = ("index", data, "--out", out, "--num-workers", "1")
    with pytest.raises(SystemExit):
        main([str(word) for word in index_it])
    assert "not an index yet. Name the encoder" in capsys.readouterr().err
    report = provico(*index_it, "--checkpoint", tmp_path / "encoder", "--num-clips", "3")
    assert "12 videos added" in report
    (data / "red" / "1.mp4").unlink()
    report = json.loads(provico(*index_it, "--prune", "--json"))
    assert (report["vanished"], report["num_removed"], report["num_unchanged"]) == (["red/1.mp4"], 1, 11)

    facts = json.loads(provico("info", out, "--json"))
    assert (facts["kind"], facts["num_videos"], facts["num_clips"]) == ("index", 11, 3)

    table = provico("search", out, "red/0.mp4", "blue/0.mp4", "--k", "3", "--label", "blue", "green")
    assert "blue/1.mp4" in table
    assert "grey" not in table
    assert "Exact" in table
    file, span = data / "grey" / "0.mp4", "0:00.1-0:00.5"
    (answer,) = json.loads(provico("search", out, file, "--span", span, "--k", "2", "--json"))
    assert (answer["query"], answer["span"]) == ("grey/0.mp4", {"start_seconds": 0.1, "end_seconds": 0.5})
    assert len(answer["hits"]) == 2
    assert answer["certificate"]["is_exact"]
    assert "Too few videos to say" in provico("search", out, "red/0.mp4", "--max-chance", "0.1")
    with pytest.raises(SystemExit):
        main(["search", str(out), "red/0.mp4", "--span", "late"])
    assert "such as 0:10-0:20" in capsys.readouterr().err
