"""The main job from end to end on the embedded demo set: what `make demo` runs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import simplejpeg

from provico.data.catalog import Catalog, open_catalog
from provico.data.scan import scan
from provico.data.synthetic import write_demo_set
from provico.progress import progress_bar
from provico.show import show_scan

_FRAMES_SHOWN = 8


def run(out: Path, *, num_workers: int | None = None) -> None:
    """Make the demo set if it is not there yet, read all of it, and show what was read."""
    data = out / "data"
    if not data.exists():
        out.mkdir(parents=True, exist_ok=True)
        with progress_bar("Writing the demo set") as progress:
            write_demo_set(data, num_workers=num_workers, progress=progress)
    catalog = open_catalog(data, subset="train")
    num_test = len(open_catalog(data, subset="test"))
    print(f"The demo set in {data} has the layout {catalog.layout}:")
    print(
        f"{len(catalog)} videos to train on, {num_test} to test on; only motion tells their classes apart.\n"
    )
    with progress_bar("Scanning") as progress:
        report = scan(open_catalog(data), num_workers=num_workers, progress=progress)
    show_scan(report, report.write(out / "scan"))
    picture = out / "clips.jpg"
    classes = write_contact_sheet(picture, catalog)
    print(f"\n{picture} shows the first half second of one video of each class, a row each:")
    print(", ".join(classes) + ".")


def write_contact_sheet(path: Path, catalog: Catalog) -> tuple[str, ...]:
    """One row of frames for the first video of each class; return the classes in the order of the rows."""
    from provico.data.clips import ClipSpec
    from provico.data.loader import ClipLoader, ClipSettings

    first = {video.label: number for number, video in reversed(list(enumerate(catalog)))}
    chosen = catalog.subset([first[name] for name in catalog.classes])
    settings = ClipSettings(num_clips=1, spec=ClipSpec(_FRAMES_SHOWN, 2), short_side=96, crop_size=96)
    (batch,) = ClipLoader(chosen, settings, batch_size=len(chosen), shuffle=False, max_broken_share=0.0)
    videos, _, frames, height, width, _ = batch.pixels.shape
    sheet = batch.pixels[:, 0].permute(0, 2, 1, 3, 4).reshape(videos * height, frames * width, 3)
    path.write_bytes(simplejpeg.encode_jpeg(np.ascontiguousarray(sheet.numpy()), quality=90))
    return catalog.classes
