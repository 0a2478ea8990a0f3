"""Files of embeddings hold what is computed, in both formats, and refuse what does not belong in them."""

from __future__ import annotations

import dataclasses
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from provico.data.catalog import open_catalog
from provico.embedding import job
from provico.embedding.driver import embed
from provico.embedding.file import COLUMNS, EmbeddingHeader, read_columns, read_embeddings, read_header
from provico.errors import ConfigError, EmbeddingFileError, WeightsError
from provico.models import encoder_hash

from .small_files import FORMATS, NUM_CLIPS, NUM_VIDEOS, run

# --- what a file holds -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FORMATS)
def test_a_file_holds_what_is_computed(name, encoder, originals, library, tmp_path, monkeypatch):
    monkeypatch.setattr(job, "ROWS_AT_ONCE", 4)
    monkeypatch.setattr(job, "VIDEOS_A_PART", 3)
    path = tmp_path / name
    run(encoder, originals, path, library)
    catalog = open_catalog(originals)
    expected = embed(encoder, catalog, num_clips=NUM_CLIPS, library=library)
    columns = read_columns(path)
    assert tuple(columns) == COLUMNS
    assert columns["id"] == [video.id for video in catalog]
    assert columns["path"] == [str(video.path) for video in catalog]
    assert columns["label"] == [video.label for video in catalog] == list("AAABBB")
    assert columns["group"] == columns["subset"] == [None] * NUM_VIDEOS
    assert columns["num_bytes"].tolist() == [video.path.stat().st_size for video in catalog]
    assert columns["modified_ns"].tolist() == [video.path.stat().st_mtime_ns for video in catalog]
    clips, videos = expected.videos.clips, expected.videos.moment_matched
    numbers = {
        "clip_mean": clips.mean,
        "clip_log_var": clips.log_var,
        "mean": videos.mean,
        "log_var": videos.log_var,
        "uncertainty": clips.log_var.mean(dim=(1, 2)).exp(),
        "disagreement": videos.uncertainty - clips.log_var.mean(dim=(1, 2)).exp(),
    }
    for column, values in numbers.items():
        np.testing.assert_allclose(columns[column], values, rtol=1e-4, atol=1e-6, err_msg=column)
        assert columns[column].dtype == np.float32
    # Four clips of 4 frames, every second: 20 frames at 25 a second leave starts from 0 to 13.
    starts = np.array([0, 4, 8, 13]) / 25
    np.testing.assert_allclose(columns["start_seconds"], np.tile(starts, (NUM_VIDEOS, 1)), atol=1e-9)
    np.testing.assert_allclose(columns["end_seconds"] - columns["start_seconds"], 7 / 25, atol=1e-9)

    again = read_embeddings(path)
    assert (again.ids, again.labels, again.groups) == (expected.ids, expected.labels, expected.groups)
    torch.testing.assert_close(again.videos.mean, expected.videos.mean)
    torch.testing.assert_close(again.clip_seconds, expected.clip_seconds)
    header = read_header(path)
    assert header.encoder_hash == encoder_hash(encoder)
    assert header.encoder_config == encoder.config
    assert (header.num_clips, header.short_side, header.failed) == (NUM_CLIPS, 36, ())
    assert header.match_curve["b"] == pytest.approx(float(encoder.match_curve().b.detach()))


def test_a_parquet_is_what_others_expect_and_has_row_groups(
    encoder, originals, library, tmp_path, monkeypatch
):
    import pyarrow.parquet as pq

    monkeypatch.setattr(job, "ROWS_AT_ONCE", 4)
    run(encoder, originals, tmp_path / "e.parquet", library)
    file = pq.ParquetFile(tmp_path / "e.parquet")
    assert file.num_row_groups == 2
    row = file.read().to_pylist()[5]
    assert np.shape(row["clip_mean"]) == (NUM_CLIPS, 8)
    assert row["group"] is None
    total = float(np.exp(np.mean(row["log_var"])))
    assert row["uncertainty"] + row["disagreement"] == pytest.approx(total, rel=1e-5)


def test_every_column_is_documented():
    text = (Path(__file__).parents[2] / "docs" / "embeddings.md").read_text()
    assert tuple(re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE)[: len(COLUMNS)]) == COLUMNS
    for field in dataclasses.fields(EmbeddingHeader):
        assert f"`{field.name}`" in text


# --- what is refused ---------------------------------------------------------------------------------------


def test_other_encoders_and_settings_are_refused(encoder, make_encoder, originals, library, tmp_path):
    out = tmp_path / "e.parquet"
    run(encoder, originals, out, library)
    other = make_encoder(seed=1)
    before = out.read_bytes()
    with pytest.raises(EmbeddingFileError, match=f"the encoder {encoder_hash(encoder)} instead of"):
        run(other, originals, out, library)
    with pytest.raises(EmbeddingFileError, match="the number of clips 4 instead of 2"):
        run(encoder, originals, out, library, num_clips=2)
    with pytest.raises(EmbeddingFileError, match="the short side 36 instead of 40"):
        run(encoder, originals, out, library, short_side=40)
    elsewhere = open_catalog(originals / "A")
    with pytest.raises(EmbeddingFileError, match="holds 6 other videos"):
        run(encoder, elsewhere, out, library)
    assert out.read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["e.parquet"]


def test_parts_of_another_encoder_are_refused(encoder, make_encoder, originals, library, tmp_path):
    header = EmbeddingHeader.of(make_encoder(seed=1), num_clips=NUM_CLIPS)
    out = tmp_path / "e.npz"
    (tmp_path / "e.npz.parts").mkdir()
    (tmp_path / "e.npz.parts" / "settings.json").write_text(header.to_json())
    with pytest.raises(EmbeddingFileError, match=r"e\.npz\.parts cannot be resumed: it has the encoder"):
        run(encoder, originals, out, library)
    (tmp_path / "e.npz.parts" / "settings.json").rename(tmp_path / "e.npz.parts" / "mine.txt")
    with pytest.raises(EmbeddingFileError, match=r"it contains mine\.txt"):
        run(encoder, originals, out, library)
    assert (tmp_path / "e.npz.parts" / "mine.txt").is_file()


def test_two_processes_do_not_write_the_same_file(encoder, originals, library, tmp_path):
    lock = tmp_path / "e.npz.parts" / ".lock"
    lock.parent.mkdir()
    script = (
        "import fcntl, sys; file = open(sys.argv[1], 'w'); fcntl.lockf(file, fcntl.LOCK_EX); "
        "print('held', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script, str(lock)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout.readline() == "held\n"
        with pytest.raises(EmbeddingFileError, match="Another process is writing"):
            run(encoder, originals, tmp_path / "e.npz", library)
        other.stdin.close()
    assert run(encoder, originals, tmp_path / "e.npz", library).num_computed == NUM_VIDEOS


def test_what_is_no_such_file_is_refused(encoder, originals, library, tmp_path):
    with pytest.raises(ConfigError, match=r"e\.csv must end in \.parquet or \.npz"):
        run(encoder, originals, tmp_path / "e.csv", library)
    with pytest.raises(EmbeddingFileError, match="No such file"):
        read_embeddings(tmp_path / "e.npz")
    for name in FORMATS:
        (tmp_path / name).write_bytes(b"something else")
        with pytest.raises(EmbeddingFileError, match="cannot be read as embeddings"):
            read_embeddings(tmp_path / name)
        with pytest.raises(EmbeddingFileError, match="cannot be read as embeddings"):
            run(encoder, originals, tmp_path / name, library)
    np.savez(tmp_path / "e.npz", a=np.zeros(3))
    with pytest.raises(EmbeddingFileError, match="cannot be read as embeddings"):
        read_header(tmp_path / "e.npz")
    for version, way_out in ((1, "Embed the videos again with `provico embed`"), (99, "Update provico")):
        other = dataclasses.replace(EmbeddingHeader.of(encoder, num_clips=2), format_version=version)
        with pytest.raises(EmbeddingFileError, match=f"format {version}, .* reads format 2. {way_out}"):
            EmbeddingHeader.from_json(other.to_json())


def test_an_encoder_that_has_diverged_is_refused(make_encoder, originals, library, tmp_path):
    encoder = make_encoder()
    with torch.no_grad():
        encoder.head.log_var.layers[-1].bias.fill_(torch.nan)
    with pytest.raises(WeightsError, match="not finite"):
        run(encoder, originals, tmp_path / "e.npz", library)
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_part_is_named(encoder, originals, library, tmp_path):
    folder = tmp_path / "e.npz.parts"
    folder.mkdir()
    (folder / "settings.json").write_text(EmbeddingHeader.of(encoder, num_clips=NUM_CLIPS).to_json())
    (folder / "part-000000.npz").write_bytes(b"PK\x03\x04")
    with pytest.raises(EmbeddingFileError, match=r"part-000000\.npz is damaged"):
        run(encoder, originals, tmp_path / "e.npz", library)
    (folder / "part-000000.npz").unlink()
    assert run(encoder, originals, tmp_path / "e.npz", library).num_computed == NUM_VIDEOS
