"""The log of a run: one JSON line per record, and optional TensorBoard events.

metrics.jsonl is authoritative: append-only, flushed after every record, readable during the run. A resumed
run first removes records after its checkpoint, so that the file equals that of an uninterrupted run.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from provico.errors import ProvicoError
from provico.extras import require
from provico.files import replace_bytes
from provico.typed_json import finite

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter

METRICS_FILE = "metrics.jsonl"
TENSORBOARD_FOLDER = "tensorboard"

Record = dict[str, float | None]
"""One record as read; None means a value that was not finite."""


class RunLog:
    """Appends records to a run's folder; with `keep_to_step`, continues after that step.

    Records of later steps and a truncated last line are dropped, in one atomic replacement.
    """

    def __init__(self, folder: Path, *, tensorboard: bool = False, keep_to_step: int | None = None) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        # First, since it may raise, and the file must not be cut by then.
        self._events = _open_events(folder, keep_to_step) if tensorboard else None
        path = folder / METRICS_FILE
        _cut(path, keep_to_step)
        self._file = path.open("a", encoding="utf-8", newline="\n")

    def write(self, record: Mapping[str, float]) -> None:
        """Append one record, which has a "step"; it is passed to the operating system at once."""
        # JSON has no NaN: readers would fail on the very line that shows the problem.
        self._file.write(json.dumps(finite(record), allow_nan=False) + "\n")
        self._file.flush()
        if self._events is not None:
            step = int(record["step"])
            for name, value in record.items():
                if name != "step":
                    self._events.add_scalar(name, value, step)
            self._events.flush()

    def close(self) -> None:
        """Close the files; may be called several times."""
        self._file.close()
        if self._events is not None:
            self._events.close()

    def __enter__(self) -> RunLog:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def read_metrics(path: Path) -> list[Record]:
    """The records of a metrics.jsonl, also of a run that still writes to it.

    An incomplete last line is skipped: it is being written, or was truncated by a crash.
    """
    return [_parse(path, number, line) for number, line in enumerate(_whole_lines(path), start=1)]


def _whole_lines(path: Path) -> list[bytes]:
    with path.open("rb") as file:
        return [line for line in file if line.endswith(b"\n")]


def _parse(path: Path, number: int, line: bytes) -> Record:
    try:
        record = json.loads(line)
    except ValueError as error:
        raise ProvicoError(
            f"Line {number} of {path} is not JSON ({error}), so the file was damaged. Delete that line."
        ) from error
    if not isinstance(record, dict):
        raise ProvicoError(
            f"Line {number} of {path} is {record!r}, but a record of names and numbers was expected. "
            "Delete that line."
        )
    return record


def _cut(path: Path, keep_to_step: int | None) -> None:
    """Drop an incomplete last line and every record after the step; the rest stays identical."""
    if not path.exists():
        return
    lines = _whole_lines(path)
    if keep_to_step is not None:
        lines = [
            line
            for number, line in enumerate(lines, start=1)
            if (_parse(path, number, line).get("step") or 0) <= keep_to_step
        ]
    kept = b"".join(lines)
    if len(kept) != path.stat().st_size:
        replace_bytes(path, kept)


def _open_events(folder: Path, keep_to_step: int | None) -> SummaryWriter:
    require("tensorboard", what="--tensorboard")
    from torch.utils.tensorboard import SummaryWriter  # slow to import, and optional

    # Earlier event files cannot be cut; TensorBoard itself hides their events from this step on.
    purge_step = None if keep_to_step is None else keep_to_step + 1
    return SummaryWriter(str(folder / TENSORBOARD_FOLDER), purge_step=purge_step)
