"""A file is known again by what is in it."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from provico import files
from provico.data.catalog import open_catalog
from provico.renamed import moved_names
from provico.search.index import Index


def test_a_video_is_known_again_by_its_content(encoder, colour_videos, library, tmp_path):
    """Moved, renamed, copied, swapped or touched: what the encoder said of it stays."""
    videos = Path(shutil.copytree(colour_videos / "test", tmp_path / "videos"))
    index = Index.create(tmp_path / "index", encoder, num_clips=3)
    index.add(open_catalog(videos), library=library)
    before = {name: index.loaded.videos.mean[number] for number, name in enumerate(index.ids)}
    (videos / "orange").mkdir()
    (videos / "red" / "0.mp4").rename(videos / "orange" / "0.mp4")  # moved
    shutil.copy(videos / "grey" / "0.mp4", videos / "orange" / "1.mp4")  # copied
    (videos / "black" / "0.mp4").touch()  # touched
    blue, green = videos / "blue" / "0.mp4", videos / "green" / "0.mp4"
    blue.rename(videos / "swap")
    green.rename(blue)
    (videos / "swap").rename(green)  # swapped

    report = index.add(open_catalog(videos), library=library)
    assert (report.num_added, report.num_changed, report.num_recognised) == (0, 0, 4)
    assert (report.num_relabelled, report.num_unchanged, report.vanished) == (1, 2, ())
    after = {name: index.loaded.videos.mean[number] for number, name in enumerate(index.ids)}
    origin = {
        "orange/0.mp4": "red/0.mp4",
        "orange/1.mp4": "grey/0.mp4",
        "blue/0.mp4": "green/0.mp4",
        "green/0.mp4": "blue/0.mp4",
    }
    assert set(after) == set(before) - {"red/0.mp4"} | {"orange/0.mp4", "orange/1.mp4"}
    for name, mean in after.items():
        assert torch.equal(mean, before[origin.get(name, name)])
        assert index.preview(name).is_file()
    assert index.search("orange/0.mp4").certificate.is_exact
    again = index.add(open_catalog(videos), library=library)
    assert again.num_unchanged == 7

    # The same number of bytes, but other ones.
    content = bytearray((videos / "grey" / "0.mp4").read_bytes())
    content[-1] ^= 1
    (videos / "grey" / "0.mp4").write_bytes(content)
    report = index.add(open_catalog(videos), library=library)
    assert (report.num_changed + len(report.failed), report.num_recognised) == (1, 0)


@given(
    before=st.dictionaries(st.sampled_from("abcdef"), st.integers(0, 3)),
    now=st.dictionaries(st.sampled_from("abcdef"), st.integers(0, 3)),
)
def test_a_name_is_given_to_one_of_the_same_content(before, now):
    found = moved_names(before, now)
    assert len({*found.values()}) == len(found)
    for old, new in found.items():
        assert before[old] == now[new]
        assert now.get(old) != before[old]
        assert before.get(new) != now[new]
    for content in {*before.values()}:
        left = {name for name in before if before[name] == content != now.get(name)}
        came = {name for name in now if now[name] == content != before.get(name)}
        assert sum(before[old] == content for old in found) == min(len(left), len(came))


def test_of_several_copies_those_with_the_same_file_name_belong_together():
    before = {"a/x.mp4": 1, "a/y.mp4": 1, "a/z.mp4": 1}
    now = {"b/y.mp4": 1, "b/w.mp4": 1, "b/v.mp4": 1}
    assert moved_names(before, now) == {"a/y.mp4": "b/y.mp4", "a/x.mp4": "b/v.mp4", "a/z.mp4": "b/w.mp4"}


def test_large_files_are_known_by_a_part_of_them(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "WHOLE_UP_TO", 1000)
    monkeypatch.setattr(files, "BLOCK_BYTES", 50)
    data = bytearray(np.random.default_rng(0).integers(0, 256, 5000, np.uint8))
    path = tmp_path / "large"

    def digest(data: bytes) -> str:
        path.write_bytes(data)
        return files.content_hash(path)

    known = digest(data)
    assert digest(data) == known
    for place in (0, 2500 // 330 * 330 + 5, 4999):  # the first byte, one of a block, the last
        changed = data.copy()
        changed[place] ^= 1
        assert digest(changed) != known
    assert digest(data + b"more") != known
    small = bytes(data[:900])
    changed = bytearray(small)
    changed[450] ^= 1
    assert digest(small) != digest(bytes(changed))
