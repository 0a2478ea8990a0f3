"""Repeat the attack at length, and say what was tried and survived, by area.

    python tests/abuse/attack.py [HOW_MANY] [values] [bytes] [files] [server]

Survived is what ended in a result or in a sentence of ours: no traceback, no answer of the server that is a
5xx but 503, no server that is gone. HOW_MANY (200) damages are tried of each file; all areas, unless some are
named. Nothing but a temporary folder and 127.0.0.1 is touched.
"""

from __future__ import annotations

import json
import os
import random
import re
import resource
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import numpy as np
import torch
from damage import ODD_VALUES, changed, damaged_bytes, places, without
from swollen import (
    write_flat,
    write_growing,
    write_line,
    write_many_references,
    write_many_streams,
    write_slow,
)
from whole_files import BINARY_FILES, JSON_FILES, write_whole_files

from provico.data.frames.encode import write_video
from provico.errors import ProvicoError
from provico.models import Encoder, EncoderConfig, InputSpec
from provico.search.index import Index

GUARD = {"X-ProViCo": "1"}
PRETRAIN = ("--recipe", "tiny", "--max-steps", 1, "--batch-size", 2, "--max-broken-share", 0.9)
FLAT = {"preset": "ultrafast", "crf": "51"}
AREAS = ("values", "bytes", "files", "server")
KINDS = ("cut", "overwritten", "inserted", "replaced")


class Tally:
    """Counts by area."""

    def __init__(self) -> None:
        self.tried: dict[str, int] = {}
        self.survived: dict[str, int] = {}

    def add(self, area: str, use: Callable[[], object], what: object) -> None:
        """Try something; errors of ours count as survived."""
        self.tried[area] = self.tried.get(area, 0) + 1
        try:
            with suppress(ProvicoError):
                use()
        except Exception as error:
            print(f"NOT SURVIVED {area}: {what!r:.200}: {error!r:.200}", file=sys.stderr)
        else:
            self.survived[area] = self.survived.get(area, 0) + 1


def make(folder: Path) -> Path:
    """All kinds of files."""
    rng = np.random.default_rng(0)
    for number in range(24):
        path = folder / "videos" / f"class{number % 3}" / f"{number}.mp4"
        path.parent.mkdir(parents=True, exist_ok=True)
        write_video(path, rng.integers(0, 255, (8, 32, 40, 3), np.uint8))
    torch.manual_seed(0)
    spec = InputSpec(size=32, num_frames=4, frame_step=1)
    Encoder(EncoderConfig.for_backbone("tiny", dim=8, input=spec)).eval().save_pretrained(folder / "encoder")
    write_whole_files(folder / "files", folder / "videos", folder / "encoder")
    return folder / "files"


def attack_settings(files: Path, scratch: Path, tally: Tally) -> None:
    """Every value of every settings file, by every odd value."""
    for name, (folder_name, use) in JSON_FILES.items():
        folder = shutil.copytree(files / folder_name, scratch / name)
        whole = json.loads((folder / name).read_text())
        for place in places(whole):
            for spoilt in (without(whole, place), *(changed(whole, place, other) for other in ODD_VALUES)):
                (folder / name).write_text(json.dumps(spoilt))
                tally.add(f"values of {name}", lambda use=use, folder=folder: use(folder), place)


def attack_bytes(files: Path, scratch: Path, tally: Tally, how_many: int) -> None:
    """Damaged bytes of every file."""
    chance = random.Random(0)
    for name, use in BINARY_FILES.items():
        whole = (files / name).read_bytes()
        root = scratch / name.replace("/", "-")
        shutil.copytree(files, root)
        for _ in range(how_many):
            other = chance.randbytes(chance.randint(1, 40))
            path = root / name
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(damaged_bytes(whole, chance.choice(KINDS), chance.random(), other))
            tally.add(f"bytes of {name}", lambda use=use, path=path: use(path), other)


def swollen_files(folder: Path) -> Iterator[Path]:
    """Small files that would take gigabytes to decode, or hours."""
    folder.mkdir()
    for name, write in {
        "many-references.mp4": lambda path: write_many_references(path, 8192, 8192),
        "one-reference.mp4": lambda path: write_flat(path, 8192, 8192, 20, options={"refs": "1"} | FLAT),
        "large.gif": lambda path: write_flat(path, 16000, 8000, 50, codec="gif", pixel_format="rgb8"),
        "many-streams.mp4": lambda path: write_many_streams(path, 20_000),
        "line.gif": write_line,
        "growing.ts": lambda path: write_growing(path, 8192, 8192),
        "years.mkv": lambda path: write_slow(path, 10**9, 200),
    }.items():
        write(folder / name)
        yield folder / name


def attack_decoder(files: Path, scratch: Path, tally: Tally) -> None:
    """Files that swell are read or refused, in bounded memory, and what lies beside them is read."""
    for path in swollen_files(scratch / "swollen"):
        (beside := scratch / path.stem).mkdir()
        for video in (path, files / "video.mp4"):
            shutil.copy(video, beside)

        def read(folder: Path = beside) -> None:
            index = scratch / f"{folder.name}-index"
            embeddings, run = scratch / f"{folder.name}.parquet", scratch / f"{folder.name}-run"
            encoder, os.environ["PROVICO_HOME"] = files / "encoder", str(scratch / f"{folder.name}-home")
            for verb in (
                ["index", folder, "--checkpoint", encoder, "--out", index, "--num-clips", 1],
                ["embed", folder, "--checkpoint", encoder, "--out", embeddings, "--num-clips", 1],
                ["pretrain", folder, "--out", run, *PRETRAIN],
                ["scan", folder, "--out", scratch / f"{folder.name}-scan"],
            ):
                command = [sys.executable, "-m", "provico", *map(str, verb)]
                done = subprocess.run(command, capture_output=True, text=True, check=False)
                if done.returncode not in (0, 2) or "Traceback" in done.stderr:
                    raise AssertionError(done.stderr[-400:])
            if "video.mp4" not in Index.open(index):
                raise AssertionError("the healthy file was not read")

        tally.add("swollen files", read, path.name)
        most = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss // 1024
        print(f"{path.name}: {path.stat().st_size:,} bytes; the largest process so far took {most:,} MB")


@contextmanager
def serving(index: Path) -> Iterator[str]:
    """A real server."""
    command = [sys.executable, "-m", "provico", "serve", index, "--port", "0"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        found = re.search(r"http://\S+", process.stderr.readline())
        assert found
        yield found.group()
        assert process.poll() is None, "the server is gone"
    finally:
        process.terminate()
        process.wait()


def answered(answer: httpx.Response) -> None:
    """Anything but a failure of the server."""
    if answer.status_code >= 500 and answer.status_code != 503:
        raise AssertionError(f"{answer.status_code}: {answer.text[:200]}")


def attack_server(files: Path, swollen: Path, tally: Tally, how_many: int) -> None:
    """Odd requests, odd uploads, half-sent headers."""
    chance = random.Random(1)
    video = (files / "video.mp4").read_bytes()
    with serving(files / "index") as url, httpx.Client(base_url=url, timeout=600) as client:
        paths = [
            "/api/search",
            "/api/video",
            "/api/curation",
            "/media/frame",
            "/media/source",
            "/reports/a/b",
        ]
        for _ in range(how_many):
            path = chance.choice(paths)
            keys = chance.sample(["id", "k", "start", "end", "limit", "seconds"], 3)
            odd = ("../../etc/passwd", "\0", "-1", "nan", "9" * 40, "é" * 300)
            values = {key: chance.choice(odd) for key in keys}
            origin = chance.choice(["http://[", "null", "http://127.0.0.1", "//"])
            tally.add("requests", lambda p=path, v=values: answered(client.get(p, params=v)), (path, values))
            headers = GUARD | {"Origin": origin}
            tally.add(
                "requests", lambda p=path, h=headers: answered(client.post(p, headers=h)), (path, origin)
            )
        for _ in range(max(1, how_many // 10)):
            content = damaged_bytes(video, chance.choice(KINDS), chance.random(), chance.randbytes(20))
            sent = {"file": (chance.choice(["library.sqlite", "a-wal", "ü" * 300, "../x"]), content)}
            tally.add(
                "uploads", lambda s=sent: answered(client.post("/api/search", files=s, headers=GUARD)), sent
            )
        for path in sorted(swollen.iterdir()):
            sent = {"file": (path.name, path.read_bytes())}
            tally.add(
                "swollen uploads",
                lambda s=sent: answered(client.post("/api/search", files=s, headers=GUARD)),
                path.name,
            )
        host, port = urlsplit(url).hostname, urlsplit(url).port
        wires = []
        for _ in range(300):
            wires.append(socket.create_connection((host, port)))
            with suppress(OSError):
                wires[-1].sendall(b"GET / HTTP/1.1\r\nHost: ")
        for _ in range(10):
            tally.add(
                "half-sent headers", lambda: answered(httpx.get(f"{url}/api/stats", timeout=600)), "stats"
            )
        for wire in wires:
            wire.close()


def main() -> None:
    """Attack, then print the table."""
    numbers = [int(word) for word in sys.argv[1:] if word.isdigit()]
    how_many, areas = numbers[0] if numbers else 200, {*sys.argv[1:]} & {*AREAS} or {*AREAS}
    torch.set_num_threads(1)
    tally = Tally()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.environ["PROVICO_HOME"] = str(folder / "home")
        files = make(folder)
        (folder / "scratch").mkdir()
        if "values" in areas:
            attack_settings(files, folder / "scratch", tally)
        if "bytes" in areas:
            attack_bytes(files, folder / "scratch", tally, how_many)
        if "files" in areas:
            attack_decoder(files, folder / "scratch", tally)
        if "server" in areas:
            swollen = folder / "scratch" / "swollen"
            if not swollen.exists():
                for path in swollen_files(swollen):
                    print(f"{path.name}: {path.stat().st_size:,} bytes")
            attack_server(files, swollen, tally, how_many)
    print(f"{'area':<40}{'tried':>8}{'survived':>10}")
    for area, tried in tally.tried.items():
        print(f"{area:<40}{tried:>8}{tally.survived.get(area, 0):>10}")
    sys.exit(tally.tried != tally.survived)


if __name__ == "__main__":
    main()
