"""Every file that is read may be damaged or tampered with: a sentence or a result, never a traceback.

A few examples by default; PROVICO_FUZZ=1000 tries so many of each kind.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from provico.curation.folder import CurationFolder
from provico.errors import ProvicoError

from .damage import ODD_VALUES, changed, damaged_bytes, places, without
from .whole_files import BINARY_FILES, JSON_FILES, write_whole_files

EXAMPLES = int(os.environ.get("PROVICO_FUZZ", "8"))
few = settings(
    max_examples=EXAMPLES,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
BYTES = st.tuples(
    st.sampled_from(["cut", "overwritten", "inserted", "replaced"]),
    st.floats(0, 1),
    st.binary(min_size=1, max_size=40),
)


@pytest.fixture(scope="module")
def files(
    made_once: Callable[[str, Callable[[Path], object]], Path],
    shaded_videos: Path,
    shaded_encoder: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Path:
    """One of each kind of file, whole."""
    return made_once(
        "files-to-damage", lambda folder: write_whole_files(folder, shaded_videos, shaded_encoder)
    )


def sentence_or_result(use: Callable[[], object]) -> None:
    """Nothing but an error of ours may come out of it."""
    with suppress(ProvicoError):
        use()


@pytest.mark.parametrize("name", JSON_FILES)
def test_settings_with_other_values(files: Path, tmp_path: Path, name: str) -> None:
    folder_name, use = JSON_FILES[name]
    folder = shutil.copytree(files / folder_name, tmp_path / folder_name)
    whole = json.loads((folder / name).read_text())
    everywhere = [*places(whole)]

    @given(st.sampled_from(everywhere), st.sampled_from(ODD_VALUES) | st.just("without"))
    @few
    def check(place: tuple[object, ...], other: object) -> None:
        spoilt = without(whole, place) if other == "without" else changed(whole, place, other)
        (folder / name).write_text(json.dumps(spoilt))
        sentence_or_result(lambda: use(folder))

    check()


@pytest.mark.parametrize("name", BINARY_FILES)
def test_damaged_bytes(files: Path, tmp_path: Path, name: str) -> None:
    whole = (files / name).read_bytes()
    if name.startswith("index/"):
        shutil.copytree(files / "index", tmp_path / "index")
    elif name.startswith("encoder/"):
        shutil.copytree(files / "encoder", tmp_path / "encoder")
    shutil.copy(files / "video.mp4", tmp_path / "video.mp4")

    @given(BYTES)
    @few
    def check(damage: tuple[str, float, bytes]) -> None:
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True, parents=True)
        path.write_bytes(damaged_bytes(whole, *damage))
        sentence_or_result(lambda: BINARY_FILES[name](path))

    check()


@given(st.text(max_size=200), st.text(max_size=200))
@few
def test_damaged_proposals(tmp_path: Path, proposals: str, segments: str) -> None:
    header = "path,id,label,group,split,duration_seconds,bucket,reason,uncertainty,disagreement\n"
    (tmp_path / "proposals.csv").write_text(header + proposals, encoding="utf-8", errors="surrogatepass")
    (tmp_path / "segments.csv").write_text(
        "id,start_seconds,end_seconds\n" + segments, encoding="utf-8", errors="surrogatepass"
    )
    sentence_or_result(lambda: CurationFolder(tmp_path).current())
