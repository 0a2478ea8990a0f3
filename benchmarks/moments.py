"""Is an excerpt of a long video found, where, how fast, and what does that cost?

    python benchmarks/moments.py ../shared/data --scratch /tmp/moments

The collection is 100 short videos of 100 recordings and ten long ones of about ten minutes each, joined from
clips of other recordings of UCF101, HMDB51 and Weizmann (27 classes); no recording is in two of them. In the
collection of 1,000 short videos the others are what is left of these sets, and videos without labels. The
encoder is `--backbone efficientnet_motion` without pretraining, as `provico index` makes it. Excerpts of 2, 4
and 8 seconds are drawn at random from the long videos and asked for

    unchanged     as a span of the file
    re-encoded    H.264 with a rate factor of 33 and three quarters of the size
    cropped       the middle 80 % of width and height
    mirrored      left to right
    picture       the frame in the middle, as PNG

Rank 1: the best hit is the video that the excerpt was cut from. Error: from the middle of the found moment to
the middle of the excerpt, of those found at rank 1. Times are CPU times of one thread, of queries that are
embedded already; the rows of the segments ranked as so many short videos take turns with them.
The clip a second, the pairs of clips and the two scenes of a query were chosen on other excerpts of such a
collection (seed 7). As many compared: the k best short videos, with k such that about as many mixtures are
compared in full as for the ten best videos with moments.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import statistics
import time
from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
import torch
from numpy.typing import NDArray

from provico import Filter, Index, open_catalog
from provico.data.frames.encode import write_video
from provico.data.frames.video import read_frames
from provico.data.library import Library
from provico.search.exact.top_k import exact_top_k
from provico.search.query import Asked, ask
from provico.training.start import untrained_encoder

WIDTH, HEIGHT, FPS = 176, 128, 25
NUM_SHORT, NUM_LONG, LONG_SECONDS = (100, 1000), 10, 600
SECONDS = (2, 4, 8)
Picture = NDArray[np.uint8]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("--scratch", type=Path, required=True, help="made videos and the index; 200 MB")
    parser.add_argument(
        "--num-short", type=int, nargs="+", default=NUM_SHORT, help="short videos, 1000 at most"
    )
    parser.add_argument("--num-excerpts", type=int, default=40, help="of each length")
    parser.add_argument("--seeds", type=int, nargs="+", default=(17, 23), help="draws of excerpts")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/moments.json"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    videos = options.scratch / "videos"
    if not videos.is_dir():
        shutil.rmtree(options.scratch / "partial", ignore_errors=True)
        make_collection(options.data, options.scratch / "partial", random.Random(0))
        (options.scratch / "partial").rename(videos)
    library = Library(options.scratch / "home")
    queries = [one for seed in options.seeds for one in excerpts(videos, seed, options, library)]
    for num_short in options.num_short:
        index, indexing = make_index(videos, num_short, options.scratch / f"index-{num_short}", library)
        encoder, videos_of = index.encoder, index.loaded
        asked = [
            (*facts, ask(query, videos_of, lambda encoder=encoder: encoder, library))
            for *facts, query in queries
        ]
        report = {
            "excerpts of each length": options.num_excerpts * len(options.seeds),
            "indexing": indexing,
            "found": found(index, asked),
            "search": search_times(index, asked),
        }
        print(json.dumps(report, indent=1), flush=True)
        known = json.loads(options.out.read_text()) if options.out.exists() else {}
        known[f"{num_short} short videos"] = report
        options.out.write_text(json.dumps(known, indent=1) + "\n")


# --- the collection ----------------------------------------------------------------------------------------


def make_collection(data: Path, out: Path, rng: random.Random) -> None:
    recordings: dict[str, list[Path]] = {}
    for name in ("ucf101-5", "hmdb51-12", "weizmann"):
        for video in open_catalog(data / name):
            recordings.setdefault(f"{name} {video.group or video.id}", []).append(video.path)
    names = sorted(recordings)
    rng.shuffle(names)
    few, most = NUM_SHORT
    for number, name in enumerate(names[:few]):
        path = rng.choice(sorted(recordings[name]))
        encode(out / "short" / f"{number:03}.mp4", frames(path))
    rest = iter([sorted(recordings[name]) for name in names[few:]])
    for number in range(NUM_LONG):
        encode(out / "long" / f"{number}.mp4", joined(rest))
    others = [path for paths in rest for path in paths]
    unlabelled = sorted((data / "unlabeled").rglob("*.*"))
    rng.shuffle(unlabelled)
    for number, path in enumerate((others + unlabelled)[: most - few], start=few):
        encode(out / "more" / f"{number:03}.mp4", frames(path))


def joined(recordings: Iterator[list[Path]]) -> Iterator[Picture]:
    """Whole recordings until they are long enough."""
    num_frames = 0
    while num_frames < LONG_SECONDS * FPS:
        for path in next(recordings):
            for picture in frames(path):
                num_frames += 1
                yield picture


def frames(path: Path) -> Iterator[Picture]:
    """Scaled to fill the common size, and cut to it."""
    with av.open(str(path), metadata_errors="ignore") as container:
        for frame in container.decode(video=0):
            scale = max(WIDTH / frame.width, HEIGHT / frame.height)
            width = max(WIDTH, round(frame.width * scale))
            height = max(HEIGHT, round(frame.height * scale))
            picture = frame.to_ndarray(format="rgb24", width=width, height=height)
            top, left = (height - HEIGHT) // 2, (width - WIDTH) // 2
            yield picture[top : top + HEIGHT, left : left + WIDTH]


def encode(path: Path, pictures: Iterator[Picture], quality: int = 20) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_video(path, pictures, fps=FPS, quality=quality, encoder_options={"preset": "veryfast"})


def make_index(videos: Path, num_short: int, folder: Path, library: Library) -> tuple[Index, dict[str, Any]]:
    everything = open_catalog(videos, layout="folder")
    ids = {video.id for video in everything if video.id.startswith("long")}
    ids |= set(sorted({video.id for video in everything} - ids, key=number_of)[:num_short])
    catalog = everything.subset(row for row, video in enumerate(everything) if video.id in ids)
    shutil.rmtree(folder, ignore_errors=True)
    encoder = untrained_encoder("efficientnet_motion", catalog, library=library)
    index = Index.create(folder, encoder)
    facts: dict[str, Any] = {}
    for name in ("short", "long"):
        before, began = folder_bytes(folder / "store"), time.process_time()
        ids = {video.id for video in catalog if video.id.startswith("long") == (name == "long")}
        some = catalog.subset(row for row, video in enumerate(catalog) if video.id in ids)
        index.add(some, library=library)
        loaded = index.loaded
        minutes = sum(
            float(seconds)
            for one, seconds in zip(loaded.ids, loaded.duration_seconds, strict=True)
            if one in ids
        )
        minutes /= 60
        facts[name] = {
            "videos": len(some),
            "minutes": round(minutes, 1),
            "kilobytes a minute": round((folder_bytes(folder / "store") - before) / minutes / 1000),
            "CPU seconds a minute, frame indexes known": round((time.process_time() - began) / minutes, 2),
        }
    facts["segments"] = len(index.loaded.segments)
    index.keep_chance()
    return index, facts


def number_of(name: str) -> int:
    return int(Path(name).stem)


def folder_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


# --- the excerpts ------------------------------------------------------------------------------------------


def smaller(picture: Picture) -> Picture:
    frame = av.VideoFrame.from_ndarray(np.ascontiguousarray(picture), format="rgb24")
    return frame.to_ndarray(format="rgb24", width=3 * WIDTH // 4, height=3 * HEIGHT // 4)


def cropped(picture: Picture) -> Picture:
    top, left = HEIGHT // 10, WIDTH // 10
    return picture[top : top + 102, left : left + 140]


EDITS: dict[str, tuple[Callable[[Picture], Picture], int]] = {
    "re-encoded": (smaller, 33),
    "cropped": (cropped, 20),
    "mirrored": (lambda picture: picture[:, ::-1], 20),
}


def write_picture(path: Path, pixels: Picture) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    encoder = av.VideoCodecContext.create("png", "w")
    encoder.height, encoder.width = pixels.shape[:2]
    encoder.pix_fmt, encoder.time_base = "rgb24", Fraction(1, FPS)
    frame = av.VideoFrame.from_ndarray(np.ascontiguousarray(pixels), format="rgb24")
    path.write_bytes(b"".join(bytes(packet) for packet in [*encoder.encode(frame), *encoder.encode(None)]))


Excerpt = tuple[str, int, str, float, Any]
"""Edit, seconds, video, start, and the query, as it is given or as it is asked."""


def excerpts(videos: Path, seed: int, options: argparse.Namespace, library: Library) -> list[Excerpt]:
    rng, found = random.Random(seed), []
    folder = options.scratch / f"excerpts-{seed}"
    for number in range(options.num_excerpts):
        for seconds in SECONDS:
            name = f"long/{rng.randrange(NUM_LONG)}.mp4"
            known = library.index(videos / name)
            first = rng.randrange(known.num_frames - FPS * seconds)
            start = first / FPS
            span = (videos / name, start, start + seconds)
            queries: dict[str, Any] = {"unchanged": span, "picture": folder / f"{number}-{seconds}.png"}
            queries |= {edit: folder / f"{number}-{seconds}-{edit}.mp4" for edit in EDITS}
            if not all(path.is_file() for edit, path in queries.items() if edit != "unchanged"):
                pictures = read_frames(videos / name, np.arange(first, first + FPS * seconds), index=known)
                write_picture(queries["picture"], pictures[len(pictures) // 2])
                for edit, (change, quality) in EDITS.items():
                    encode(queries[edit], map(change, pictures), quality)
            found += [(edit, seconds, name, start, query) for edit, query in queries.items()]
    return found


def found(index: Index, asked: list[Excerpt]) -> dict[str, Any]:
    queries = [one for *_, one in asked]
    report: dict[str, Any] = {}
    for metric in ("match", "cosine"):
        answers = index.search_many(queries, k=5, metric=metric, max_chance=None, exclude_same="nothing")
        cells: dict[str, dict[str, list[float]]] = {}
        for (edit, seconds, name, start, _), answer in zip(asked, answers, strict=True):
            hit = answer.hits[0]
            cell = cells.setdefault(f"{edit}, {seconds} s", {"rank 1": [], "error": [], "beyond chance": []})
            cell["rank 1"].append(float(hit.id == name))
            if hit.id == name:
                middle = (hit.moment.start_seconds + hit.moment.end_seconds) / 2
                cell["error"].append(abs(middle - start - seconds / 2))
                cell["beyond chance"].append(float((hit.expected_by_chance or 0.0) <= 1))
        report[metric] = {
            name: {
                "rank 1, %": round(100 * statistics.mean(cell["rank 1"]), 1),
                "median error, s": round(statistics.median(cell["error"]), 2),
                "of these beyond chance, %": round(100 * statistics.mean(cell["beyond chance"]), 1),
            }
            for name, cell in sorted(cells.items())
        }
        for label, edits in (
            ("unchanged, re-encoded and cropped", ("unchanged", "re-encoded", "cropped")),
            ("mirrored", ("mirrored",)),
            ("pictures", ("picture",)),
        ):
            some = [one for name, cell in cells.items() if name.startswith(edits) for one in cell["rank 1"]]
            report[metric][f"all {label}"] = {
                "excerpts": len(some),
                "rank 1, %": round(100 * statistics.mean(some), 1),
                "standard error": round(100 * statistics.pstdev(some) / len(some) ** 0.5, 1),
            }
    return report


def search_times(index: Index, asked: list[Excerpt], num_queries: int = 100) -> dict[str, Any]:
    """Milliseconds of CPU time a query, in turns."""
    loaded, settings = index.loaded, index.settings
    queries = [one for *_, one in asked][:: len(asked) // num_queries]
    gallery = loaded.segments.gallery

    def moments(one: Asked) -> None:
        index.search(one, max_chance=None, exclude_same="nothing")

    def ranked(one: Asked) -> int:
        (found,) = loaded.rank([one], metric="match", k=10, filter=Filter(), exclude_same="nothing")
        return found.certificate.num_scored

    def wholes(one: Asked) -> None:
        exact_top_k(one.samples(settings), loaded.gallery, curve=settings.curve, k=10)

    def as_short(one: Asked, k: int = 10) -> int:
        (found,) = exact_top_k(one.samples(settings), gallery, curve=settings.curve, k=k)
        return found.certificate.num_scored

    num_scored = statistics.median(map(ranked, queries))
    num_of_short = statistics.median(map(as_short, queries))
    most = 10 + round(num_scored - num_of_short)

    def as_many(one: Asked) -> int:
        return as_short(one, most)

    ways: dict[str, Callable[[Asked], object]] = {
        "whole answer, with moments": moments,
        "ranking, with moments": ranked,
        "ranking of the whole videos alone": wholes,
        "ranking of as many short videos as there are segments": as_short,
        "the same, as many compared": as_many,
        "ranking, with moments, queries of one scene": ranked,
        "ranking, with moments, queries of two scenes": ranked,
    }
    times: dict[str, list[float]] = {name: [] for name in ways}
    for one in queries:
        other = "one scene" if len(one.scenes(settings)) > 1 else "two scenes"
        for name, way in ways.items():
            if name.endswith(other):
                continue
            began = time.process_time()
            way(one)
            times[name].append(1000 * (time.process_time() - began))
    compared = {
        "with moments": num_scored,
        "as short videos": num_of_short,
        "as short videos, as many": statistics.median(map(as_many, queries)),
    }
    return {f"{name}, ms": round(statistics.median(some), 2) for name, some in times.items()} | {
        "compared in full": compared,
        "queries of two scenes, %": round(
            100 * statistics.mean(len(one.scenes(settings)) > 1 for one in queries)
        ),
    }


if __name__ == "__main__":
    main()
