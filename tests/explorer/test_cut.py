"""A part of a video, cut out on the page, is what `provico cut` writes; what cannot be is said."""

from __future__ import annotations

import numpy as np
import pytest

from provico.data.frames.video import index_video, read_frames

FIRE = "Fire/1.mp4"


def cut(client, video_id, start, end):
    return client.get("/media/cut", params={"id": video_id, "start": start, "seconds": end - start})


@pytest.mark.parametrize(("start", "end", "frames"), [(0.5, 1.5, range(6, 18)), (0.8, 1.1, range(9, 14))])
def test_the_part_has_exactly_its_frames(client, collection, tmp_path, start, end, frames):
    answered = cut(client, FIRE, start, end)
    assert answered.status_code == 200
    assert answered.headers["content-type"] == "video/mp4"
    disposition = answered.headers["content-disposition"]
    assert disposition == f"attachment; filename*=UTF-8''1%20{start:.2f}-{end:.2f}.mp4"
    part, source = tmp_path / "part.mp4", collection.videos / FIRE
    part.write_bytes(answered.content)
    found = read_frames(part, np.arange(len(frames)), index=index_video(part)).astype(int)
    expected = read_frames(source, np.array(frames), index=index_video(source)).astype(int)
    assert index_video(part).num_frames == len(frames)
    assert np.abs(found - expected).mean() < 4
    assert source.is_file()
    # A part of the same length elsewhere is another one.
    assert np.abs(found - read_frames(source, np.arange(len(frames)), index=index_video(source))).mean() > 6


def test_nothing_is_left_behind(client):
    cut(client, FIRE, 0.5, 1.5)
    folder = client.app.state.explorer.uploads.folder
    assert [path.name for path in folder.iterdir()] == ["lock"]


@pytest.mark.parametrize(
    ("video_id", "start", "end", "status", "said"),
    [
        (FIRE, 1.0, 1.0, 422, "greater than 0"),
        (FIRE, 0.0, 700.0, 422, "less than or equal to 600"),
        (FIRE, 100.0, 101.0, 404, "no frame between 100.00 and 101.00 s"),
        ("no such", 0.0, 1.0, 404, "no video"),
        (FIRE, float("nan"), 1.0, 422, "not valid"),
    ],
)
def test_what_cannot_be_cut_is_said(client, video_id, start, end, status, said):
    answered = cut(client, video_id, start, end)
    assert answered.status_code == status
    assert said in answered.json()["error"]["message"]
    assert str(client.app.state.explorer.settings.index) not in answered.text
