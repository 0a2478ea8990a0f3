"""How fast, how large and how exact is an index of many videos?

    provico embed DATA --checkpoint RUN --out real.parquet          # real videos, to shape others like them
    python benchmarks/search.py real.parquet --size 10000
    python benchmarks/search.py real.parquet --size 100000 1000000
    python benchmarks/search.py real.parquet --size 10000 --store postgresql://user@host/database

For each size, in processes of their own, so that each peak of memory is its own:

    build     rows into an index (not videos: no embedding and no pictures): time, disk, memory
    search    open it, ask: time, memory, videos scored exactly, share of answers certified
    compare   the same questions to contenders that take turns, so that whatever else the machine does hurts
              all alike: the naive scan (torch.cdist on all pairs of samples, timed on a part of the gallery
              and scaled up), and FAISS on the means alone, flat and HNSW, with the share of the exact answer
              that they find; and whether our answers are exact, against a scan of everything

Medians. `benchmarks/search_galleries.py` has the galleries. A table of small galleries of other shapes, and
the time that kernels take for a pair of videos, come with `--size 10000`.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from torch import Tensor

from provico import Encoder, Index, Mixture, read_embeddings
from provico.embedding.file import read_header
from provico.probability import Gaussian, MatchCurve, log_match_scores
from provico.search import Answer, exact_log_probabilities, exact_top_k
from provico.search.query import Asked
from provico.search.row_writer import sample_columns
from provico.search.store.folder import IndexFolder, IndexSettings, StorePlace
from search_galleries import KINDS, QUERY_CHUNK, VIDEOS_A_CHUNK, Kind, Real, chunk
from search_kernels import kernels, naive, once, spheres, spread_of, take_turns, timed

NUM_SAMPLES, K = 10, 10
NAIVE_VIDEOS, NAIVE_QUERIES = 16384, 4
"""What the naive scan is timed on: more videos than fit into the cache, as those of a whole gallery."""
LIKELY = 200
"""Videos that a scan in float32 leaves for one in float64; its rounding moves none by so many places."""
HNSW_LINKS, HNSW_DEPTH = 32, 128


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("embeddings", type=Path, help="real videos, as `provico embed` writes them")
    parser.add_argument("--size", type=int, nargs="+", default=[10_000])
    parser.add_argument("--kind", nargs="+", choices=tuple(KINDS), default=["like real"])
    parser.add_argument("--num-queries", type=int, default=64)
    parser.add_argument("--num-checked", type=int, default=16, help="queries checked against a full scan")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--store", help="another engine than LanceDB in a folder")
    parser.add_argument("--scratch", type=Path, help="where indexes are made; 13 kB a video")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/search.json"))
    parser.add_argument("--phase", choices=tuple(PHASES), help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    if options.phase:
        print(json.dumps(PHASES[options.phase](options)))
        return
    report = json.loads(options.out.read_text()) if options.out.exists() else {}
    report["machine"] = {
        "cpu": platform.processor() or platform.machine(),
        "threads": options.threads,
        "memory_gigabytes": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
    }
    for size in options.size:
        for kind in options.kind:
            name = f"{kind}, {size:,} videos" + (f", {options.store.split(':')[0]}" if options.store else "")
            report[name] = measure(options, size, kind)
            print(name, json.dumps(report[name], indent=1), flush=True)
            write(report, options.out)
    if 10_000 in options.size and not options.store:
        report["kernels, microseconds a pair"] = kernels()
        report["spheres, 10,000 videos"] = spheres(options.num_queries)
        write(report, options.out)


def write(report: dict[str, Any], out: Path) -> None:
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(report, indent=1) + "\n")


def measure(options: argparse.Namespace, size: int, kind: str) -> dict[str, Any]:
    folder = Path(tempfile.mkdtemp(prefix="provico-search-", dir=options.scratch)) / "index"
    common = ["--size", str(size), "--kind", kind, "--folder", str(folder), "--threads", str(options.threads)]
    common += ["--num-queries", str(options.num_queries), "--num-checked", str(options.num_checked)]
    common += ["--rounds", str(options.rounds), *(["--store", options.store] if options.store else [])]
    try:
        result = {}
        for phase in PHASES:
            command = [sys.executable, __file__, str(options.embeddings), "--phase", phase, *common]
            run = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
            result[phase] = json.loads(run.stdout)
        return result
    finally:
        shutil.rmtree(folder.parent)


# --- phases ------------------------------------------------------------------------------------------------


def build(options: argparse.Namespace) -> dict[str, Any]:
    real, kind, header = *problem(options), read_header(options.embeddings)
    size = options.size[0]
    settings = IndexSettings(
        embedding=header, num_samples=NUM_SAMPLES, seed=0, place=StorePlace.new(options.store)
    )
    folder = IndexFolder(options.folder)
    folder.create(settings, Encoder(header.encoder_config))
    seconds = {"making up videos": 0.0, "describing samples": 0.0, "writing rows": 0.0}
    with folder.changing(settings) as store:
        for first in range(0, size, VIDEOS_A_CHUNK):
            began = time.perf_counter()
            rows = rows_of(real, kind, first, min(VIDEOS_A_CHUNK, size - first), size)
            made = time.perf_counter()
            rows |= sample_columns(rows, settings)
            described = time.perf_counter()
            store.write(rows)
            seconds["making up videos"] += made - began
            seconds["describing samples"] += described - made
            seconds["writing rows"] += time.perf_counter() - described
        began = time.perf_counter()
        store.tidy()
        seconds["tidying"] = time.perf_counter() - began
    num_bytes = sum(path.stat().st_size for path in options.folder.rglob("*") if path.is_file())
    return {
        "seconds": rounded(seconds),
        "videos a second": round(size / (sum(seconds.values()) - seconds["making up videos"])),
        "bytes of a row": sum(column.size * column.dtype.itemsize for column in settings.columns.values()),
        # With the versions before the rows were joined, which are kept for a day.
        "bytes a video on disk": None if options.store else round(num_bytes / size),
        "peak megabytes": peak_megabytes(),
    }


def search(options: argparse.Namespace) -> dict[str, Any]:
    questions = ask(options)
    before = peak_megabytes()
    began = time.perf_counter()
    index = Index.open(options.folder)
    opened = time.perf_counter() - began
    began = time.perf_counter()
    answers = index.search_many(questions, k=K, max_chance=None)
    first = time.perf_counter() - began
    result = {
        "seconds to open": round(opened, 2),
        "seconds of the first batch": round(first, 2),
        "peak megabytes": peak_megabytes(),
        "of which before opening": before,
        **quality(answers),
        "queries a second": speeds(index, questions, options),
    }
    if options.store:
        served = Index.open(options.folder, in_engine=True)
        there = served.search_many(questions[:8], k=K, max_chance=None)
        pairs = zip(answers, there, strict=False)
        same = [[hit.id for hit in a.hits] == [hit.id for hit in b.hits] for a, b in pairs]
        seconds = timed(lambda: served.search_many(questions[:8], k=K, max_chance=None), options.rounds)
        result["in the engine"] = quality(there) | {
            "same hits": sum(same) / len(same),
            "queries a second, one at a time": round(8 / seconds, 2),
        }
    return result


def quality(answers: list[Answer]) -> dict[str, Any]:
    certificates = [answer.certificate for answer in answers]
    scored = np.array([certificate.num_scored for certificate in certificates])
    bounded = np.array([certificate.num_bounded for certificate in certificates])
    tenth = [answer.hits[-1].probability for answer in answers]
    return {
        "p of the last hit: median, least, most": [
            float(f"{p:.3g}") for p in (median(tenth), min(tenth), max(tenth))
        ],
        "scored exactly: median, 95 %, most": spread_of(scored),
        "needed a bound: median, 95 %, most": spread_of(bounded),
        "share scored exactly, median": float(np.median(scored) / certificates[0].num_allowed),
        "share certified": sum(certificate.is_exact for certificate in certificates) / len(certificates),
    }


def speeds(index: Index, questions: list[Asked], options: argparse.Namespace) -> dict[str, float]:
    together = timed(lambda: index.search_many(questions, k=K, max_chance=None), options.rounds)
    alone = timed(lambda: [index.search(one, k=K, max_chance=None) for one in questions[:8]], options.rounds)
    return {"together": round(len(questions) / together, 1), "one at a time": round(8 / alone, 1)}


def compare(options: argparse.Namespace) -> dict[str, Any]:
    import faiss

    faiss.omp_set_num_threads(options.threads)
    index, questions = Index.open(options.folder), ask(options)
    loaded, settings = index.loaded, index.settings
    queries = torch.cat([one.samples(settings) for one in questions])
    gallery = loaded.gallery
    found = exact_top_k(queries, gallery, curve=settings.curve, k=K)
    means, ours = loaded.videos.mean.numpy(), torch.cat([one.mixture.mean for one in questions]).numpy()
    flat, graph = faiss.IndexFlatL2(means.shape[1]), faiss.IndexHNSWFlat(means.shape[1], HNSW_LINKS)
    graph.hnsw.efSearch = HNSW_DEPTH
    build_seconds = {
        name: once(lambda one=one: one.add(means)) for name, one in (("flat", flat), ("hnsw", graph))
    }
    part = loaded.samples(torch.arange(min(NAIVE_VIDEOS, len(loaded))))
    few = queries[:NAIVE_QUERIES]
    contenders: dict[str, Callable[[], Any]] = {
        "exact, with hits": lambda: index.search_many(questions, k=K, max_chance=None),
        "exact, ranking alone": lambda: exact_top_k(queries, gallery, curve=settings.curve, k=K),
        "faiss flat on means": lambda: flat.search(ours, K),
        "faiss hnsw on means": lambda: graph.search(ours, K),
        "naive scan": lambda: [naive(few, some, settings.curve) for some in torch.split(part, 2048)],
    }
    seconds = take_turns(contenders, rounds=options.rounds)
    num = dict.fromkeys(contenders, float(len(questions)))
    num["naive scan"] = len(few) * len(part) / len(loaded)
    milliseconds = {name: 1e3 * seconds[name] / num[name] for name in contenders}
    exact = full_scan(queries[: options.num_checked], index)
    return {
        "milliseconds a query": rounded(milliseconds),
        "times the naive scan": round(milliseconds["naive scan"] / milliseconds["exact, ranking alone"], 1),
        "times faiss flat": round(
            milliseconds["faiss flat on means"] / milliseconds["exact, ranking alone"], 2
        ),
        "faiss build seconds": rounded(build_seconds),
        "found of the exact answer": {
            "faiss flat on means": recall(flat.search(ours, K)[1], found),
            "faiss hnsw on means": recall(graph.search(ours, K)[1], found),
        },
        "answers equal to the full scan": sum(
            torch.equal(rows, top.rows) and torch.allclose(scores, top.scores, rtol=1e-11, atol=0)
            for (rows, scores), top in zip(exact, found, strict=False)
        )
        / len(exact),
    }


PHASES: dict[str, Callable[[argparse.Namespace], dict[str, Any]]] = {
    "build": build,
    "search": search,
    "compare": compare,
}


# --- what they need ----------------------------------------------------------------------------------------


def problem(options: argparse.Namespace) -> tuple[Real, Kind]:
    embeddings, curve = read_embeddings(options.embeddings), read_header(options.embeddings).match_curve
    names = sorted({str(label) for label in embeddings.labels})
    real = Real(
        embeddings.videos.clips,
        torch.tensor([names.index(str(label)) for label in embeddings.labels]),
        MatchCurve(torch.tensor(curve["a"]), torch.tensor(curve["b"]), curve["sigmoid_scale"]),
    )
    return real, KINDS[options.kind[0]]


def ask(options: argparse.Namespace) -> list[Asked]:
    real, kind = problem(options)
    clips = chunk(real, kind, QUERY_CHUNK, options.num_queries, num_videos=options.size[0])
    seconds = torch.zeros(clips.mean.shape[1], 2, dtype=torch.float64)
    each = zip(clips.mean, clips.log_var, strict=True)
    return [Asked(f"query-{number}", None, None, Gaussian(*one), seconds) for number, one in enumerate(each)]


def rows_of(real: Real, kind: Kind, first: int, size: int, num_videos: int) -> dict[str, Any]:
    clips = chunk(real, kind, first // VIDEOS_A_CHUNK, size, num_videos=num_videos)
    mixture = Mixture(clips)
    zeros = np.zeros(size)
    times = np.zeros(clips.mean.shape[:2])
    return {
        "id": [f"{number:09}.mp4" for number in range(first, first + size)],
        **{name: ["word"] * size for name in ("path", "label", "group", "subset", "preview", "content_hash")},
        **{name: zeros.astype(np.int64) for name in ("num_bytes", "modified_ns")},
        "duration_seconds": zeros,
        "uncertainty": mixture.uncertainty.numpy(),
        "disagreement": mixture.disagreement.numpy(),
        "mean": mixture.mean.numpy(),
        "log_var": mixture.moment_matched.log_var.numpy(),
        "start_seconds": times,
        "end_seconds": times,
        "clip_mean": clips.mean.numpy(),
        "clip_log_var": clips.log_var.numpy(),
        "thumbnail": [b""] * size,
    }


def full_scan(queries: Tensor, index: Index) -> list[tuple[Tensor, Tensor]]:
    """The best of all videos: by float32 first, and of the best of these by float64; no bound is trusted."""
    loaded, curve = index.loaded, index.settings.curve
    scores = []
    for part in torch.split(torch.arange(len(loaded)), VIDEOS_A_CHUNK):
        scores.append(log_match_scores(queries, loaded.samples(part), curve=curve, num_ranked=K))
    likely = torch.cat(scores, dim=1).topk(min(LIKELY, len(loaded)), dim=1).indices
    found = []
    for query, rows in zip(queries, likely, strict=True):
        rows = rows.sort().values
        samples = loaded.samples(rows)
        exact = exact_log_probabilities(query.expand(len(samples), -1, -1), samples, curve=curve)
        best, order = exact.sort(descending=True, stable=True)
        found.append((rows[order[:K]], best[:K]))
    return found


# --- numbers -----------------------------------------------------------------------------------------------


def recall(nearest: Any, found: list[Any]) -> float:
    pairs = zip(nearest, found, strict=True)
    shared = [len(set(top.rows.tolist()) & set(theirs.tolist())) for theirs, top in pairs]
    return round(float(np.mean(shared)) / K, 3)


def rounded(values: dict[str, float]) -> dict[str, float]:
    return {name: float(f"{value:.4g}") for name, value in values.items()}


def peak_megabytes() -> int:
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)


if __name__ == "__main__":
    main()
