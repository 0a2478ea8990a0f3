"""The commands and the example of docs/moments.md, with a tiny network behind the name it uses for words."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from provico.cli import main
from provico.data.frames.encode import write_video
from provico.data.frames.video import index_video
from provico.models.backbones import hub

from .search.test_pictures import write_picture
from .tiny_networks import save_network, save_tokenizer

PAGE = (Path(__file__).parents[1] / "docs" / "moments.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```\n(.*?)```", PAGE, re.DOTALL)
COMMANDS = [
    shlex.split(line, comments=True)
    for block in BLOCKS
    for line in block.splitlines()
    if line.startswith("provico")
]
FPS, SCENE_SECONDS, EXCERPT = 8, 5, slice(10 * 8, 13 * 8)


def scene(rng: np.random.Generator) -> NDArray[np.uint8]:
    colours = rng.integers(0, 255, (3, 4, 3)).repeat(16, axis=0).repeat(16, axis=1)
    noise = rng.normal(colours, 15, size=(FPS * SCENE_SECONDS, 48, 64, 3))
    return np.clip(noise, 0, 255).astype(np.uint8)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with what the page names: VIDEOS, excerpt.mp4, frame.png, match.mp4 of more than an hour."""
    from huggingface_hub import constants

    rng = np.random.default_rng(0)
    videos = tmp_path / "VIDEOS"
    for name in ("cooking/3.mp4", "cooking/4.mp4", "running/1.mp4", "running/2.mp4"):
        (videos / name).parent.mkdir(parents=True, exist_ok=True)
        write_video(videos / name, scene(rng), fps=FPS)
    frames = np.concatenate([scene(rng) for _ in range(6)])
    write_video(videos / "long.mp4", frames, fps=FPS)
    write_video(tmp_path / "excerpt.mp4", frames[EXCERPT], fps=FPS)
    write_picture(tmp_path / "frame.png", frames[EXCERPT.start + FPS])
    hour = (np.full((32, 48, 3), 3 * (number // 60) % 256, np.uint8) for number in range(3800))
    write_video(tmp_path / "match.mp4", hour, fps=1, gop_size=10, encoder_options={"preset": "ultrafast"})
    cache = tmp_path / "cache"
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(cache))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    repo = cache / "models--openai--clip-vit-base-patch32"
    network = repo / "snapshots" / ("0" * 40)
    save_network("clip", network)
    save_tokenizer(network, "a person diving at night snow")
    (repo / "refs").mkdir()
    (repo / "refs" / "main").write_text("0" * 40)
    hub.fetch.cache_clear()
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.usefixtures("without_charts")
def test_the_commands_and_the_example_run(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    verbs = [command[1] for command in COMMANDS]
    assert verbs == ["index", "search", "search", "search", "cut", "index", "search", "search"]
    (example,) = [block for block in BLOCKS if "index.search(" in block]
    for number, (_, verb, *options) in enumerate(COMMANDS):
        if verb == "index":
            (place / "index").rename(place / "earlier") if (place / "index").exists() else None
            options += ["--num-clips", "3", "--num-workers", "0"]
        if verb == "search":
            options += ["--max-chance", "inf"]
        capsys.readouterr()
        main([verb, *options])
        said = capsys.readouterr().out
        if number in (1, 2):  # by the excerpt, and by the picture
            assert re.search(r"^ +1 .* long\.mp4 ", said, re.MULTILINE), said
        if number == 1:
            exec(compile(example, "moments.md", "exec"), {})
            video, start, end, _ = capsys.readouterr().out.splitlines()[0].split()
            assert video == "long.mp4"
            assert 9 <= float(start) < float(end) <= 16
    assert index_video(place / "moment.mp4").num_frames == 4
