"""Does `provico dedup` find copies, and nothing else? Against perceptual hashes, and stage by stage.

    python benchmarks/dedup.py                                   # trains its encoders first, then all sets
    python benchmarks/dedup.py ucf101-5 --run RUN                # with an encoder that is there

From each of some groups of videos one is copied in twelve ways (`dedup_edits`). All videos of the group stay
in the set: they show the same people in the same place, and are the hard negatives. Then there are black
videos, and videos that have nothing but a title card in common. Groups are in two parts: the thresholds of
the baselines are tuned on the first, the second is reported. The constants of `dedup` itself were chosen on
groups of UCF101 that are in neither.

    recall       of each edit: the share of copies that are found to be copies of their original
    precision    of all pairs that are reported; a pair is right if both have footage of one original

Baselines: pHash of four frames a second (pairs are matched by the share of frames that have a frame within
some bits in the other), and the clip embeddings alone. `unlabeled` holds real near-duplicates whose truth is
not known: groups and pairs are printed, to be looked at. Videos: PROVICO_DATA, or ../shared/data.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import json
import os
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import imagehash
import numpy as np
import torch
from PIL import Image

from dedup_edits import EDITS, Original, write_copy
from provico import Index, open_catalog, pretrain, write_demo_set
from provico.data.frames.encode import write_video
from provico.data.frames.video import read_frames
from provico.data.library import Library
from provico.demo import demo_recipe
from provico.duplicates import DuplicateReport, Pair, find_duplicates
from provico.duplicates.find import MIN_PROBABILITY
from provico.duplicates.judgement import MIDDLE
from provico.recipes import find_recipe
from provico.search.open_or_create import open_or_create

DATA = Path(os.environ.get("PROVICO_DATA", "../shared/data"))
SCRATCH = Path("benchmarks/scratch/dedup")
RESULTS = Path("benchmarks/results/dedup.json")
HASHES_PER_SECOND = 4
NUM_BLACK, NUM_CARDS = 5, 5
BLANK_STD = 5.0

Footage = tuple[str, float, float]
"""An original, and from when to when."""
PairOfNames = tuple[str, str]
Scores = dict[PairOfNames, float]


@dataclass
class Part:
    """A folder of originals, copies and decoys, with what is known of each."""

    folder: Path
    footage: dict[str, list[Footage]]
    edit_of: dict[str, str]
    """Of each copy."""
    copied_from: dict[str, list[tuple[str, float, float]]]
    """Of each copy, its originals, and where in it they are."""

    def is_true(self, pair: PairOfNames) -> bool:
        """Whether both have at least a second of the same footage of an original."""
        return any(
            a[0] == b[0] and min(a[2], b[2]) - max(a[1], b[1]) >= 1.0
            for a, b in itertools.product(*(self.footage[name] for name in pair))
        )

    def same_group(self, pair: PairOfNames) -> bool:
        """Whether both have footage of one group, which was recorded at one time and place."""
        groups = [{source.rsplit("_c", 1)[0] for source, *_ in self.footage[name]} for name in pair]
        return bool(groups[0] & groups[1])


# --- the sets ----------------------------------------------------------------------------------------------


def write_part(folder: Path, groups: list[list[Path]], others: list[Path], library: Library) -> Part:
    """Copies of the first video of each group, beside all videos of the group and decoys."""
    part = Part(folder, {}, {}, {})
    folder.mkdir(parents=True, exist_ok=True)

    def put(name: str, write: Callable[[Path], object]) -> None:
        if not (folder / name).exists():
            write(folder / name)

    for group in groups:
        for path in group:
            put(path.name, lambda target, path=path: target.symlink_to(path.absolute()))
            part.footage[path.name] = [(path.stem, 0.0, library.index(path).duration_seconds)]
    firsts = [Original.read(group[0], library) for group in groups]
    for number, original in enumerate(firsts):
        given = [original, firsts[(number + 1) % len(firsts)]]
        for edit, make in EDITS.items():
            copy = make(given)
            name = f"{original.path.stem} {edit.replace(' %', '')}.mp4"
            put(name, lambda target, copy=copy, fps=original.fps: write_copy(target, copy, fps))
            part.footage[name] = [(given[p.original].path.stem, p.start, p.end) for p in copy.parts]
            part.edit_of[name] = edit
            part.copied_from[name] = [
                (given[p.original].path.name, p.copy_start, p.copy_end) for p in copy.parts
            ]
    rng = np.random.default_rng(0)
    for number in range(NUM_BLACK):
        black = rng.integers(0, 4, size=(40 + 10 * number, 128, 170, 3), dtype=np.uint8)
        put(f"black {number}.mp4", lambda target, black=black: write_video(target, black))
        part.footage[f"black {number}.mp4"] = []
    for number, path in enumerate(others[:NUM_CARDS]):
        frames = Original.read(path, library).frames
        card = Image.new("RGB", frames.shape[2:0:-1], (30, 40, 90))
        card.paste((240, 240, 240), (20, 40, 100, 60))
        card.paste((240, 200, 60), (30, 70, 120, 80))
        joined = np.concatenate([np.repeat(np.asarray(card)[None], 50, axis=0), frames])
        put(f"card {number}.mp4", lambda target, joined=joined: write_video(target, joined))
        part.footage[f"card {number}.mp4"] = [(f"behind card {number}", 2.0, len(joined) / 25)]
    return part


def split_groups(paths: list[Path], num: int) -> tuple[list[list[Path]], list[list[Path]], list[Path]]:
    """Groups to tune on, groups to test on, and videos of others for decoys."""
    groups: dict[str, list[Path]] = defaultdict(list)
    for path in paths:
        groups[path.stem.rsplit("_c", 1)[0]].append(path)
    names = sorted(groups)
    rest = [name for place, name in enumerate(names) if place % 7]  # each 7th helped to choose the constants
    order = np.random.default_rng(0).permutation(len(rest)).tolist()
    chosen = [groups[rest[place]] for place in order]
    return chosen[:num], chosen[num : 2 * num], [group[0] for group in chosen[2 * num :]]


def make_encoder(name: str, videos: Path) -> Path:
    """A run of pretraining on the set without its copies; as it is, if it is there."""
    recipe = demo_recipe() if name == "demo" else find_recipe("frozen")
    recipe = dataclasses.replace(recipe, run=dataclasses.replace(recipe.run, num_workers=0))
    out = SCRATCH / f"run-{name}"
    if not (out / "encoder").exists():
        pretrain(
            open_catalog(videos, subset="train"),
            out=out,
            config=recipe,
            resume=(out / "config.json").exists(),
        )
    return out


def make_index(folder: Path, videos: Path, run: Path, library: Library) -> Index:
    index = open_or_create(folder, run)
    index.add(open_catalog(videos, layout="folder"), library=library)
    return index


# --- contenders --------------------------------------------------------------------------------------------


def hashes(path: Path, library: Library) -> np.ndarray:
    """pHash of frames that show something, as 64 bits each."""
    index = library.index(path)
    times = np.arange(0, index.duration_seconds, 1 / HASHES_PER_SECOND)
    numbers = np.clip(np.searchsorted(index.frame_seconds, times), 0, index.num_frames - 1)
    frames = [f for f in read_frames(path, numbers, index=index, short_side=64) if f.std() >= BLANK_STD]
    bits = [np.packbits(imagehash.phash(Image.fromarray(frame)).hash) for frame in frames]
    return np.array(bits, np.uint8).reshape(-1, 8).view(np.uint64).ravel()


def hash_scores(part: Part, library: Library) -> dict[int, Scores]:
    """For each number of bits: the share of frames, of the video that has more of them, with a like."""
    found = {name: hashes(part.folder / name, library) for name in part.footage}
    scores: dict[int, Scores] = {bits: {} for bits in range(0, 25, 2)}
    for a, b in itertools.combinations(sorted(found), 2):
        if not len(found[a]) or not len(found[b]):
            continue
        distances = np.bitwise_count(found[a][:, None] ^ found[b])
        for bits, rows in scores.items():
            near = distances <= bits
            rows[a, b] = max(float(near.any(axis=1).mean()), float(near.any(axis=0).mean()))
    return scores


def clip_scores(index: Index) -> Scores:
    """Minus the mean expected squared distance of the three clips that have the nearest in the other."""
    rows = index.loaded.store.read(("clip_mean", "clip_log_var"))
    mean = torch.from_numpy(rows["clip_mean"])
    spread = torch.from_numpy(rows["clip_log_var"]).exp().sum(dim=2)
    flat, flat_spread = mean.flatten(0, 1), spread.flatten()
    scores: Scores = {}
    for number, name in enumerate(index.ids):
        squared = torch.cdist(mean[number], flat).square() + spread[number].unsqueeze(1) + flat_spread
        nearest = squared.view(mean.shape[1], *mean.shape[:2]).amin(dim=2)
        support = -nearest.topk(3, dim=0, largest=False).values.mean(dim=0)
        for other, score in zip(index.ids, support.tolist(), strict=True):
            if other != name:
                key = (min(name, other), max(name, other))
                scores[key] = max(scores.get(key, -np.inf), score)
    return scores


def names_of(pair: Pair) -> PairOfNames:
    first, second = sorted((pair.first.id, pair.second.id))
    return first, second


# --- measuring ---------------------------------------------------------------------------------------------


def measure(part: Part, reported: set[PairOfNames]) -> dict[str, Any]:
    right = sum(part.is_true(pair) for pair in reported)
    same_group = sum(not part.is_true(pair) and part.same_group(pair) for pair in reported)
    recalls: dict[str, list[bool]] = defaultdict(list)
    for name, edit in part.edit_of.items():
        for original, *_ in part.copied_from[name]:
            recalls[edit].append((min(name, original), max(name, original)) in reported)
    everything = [found for some in recalls.values() for found in some]
    return {
        "recall": {edit: round(float(np.mean(found)), 3) for edit, found in recalls.items()},
        "recall, all": round(float(np.mean(everything)), 3),
        "precision": round(right / len(reported), 3) if reported else None,
        "wrong, same group": same_group,
        "wrong, other": len(reported) - right - same_group,
        "reported": len(reported),
    }


def best_threshold(part: Part, scores: Scores) -> tuple[float, float]:
    """The highest F1 of all pairs, and the score at which it is reached."""
    pairs = sorted(scores, key=scores.__getitem__, reverse=True)
    values = np.array([scores[pair] for pair in pairs])
    right = np.cumsum([part.is_true(pair) for pair in pairs])
    num_true = sum(part.is_true(pair) for pair in itertools.combinations(sorted(part.footage), 2))
    f1 = 2 * right / (np.arange(1, len(pairs) + 1) + num_true)
    f1[:-1][values[:-1] == values[1:]] = 0  # equal scores go together
    place = int(f1.argmax())
    return float(f1[place]), float(values[place])


def above(scores: Scores, threshold: float) -> set[PairOfNames]:
    return {pair for pair, score in scores.items() if score >= threshold}


def time_errors(part: Part, report: DuplicateReport) -> dict[str, Any]:
    """How far the found start in the copy is from the true one, for excerpts, joined and delayed ones."""
    errors: dict[str, list[float]] = defaultdict(list)
    for pair in report.pairs:
        for copy, original, span in (
            (pair.first.id, pair.second.id, pair.first_span),
            (pair.second.id, pair.first.id, pair.second_span),
        ):
            for source, start, _ in part.copied_from.get(copy, ()):
                if source == original:
                    errors[part.edit_of[copy]].append(abs(span.start_seconds - start))
    return {
        edit: {"median": round(float(np.median(some)), 3), "largest": round(max(some), 3)}
        for edit, some in errors.items()
        if edit in ("excerpt", "concatenation", "black intro")
    }


def ablations(part: Part, everything: DuplicateReport) -> dict[str, set[PairOfNames]]:
    """This evidence, judged in other ways."""
    judges: dict[str, Callable[[Pair], bool]] = {
        "one scene, by pictures (appearance > 0.95)": lambda pair: pair.appearance > 0.95,
        "motion, one threshold for all": lambda pair: pair.motion > MIDDLE,
        "as released": lambda pair: pair.probability >= MIN_PROBABILITY,
    }
    return {
        name: {names_of(pair) for pair in everything.pairs if judge(pair)} for name, judge in judges.items()
    }


def doubt(index: Index, part: Part) -> dict[str, float]:
    """Does the encoder's own uncertainty notice black?"""
    found = dict(zip(index.ids, index.loaded.uncertainty.tolist(), strict=True))
    black = [value for name, value in found.items() if name.startswith("black ")]
    others = [value for name, value in found.items() if not name.startswith("black ")]
    return {
        "median, black": round(float(np.median(black)), 4),
        "median, others": round(float(np.median(others)), 4),
    }


def run_set(name: str, options: argparse.Namespace, library: Library) -> dict[str, Any]:
    if name == "demo":
        source, suffix = SCRATCH / "demo-set", "*.mp4"
        if not source.exists():
            write_demo_set(source, num_workers=1)
    else:
        source, suffix = DATA / "ucf101-5", "*.avi"
    tuning, test, others = split_groups(sorted((source / "UCF-101").rglob(suffix)), options.num_groups)
    run = options.run or make_encoder(name, source)
    root = SCRATCH / f"{name}-{options.num_groups}"
    parts = [
        write_part(root / place, groups, others[NUM_CARDS * number :], library)
        for number, (place, groups) in enumerate((("tuning", tuning), ("test", test)))
    ]
    indexes = [make_index(root / f"index-{p.folder.name}", p.folder, run, library) for p in parts]
    _, part, index = parts[0], parts[1], indexes[1]

    began = time.perf_counter()
    everything = find_duplicates(index, min_probability=0.0, library=library)
    seconds = time.perf_counter() - began
    released = ablations(part, everything)
    found = {name: measure(part, pairs) for name, pairs in released.items()}
    for kind in ("clips", "pictures"):
        report = find_duplicates(index, candidates=kind, library=library)
        pairs = {names_of(pair) for pair in report.pairs}
        found[f"as released, candidates by {kind} only"] = measure(part, pairs) | {
            "compared": report.num_compared
        }
    tuned = [hash_scores(p, library) for p in parts]
    _, bits = max((best_threshold(parts[0], scores)[0], bits) for bits, scores in tuned[0].items())
    share = best_threshold(parts[0], tuned[0][bits])[1]
    found[f"pHash, {bits} bits, {share:.2f} of the frames"] = measure(part, above(tuned[1][bits], share))
    clips = [clip_scores(index) for index in indexes]
    found["clip embeddings alone"] = measure(part, above(clips[1], best_threshold(parts[0], clips[0])[1]))
    confident = dataclasses.replace(
        everything, pairs=tuple(p for p in everything.pairs if p.probability >= MIN_PROBABILITY)
    )
    wrong = sorted(pair for pair in released["as released"] if not part.is_true(pair))
    return {
        "encoder": str(index.settings.embedding.encoder_hash),
        "videos": len(index),
        "compared": everything.num_compared,
        "seconds": round(seconds, 1),
        "found": found,
        "start, seconds off": time_errors(part, confident),
        "wrong pairs": wrong,
        "blank": len(everything.blank),
        "uncertainty": doubt(index, part),
    }


def run_unlabelled(options: argparse.Namespace, library: Library) -> dict[str, Any]:
    run = options.run or make_encoder("ucf101-5", DATA / "ucf101-5")
    index = make_index(SCRATCH / "index-unlabeled", DATA / "unlabeled", run, library)
    began = time.perf_counter()
    report = find_duplicates(index, library=library)
    return {
        "videos": len(index),
        "seconds": round(time.perf_counter() - began, 1),
        "compared": report.num_compared,
        "groups": len(report.groups),
        "to drop": report.num_droppable,
        "pairs": len(report.pairs),
        "parts": len(report.parts),
        "found": [f"{pair.probability:.3f} {pair.proof} {pair}" for pair in report.pairs],
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = ("demo", "ucf101-5", "unlabeled")
    parser.add_argument("sets", nargs="*", default=list(names), choices=names)
    parser.add_argument("--run", type=Path, help="a run of pretraining, instead of making one for each set")
    parser.add_argument("--num-groups", type=int, default=12, help="in each of the two parts")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    SCRATCH.mkdir(parents=True, exist_ok=True)
    library = Library(SCRATCH / "home")
    for name in options.sets:
        result = run_unlabelled(options, library) if name == "unlabeled" else run_set(name, options, library)
        known = json.loads(options.out.read_text()) if options.out.exists() else {}
        options.out.write_text(json.dumps(known | {name: result}, indent=1) + "\n")
        print(json.dumps({name: result}, indent=1), flush=True)


if __name__ == "__main__":
    main()
