"""One process, or several that torchrun starts to train together (docs/decisions/0004-processes.md).

Also a setting that lets a process keep freed memory.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeVar

import torch
import torch.distributed as dist
from torch import nn

from provico.errors import ConfigError, ProvicoError

T = TypeVar("T")


@dataclass(frozen=True)
class Processes:
    """This process and its place among those that train together."""

    rank: int
    world_size: int
    device: torch.device

    @property
    def is_first(self) -> bool:
        """Whether this process writes files and prints."""
        return self.rank == 0

    def share_of(self, batch_size: int) -> int:
        """This process's part of a global batch."""
        share, rest = divmod(batch_size, self.world_size)
        if rest:
            raise ConfigError(
                f"A batch of {batch_size} videos cannot be divided evenly among {self.world_size} processes. "
                f"Choose a multiple of {self.world_size}."
            )
        return share

    def num_readers(self, wanted: int | None) -> int:
        """Number of processes that read clips for this one: by default one per core with a GPU, else one."""
        if wanted is not None:
            return wanted
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        if self.device.type == "cuda":
            return max(1, cores // max(1, torch.cuda.device_count()) - 1)
        return 1

    def any(self, *flags: bool) -> tuple[bool, ...]:
        """For each flag, whether it is set in any process."""
        if self.world_size == 1:
            return flags
        raised = torch.tensor([float(flag) for flag in flags], device=self.device)
        dist.all_reduce(raised, op=dist.ReduceOp.MAX)
        return tuple(value > 0 for value in raised.tolist())

    def gather(self, value: T) -> list[T]:
        """The values of all processes, in the order of their ranks."""
        if self.world_size == 1:
            return [value]
        values = [value] * self.world_size
        dist.all_gather_object(values, value)
        return values

    def wait(self) -> None:
        """Wait until all processes get here."""
        if self.world_size > 1:
            dist.barrier()

    def first_then_all(self, make: Callable[[], T]) -> T:
        """Call `make` in the first process, then in the others. If the first fails, all raise its error."""
        made: list[T] = []
        error: ProvicoError | None = None
        if self.is_first:
            try:
                made.append(make())
            except ProvicoError as caught:
                error = caught
        error = self.gather(error)[0]
        if error is not None:
            raise error
        return made[0] if made else make()


ALONE = Processes(0, 1, torch.device("cpu"))
"""A single process."""

_JOINED: list[object] = []
"""The process groups that this process has joined. They are kept alive on purpose. A
`DistributedDataParallel` module may outlive its group and hold the last reference to it. Destroying the group
then takes Python's lock, for which a thread of gloo may wait to release a tensor, and the process would
hang."""


@atexit.register
def _part() -> None:
    """Before Python exits, let the threads of gloo release their tensors.

    A thread that asks for Python's lock during shutdown is terminated, possibly in the middle of a
    destructor, which aborts the process (SIGABRT) although its work succeeded. On a busy machine a thread may
    well be that late.
    """
    if not _JOINED or sys.platform != "linux":
        return
    deadline = time.monotonic() + _SECONDS_TO_PART
    num_quiet = 0
    while num_quiet < 3 and time.monotonic() < deadline:
        time.sleep(0.01)  # sleeping releases the lock to the threads that wait for it
        num_quiet = num_quiet + 1 if all(state == "S" for state in _states_of_gloo()) else 0


_SECONDS_TO_PART = 60.0


def _states_of_gloo() -> list[str]:
    """The kernel's states of the threads that run collectives: S is sleeping, R is runnable."""
    states = []
    for thread in Path("/proc/self/task").iterdir():
        with suppress(OSError):  # the thread has ended
            name, _, rest = (thread / "stat").read_text().partition("(")[2].rpartition(")")
            if "gloo_runloop" in name:
                states.append(rest.split()[0])
    return states


def leave() -> None:
    """Exit immediately if this process was one of several, even if its groups still wait.

    For the end of a program that owns the process. If an exception is ending it, print that first.
    """
    if not _JOINED:
        return
    error = sys.exc_info()[1]
    code = error.code if isinstance(error, SystemExit) else int(error is not None)
    if code == 1 and not isinstance(error, SystemExit):
        traceback.print_exc()
    atexit.unregister(_part)
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(code if isinstance(code, int) else int(code is not None))


@contextmanager
def join(device: Literal["auto", "cpu", "cuda"]) -> Iterator[Processes]:
    """Join the other processes if torchrun started this one; otherwise run alone."""
    if device == "cuda" and not torch.cuda.is_available():
        raise ConfigError("--device is cuda, but torch finds no GPU. Use --device cpu.")
    on_gpu = device != "cpu" and torch.cuda.is_available()
    if "WORLD_SIZE" not in os.environ or dist.is_initialized():
        rank, world_size = (
            (dist.get_rank(), dist.get_world_size())
            if dist.is_available() and dist.is_initialized()
            else (0, 1)
        )
        yield Processes(rank, world_size, _device(on_gpu))
        return
    if on_gpu:
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    dist.init_process_group("nccl" if on_gpu else "gloo")
    _JOINED.append(dist.group.WORLD)
    try:
        yield Processes(dist.get_rank(), dist.get_world_size(), _device(on_gpu))
    except RuntimeError as error:
        if not isinstance(error, dist.DistError) and "gloo/" not in str(error):
            raise
        raise ConfigError(
            "Another of the cooperating processes has ended or cannot be reached. Finished work is kept. See "
            "the output of that process, then run the same command again, with --resume for provico "
            "pretrain."
        ) from error
    finally:
        dist.destroy_process_group()


def _device(on_gpu: bool) -> torch.device:
    return torch.device("cuda", torch.cuda.current_device()) if on_gpu else torch.device("cpu")


class BatchNormAcross(nn.BatchNorm3d):
    """Batch normalisation over the clips of all processes, for CPUs, which torch does not support.

    Sums and sums of squares are exchanged, and so are their gradients: two processes give the result of one
    with all clips, up to rounding.
    """

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """Normalise by the statistics of all processes in training, by running statistics in evaluation."""
        if not self.training:
            return super().forward(input)
        axes = (0, 2, 3, 4)
        number = input.numel() / input.shape[1]
        local = torch.cat([input.sum(axes), input.square().sum(axes), input.new_tensor([number])])
        total: torch.Tensor = _SumOverProcesses.apply(local)  # type: ignore[no-untyped-call]
        count = total[-1].detach()
        mean, square = (total[:-1] / count).chunk(2)
        var = square - mean.square()
        if self.track_running_stats:
            assert self.running_mean is not None
            assert self.running_var is not None
            assert self.num_batches_tracked is not None
            assert self.momentum is not None
            with torch.no_grad():
                self.num_batches_tracked += 1
                self.running_mean.lerp_(mean, self.momentum)
                self.running_var.lerp_(var * count / (count - 1), self.momentum)
        scale = self.weight * torch.rsqrt(var + self.eps)
        shape = (1, -1, 1, 1, 1)
        return input * scale.view(shape) + (self.bias - mean * scale).view(shape)


class _SumOverProcesses(torch.autograd.Function):
    @staticmethod
    def forward(ctx: object, local: torch.Tensor) -> torch.Tensor:
        total = local.clone()
        dist.all_reduce(total)
        return total

    @staticmethod
    def backward(ctx: object, gradient: torch.Tensor) -> torch.Tensor:
        # This process's part enters the total of every process, so the gradients add up.
        total = gradient.clone()
        dist.all_reduce(total)
        return total


def synchronise_batch_norm(module: nn.Module, processes: Processes) -> nn.Module:
    """Make every batch normalisation use the clips of all processes."""
    if processes.world_size == 1:
        return module
    if processes.device.type == "cuda":
        converted: nn.Module = nn.SyncBatchNorm.convert_sync_batchnorm(module)  # type: ignore[no-untyped-call]
        return converted
    for layer in module.modules():
        if type(layer) is nn.BatchNorm3d:
            layer.__class__ = BatchNormAcross
    return module


# From glibc's malloc.h.
_M_TRIM_THRESHOLD = -1
_M_MMAP_MAX = -4


def keep_freed_memory() -> bool:
    """Make the C library keep freed memory in this process; False if it is not glibc.

    glibc returns large blocks to the kernel as soon as they are freed. A training step frees and allocates
    the same hundreds of megabytes every time, and each returned page must be zeroed and mapped again. The
    cost depends on the network and the machine: `benchmarks/step.py` measures it ("convolution" against
    "ours"). In exchange, the process stays at its peak size.

    Only a program that owns the process, such as a training command, should call this; the library does not.
    """
    if sys.platform != "linux":
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:  # musl has none
        return False
    # Take blocks of every size from the heap, and never give the top of the heap back.
    return bool(mallopt(_M_MMAP_MAX, 0)) and bool(mallopt(_M_TRIM_THRESHOLD, 2**31 - 1))
