"""How soon does the explorer show something? First paint of each page in Chromium, with an empty cache.

python benchmarks/explorer_paint.py http://127.0.0.1:8420        of a running `provico serve`
"""

from __future__ import annotations

import json
import shutil
import statistics
import sys
from pathlib import Path

from playwright.sync_api import sync_playwright

RESULTS = Path("benchmarks/results/explorer_paint.json")
PAGES = ("/", "/search", "/map", "/runs", "/curate")
ROUNDS = 5
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
)
PAINT = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? null"


def main() -> None:
    url = sys.argv[1].rstrip("/")
    found: dict[str, list[float]] = {page: [] for page in PAGES}
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=list(FLAGS))
        for _ in range(ROUNDS):
            for path in PAGES:
                page = browser.new_context().new_page()  # a context of its own has an empty cache
                page.goto(f"{url}{path}", wait_until="load")
                page.wait_for_function(f"{PAINT} !== null")
                found[path].append(page.evaluate(PAINT))
                page.context.close()
        browser.close()
    result = {
        path: {"median ms": round(statistics.median(times)), "most ms": round(max(times))}
        for path, times in found.items()
    }
    RESULTS.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
