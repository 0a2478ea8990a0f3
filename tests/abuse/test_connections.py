"""Nothing is sent anywhere: to index, to search and to serve opens no connection to another machine."""

from __future__ import annotations

import os
from pathlib import Path

from ..warm_processes import ForkServer, all_succeed

WATCH = """
import os, sys

def watch(event, arguments):
    if event in ("socket.connect", "socket.sendto", "socket.sendmsg"):
        said = repr(arguments[1])
    elif event in ("socket.getaddrinfo", "socket.gethostbyname"):
        said = repr(arguments[0])
    else:
        return
    with open({log!r}, "a") as file:
        file.write(f"{{event}} {{said}}\\n")

sys.addaudithook(watch)
with open({log!r}, "a") as file:
    file.write("watched\\n")
"""
WORK = """
import runpy, socket, sys, warnings
runpy.run_path(sys.argv.pop(1))  # which children import by themselves
from pathlib import Path
from provico.cli import main

videos, encoder, index = sys.argv[1:]
main(["index", videos, "--checkpoint", encoder, "--out", index, "--num-clips", "1"])
query = sorted(Path(videos).rglob("*.mp4"))[0]
main(["search", index, str(query)])
warnings.simplefilter("ignore")
from starlette.testclient import TestClient
from provico.explorer.app import create_app
from provico.explorer.settings import ExplorerSettings

app = create_app(ExplorerSettings(index=Path(index), upload_seconds=600.0, frame_seconds=600.0))
with TestClient(app, base_url="http://127.0.0.1") as client:
    name = client.get("/api/videos").json()["items"][0]["id"]
    for path in ("/", "/api/stats", f"/api/search?id={name}", f"/media/frame?id={name}"):
        assert client.get(path).status_code == 200, path
    sent = {"file": ("a.mp4", query.read_bytes())}
    assert client.post("/api/search", files=sent, headers={"X-ProViCo": "1"}).status_code == 200
"""


def test_no_other_machine_is_connected_to(
    tmp_path: Path, colour_videos: Path, shaded_encoder: Path, fork_server: ForkServer
) -> None:
    """Python's own audit says it, in this process and in the children that decode and embed."""
    log, watch = tmp_path / "log", tmp_path / "watch"
    watch.mkdir()
    (watch / "sitecustomize.py").write_text(WATCH.format(log=str(log)))
    environment = os.environ | {"PYTHONPATH": str(watch)}
    arguments = [watch / "sitecustomize.py", colour_videos / "test", shaded_encoder, tmp_path / "index"]
    all_succeed([fork_server.start("-c", WORK, *arguments, environment=environment)])
    said = log.read_text().splitlines()
    assert said.count("watched") >= 3  # this process, one that decodes, one that embeds
    # To 127.0.0.1, to a file, or over a pair of sockets that have no address.
    ours = ("127.0.0.1", "/", "None", "watched")
    outside = [line for line in said if not any(words in line for words in ours)]
    assert outside == []
