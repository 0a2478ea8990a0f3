"""Pretraining on a collection takes over only if it is better, and says what came of it either way."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from provico.data.library import Library
from provico.search.index import Index
from provico.workspace import learning
from provico.workspace.folder import Workspace
from provico.workspace.learning import Measured, learn
from provico.workspace.stages import Work
from provico.workspace.status import StatusWriter


@pytest.mark.usefixtures("without_charts")
def test_what_was_learnt_takes_over_if_it_is_better(
    colour_videos: Path, shaded_encoder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace = Workspace.open(
        colour_videos / "train", folder=tmp_path / "kept", checkpoint=str(shaded_encoder)
    )
    status = StatusWriter(workspace.path, stages=[], is_watching=False)
    work = Work(workspace, status, Library(tmp_path / "home"))
    work.bring_up_to_date()
    first = workspace.index
    assert first is not None
    assert {stage.state for stage in status.status.stages} == {"done"}
    marks = iter([0.5, 0.5, 0.5, 0.9])
    real = learning.measure

    def measure(index: Index) -> Measured:
        found = real(index)
        return Measured(np.full(len(found.reciprocal_ranks), next(marks)))

    monkeypatch.setattr(learning, "measure", measure)
    learn(work)
    assert (workspace.index, workspace.settings.is_learnt) == (first, False)
    assert "nothing has changed" in status.status.news
    assert [path.name for path in workspace.path.glob("index-*")] == [first.name]
    assert (workspace.path / "run" / "encoder").is_dir()
    learn(work)  # the run is there already
    assert workspace.index not in (None, first)
    assert workspace.settings.is_learnt
    assert "0.500 before, 0.900 after" in status.status.news
    work.bring_up_to_date()  # keeps to it
    assert workspace.settings.is_learnt
