"""Is the page as fast with 10,000 videos as with a few? In Chromium, on a real server.

    python benchmarks/explorer_many.py INDEX

Makes an index in which every video of INDEX is there many times under other names, with its thumbnail and
preview, its distribution moved a little each time, so that none is like another. Serves both, and measures on
each, in turns and with an empty cache: first paint and first pictures of the collection, a jump to its end, a
filter, and a search; and how many videos and pictures were asked for until then. Results:
benchmarks/results/explorer_many.json.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import torch
from playwright.sync_api import Browser, Page, expect, sync_playwright

from explorer_paint import FLAGS, PAINT
from provico import Index
from provico.probability import Gaussian, Mixture
from provico.search.row_writer import sample_columns
from provico.search.store.folder import IndexFolder
from provico.search.store.video_store import BLOBS, TEXT

MOVED_BY = 0.3
"""Of the spread of clip means over the collection."""
PATIENCE_MS = 60_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("index", type=Path)
    parser.add_argument("--size", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/explorer_many.json"))
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="provico-many-") as scratch:
        many = Path(scratch) / "index"
        multiply(options.index, many, options.size)
        indexes = {"few": options.index, "many": many}
        found: dict[str, list[dict[str, float]]] = {name: [] for name in indexes}
        with serving(options.index) as few_url, serving(many) as many_url, sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=list(FLAGS))
            for number in range(1 + options.rounds):  # the first warms the servers
                for name, url in (("few", few_url), ("many", many_url)):
                    one = visit(browser, url, Index.open(indexes[name]).ids)
                    if number:
                        found[name].append(one)
            browser.close()
        report = {
            f"{len(Index.open(indexes[name]).ids):,} videos": {
                what: {"median": round(statistics.median(values)), "most": round(max(values))}
                for what in visits[0]
                for values in [[visit[what] for visit in visits]]
            }
            for name, visits in found.items()
        }
    options.out.write_text(json.dumps(report, indent=1) + "\n")
    print(json.dumps(report, indent=1))


def multiply(source: Path, out: Path, size: int) -> None:
    """Every video many times, each time moved a little."""
    index, rng = Index.open(source), np.random.default_rng(0)
    settings = index.settings
    folder = IndexFolder(out)
    folder.create(settings, index.encoder)
    shutil.copytree(IndexFolder(source).previews, folder.previews, dirs_exist_ok=True)
    store = IndexFolder(source).open_store(settings)
    rows = store.read([*TEXT, *BLOBS, *settings.columns])
    step = MOVED_BY * rows["clip_mean"].std(axis=(0, 1))
    with folder.changing(settings) as target:
        for first in range(0, size, len(store.ids)):
            taken = range(min(len(store.ids), size - first))
            moved = {name: [rows[name][place] for place in taken] for name in (*TEXT, *BLOBS)}
            moved |= {name: rows[name][: len(taken)] for name in settings.columns}
            moved["id"] = [f"{first // len(store.ids):03}/{name}" for name in moved["id"]]
            shift = rng.normal(size=(len(taken), 1, step.size)) * step
            moved["clip_mean"] = (moved["clip_mean"] + shift).astype(np.float32)
            videos = Mixture(Gaussian(*(torch.from_numpy(moved[n]) for n in ("clip_mean", "clip_log_var"))))
            moved["mean"] = videos.mean.numpy()
            moved["log_var"] = videos.moment_matched.log_var.numpy()
            target.write(moved | sample_columns(moved, settings))
        target.tidy()


@contextmanager
def serving(index: Path) -> Iterator[str]:
    command = [sys.executable, "-m", "provico", "serve", str(index), "--port", "0"]
    server = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert server.stderr is not None
    said = server.stderr.readline()
    address = re.search(r"http://[\d.]+:\d+", said)
    if address is None:
        sys.exit(said)
    yield address[0]
    server.send_signal(signal.SIGINT)
    server.wait(30)


def visit(browser: Browser, url: str, ids: tuple[str, ...]) -> dict[str, float]:
    """Milliseconds of what a visitor does, who has never been here."""
    page = browser.new_context(viewport={"width": 1280, "height": 860}).new_page()
    page.set_default_timeout(PATIENCE_MS)
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    found: dict[str, float] = {}

    def timed(name: str, action: Callable[[], Any]) -> None:
        began = time.perf_counter()
        action()
        found[f"{name}, ms"] = 1000 * (time.perf_counter() - began)

    def pictures(what: str = ".card img") -> None:
        expect(page.locator(what).first).to_have_js_property("complete", True, timeout=PATIENCE_MS)

    def opened() -> None:
        page.goto(url)
        pictures()

    timed("pictures of the first videos", opened)
    found["first paint, ms"] = page.evaluate(PAINT)
    found["requests until then"] = len(asked)
    timed("jump to the end", lambda: (page.evaluate("scrollTo(0, 1e9)"), last(page, ids)))
    timed("find by name", lambda: (page.locator("#text").fill(ids[-1]), last(page, ids)))
    timed(
        "search",
        lambda: (page.goto(f"{url}/search?id={quote(ids[len(ids) // 2])}&p=0"), pictures(".hit img")),
    )
    found["requests in all"] = len(asked)
    page.context.close()
    return found


def last(page: Page, ids: tuple[str, ...]) -> None:
    expect(page.locator(f".card[data-id={json.dumps(ids[-1])}]")).to_be_visible(timeout=PATIENCE_MS)


if __name__ == "__main__":
    main()
