"""How fast are clips loaded? Ours from the source and from each cache, against other decoders.

    python -m pip install -e '.[bench]'      # torchcodec also needs a system FFmpeg
    python benchmarks/loading.py

The task is that of training: from each video two random clips of 16 frames, short side resized to 128 pixels,
each clip cropped to 112 x 112 at a place of its own, as uint8. Sources are 24 generated videos a kind (320 x
240, 25 frames a second, 6 to 8 seconds, textures that move, with noise) and, where they are found, original
files of UCF101 (see PROVICO_DATA). Files are in the page cache, and have been indexed or prepared. Pixels
go into an array that is there already, as when a batch is filled.

Every contender lives in processes of its own and they take turns, one pass over the videos of a kind at a
time, so that whatever else the machine does hurts all alike. Given are medians over the passes, with the
smallest and largest: clips per CPU-second of one process, clips per second of wall time for one process and
for two at once (without handing the pixels to a parent), resident memory, and how close the pixels are to our
decode of the source: low numbers mean other frames than asked for.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import multiprocessing
import os
import platform
import time
from collections.abc import Callable, Iterator
from fractions import Fraction
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median
from types import SimpleNamespace
from typing import Any

import numpy as np

import loading_contenders as contenders
from loading_contenders import CROP_SIZE, NUM_FRAMES, RESIZED, SHORT_SIDE, SOURCE_SIZE, Pixels
from provico.data.frames.encode import write_video
from provico.data.frames.prepared import prepare
from provico.data.frames.stores import STORES
from provico.data.library import Library

BASELINE = "plain PyAV"
REFERENCE = "ours, source"
CLIPS_PER_VIDEO = 2


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--videos", type=int, default=24, help="generated videos per kind")
    parser.add_argument("--work", type=Path, default=Path("benchmarks/scratch"), help="keeps videos, caches")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/loading.json"))
    options = parser.parse_args()

    sources = {**generated_sources(options.work, options.videos), **real_sources()}
    libraries = prepare_all(sources, options.work)
    racers = start_racers(libraries)
    try:
        results = race(racers, sources, libraries["source"], options.rounds)
    finally:
        for racer in racers.values():
            racer.stop()
    report = {"machine": machine_facts(), "rounds": options.rounds, **results}
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(report, indent=1) + "\n")
    print_tables(report)


# ----------------------------------------------------------------------------------------------------
# Videos


def generated_sources(work: Path, num_videos: int) -> dict[str, list[Path]]:
    """Every video in three encodings; the share of AVIs with B-frames, one in eight, is that of UCF101."""
    sources: dict[str, list[Path]] = {"H.264 GOP 250": [], "H.264 GOP 16": [], "MPEG-4 AVI": []}
    for number in range(num_videos):
        seconds = 6 + 2 * number / max(1, num_videos - 1)
        encodings: dict[str, tuple[str, dict[str, Any]]] = {
            "H.264 GOP 250": (".mp4", {"gop_size": 250, "max_b_frames": 3}),
            "H.264 GOP 16": (".mp4", {"gop_size": 16, "max_b_frames": 3}),
            "MPEG-4 AVI": (
                ".avi",
                {"codec": "mpeg4", "quality": 6, "gop_size": 75, "max_b_frames": 2 * (number % 8 == 7)},
            ),
        }
        for kind, (suffix, settings) in encodings.items():
            path = work / "videos" / kind.lower().replace(" ", "-") / f"{number:02d}{suffix}"
            if not path.exists():
                path.parent.mkdir(parents=True, exist_ok=True)
                write_video(path, moving_textures(number, round(25 * seconds)), fps=Fraction(25), **settings)
            sources[kind].append(path)
    return sources


def moving_textures(seed: int, num_frames: int) -> Iterator[Pixels]:
    """A camera that drifts over a textured ground, three textured things that move, and sensor noise."""
    rng = np.random.default_rng(seed)
    height, width = SOURCE_SIZE
    ground = _texture(rng, 2 * height, 2 * width)
    things = [
        (_texture(rng, size, size), rng.uniform(0, 1, 2), rng.uniform(0.02, 0.08, 2)) for size in (48, 72, 96)
    ]
    noise = rng.normal(0, 3, (8, height, width, 1)).astype(np.float32)
    for number in range(num_frames):
        angle = 2 * np.pi * number / 150
        top, left = int(height / 2 * (1 + np.sin(angle)) / 1.01), int(width / 2 * (1 + np.cos(angle)) / 1.01)
        frame = ground[top : top + height, left : left + width].copy()
        for thing, phase, speed in things:
            share = (1 + np.sin(2 * np.pi * (phase + speed * number / 2))) / 2
            y, x = (share * (np.array(SOURCE_SIZE) - len(thing))).astype(int)
            frame[y : y + len(thing), x : x + len(thing)] = thing
        frame += noise[rng.integers(8)]
        yield frame.clip(0, 255).astype(np.uint8)


def _texture(rng: np.random.Generator, height: int, width: int) -> np.ndarray[Any, np.dtype[np.float32]]:
    """Colour noise that falls with frequency; so fast that a frame is as hard to code as one of UCF101."""
    frequencies = np.hypot(np.fft.fftfreq(height)[:, None], np.fft.rfftfreq(width)[None])
    falloff = 1 / np.maximum(frequencies, 1 / max(height, width)) ** 1.6
    spectrum = np.fft.rfft2(rng.normal(size=(3, height, width))) * falloff
    planes = np.fft.irfft2(spectrum, s=(height, width))
    planes = planes / planes.std(axis=(1, 2), keepdims=True) * 45 + rng.uniform(90, 160, (3, 1, 1))
    texture: np.ndarray[Any, np.dtype[np.float32]] = np.moveaxis((planes + planes.mean(0)) / 2, 0, -1)
    return texture.astype(np.float32)


def real_sources() -> dict[str, list[Path]]:
    here = os.environ.get("PROVICO_DATA")
    folder = (Path(here) if here else Path(__file__).parents[2] / "shared" / "data") / "originals"
    paths = sorted(folder.glob("*.avi"))
    if not paths:
        print(f"No original UCF101 files at {folder}; set PROVICO_DATA to the folder above to include them.")
    return {"UCF101 AVI": paths} if paths else {}


def prepare_all(sources: dict[str, list[Path]], work: Path) -> dict[str, Path]:
    """One library with nothing prepared, and one for each store."""
    videos = [SimpleNamespace(path=path) for paths in sources.values() for path in paths]
    folders = {name: work / "libraries" / name for name in ("source", *STORES)}
    for name, folder in folders.items():
        library = Library(folder)
        for video in videos:
            library.index(video.path)
        if name in STORES:
            done = prepare(videos, library=library, store=name, short_side=SHORT_SIDE)
            if done.failed:
                raise SystemExit(f"Could not prepare {done.failed}.")
    return folders


# ----------------------------------------------------------------------------------------------------
# The race


class Racer:
    """A contender in two processes of its own, which wait for work."""

    def __init__(self, make: Callable[..., contenders.Load], *arguments: Any) -> None:
        context = multiprocessing.get_context("spawn")
        self._lines: list[Connection] = []
        self._processes = []
        for _ in range(2):
            line, far_end = context.Pipe()
            process = context.Process(target=_serve, args=(far_end, make, arguments), daemon=True)
            process.start()
            self._lines.append(line)
            self._processes.append(process)
        self.failure = next((reply for line in self._lines if (reply := line.recv()) is not None), None)

    def run(self, tasks: list[Task], *, num_processes: int = 1) -> dict[str, float]:
        """Load all tasks, shared out among the processes."""
        start = time.perf_counter()
        for place in range(num_processes):
            self._lines[place].send(("run", tasks[place::num_processes]))
        replies: list[dict[str, float]] = [self._lines[place].recv() for place in range(num_processes)]
        wall_seconds = time.perf_counter() - start
        return {
            "cpu_seconds": sum(reply["cpu_seconds"] for reply in replies),
            "wall_seconds": wall_seconds,
            "rss_mb": max(reply["rss_mb"] for reply in replies),
            "peak_mb": max(reply["peak_mb"] for reply in replies),
        }

    def load(self, task: Task) -> Pixels:
        """The pixels of one task."""
        self._lines[0].send(("load", task))
        pixels: Pixels = self._lines[0].recv()
        return pixels

    def stop(self) -> None:
        """End the processes."""
        for process in self._processes:
            process.kill()
            process.join()


Task = tuple[Path, list[int], list[tuple[int, int]]]


def _serve(line: Connection, make: Callable[..., contenders.Load], arguments: tuple[Any, ...]) -> None:
    try:
        load = make(*arguments)
    except Exception as error:
        line.send(f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}")
        return
    line.send(None)
    pixels = np.zeros((CLIPS_PER_VIDEO, NUM_FRAMES, CROP_SIZE, CROP_SIZE, 3), np.uint8)
    while True:
        verb, work = line.recv()
        if verb == "load":
            path, starts, corners = work
            load(path, starts, corners, pixels)
            line.send(pixels)
            continue
        start = time.process_time()
        for path, starts, corners in work:
            load(path, starts, corners, pixels)
        line.send(
            {
                "cpu_seconds": time.process_time() - start,
                "rss_mb": _memory_mb("VmRSS"),
                "peak_mb": _memory_mb("VmHWM"),
            }
        )


def _memory_mb(field: str) -> float:
    """VmRSS, what is resident now, or VmHWM, the most there was."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 / 1e6 for line in lines if line.startswith(field))


def start_racers(libraries: dict[str, Path]) -> dict[str, Racer]:
    os.environ["OMP_NUM_THREADS"] = "1"
    racers = {f"ours, {name}": Racer(contenders.ours, folder) for name, folder in libraries.items()}
    racers |= {name: Racer(make) for name, make in contenders.OTHERS.items()}
    for name, racer in racers.items():
        if racer.failure:
            print(f"{name} is left out ({racer.failure}).")
    return {name: racer for name, racer in racers.items() if not racer.failure}


def race(
    racers: dict[str, Racer], sources: dict[str, list[Path]], library_folder: Path, num_rounds: int
) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    library = Library(library_folder)
    passes: dict[str, dict[str, list[dict[str, float]]]] = {
        kind: {name: [] for name in racers} for kind in sources
    }
    agreement = {kind: _agreement(racers, _draw(paths, library, rng)) for kind, paths in sources.items()}
    names = list(racers)
    for number in range(-1, num_rounds):  # the round before the first one warms up
        for kind, paths in sources.items():
            tasks = _draw(paths, library, rng)
            num_clips = CLIPS_PER_VIDEO * len(tasks)
            turn = number % len(names)
            for name in names[turn:] + names[:turn]:
                one = racers[name].run(tasks)
                two = racers[name].run(tasks, num_processes=2)
                if number >= 0:
                    passes[kind][name].append(
                        {
                            "clips_per_cpu_second": num_clips / one["cpu_seconds"],
                            "clips_per_second": num_clips / one["wall_seconds"],
                            "clips_per_second_two_processes": num_clips / two["wall_seconds"],
                            "rss_mb": one["rss_mb"],
                            "peak_mb": one["peak_mb"],
                        }
                    )
    speeds = {
        kind: {
            name: {
                **{
                    quantity: _summary([measured[quantity] for measured in rows[name]])
                    for quantity in rows[name][0]
                    if quantity.startswith("clips")
                },
                "times_plain_pyav": _summary(
                    [
                        ours["clips_per_cpu_second"] / plain["clips_per_cpu_second"]
                        for ours, plain in zip(rows[name], rows[BASELINE], strict=True)
                    ]
                ),
                "agreement_db": agreement[kind][name],
            }
            for name in names
        }
        for kind, rows in passes.items()
    }
    first, last = next(iter(passes.values())), list(passes.values())[-1]
    memory = {
        name: {
            "rss_mb_first_round": round(first[name][0]["rss_mb"], 1),
            "rss_mb_last_round": round(last[name][-1]["rss_mb"], 1),
            "peak_mb": round(last[name][-1]["peak_mb"], 1),
        }
        for name in names
    }
    megabytes = {
        kind: round(sum(path.stat().st_size for path in paths) / 1e6, 2) for kind, paths in sources.items()
    }
    return {"speed": speeds, "memory": memory, "source_megabytes": megabytes}


def _draw(paths: list[Path], library: Library, rng: np.random.Generator) -> list[Task]:
    """Two clips for each video, every place in time and in the picture equally likely."""
    room = np.array(RESIZED) - CROP_SIZE + 1
    tasks: list[Task] = []
    for path in paths:
        starts = rng.integers(library.index(path).num_frames - NUM_FRAMES + 1, size=CLIPS_PER_VIDEO).tolist()
        corners = [(int(top), int(left)) for top, left in rng.integers(room, size=(CLIPS_PER_VIDEO, 2))]
        tasks.append((path, starts, corners))
    return tasks


def _agreement(racers: dict[str, Racer], tasks: list[Task]) -> dict[str, dict[str, float]]:
    """Peak signal-to-noise ratio against our decode of the source: median and worst over some clips."""
    ratios: dict[str, list[float]] = {name: [] for name in racers}
    for task in tasks[:: max(1, len(tasks) // 8)]:
        expected = racers[REFERENCE].load(task).astype(np.float64)
        for name, racer in racers.items():
            for clip, other in zip(expected, racer.load(task), strict=True):
                error = np.square(clip - other).mean()
                ratios[name].append(float(10 * np.log10(255**2 / max(error, 1e-2))))
    return {
        name: {"median": round(median(found), 1), "worst": round(min(found), 1)}
        for name, found in ratios.items()
    }


def _summary(values: list[float]) -> dict[str, float]:
    return {"median": round(median(values), 2), "min": round(min(values), 2), "max": round(max(values), 2)}


# ----------------------------------------------------------------------------------------------------
# The report


def machine_facts() -> dict[str, Any]:
    packages = ("av", "simplejpeg", "numpy", "decord2", "opencv-python-headless", "torchcodec", "torch")
    versions = {}
    for package in packages:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    models = [
        line.partition(":")[2].strip()
        for line in Path("/proc/cpuinfo").read_text().splitlines()
        if line.startswith("model name")
    ]
    return {
        "cpu": models[0] if models else platform.machine(),
        "cores": os.cpu_count(),
        "system": platform.system(),
        "python": platform.python_version(),
        "versions": versions,
    }


def print_tables(report: dict[str, Any]) -> None:
    for kind, rows in report["speed"].items():
        print(f"\n{kind} ({report['source_megabytes'][kind]} MB)")
        print(
            f"{'':14}{'clips / CPU-second':>26}{'x plain':>9}{'1 process':>12}{'2 processes':>13}"
            f"{'PSNR dB (worst)':>18}"
        )
        for name, row in rows.items():
            cpu, agreement = row["clips_per_cpu_second"], row["agreement_db"]
            spread = f"{cpu['median']:.0f} [{cpu['min']:.0f}-{cpu['max']:.0f}]"
            print(
                f"{name:14}{spread:>26}{row['times_plain_pyav']['median']:>9.2f}"
                f"{row['clips_per_second']['median']:>12.0f}"
                f"{row['clips_per_second_two_processes']['median']:>13.0f}"
                f"{agreement['median']:>11.1f} ({agreement['worst']:.1f})"
            )
    print(f"\n{'memory, MB':14}{'first round':>14}{'last round':>14}{'peak':>10}")
    for name, row in report["memory"].items():
        print(f"{name:14}{row['rss_mb_first_round']:>14}{row['rss_mb_last_round']:>14}{row['peak_mb']:>10}")


if __name__ == "__main__":
    main()
