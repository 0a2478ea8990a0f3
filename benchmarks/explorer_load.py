"""How many searches a second does `provico serve` answer, to several clients at once?

    python benchmarks/explorer_load.py INDEX

Starts the real server, and clients in processes of their own that each keep one connection and ask for one
search after another. First every client asks what nobody has asked before, so that every answer is computed;
then all ask the same again, which the server remembers. Any answer but 200 is an error, and so is one with
other hits than `Index.search` finds. Results: benchmarks/results/explorer_load.json.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import platform
import random
import re
import signal
import statistics
import subprocess
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

Question = tuple[str, int]
"""The id of a video, and how many are to be found."""


def ask(address: tuple[str, int], questions: list[Question], start: float) -> list[tuple[float, int, str]]:
    """Seconds, status and best hit of each answer, asked one after another from the start on."""
    connection = http.client.HTTPConnection(*address, timeout=60)
    connection.connect()
    time.sleep(max(0.0, start - time.time()))
    answers = []
    for name, k in questions:
        before = time.perf_counter()
        connection.request("GET", "/api/search?" + urlencode({"id": name, "k": k}))
        answer = connection.getresponse()
        body = answer.read()
        seconds = time.perf_counter() - before
        best = json.loads(body)["answer"]["hits"][0]["id"] if answer.status == 200 else ""
        answers.append((seconds, answer.status, best))
    connection.close()
    return answers


def measure(
    address: tuple[str, int],
    shares: list[list[Question]],
    expected: dict[str, str],
    pool: ProcessPoolExecutor,
) -> dict[str, Any]:
    start = time.time() + 1.0  # so that all begin together
    waiting = [pool.submit(ask, address, share, start) for share in shares]
    answers = [answer for one in waiting for answer in one.result()]
    wall = time.time() - start
    asked = [name for share in shares for name, _ in share]
    wrong = sum(
        status != 200 or best != expected[name]
        for name, (_, status, best) in zip(asked, answers, strict=True)
    )
    milliseconds = sorted(1000 * seconds for seconds, _, _ in answers)
    return {
        "searches": len(answers),
        "errors": wrong,
        "searches a second": round(len(answers) / wall, 1),
        "median ms": round(statistics.median(milliseconds), 1),
        "95 % ms": round(milliseconds[int(0.95 * len(milliseconds))], 1),
        "worst ms": round(milliseconds[-1], 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("index", type=Path)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--searches", type=int, default=150, help="of each client")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/explorer_load.json"))
    options = parser.parse_args()
    from provico import Index

    index = Index.open(options.index)
    # Another k is another question, and the best hit is the same.
    questions = [(name, k) for k in range(8, 64) for name in index.ids][: options.clients * options.searches]
    random.Random(0).shuffle(questions)
    found = index.search_many(sorted({name for name, _ in questions}), k=1, max_chance=None)
    expected = {answer.query: answer.hits[0].id for answer in found}
    shares = [questions[first :: options.clients] for first in range(options.clients)]
    server = subprocess.Popen(
        [sys.executable, "-m", "provico", "serve", str(options.index), "--port", "0"],
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert server.stderr is not None
        said = server.stderr.readline()
        address = re.search(r"http://([\d.]+):(\d+)", said)
        if address is None:
            sys.exit(said)
        place = (address[1], int(address[2]))
        with ProcessPoolExecutor(options.clients) as pool:
            # The first search loads what all others need.
            list(
                pool.map(
                    ask,
                    [place] * options.clients,
                    [[(index.ids[0], 5)]] * options.clients,
                    [0.0] * options.clients,
                )
            )
            report = {
                "cpu": platform.processor() or platform.machine(),
                "cores": os.cpu_count(),
                "videos": len(index),
                "clients": options.clients,
                "computed": measure(place, shares, expected, pool),
                "remembered": measure(place, shares, expected, pool),
            }
    finally:
        server.send_signal(signal.SIGINT)
        server.wait(30)
    print(json.dumps(report, indent=1))
    options.out.write_text(json.dumps(report, indent=1) + "\n")
    if report["computed"]["errors"] or report["remembered"]["errors"]:
        sys.exit("There were errors.")


if __name__ == "__main__":
    main()
