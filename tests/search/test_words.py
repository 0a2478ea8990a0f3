"""Search by words with tiny towers of random weights: the plumbing, and what chance has to say of it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from provico.cli import main
from provico.data.catalog import open_catalog
from provico.data.frames.encode import write_video
from provico.errors import ConfigError, WeightsError
from provico.models.backbones.registry import made_for
from provico.models.backbones.text_tower import TextTower
from provico.models.encoder import Encoder
from provico.models.encoder_config import EncoderConfig
from provico.search.index import Index
from provico.search.query import Filter

from ..tiny_networks import save_network, save_tokenizer

WORDS = "a red blue green noise moving slowly quickly at night dog person diving seen water"


@pytest.fixture(scope="module", params=["clip", "siglip"])
def network(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp(request.param)
    save_network(request.param, folder)
    save_tokenizer(folder, WORDS)
    return folder


@pytest.fixture(scope="module")
def index(network: Path, tmp_path_factory: pytest.TempPathFactory) -> Index:
    """Five short videos, and a long one of many colours."""
    videos, rng = tmp_path_factory.mktemp("videos"), np.random.default_rng(0)

    def part(num_frames: int) -> np.ndarray:
        noise = rng.normal(rng.integers(0, 255, 3), 40, size=(num_frames, 40, 48, 3))
        return np.clip(noise, 0, 255).astype(np.uint8)

    for name in "abcde":
        (videos / name).mkdir()
        write_video(videos / name / "0.mp4", part(20), fps=10)
    write_video(videos / "e" / "long.mp4", np.concatenate([part(20) for _ in range(13)]), fps=10)
    torch.manual_seed(0)
    clips = made_for(str(network))
    encoder = Encoder(EncoderConfig.for_backbone(str(network), dim=8, input=clips)).eval()
    index = Index.create(tmp_path_factory.mktemp("index") / "index", encoder, num_clips=3)
    index.add(open_catalog(videos))
    return index


def test_words_are_compared_with_every_video_and_moment(index: Index, network: Path) -> None:
    """With the towers of transformers itself, one clip at a time."""
    rows = index.loaded.store.read(("clip_words", "timeline_seconds"))
    text = TextTower(str(network))(["a red dog diving"])[0].double()
    best = {}
    for row, name in enumerate(index.ids):
        clips = torch.from_numpy(rows["clip_words"][row].astype(np.float64))
        assert torch.allclose(clips.norm(dim=1), torch.ones(len(clips)).double(), atol=2e-3)
        similarity = clips @ text
        times = rows["timeline_seconds"][row]
        units = [(float(similarity.mean()), 0.0, float(index.loaded.duration_seconds[row]))]
        units += [
            (float(similarity[first : first + 2].mean()), times[first, 0], times[first + 1, 1])
            for first in range(len(times) - 1)
        ]
        best[name] = max(units, key=lambda unit: unit[0])
    answer = index.search_words("a red dog diving", k=10, max_chance=None)
    assert [hit.id for hit in answer.hits] == sorted(best, key=lambda name: -best[name][0])
    for hit in answer.hits:
        score, start, end = best[hit.id]
        assert hit.score == pytest.approx(score, abs=1e-6)
        assert (hit.moment.start_seconds, hit.moment.end_seconds) == pytest.approx((start, end))
        assert hit.spread >= 0
        assert hit.expected_by_chance is None  # six videos say nothing of chance
    assert len(rows["clip_words"][index.ids.index("e/long.mp4")]) > 20
    filtered = index.search_words("a red dog diving", filter=Filter(labels=["a", "b"]))
    assert {hit.id for hit in filtered.hits} == {"a/0.mp4", "b/0.mp4"}


def test_the_towers_are_those_of_the_network(index: Index, network: Path) -> None:
    import transformers

    model = transformers.AutoModel.from_pretrained(network, local_files_only=True).eval()
    tokens = transformers.AutoTokenizer.from_pretrained(network)("a blue dog", return_tensors="pt")
    if model.config.model_type == "clip":
        found = model.get_text_features(**{name: tokens[name] for name in ("input_ids", "attention_mask")})
        expected = F.normalize(found.pooler_output, dim=1)
        torch.testing.assert_close(TextTower(str(network))(["a blue dog"]), expected)
    assert index.settings.words_dim == TextTower(str(network))(["a"]).shape[1]


def test_queries_of_several_parts(index: Index) -> None:
    """Each part in units of how it varies; what is named is not found."""
    whole = {name: index.search_words(name, max_chance=None) for name in ("a dog", "at night")}
    scores = {query: {hit.id: hit.score for hit in answer.hits} for query, answer in whole.items()}
    both = index.search_words("a dog", like=["a/0.mp4"], unlike=["b/0.mp4", "at night"], max_chance=None)
    assert {hit.id for hit in both.hits} == set(scores["a dog"]) - {"a/0.mp4", "b/0.mp4"}
    assert both.query == "a dog a/0.mp4 not b/0.mp4 not at night"
    assert [hit.score for hit in both.hits] == sorted((hit.score for hit in both.hits), reverse=True)
    with pytest.raises(ConfigError, match="nothing to search for"):
        index.search_words(unlike=["a dog"])
    with pytest.raises(ConfigError, match="must not be empty"):
        index.search_words("  ")


def test_no_match_beyond_chance(index: Index, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    """Random towers know nothing, so nothing is much nearer to a text than to other texts."""
    monkeypatch.setattr("provico.search.words.LEAST_UNRELATED", 3)
    answer = index.search_words("a person diving", max_chance=1e-6)
    assert not answer.is_confident
    assert answer.best_expected_by_chance is not None
    assert answer.best_expected_by_chance > 1e-6
    # A text that names what only one video shows: its own direction.
    opened = Index.open(index.path)
    opened.search_words("a dog")
    main(["search", str(index.path), "a person diving", "--max-chance", "1e-9"])
    assert "video" in capsys.readouterr().out


def test_the_command_line_takes_words(index: Index, capsys) -> None:
    main(["search", str(index.path), "a red dog", "--like", "a/0.mp4", "--k", "2", "--json"])
    (answer,) = json.loads(capsys.readouterr().out)
    assert answer["query"] == "a red dog a/0.mp4"
    assert len(answer["hits"]) == 2
    assert set(answer["hits"][0]["moment"]) == {"start_seconds", "end_seconds"}
    main(["search", str(index.path), "a red dog"])
    assert "long.mp4" in capsys.readouterr().out
    main(["search", str(index.path), "a/0.mp4", "--json"])  # an id is a video, as ever
    assert "probability" in json.loads(capsys.readouterr().out)[0]["hits"][0]


def test_words_of_another_network_are_refused(index: Index, network: Path, tmp_path: Path) -> None:
    """The folder of the network holds other weights by now: its words lie elsewhere."""
    away = network.rename(tmp_path / "away")
    try:
        save_network(json.loads((away / "config.json").read_text())["model_type"], network, seed=1)
        save_tokenizer(network, WORDS)
        with pytest.raises(WeightsError, match="its weights or its code have changed"):
            Index.open(index.path).search_words("a red dog")
    finally:
        shutil.rmtree(network)
        away.rename(network)
    assert Index.open(index.path).search_words("a red dog").query == "a red dog"


def test_a_network_without_words_says_so(shaded_index: Path) -> None:
    index = Index.open(shaded_index)
    assert index.settings.words_dim is None
    with pytest.raises(ConfigError, match="cannot be searched by words"):
        index.search_words("a person diving")
