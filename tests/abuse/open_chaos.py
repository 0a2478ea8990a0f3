"""A folder is opened, used, killed at random and opened again: nothing is lost, nothing is replaced.

    python tests/abuse/open_chaos.py [--rounds 50] [--seed 0] [--seconds 20] [--learn]

In a round the page is used (tags, trash, moves, clean copies, undo, decisions, judgements, pairs that are not
the same) while files arrive or are renamed by hand, and at a random moment any process of `provico open` is
killed. After it

- each video is there once, with its own bytes, among the videos or in the trash;
- what was answered as done holds, of each video by what it is called now;
- in the end the work is done, and the index is that of the same videos read in peace.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import re
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

sys.path.insert(0, str(Path(__file__).parents[2]))
from tests.abuse.chaos import kill_one
from tests.warm_processes import ForkServer, WarmProcess

from provico.curation.decisions import DecisionLog
from provico.data.catalog import open_catalog
from provico.duplicates.kept import KeptDuplicates
from provico.locations import current_index
from provico.models import Encoder
from provico.search.index import Index
from provico.search.judgements import JudgementLog
from provico.workspace.actions import MOVES

GUARD = {"X-ProViCo": "1"}
LEAST_LEFT = 6
"""Videos that are not put into the trash, so that there is something to do."""


def digest(path: Path) -> str:
    """A file by its bytes."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def files_in(folder: Path) -> Iterator[Path]:
    """All files, hidden folders left out."""
    for path in sorted(folder.rglob("*")):
        if path.is_file() and not any(part.startswith(".") for part in path.relative_to(folder).parts):
            yield path


@dataclass
class Owed:
    """What the page has answered as done."""

    contents: Counter[str]
    """All files that were ever put there."""
    lines: list[str] = field(default_factory=list)
    """Of the log of actions."""
    is_in_trash: dict[str, bool] = field(default_factory=dict)
    """Of contents, if it is known."""
    decisions: dict[str, str] = field(default_factory=dict)
    """Of contents, as are the next two: what was said of a video goes where it goes."""
    judgements: dict[tuple[str, str], str] = field(default_factory=dict)
    rejected: set[tuple[str, str]] = field(default_factory=set)


class OpenChaos:
    """A folder that is opened, used and killed."""

    def __init__(
        self,
        server: ForkServer,
        videos: Path,
        arriving: list[Path],
        home: Path,
        chance: random.Random,
        *words: object,
    ) -> None:
        self._server, self._home, self._chance, self._words = server, home, chance, words
        self.videos, self.folder = videos, videos / ".provico"
        self._arriving = arriving
        self.owed = Owed(Counter(map(digest, files_in(videos))))
        self._contents: dict[str, str] = {}
        self._names: dict[str, set[str]] = {}
        """All that each content was ever called: what was said of it may be known by any of these yet."""
        self.counts: Counter[str] = Counter()
        self._process: WarmProcess | None = None
        self._client: httpx.Client | None = None

    # --- a round --------------------------------------------------------------------------------------------

    def round(self, seconds: float) -> None:
        """Open it, use it, and kill something of it within so many seconds."""
        self.open()
        process = self._process
        assert process is not None
        timer = threading.Timer(self._chance.uniform(0, seconds), kill_one, (process.pid, self._chance))
        timer.start()
        while timer.is_alive() and process.poll() is None:
            self.use()
        timer.join()
        self.use()  # by a page that is gone, or whose worker is
        self.counts["server killed" if process.poll() is not None else "other process killed"] += 1
        if process.poll() is None:
            process.send_signal(signal.SIGKILL if self._chance.random() < 0.5 else signal.SIGINT)
        process.wait()
        self._close()
        assert "Traceback" not in process.stderr, process.stderr
        self.check_files()

    def finish(self, *, seconds: float = 600) -> Index:
        """Open it once more, in peace; the index when all is done."""
        process = self.open()
        end = time.monotonic() + seconds
        while True:
            status = self._get("/api/work")
            if not status["is_working"] and self._is_whole():
                break
            assert time.monotonic() < end, status
            time.sleep(0.2)
        assert status["problem"] is None, status
        self._look(only_now=True)
        self.check_kept()
        process.send_signal(signal.SIGINT)
        assert process.wait() in (0, 130), process.stderr
        self._close()
        assert "Traceback" not in process.stderr, process.stderr
        self.check_files()
        return Index.open(self.videos)

    def open(self) -> WarmProcess:
        """Start it, until it answers; what is owed is there."""
        process = self._server.start(
            *("-m", "provico", "open", self.videos, "--no-browser", "--port", "0", *self._words),
            environment=os.environ | {"PROVICO_HOME": str(self._home)},
        )
        while not (found := re.search(r"is open at (http://\S+)", process.stderr)):
            assert process.poll() is None, process.stderr
            time.sleep(0.05)
        self._process, self._client = process, httpx.Client(base_url=found[1], headers=GUARD, timeout=300)
        self.check_kept()
        return process

    def _close(self) -> None:
        assert self._client is not None
        self._client.close()

    # --- using it -------------------------------------------------------------------------------------------

    def use(self) -> None:
        """Do one of all that can be done, if the page still answers."""
        with suppress(httpx.TransportError):
            listed = [one["id"] for one in self._get("/api/videos", limit=100).get("items", [])]
            things = [
                self._tag,
                self._trash,
                self._undo,
                self._move,
                self._link,
                self._decide,
                self._judge,
                self._reject,
                self._rename,
            ]
            if self._arriving and self._chance.random() < 0.1:
                self._arrive()
            elif len(listed) > 3:
                self._chance.choice(things)(listed)
            else:
                time.sleep(0.1)

    def _tag(self, listed: list[str]) -> None:
        self._act("tag", self._some(listed), to=self._chance.choice(["red", "green"]))

    def _trash(self, listed: list[str]) -> None:
        if len(listed) > LEAST_LEFT:
            self._act("trash", [self._chance.choice(listed)])

    def _move(self, listed: list[str]) -> None:
        self._act("move", self._some(listed), to=self._chance.choice(["sorted", "sorted/deep"]))

    def _link(self, listed: list[str]) -> None:
        self._act("link", self._some(listed))

    def _undo(self, _: list[str]) -> None:
        known, self.owed.is_in_trash = self.owed.is_in_trash, {}  # until it is answered, either may hold
        answer = self._post("/api/actions/undo", {})
        self._note(answer)
        self.owed.is_in_trash = known
        if answer.get("ids"):
            undone = json.loads(self.owed.lines[json.loads(self.owed.lines[-1])["undo"] - 1])
            for name in self._contents.keys() & answer["ids"] if undone["do"] in MOVES else ():
                self.owed.is_in_trash[self._contents[name]] = False
        self._look()

    def _act(self, verb: str, ids: list[str], **more: str) -> None:
        for name in ids:
            with suppress(OSError):  # it was moved, and the page does not know yet
                self._contents[name] = digest(self.videos / name)
                self.owed.is_in_trash.pop(self._contents[name], None)
        answer = self._post("/api/actions", {"do": verb, "ids": ids, **more})
        for name in answer.get("ids", ()) if verb in MOVES else ():
            self.owed.is_in_trash[self._contents[name]] = verb == "trash"
        self._note(answer)
        self._look()

    def _note(self, answer: dict[str, Any]) -> None:
        if "revision" in answer:
            self.owed.lines = self._lines("actions.jsonl")[: answer["revision"]]
            assert len(self.owed.lines) == answer["revision"]

    def _decide(self, listed: list[str]) -> None:
        name, decision = self._chance.choice(listed), self._chance.choice(["keep", "drop"])
        content = self._content(name)
        self.owed.decisions.pop(content, None)  # until it is answered, either may hold
        if "revision" in self._post("/api/curation/decisions", {"id": name, "decision": decision}):
            self.owed.decisions[content] = decision

    def _judge(self, listed: list[str]) -> None:
        query, hit = self._chance.sample(listed, 2)
        verdict = self._chance.choice(["right", "wrong"])
        pair = self._content(query), self._content(hit)
        self.owed.judgements.pop(pair, None)
        if "revision" in self._post("/api/judgements", {"query": query, "hit": hit, "verdict": verdict}):
            self.owed.judgements[pair] = verdict

    def _reject(self, listed: list[str]) -> None:
        first, second = self._chance.sample(listed, 2)
        pair = self._content(first), self._content(second)
        if "num_rejected" in self._post("/api/duplicates/rejections", {"pairs": [[first, second]]}):
            self.owed.rejected.add(pair)

    def _rename(self, listed: list[str]) -> None:
        """By hand, which the page finds out later."""
        source = self.videos / self._chance.choice(listed)
        target = self.videos / "by hand" / f"{self.counts['renamed by hand']}.mp4"
        target.parent.mkdir(exist_ok=True)
        with suppress(FileNotFoundError):  # the page does not know yet that it is elsewhere
            source.rename(target)
            self.counts["renamed by hand"] += 1
        self._look()

    def _content(self, name: str) -> str:
        """What a file holds now, or nothing if it is elsewhere; then whatever is said of it is refused."""
        with suppress(FileNotFoundError):
            content = digest(self.videos / name)
            self._names.setdefault(content, set()).add(name)
            return content
        return ""

    def _arrive(self) -> None:
        source = self._arriving.pop()
        shutil.copy(source, self.videos / f"new {len(self._arriving)}.mp4")
        self.owed.contents[digest(source)] += 1

    def _some(self, listed: list[str]) -> list[str]:
        return self._chance.sample(listed, self._chance.randint(1, min(3, len(listed))))

    def _get(self, path: str, **query: Any) -> dict[str, Any]:
        assert self._client is not None
        return self._read(self._client.get(path, params=query))

    def _post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        assert self._client is not None
        answer = self._client.post(path, json=body)
        self.counts[f"{path.removeprefix('/api/')} {answer.status_code}"] += 1
        return self._read(answer)

    @staticmethod
    def _read(answer: httpx.Response) -> dict[str, Any]:
        assert answer.status_code < 500 or answer.status_code in (503, 507), answer.text
        found: dict[str, Any] = answer.json()
        return found if answer.is_success else {}

    # --- what must hold -------------------------------------------------------------------------------------

    def check_files(self) -> None:
        """Each content as often as it was put there, and where it was said to be."""
        in_trash = Counter(digest(path) for path in (self.folder / "trash").rglob("*") if path.is_file())
        beside = Counter(map(digest, files_in(self.videos)))
        assert in_trash + beside == self.owed.contents
        for content, is_in_trash in self.owed.is_in_trash.items():
            assert (in_trash if is_in_trash else beside)[content]
        for path in (self.folder / "clean").rglob("*"):
            assert not path.is_file() or digest(path) in self.owed.contents

    def check_kept(self) -> None:
        """All that was answered as done."""
        assert self._lines("actions.jsonl")[: len(self.owed.lines)] == self.owed.lines
        self._look()
        decided = DecisionLog(self.folder / "curation" / "decisions.jsonl").read().current
        for content, choice in self.owed.decisions.items():
            called = decided.keys() & self._names[content]
            assert choice in {decided[name].choice for name in called}, (content, choice, called)
        index = self.folder / "index-1"
        judged = JudgementLog(index).read().current
        for pair, verdict in self.owed.judgements.items():
            found = [one.verdict for called, one in judged.items() if self._are(called, pair)]
            assert verdict in found, (pair, verdict, found)
        rejected = KeptDuplicates(index).rejected()
        for pair in self.owed.rejected:
            assert any(self._are(called, pair) or self._are(called[::-1], pair) for called in rejected), pair

    def _look(self, *, only_now: bool = False) -> None:
        """What each content is called now."""
        if only_now:
            self._names.clear()
        for path in [*files_in(self.videos), *(self.folder / "trash").glob("*/**/*.mp4")]:
            place = path.relative_to(self.videos)
            if place.parts[0] == ".provico":
                place = Path(*place.parts[3:])  # .provico/trash/NUMBER/PLACE
            self._names.setdefault(digest(path), set()).add(place.as_posix())

    def _are(self, called: tuple[str, str], contents: tuple[str, str]) -> bool:
        return all(name in self._names[content] for name, content in zip(called, contents, strict=True))

    def _lines(self, name: str) -> list[str]:
        """The whole lines of a file: of what was cut short, nothing was answered."""
        path = self.folder / name
        return path.read_text().split("\n")[:-1] if path.exists() else []

    def _is_whole(self) -> bool:
        """Whether there is an index, and has all that is not in the trash."""
        if current_index(self.videos) is None:
            return False
        return set(Index.open(self.videos).ids) == {
            str(path.relative_to(self.videos)) for path in files_in(self.videos)
        }


def main() -> None:
    """Many rounds, and what was done in them."""
    from tests.abuse.attack import make
    from tests.abuse.chaos import same_index

    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=20.0, help="a kill comes within so many")
    parser.add_argument(
        "--learn", action="store_true", help="with pretraining, on the network of provico open"
    )
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.environ["PROVICO_HOME"] = str(folder / "made")
        make(folder)
        videos, arriving = folder / "collection", []
        videos.mkdir()
        for number, path in enumerate(sorted((folder / "videos").rglob("*.mp4"))):
            place = videos if number % 2 else folder / "arriving"
            place.mkdir(exist_ok=True)
            arriving += [Path(shutil.copy(path, place / f"{number}.mp4"))] * (number % 2 == 0)
        words = ["--watch", *(["--learn"] if given.learn else ["--checkpoint", folder / "encoder"])]
        server = ForkServer(folder / "processes")
        chaos = OpenChaos(server, videos, arriving, folder / "home", random.Random(given.seed), *words)
        for number in range(given.rounds):
            chaos.round(given.seconds)
            print(number + 1, dict(chaos.counts), flush=True)
        found = chaos.finish()
        if not given.learn:
            encoder = folder / "encoder"
            peaceful = Index.create(folder / "peaceful", Encoder.from_pretrained(encoder), num_clips=10)
            peaceful.add(open_catalog(videos))
            same_index(found.path, peaceful.path)
        server.close()
        print(f"{given.rounds} of {given.rounds} rounds: nothing lost, and the index is as in peace")


if __name__ == "__main__":
    main()
