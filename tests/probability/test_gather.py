"""Two real processes, which torchrun starts, give the loss and gradient of one with the whole batch."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import torch

from provico.probability import MatchCurve, for_averaging, gather_videos, shared_parameter, world_size

from ..warm_processes import ForkServer, all_succeed

WORKER = Path(__file__).with_name("gather_worker.py")


def load_worker() -> ModuleType:
    spec = importlib.util.spec_from_file_location("gather_worker", WORKER)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_two_processes_equal_one(tmp_path: Path, fork_server: ForkServer) -> None:
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    all_succeed([fork_server.start(*torchrun, WORKER, tmp_path)])
    worker = load_worker()
    encoder = worker.Encoder()
    mixture = worker.mixture_of(encoder(torch.cat([worker.clips_of(0), worker.clips_of(1)])))
    parts = worker.loss_of(mixture, MatchCurve.from_raw(encoder.log_a, encoder.b))
    parts.total.backward()
    for rank in (0, 1):
        result = torch.load(tmp_path / f"rank{rank}.pt", weights_only=True)
        torch.testing.assert_close(result["loss"], parts.total.detach(), rtol=1e-9, atol=1e-12)
        for name, parameter in encoder.named_parameters():
            assert parameter.grad is not None
            assert parameter.grad.abs().max() > 1e-6
            torch.testing.assert_close(result[name], parameter.grad, rtol=1e-9, atol=1e-12)
        torch.testing.assert_close(result["empty"], mixture.mean[:5].detach(), rtol=1e-9, atol=1e-12)


def test_one_process_is_left_alone() -> None:
    values = torch.randn(3, 2, requires_grad=True)
    assert world_size() == 1
    assert gather_videos(values) is values
    assert shared_parameter(values) is values
    loss = values.sum()
    assert for_averaging(loss) is loss
