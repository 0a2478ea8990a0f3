"""The folders of uploads: what is left behind is removed."""

from __future__ import annotations

import tempfile

from provico.explorer.uploads import PREFIX, Uploads


def test_what_a_killed_server_left_is_removed_and_no_other_folder(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    in_use = Uploads()
    abandoned, elsewhere = tmp_path / f"{PREFIX}abc", tmp_path / "elsewhere"
    for folder in (abandoned, elsewhere):
        (folder / "1").mkdir(parents=True)
        (folder / "1" / "video.mp4").touch()
    (tmp_path / f"{PREFIX}link").symlink_to(elsewhere)
    Uploads().close()
    assert in_use.folder.is_dir()
    assert (elsewhere / "1" / "video.mp4").is_file()
    assert not abandoned.exists()
    in_use.close()
    assert not in_use.folder.exists()
