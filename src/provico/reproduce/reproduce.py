"""`provico reproduce`: all experiments by name, in the order of the paper; runs them and writes a report."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

from provico.data.demo_set.videos import write_demo_set
from provico.data.library import Library
from provico.errors import ConfigError, did_you_mean
from provico.progress import Progress, silent
from provico.reproduce.bench import Announce, Bench
from provico.reproduce.comparisons import METRIC, MINING, RECOGNITION, RETRIEVAL
from provico.reproduce.corruption import MASKED, MIXED
from provico.reproduce.distance_example import DISTANCE_EXAMPLE
from provico.reproduce.embedding_3d import EMBEDDING_3D
from provico.reproduce.experiment import Experiment, Finding, Preset, judge
from provico.reproduce.knobs import BATCH, BETA, CLIPS, SAMPLES
from provico.reproduce.qualitative import QUALITATIVE
from provico.reproduce.report import write_report
from provico.reproduce.toy_mining import TOY_MINING
from provico.reproduce.uncertainty import BINS, OVER_TRAINING

EXPERIMENTS: dict[str, Experiment] = {
    experiment.name: experiment
    for experiment in (
        DISTANCE_EXAMPLE,
        RECOGNITION,
        RETRIEVAL,
        BETA,
        SAMPLES,
        OVER_TRAINING,
        BINS,
        TOY_MINING,
        CLIPS,
        BATCH,
        MINING,
        METRIC,
        EMBEDDING_3D,
        QUALITATIVE,
        MIXED,
        MASKED,
    )
}


def find_experiments(name: str) -> tuple[Experiment, ...]:
    """The experiment of that name, or all of them for `all`."""
    if name == "all":
        return tuple(EXPERIMENTS.values())
    if name not in EXPERIMENTS:
        hint = did_you_mean(name, [*EXPERIMENTS, "all"])
        raise ConfigError(f"There is no experiment {name!r}. {hint}")
    return (EXPERIMENTS[name],)


SMOKE_SET = {"num_classes": 4, "videos_per_class": 6}
"""Size of the demo set for the preset smoke."""


def reproduce(
    name: str,
    *,
    preset: Preset = "cpu",
    data: Path | None = None,
    out: Path,
    seeds: Sequence[int] | None = None,
    library: Library | None = None,
    announce: Announce = lambda text: None,
    progress: Progress = silent,
) -> list[Finding]:
    """Run one experiment, or all.

    data: videos with labels; the demo set, written to `out`, if not given.
    out: folder for results. Runs that it already holds are not repeated.
    seeds: seeds to use instead of the preset's.
    """
    experiments = find_experiments(name)
    if seeds is not None and not seeds:
        raise ConfigError("Give at least one seed with --seeds.")
    given = data
    if any(experiment.needs_data for experiment in experiments):
        data = _videos(data, out, preset, progress)
    findings = []
    for number, experiment in enumerate(experiments, start=1):
        announce(f"[{number}/{len(experiments)}] {experiment.name}: {experiment.title}")
        size = experiment.sizes[preset]
        if seeds is not None:
            size = dataclasses.replace(size, seeds=tuple(seeds))
        bench = Bench(
            data or out,
            out,
            preset=preset,
            size=size,
            library=library,
            announce=announce,
            progress=progress,
        )
        finding = run_experiment(experiment, bench, command=_command(experiment.name, preset, given, seeds))
        finding.write(out)
        write_report(out, EXPERIMENTS)
        announce(f"{experiment.name}: {finding.verdict}. {finding.sentence}")
        findings.append(finding)
    return findings


def run_experiment(experiment: Experiment, bench: Bench, *, command: str) -> Finding:
    """Run an experiment and judge it. A size without evidence always gives "cannot be tested here"."""
    result = experiment.run(bench)
    obstacle = result.obstacle
    if not bench.size.is_evidence:
        obstacle = (
            f"the preset {bench.preset} is too small to test anything; it only checks that the code runs"
        )
    verdict, sentence = judge(result.checks, obstacle=obstacle)
    return Finding(
        experiment=experiment,
        preset=bench.preset,
        size=bench.size,
        data=_data_name(experiment, bench),
        result=result,
        verdict=verdict,
        sentence=sentence,
        command=command,
    )


def _videos(data: Path | None, out: Path, preset: Preset, progress: Progress) -> Path:
    if data is not None:
        return data
    if preset == "paper":
        raise ConfigError(
            "The preset paper is the paper's own recipe and needs its data: UCF101 in its official layout "
            "(or HMDB51, or Kinetics-400). Give its folder with --data, or choose --preset cpu."
        )
    folder = out / f"demo-set-{preset}"
    if not folder.exists():
        out.mkdir(parents=True, exist_ok=True)
        if preset == "smoke":
            write_demo_set(folder, **SMOKE_SET, num_workers=1, progress=progress)
        else:
            write_demo_set(folder, progress=progress)
    return folder


def _data_name(experiment: Experiment, bench: Bench) -> str:
    if not experiment.needs_data:
        return "none"
    sets = bench.sets(bench.splits[0])
    name = "the demo set" if bench.is_demo_set else bench.data.name
    num_classes = len(sets.train.classes)
    return f"{name}, {len(sets.train)} training and {len(sets.test)} test videos of {num_classes} classes"


def _command(name: str, preset: Preset, data: Path | None, seeds: Sequence[int] | None) -> str:
    words = ["provico", "reproduce", name, "--preset", preset]
    if data is not None:
        words += ["--data", data.name]
    if seeds is not None:
        words += ["--seeds", *map(str, seeds)]
    return " ".join(words)
