"""From files to the page with nothing made up: real commands write what the page shows."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import pytest
from playwright.sync_api import Page, expect

from provico.cli import main
from provico.data.catalog import open_catalog
from provico.data.frames.encode import write_video
from provico.data.library import Library
from provico.search.index import Index

COPY, ORIGINAL = "Fire/copy of 1.mp4", "Fire/1.mp4"


@pytest.fixture
def provico(
    collection: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., str]:
    monkeypatch.setenv("PROVICO_HOME", str(collection.home))

    def run(*arguments: object) -> str:
        main([*map(str, arguments)])
        return capsys.readouterr().out

    return run


@pytest.fixture
def with_copy(collection: Any, tmp_path: Path) -> Path:
    """An index of as many videos as a calibration needs, one of which is there twice."""
    videos = tmp_path / "videos"
    shutil.copytree(collection.videos, videos)
    shutil.copy(videos / ORIGINAL, videos / COPY)
    rng = np.random.default_rng(0)
    for number in range(8):
        tiles = rng.integers(0, 256, (6, 8, 3), np.uint8).repeat(12, 0).repeat(12, 1)
        write_video(
            videos / "Grass" / f"tiles {number}.mp4", [np.roll(tiles, 2 * n, axis=1) for n in range(36)]
        )
    encoder = Index.open(collection.index).encoder
    index = Index.create(tmp_path / "index", encoder, num_clips=4, num_samples=4)
    index.add(open_catalog(videos), library=Library(collection.home))
    return tmp_path / "index"


def test_what_dedup_and_calibrate_write_is_on_the_page(
    browser: Any,
    start_server: Callable[..., Any],
    with_copy: Path,
    provico: Callable[..., str],
):
    found = json.loads(provico("dedup", with_copy, "--json"))
    groups = [{group["keep"], *group["drop"]} for group in found["groups"]]
    (group,) = (group for group in groups if COPY in group)
    assert ORIGINAL in group
    provico("calibrate", with_copy)
    server = start_server(index=with_copy)
    page = browser.new_page(base_url=server.url)
    page.goto(f"/search?id={quote('Grass/tiles 1.mp4')}&k=50&p=0")
    # Of a group the best hit is on top, and the others are under it.
    expect(page.locator(".hit").first).to_be_visible()
    under = page.locator("details.duplicates a").all_text_contents()
    assert len(group.intersection(under)) == len(group) - 1
    expect(page.locator("#threshold-label")).to_be_visible()
    # What becomes of the index afterwards is said on the page that is opened first.
    with_copy.joinpath("calibration.json").write_text("damaged")
    page.goto("/")
    for _ in range(2):
        page.wait_for_timeout(1500)  # the server looks once a second
        page.reload()
    expect(page.locator("#trouble")).to_contain_text("was changed and cannot be read")
    page.close()


def test_the_link_with_the_token_opens_the_page_and_nothing_else_does(
    browser: Any, start_server: Callable[..., Any], collection: Any
):
    link = start_server("--token", "auto").url
    address = link.split("/login")[0]
    stranger: Page = browser.new_context().new_page()
    stranger.goto(address)
    expect(stranger.locator("body")).to_contain_text("A token is needed")
    assert stranger.locator(".cluster").count() == 0
    stranger.goto(f"{address}/login?token=guess")
    expect(stranger.locator("body")).to_contain_text("The token is wrong")
    stranger.goto(link)
    expect(stranger.locator("#count")).to_contain_text("12 videos")
    assert "token" not in stranger.url
    stranger.reload()
    expect(stranger.locator(".cluster img").first).to_have_js_property("complete", True)
    stranger.context.close()
