"""The pictures of the README, which are thus never out of date by more than one run of this test.

    PROVICO_SCREENSHOTS=docs/images pytest tests/explorer/pages/test_page_pictures.py

writes them there. They are of the explorer at PROVICO_SCREENSHOTS_OF, if that is set, such as one of the demo
set; else of the few videos of the tests.
"""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

from PIL import Image
from playwright.sync_api import Page, expect

Until = Callable[[Page, str], None]
MAX_BYTES = 300_000
PICTURES = {
    "browse": ("/browse?sort=-uncertainty", ".card img"),
    "search": ("/search?id={id}&chance=any", ".hit .moment img"),
    "video": ("/video?id={id}", "#neighbours .card img"),
    "map": ("/map", ".scatterlayer .point"),
    "curate": ("/curate", "#queue img"),
}
LOADED = """[...document.images]
    .every(image => image.complete || image.getBoundingClientRect().top > innerHeight)
  && [...document.querySelectorAll('.player video')].every(video => video.readyState === 4)"""


def test_pictures(open_page: Callable[..., Page], until: Until, tmp_path: Path):
    base = os.environ.get("PROVICO_SCREENSHOTS_OF", "").rstrip("/")
    page = open_page(f"{base}/browse", width=1200, height=800)
    wanted = page.locator(".card").first.get_attribute("data-id") or ""
    folder = Path(os.environ.get("PROVICO_SCREENSHOTS", tmp_path))
    for name, (path, sign) in PICTURES.items():
        page.goto(base + path.format(id=quote(wanted)))
        expect(page.locator(sign).first).to_be_visible()
        until(page, LOADED)
        page.wait_for_timeout(500)  # what turns while a player loads fades away
        target = folder / f"explorer-{name}.png"
        picture = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
        picture.quantize(256, dither=Image.Dither.NONE).save(target, optimize=True)
        assert picture.size == (1200, 800), name
        assert len(picture.getcolors(2**24) or ()) > 100, f"{name} is blank"
        assert target.stat().st_size < MAX_BYTES, name
