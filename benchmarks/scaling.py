"""What would a million, a hundred million, ten thousand million videos need? Arithmetic for docs/scaling.md.

    python benchmarks/scaling.py        # reads benchmarks/results/{indexing,search}.json, prints the tables

Every number is a measured rate times a number of videos. What was measured at one size is taken to grow in
proportion, as a scan does; what the largest measured index says is used.
"""

from __future__ import annotations

import argparse
import json
import math
import re
from pathlib import Path
from typing import Any

SIZES = {"10^6": 10**6, "10^8": 10**8, "10^10": 10**10}
CORES, GIGABYTES = 64, 512
"""Of a machine."""
DAYS = 30
"""In which all videos are to be embedded."""
DIM = 128
PREVIEW_BYTES = 25_000
"""Of a preview that was watched, as previews of ucf101-5 are."""
BYTES_LOADED, BYTES_BESIDES = 3, 270
"""For each coordinate: a code (1) and a half (2); for each video: ids, words and what bounds are made of. The
Gaussians (8 for each coordinate) lie in a mapped file; benchmarks/index_memory.py."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--results", type=Path, default=Path("benchmarks/results"))
    options = parser.parse_args()
    indexing = json.loads((options.results / "indexing.json").read_text())
    search = json.loads((options.results / "search.json").read_text())
    size, measured = largest(search)
    rates = indexing["as the command"]["now"]
    print(f"{1000 / rates['CPU milliseconds a video']:.1f} videos a CPU second\n")
    print_table(rows(rates, measured, size))


def largest(search: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    """The largest index of the usual kind in its own folder, and what was measured of it."""
    found = {}
    for name, measured in search.items():
        if match := re.fullmatch(r"like real, ([\d,]+) videos", name):
            found[int(match[1].replace(",", ""))] = measured
    size = max(found)
    return size, found[size]


def rows(rates: dict[str, Any], measured: dict[str, Any], size: int) -> dict[str, list[str]]:
    disk = measured["build"]["bytes of a row"] + rates["bytes of a thumbnail"] + PREVIEW_BYTES
    milliseconds = measured["compare"]["milliseconds a query"]["exact, ranking alone"] / size
    table: dict[str, list[str]] = {}
    for number in SIZES.values():
        core_days = number * rates["CPU milliseconds a video"] / 1e3 / 86400
        memory = number * (BYTES_LOADED * DIM + BYTES_BESIDES) / 1e9
        cells = {
            "embedding, core-days": f"{core_days:,.0f}",
            f"machines of {CORES} cores, to do it in {DAYS} days": f"{math.ceil(core_days / DAYS / CORES):,}",
            "rows on disk": in_bytes(number * measured["build"]["bytes of a row"]),
            "rows, thumbnails and previews": in_bytes(number * disk),
            "memory of an index that is loaded": in_bytes(memory * 1e9),
            f"machines of {GIGABYTES} GB that hold it": f"{math.ceil(memory / GIGABYTES):,}",
            "one query of a batch, one process": in_seconds(milliseconds * number / 1e3),
        }
        for name, cell in cells.items():
            table.setdefault(name, []).append(cell)
    return table


def print_table(table: dict[str, list[str]]) -> None:
    print("| | " + " | ".join(SIZES) + " |")
    print("|---" * (len(SIZES) + 1) + "|")
    for name, cells in table.items():
        print(f"| {name} | {' | '.join(cells)} |")


def in_bytes(number: float) -> str:
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if number < 1000:
            return f"{number:.3g} {unit}"
        number /= 1000
    return f"{number:,.3g} PB"


def in_seconds(seconds: float) -> str:
    return f"{1e3 * seconds:.0f} ms" if seconds < 1 else f"{seconds:,.0f} s"


if __name__ == "__main__":
    main()
