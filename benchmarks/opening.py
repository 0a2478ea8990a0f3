"""How long `provico open` takes: to the page, the first picture, the first answer, the end, and again.

    python benchmarks/opening.py [--videos 200]
    python benchmarks/opening.py --drawn --videos 10000

Links to videos of UCF101-5, HMDB51-12 and the unlabelled set (under `PROVICO_DATA`), taken in turn, again
under other names where there are too few, are opened as a user would, with nothing remembered of them.
Times are CPU seconds of the server, of its worker and of their children, so that it matters less what
else the machine does; seconds by the clock are told beside, and how large the server was. The first
answer is the first view with groups of videos and the pictures of one; any answer is one that was not
kept. With --drawn, the videos are drawn, small and of a second, and a tiny random network looks at them:
what is left is what reading, bookkeeping and the page take.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Any

import numpy as np
import torch

from provico.data.frames.encode import write_video
from provico.models import Encoder, EncoderConfig, InputSpec

RESULTS = Path(__file__).parent / "results" / "opening.json"
TICKS = os.sysconf("SC_CLK_TCK")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--videos", type=int, default=200)
    parser.add_argument("--drawn", action="store_true")
    parser.add_argument("--give-up", type=float, default=7200.0, help="seconds")
    options = parser.parse_args()
    data = Path(os.environ.get("PROVICO_DATA", "../shared/data"))
    with tempfile.TemporaryDirectory() as scratch:
        folder, home = Path(scratch) / "videos", Path(scratch) / "home"
        more: list[str] = []
        if options.drawn:
            more = ["--checkpoint", str(draw_videos(folder, options.videos, Path(scratch) / "encoder"))]
        else:
            link_videos(data, folder, options.videos)
        environment = {**os.environ, "PROVICO_HOME": str(home)}
        first = opened(folder, environment, more, until="the end", give_up=options.give_up)
        again = opened(folder, environment, more, until="any answer", give_up=options.give_up)
    found = {"first start": first, "second start": again}
    known = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    known[f"{options.videos} {'drawn ' * options.drawn}videos"] = found | {
        "load": round(os.getloadavg()[0], 1),
        "cores": os.cpu_count(),
    }
    RESULTS.write_text(json.dumps(known, indent=1) + "\n")
    print(json.dumps(found, indent=1))


def link_videos(data: Path, folder: Path, num: int) -> None:
    sets = [sorted((data / name).rglob("*")) for name in ("ucf101-5", "hmdb51-12", "unlabeled")]
    files = [[path for path in one if path.suffix in (".avi", ".mp4")] for one in sets]
    folder.mkdir()
    for number in range(num):
        some = files[number % len(files)]
        place, lap = (number // len(files)) * 7 % len(some), number // len(files) // len(some)
        source = some[place]
        (folder / f"{number:05d}-{lap}{source.suffix}").symlink_to(source.resolve())


def draw_videos(folder: Path, num: int, encoder: Path) -> Path:
    """Seven kinds of ground, on which something moves; the folder of an encoder for them."""
    y, x = np.mgrid[0:48, 0:64].astype(np.float32)
    for number in range(num):
        kind, rng = number % 7, np.random.default_rng(number)
        colour = np.random.default_rng(10**6 + kind).uniform(40, 200, 3)
        waves = np.sin((x * np.cos(kind) + y * np.sin(kind)) / (3 + kind) + rng.uniform(0, 6))
        frames = np.repeat((colour + 30 * waves[..., None])[None], 20, axis=0)
        start, speed, thing = rng.uniform(5, 30, 2), rng.uniform(-2, 2, 2), rng.uniform(0, 255, 3)
        for step, frame in enumerate(frames):
            across, down = start + speed * step
            frame[(x - across) ** 2 + (y - down) ** 2 < 50] = thing
        path = folder / f"kind {kind}" / f"{number:05}.mp4"
        path.parent.mkdir(parents=True, exist_ok=True)
        write_video(path, np.clip(frames, 0, 255).astype(np.uint8), fps=20)
    torch.manual_seed(0)
    spec = InputSpec(size=32, num_frames=4, frame_step=4)
    Encoder(EncoderConfig.for_backbone("tiny", dim=32, input=spec)).eval().save_pretrained(encoder)
    return encoder


def opened(
    folder: Path, environment: dict[str, str], more: list[str], *, until: str, give_up: float
) -> dict[str, dict[str, float]]:
    """CPU seconds and seconds by the clock to each event."""
    began = time.monotonic()
    command = [sys.executable, "-m", "provico", "open", str(folder), "--no-browser", "--port", "0", *more]
    process = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)
    events: dict[str, dict[str, float]] = {}

    def note(event: str) -> None:
        if event not in events:
            spent = {"cpu": cpu_seconds(process.pid), "clock": time.monotonic() - began}
            spent["server MB"] = megabytes(process.pid)
            events[event] = {name: round(value, 2) for name, value in spent.items()}

    assert process.stderr is not None
    said = re.search(r"http://\S+", process.stderr.readline())
    assert said is not None
    with urllib.request.urlopen(said.group(), timeout=600) as page:
        page.read()
    note("the page")
    while until not in events and time.monotonic() - began < give_up:
        work = ask(f"{said.group()}/api/work")
        if not work["is_empty"]:
            note("the first picture")
            if clusters := ask(f"{said.group()}/api/overview")["clusters"]:
                for card in clusters[0]["cards"]:
                    urllib.request.urlopen(said.group() + card["thumbnail"]).close()
                note("the first answer")
        if work["version"] != "kept":  # what was kept is answered before PyTorch is there
            note("any answer")
        stages = {stage["name"]: stage["state"] for stage in work["stages"]}
        for name, event in (("read", "all read"), ("duplicates", "duplicates known")):
            if stages.get(name) == "done":
                note(event)
        if not work["is_working"]:
            assert work["problem"] is None, work["problem"]
            note("the end")
        time.sleep(1.0)
    process.send_signal(signal.SIGINT)
    process.wait()
    return events


def ask(address: str) -> dict[str, Any]:
    with urllib.request.urlopen(address, timeout=600) as answer:
        found: dict[str, Any] = json.load(answer)
    return found


def megabytes(pid: int) -> float:
    """What a process has in memory."""
    found = re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())
    return 0.0 if found is None else int(found[1]) / 1024


def cpu_seconds(root: int) -> float:
    """Of a process, its living descendants, and those that these have waited for."""
    children: dict[int, list[int]] = {}
    spent: dict[int, float] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        pid = int(path.parent.name)
        children.setdefault(int(fields[1]), []).append(pid)
        spent[pid] = sum(map(int, fields[11:15])) / TICKS
    total, waiting = 0.0, [root]
    while waiting:
        pid = waiting.pop()
        total += spent.get(pid, 0.0)
        waiting += children.get(pid, [])
    return total


if __name__ == "__main__":
    main()
