"""How many videos a second does `provico index` take in, and how much disk?

    python benchmarks/indexing.py RUN DATA --num-videos 100

Nothing is remembered from before: videos are scanned, decoded and embedded, previews and rows are written.
One process, one thread, and CPU seconds, so that the rate of a machine is about this times its cores.
"""

from __future__ import annotations

import argparse
import json
import platform
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from provico import Index, Library, open_catalog, open_encoder


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", type=Path, nargs="+", help="runs whose encoders are compared")
    parser.add_argument("data", type=Path)
    parser.add_argument("--num-videos", type=int, default=100)
    parser.add_argument("--num-clips", type=int, default=10)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/indexing.json"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    catalog = open_catalog(options.data)
    step = max(1, len(catalog) // options.num_videos)
    catalog = catalog.subset(range(0, len(catalog), step)[: options.num_videos])
    report: dict[str, Any] = {"cpu": platform.processor() or platform.machine(), "videos": len(catalog)}
    for run in options.run:
        encoder = open_encoder(run)
        with tempfile.TemporaryDirectory() as folder:
            index = Index.create(Path(folder) / "index", encoder, num_clips=options.num_clips)
            wall, cpu = time.perf_counter(), time.process_time()
            added = index.add(catalog, library=Library(Path(folder) / "home"))
            seconds = {"wall": time.perf_counter() - wall, "cpu": time.process_time() - cpu}
            previews = [path for path in (index.path / "previews").rglob("*") if path.is_file()]
            durations = index.loaded.duration_seconds
            thumbnails = [len(index.thumbnail(name)) for name in index.ids]
            report[encoder.config.backbone] = {
                "dim": encoder.config.dim,
                "clips a video": options.num_clips,
                "videos a CPU second": round(added.num_added / seconds["cpu"], 3),
                "videos a second": round(added.num_added / seconds["wall"], 3),
                "seconds of video a CPU second": round(float(durations.sum()) / seconds["cpu"], 2),
                "bytes of a preview": round(sum(path.stat().st_size for path in previews) / len(previews)),
                "bytes of a thumbnail": round(sum(thumbnails) / len(thumbnails)),
            }
        print(json.dumps(report, indent=1), flush=True)
    options.out.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
