"""How fast is a training step on a CPU? The networks against plain PyTorch, and the loss against a naive one.

    python benchmarks/step.py                          # wall time of all cores, on a quiet machine
    python benchmarks/step.py --threads 1 --clock cpu  # CPU seconds of one, on a busy one

Networks: forward and backward of random clips. Floating-point operations are counted layer by layer (two for
each multiplication with a weight; the same again for the gradient of the weights, and once more for that of
the input where there is one) and given as a share of what this machine's matrix product (sgemm, 1536^3)
reaches in the same round. Contenders:

    plain           torch.nn.Conv3d in contiguous memory, as one would write it first
    channels-last   the same layers in channels_last_3d memory
    convolution     with provico.models.backbones.convolution
    ours            the same, and freed memory kept (provico.processes)

Loss: from the clip Gaussians of B videos to the gradients, with K samples of D coordinates, against one that
forms all B x B x K x K differences. Memory is the growth of the process, from before
anything was built to its peak.

Every contender lives in a process of its own and they take turns, so that whatever else the machine does
hurts all alike. Given are medians over the rounds, with the smallest and largest.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import platform
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median
from typing import Any

CASES: dict[str, tuple[str, int, int, int]] = {
    # name -> backbone, clips, frames, pixels
    "r3d18 16x112": ("r3d18", 2, 16, 112),
    "r2plus1d18 16x112": ("r2plus1d18", 2, 16, 112),
    "tiny 16x112": ("tiny", 8, 16, 112),
    "tiny 8x64": ("tiny", 16, 8, 64),
}
CONTENDERS = ("plain", "channels-last", "convolution", "ours")
GOALS = {"r3d18 16x112": 75, "r2plus1d18 16x112": 60, "tiny 16x112": 65, "tiny 8x64": 65}
SGEMM_SIZE = 1536

NUM_VIDEOS, NUM_CLIPS, NUM_SAMPLES = 96, 2, 10
DIMS = (128, 256, 512, 1024)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--clock", choices=("wall", "cpu"), default="wall")
    parser.add_argument("--cases", nargs="*", choices=tuple(CASES), default=tuple(CASES))
    parser.add_argument("--no-loss", action="store_true", help="only the networks")
    parser.add_argument("--naive-gb", type=float, default=8.0, help="leave out naive losses larger than this")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/step.json"))
    options = parser.parse_args()

    report: dict[str, Any] = {"machine": machine_facts(options), "networks": {}, "loss": {}}
    for case in options.cases:
        report["networks"][case] = race_networks(case, options)
        print_networks(case, report["networks"][case])
    if not options.no_loss:
        for dim in DIMS:
            report["loss"][str(dim)] = race_losses(dim, options)
        print_losses(report)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(report, indent=1) + "\n")


def machine_facts(options: argparse.Namespace) -> dict[str, Any]:
    import torch

    return {
        "cpu": platform.processor() or platform.machine(),
        "cores": os.cpu_count(),
        "capability": torch.backends.cpu.get_cpu_capability(),
        "torch": torch.__version__,
        "threads": options.threads,
        "clock": options.clock,
        "rounds": options.rounds,
    }


# ----------------------------------------------------------------------------------------------------
# Processes that take turns


Contender = tuple[Callable[[], None], dict[str, Any]]
"""What to run, and what is to be known about it."""


class Racer:
    """A contender in a process of its own, which waits for its turn."""

    def __init__(self, make: Callable[..., Contender], *arguments: Any, threads: int, clock: str) -> None:
        context = multiprocessing.get_context("spawn")
        self._line, far_end = context.Pipe()
        self._process = context.Process(
            target=_serve, args=(far_end, make, arguments, threads, clock), daemon=True
        )
        self._process.start()
        far_end.close()  # so that a process that dies is noticed
        self.facts: dict[str, Any] = self._line.recv()

    def seconds(self) -> float:
        """Run once."""
        self._line.send(None)
        seconds: float = self._line.recv()
        return seconds

    def stop(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.join()


def _serve(
    line: Connection, make: Callable[..., Contender], arguments: tuple[Any, ...], threads: int, clock: str
) -> None:
    import torch

    torch.set_num_threads(threads)
    torch.manual_seed(0)
    now = time.process_time if clock == "cpu" else time.perf_counter
    rss_before = _memory_mb("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # resets the peak
    run, facts = make(*arguments)
    run()
    line.send({**facts, "peak_mb": _memory_mb("VmHWM") - rss_before})
    while True:
        line.recv()
        start = now()
        run()
        line.send(now() - start)


def _memory_mb(field: str) -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(field)) / 1024


def make_sgemm() -> Contender:
    import torch

    a, b, product = (torch.randn(SGEMM_SIZE, SGEMM_SIZE) for _ in range(3))

    def run() -> None:
        torch.mm(a, b, out=product)

    return run, {"flops": 2 * SGEMM_SIZE**3}


# ----------------------------------------------------------------------------------------------------
# Networks


def make_step(case: str, contender: str) -> Contender:
    import torch

    from provico.models import BACKBONES
    from provico.processes import keep_freed_memory

    if contender == "ours":
        keep_freed_memory()
    name, num_clips, num_frames, size = CASES[case]
    network = BACKBONES[name].build()
    clips = torch.randn(num_clips, num_frames, size, size, 3).permute(0, 4, 1, 2, 3)
    if contender in ("plain", "channels-last"):
        use_plain_layers(network)
    if contender == "plain":
        clips = clips.contiguous()

    def run() -> None:
        network.zero_grad()
        network(clips).square().sum().backward()

    return run, {"flops": count_flops(network, clips), "clips": num_clips}


def use_plain_layers(network: Any) -> None:
    """Put PyTorch's own layers in the place of ours."""
    from torch import nn

    from provico.models.backbones.convolution import Conv3d
    from provico.models.backbones.resnet3d import SpatialMaxPool

    for module in list(network.modules()):
        for name, child in module.named_children():
            if isinstance(child, Conv3d):
                time_taps, height_taps, width_taps = child.kernel_size
                plain = nn.Conv3d(
                    child.in_channels,
                    child.out_channels,
                    (time_taps, height_taps, width_taps),
                    child.steps,
                    child.margins,
                    bias=False,
                )
                plain.weight = child.weight
                setattr(module, name, plain)
            elif isinstance(child, SpatialMaxPool):
                setattr(module, name, nn.MaxPool3d((1, 3, 3), (1, 2, 2), (0, 1, 1)))


def count_flops(network: Any, clips: Any) -> int:
    """Operations of all convolutions, forward and backward."""
    from torch import nn

    total = 0

    def count(layer: Any, inputs: tuple[Any, ...], output: Any) -> None:
        nonlocal total
        passes = 3 if inputs[0].requires_grad else 2
        total += passes * 2 * output.numel() * layer.weight[0].numel()

    hooks = [m.register_forward_hook(count) for m in network.modules() if isinstance(m, nn.Conv3d)]
    network(clips)
    for hook in hooks:
        hook.remove()
    return total


def race_networks(case: str, options: argparse.Namespace) -> dict[str, Any]:
    settings = {"threads": options.threads, "clock": options.clock}
    sgemm = Racer(make_sgemm, **settings)
    racers = {name: Racer(make_step, case, name, **settings) for name in CONTENDERS}
    rounds: list[dict[str, float]] = []
    try:
        for number in range(options.rounds + 1):
            # The product runs before and after, and the better one counts: it is the machine's peak.
            peak = [sgemm.seconds() for _ in range(5)]
            # Everyone has every place in the order once in a while.
            order = CONTENDERS[number % len(CONTENDERS) :] + CONTENDERS[: number % len(CONTENDERS)]
            seconds = {name: racers[name].seconds() for name in order}
            peak += [sgemm.seconds() for _ in range(5)]
            if number:  # the first round warms up
                rounds.append({**seconds, "peak_flops": sgemm.facts["flops"] / min(peak)})
    finally:
        for racer in (sgemm, *racers.values()):
            racer.stop()
    table = {}
    for name, racer in racers.items():
        flops, clips = racer.facts["flops"], racer.facts["clips"]
        table[name] = {
            "clips_per_second": spread([clips / r[name] for r in rounds]),
            "percent_of_sgemm": spread([100 * flops / r[name] / r["peak_flops"] for r in rounds]),
            "times_plain": spread([r["plain"] / r[name] for r in rounds]),
            "peak_mb": racer.facts["peak_mb"],
        }
    return {
        "gflop_per_clip": racers["plain"].facts["flops"] / racers["plain"].facts["clips"] / 1e9,
        "sgemm_gflops": spread([r["peak_flops"] / 1e9 for r in rounds]),
        "contenders": table,
    }


def spread(values: list[float]) -> dict[str, float]:
    return {"median": median(values), "min": min(values), "max": max(values)}


# ----------------------------------------------------------------------------------------------------
# Loss


def make_loss(kind: str, dim: int) -> Contender:
    import torch

    from provico.probability import (
        PARAMETRISATIONS,
        Gaussian,
        MatchCurve,
        Mixture,
        match_log_probabilities,
        provico_loss,
    )

    scale = PARAMETRISATIONS["sqrt_dim"]
    shape = (NUM_VIDEOS, NUM_CLIPS, dim)
    mean = torch.nn.functional.normalize(torch.randn(shape), dim=-1) * scale.mean_norm(dim)
    log_var = torch.full(shape, scale.initial_log_var(dim))
    a, b = torch.tensor(scale.initial_a(dim)), torch.tensor(scale.initial_b(dim))
    leaves = [value.requires_grad_() for value in (mean, log_var, a, b)]
    positive = torch.eye(NUM_VIDEOS, dtype=torch.bool)

    def objective() -> torch.Tensor:
        videos = Mixture(Gaussian(mean, log_var))
        video = videos.moment_matched
        samples = video.sample(NUM_SAMPLES, generator=torch.Generator().manual_seed(0))
        if kind == "ours":
            log_probabilities = match_log_probabilities(samples, curve=MatchCurve(a, b))
            return provico_loss(
                log_probabilities, positive, log_uncertainty=video.log_uncertainty, kl=video.kl_to_unit()
            ).total
        naive: torch.Tensor = naive_loss(samples, a, b, positive, video)
        return naive

    def run() -> None:
        torch.autograd.grad(objective(), leaves)

    return run, {"value": float(objective().detach())}


def naive_loss(samples: Any, a: Any, b: Any, positive: Any, video: Any) -> Any:
    """Eqs. 8 to 12 written down as they stand, but for k = k' on the diagonal."""
    import torch

    differences = samples[:, None, :, None] - samples[None, :, None, :]
    logits = b - a * (differences.square().sum(-1) + 1e-6).sqrt()
    keep = torch.ones(logits.shape, dtype=torch.bool)
    keep[torch.eye(NUM_VIDEOS, dtype=torch.bool)] = ~torch.eye(NUM_SAMPLES, dtype=torch.bool)
    counted = keep.sum(dim=(2, 3))
    match = (torch.sigmoid(logits) * keep).sum(dim=(2, 3)) / counted
    non_match = (torch.sigmoid(-logits) * keep).sum(dim=(2, 3)) / counted
    soft = -torch.where(positive, match, non_match).log()
    uncertainty = video.log_uncertainty.exp()
    weights = 1 / (4 * uncertainty[:, None] * uncertainty)
    regulariser = 0.5 * (video.log_uncertainty[:, None] + video.log_uncertainty)
    kl = 0.5 * (video.var - video.log_var - 1 + video.mean.square()).sum(-1)
    return (weights * soft + regulariser + 1e-4 * (kl[:, None] + kl)).mean()


def race_losses(dim: int, options: argparse.Namespace) -> dict[str, Any]:
    # Differences, their squares, and the gradients of both.
    naive_gb = 4 * 4 * NUM_VIDEOS**2 * NUM_SAMPLES**2 * dim / 1e9
    kinds = ("ours", "naive") if naive_gb <= options.naive_gb else ("ours",)
    settings = {"threads": options.threads, "clock": options.clock}
    racers = {kind: Racer(make_loss, kind, dim, **settings) for kind in kinds}
    try:
        rounds = [{kind: racer.seconds() for kind, racer in racers.items()} for _ in range(options.rounds)]
    finally:
        for racer in racers.values():
            racer.stop()
    return {
        kind: {
            "value": racer.facts["value"],
            "peak_mb": racer.facts["peak_mb"],
            "seconds": spread([r[kind] for r in rounds]),
        }
        for kind, racer in racers.items()
    }


# ----------------------------------------------------------------------------------------------------
# Tables


def print_networks(case: str, result: dict[str, Any]) -> None:
    print(
        f"\n{case}: {result['gflop_per_clip']:.2f} GFLOP a clip, "
        f"sgemm {result['sgemm_gflops']['median']:.0f} GFLOP/s, goal {GOALS[case]} %"
    )
    print(f"{'':16}{'clips/s':>24}{'% of sgemm':>24}{'x plain':>20}{'peak MB':>10}")
    for name, row in result["contenders"].items():
        columns = (
            _range(row["clips_per_second"], 2, 24),
            _range(row["percent_of_sgemm"], 1, 24),
            _range(row["times_plain"], 2, 20),
        )
        print(f"{name:16}{''.join(columns)}{row['peak_mb']:10.0f}", flush=True)


def print_losses(report: dict[str, Any]) -> None:
    print(f"\nLoss of {NUM_VIDEOS} videos of {NUM_CLIPS} clips, {NUM_SAMPLES} samples, forward and backward")
    print(f"{'':16}{'seconds':>28}{'peak MB':>10}{'value':>12}")
    for dim, rows in report["loss"].items():
        for kind, row in rows.items():
            seconds = _range(row["seconds"], 4, 28)
            print(f"{'D = ' + dim:10}{kind:6}{seconds}{row['peak_mb']:10.0f}{row['value']:12.5f}")
    step = report["networks"].get("r3d18 16x112")
    if step is not None:
        clips_per_second = step["contenders"]["ours"]["clips_per_second"]["median"]
        network_seconds = NUM_VIDEOS * NUM_CLIPS / clips_per_second
        for dim, rows in report["loss"].items():
            share = 100 * rows["ours"]["seconds"]["median"] / network_seconds
            print(
                f"D = {dim}: the loss takes {share:.2f} % of the step of r3d18 on these {NUM_VIDEOS} videos"
            )


def _range(values: dict[str, float], digits: int, width: int) -> str:
    text = f"{values['median']:.{digits}f} [{values['min']:.{digits}f}-{values['max']:.{digits}f}]"
    return f"{text:>{width}}"


if __name__ == "__main__":
    main()
