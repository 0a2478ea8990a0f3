"""Routes: pretraining runs while they train, and the reports that commands have written."""

from __future__ import annotations

import json
import math
import mimetypes
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import quote

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response

from provico.errors import ProvicoError
from provico.explorer.files import OpenFile, send
from provico.explorer.problems import Problem
from provico.explorer.schemas import Report, RunMetrics, RunState
from provico.explorer.state import NOT_FOUND, PROBLEMS, State
from provico.training.run_log import METRICS_FILE, read_metrics

router = APIRouter(tags=["runs"], responses=PROBLEMS)

MAX_LINES = 5000
"""How many records of a log are sent at once."""
REPORT_SUFFIXES = (".html", ".svg", ".png", ".jpg", ".csv", ".json", ".txt")
ReportKind = Literal["run", "evaluation", "reproduce", "other"]
KINDS: dict[str, ReportKind] = {
    METRICS_FILE: "run",
    "results.json": "evaluation",
    "runs": "reproduce",
}
"""What a folder of a report is known by."""
FRONTS = ("report.html", "results.txt", "results.json")
"""Where to begin to read, the best first."""


@router.get("/api/runs", summary="Pretraining runs")
def runs(explorer: State) -> list[RunState]:
    """Runs in the folders given to the server, the most recently written first."""
    found = [_describe(name, folder) for name, folder in _runs(explorer.settings.all_runs).items()]
    return sorted(found, key=lambda run: -run.updated)


@router.get("/api/runs/{name}/metrics", summary="Records of a run's log", responses=NOT_FOUND)
def metrics(explorer: State, name: str, after: Annotated[int, Query(ge=0, le=2**40)] = 0) -> RunMetrics:
    """Records after the first `after` ones. Ask again with `next` to follow a run while it trains."""
    folder = _runs(explorer.settings.all_runs).get(name)
    if folder is None:
        raise Problem(404, "no_run", "There is no run of this name.", "GET /api/runs lists all of them.")
    records = _records(folder)
    is_restarted = after > len(records)
    start = 0 if is_restarted else after
    lines: list[dict[str, Any]] = [*records[start : start + MAX_LINES]]
    return RunMetrics(lines=lines, next=start + len(lines), is_restarted=is_restarted)


@router.get("/api/reports", summary="Reports")
def reports(explorer: State) -> list[Report]:
    """Reports of runs, evaluations and reproductions in the folders that the server was given."""
    settings = explorer.settings
    found = []
    for name, folder in _reports((*settings.reports, *settings.all_runs)).items():
        front = next(front for front in FRONTS if (folder / front).is_file())
        kind: ReportKind = next((kind for file, kind in KINDS.items() if (folder / file).exists()), "other")
        found.append(Report(name=name, kind=kind, url=f"/reports/{quote(name, safe='')}/{front}"))
    return found


@router.get("/reports/{name}/{path:path}", summary="A file of a report", responses=NOT_FOUND)
def report_file(request: Request, explorer: State, name: str, path: str) -> Response:
    """Shown in a sandbox, in which nothing can run or be fetched."""
    settings = explorer.settings
    folder = _reports((*settings.reports, *settings.all_runs)).get(name)
    if folder is None or Path(path).suffix.lower() not in REPORT_SUFFIXES or "\0" in path:
        raise Problem(404, "no_report", "There is no such report.", "GET /api/reports lists all of them.")
    file = OpenFile(folder / path, roots=[folder])
    if file.path.suffix.lower() not in REPORT_SUFFIXES:
        file.close()
        raise Problem(404, "no_report", "There is no such report.", "GET /api/reports lists all of them.")
    media_type = mimetypes.types_map.get(file.path.suffix.lower(), "text/plain")
    return send(file, request, media_type=media_type)


def _runs(given: Iterable[Path]) -> dict[str, Path]:
    return _named(given, lambda folder: (folder / METRICS_FILE).is_file())


def _reports(given: Iterable[Path]) -> dict[str, Path]:
    return _named(given, lambda folder: any((folder / front).is_file() for front in FRONTS))


def _named(given: Iterable[Path], is_wanted: Any) -> dict[str, Path]:
    """The folders that are wanted, among those given and the ones directly in them, by names of their own."""
    named: dict[str, Path] = {}
    seen: set[Path] = set()
    for parent in given:
        inside = sorted(parent.iterdir()) if parent.is_dir() else []
        for folder in (parent, *inside):
            if folder.resolve() in seen or not is_wanted(folder):
                continue
            seen.add(folder.resolve())
            name = base = folder.resolve().name
            number = 1
            while name in named:
                number += 1
                name = f"{base}-{number}"
            named[name] = folder
    return named


def _records(folder: Path) -> list[dict[str, float | None]]:
    try:
        return read_metrics(folder / METRICS_FILE)
    except OSError:
        return []


def _describe(name: str, folder: Path) -> RunState:
    config = _config(folder)
    try:
        last = (_records(folder) or [{}])[-1]
    except ProvicoError:  # a damaged log is told to whoever asks for it
        last = {}
    epochs = _inside(config, "optimiser", "epochs")
    method = _inside(config, "objective", "method")
    done = _finite(last.get("epoch"))
    steps_done, max_steps = int(_finite(last.get("step"))), _inside(config, "optimiser", "max_steps")
    is_finished = (folder / "encoder").is_dir()
    shares = [
        part / whole
        for part, whole in ((done, epochs), (steps_done, max_steps))
        if isinstance(whole, int) and whole > 0
    ]
    return RunState(
        name=name,
        method=method if isinstance(method, str) else None,
        epochs_done=done,
        epochs=epochs if isinstance(epochs, int) else None,
        steps_done=steps_done,
        max_steps=max_steps if isinstance(max_steps, int) else None,
        share_done=1.0 if is_finished else min(1.0, max(shares, default=0.0)),
        is_finished=is_finished,
        updated=(folder / METRICS_FILE).stat().st_mtime,
    )


def _finite(value: float | None) -> float:
    return value if value is not None and math.isfinite(value) else 0.0


def _config(folder: Path) -> Any:
    try:
        return json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}


def _inside(values: Any, *names: str) -> Any:
    for name in names:
        values = values.get(name) if isinstance(values, dict) else None
    return values
