"""Files and requests that are wrong on purpose: refused in time, in words, and the server goes on."""

from __future__ import annotations

import asyncio
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import ExitStack, suppress
from urllib.parse import urlsplit

import httpx
import psutil
import pytest

from provico.explorer.uploads import PREFIX, safe_name

from ..abuse.traps import set_traps, sprung
from .conftest import open_app

GUARD = {"X-ProViCo": "1"}


def send(client: httpx.Client, content: bytes, name: str = "a.mp4", **data: object) -> httpx.Response:
    return client.post("/api/search", files={"file": (name, content)}, data=data, headers=GUARD)


def kept(client: httpx.Client) -> list[str]:
    """What is left of uploads."""
    folder = client.app.state.explorer.uploads.folder
    return sorted(path.name for path in folder.iterdir() if path.name != "lock")


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"not a video",
        b"\0" * 5000,
        b"\0\0\0\x18ftypmp42" + b"\xff" * 3000,
        b"GIF89a",
        b"RIFF\xff\xff\xff\xffAVI LIST",
    ],
)
def test_what_is_no_video_is_refused_in_words(shared_client, content):
    answer = send(shared_client, content)
    assert (answer.status_code, answer.json()["error"]["code"]) == (422, "unreadable_video")
    assert PREFIX not in answer.text
    assert kept(shared_client) == []


def test_a_playlist_does_not_make_the_decoder_read_other_files(shared_client, collection):
    """FFmpeg opens what a playlist names, unless it is told not to."""
    video = collection.videos / "Fire" / "1.mp4"
    lists = {
        "a.m3u8": f"#EXTM3U\n#EXT-X-TARGETDURATION:9\n#EXTINF:9,\n{video}\n#EXT-X-ENDLIST\n",
        "a.txt": f"ffconcat version 1.0\nfile '{video}'\n",
        "a.mp4": f"ffconcat version 1.0\nfile '{video}'\n",
    }
    for name, text in lists.items():
        assert send(shared_client, text.encode(), name).status_code == 422


def test_the_name_of_an_upload_is_only_shown(shared_client, collection):
    content = (collection.videos / "Fire" / "1.mp4").read_bytes()
    answer = send(shared_client, content, "../../../tmp/evil\x1b[31m.mp4")
    assert answer.status_code == 200
    assert answer.json()["answer"]["query"] == "evil__31m.mp4"
    assert kept(shared_client) == []


@pytest.mark.parametrize(
    ("given", "expected"),
    [("a.mp4", "a.mp4"), ("/etc/passwd", "passwd"), ("..", "upload"), ("C:\\b.avi", "b.avi"), ("", "upload")],
)
def test_names_can_do_no_harm(given, expected):
    assert safe_name(given) == expected
    assert "/" not in safe_name(given + "/x\0")


def test_long_names_are_cut():
    assert len(safe_name("x" * 5000 + ".mp4")) <= 100


def test_a_file_that_is_too_large_is_refused(open_client):
    client = open_client(max_upload_bytes=100_000)
    answer = send(client, b"\0" * 400_000)
    assert (answer.status_code, answer.json()["error"]["code"]) == (413, "too_large")
    assert kept(client) == []
    assert client.get("/api/stats").status_code == 200


def test_other_bodies_are_small(shared_client):
    body = {"id": "x" * 100_000, "decision": "keep"}
    assert shared_client.post("/api/curation/decisions", json=body, headers=GUARD).status_code == 413


def test_a_decoder_that_takes_too_long_is_stopped(open_client, collection):
    client = open_client(upload_seconds=0.01)  # less than any process needs to start
    answer = send(client, (collection.videos / "Fire" / "1.mp4").read_bytes())
    assert answer.status_code == 422
    assert "longer than 0.01 seconds" in answer.json()["error"]["message"]
    assert kept(client) == []


def test_malformed_forms_are_refused(shared_client):
    wrong = [
        {"content": b"", "headers": GUARD},
        {"content": b"garbage", "headers": GUARD | {"Content-Type": "multipart/form-data; boundary=x"}},
        {"content": b"garbage", "headers": GUARD | {"Content-Type": "multipart/form-data"}},
        {"data": {"k": "3"}, "headers": GUARD},
        {"data": {"file": "text"}, "headers": GUARD},
        {"json": {"file": "a"}, "headers": GUARD},
    ]
    for options in wrong:
        answer = shared_client.post("/api/search", **options)
        assert answer.status_code in (400, 422), answer.text
        assert answer.json()["error"]["message"]
    for k in ("0", "201", "x", "-1"):
        assert send(shared_client, b"x", k=k).status_code == 422


@pytest.mark.parametrize(
    "query",
    [
        "limit=201",
        "limit=0",
        "offset=-1",
        "sort=path",
        "sort=--id",
        "min_uncertainty=nan",
        "min_uncertainty=inf",
        "text=" + "x" * 201,
        "offset=99999999999999999999999",
    ],
)
def test_wrong_questions_are_told_what_is_wrong(shared_client, query):
    answer = shared_client.get(f"/api/videos?{query}")
    assert answer.status_code == 422
    assert query.split("=")[0] in answer.json()["error"]["message"]


def test_a_failure_of_ours_tells_no_secrets(shared_client, monkeypatch):
    def fail(*_: object) -> None:
        raise RuntimeError("/secret/place")

    monkeypatch.setattr("provico.explorer.collection.IndexView.card", fail)
    answer = shared_client.get("/api/videos")
    assert (answer.status_code, answer.json()["error"]["code"]) == (500, "internal")
    assert "secret" not in answer.text
    assert "default-src" in answer.headers["content-security-policy"]


def connect(url: str) -> socket.socket:
    parts = urlsplit(url)
    return socket.create_connection((parts.hostname, parts.port), timeout=None)


def test_garbage_on_the_wire_does_not_end_the_server(server):
    for garbage in (b"\0" * 1000, b"GET / HTTP/9.9\r\n\r\n", b"GET " + b"a" * 100_000 + b" HTTP/1.1\r\n\r\n"):
        with connect(server.url) as wire:
            wire.sendall(garbage)
            wire.shutdown(socket.SHUT_WR)
            wire.recv(1000)
    assert httpx.get(f"{server.url}/api/stats", timeout=None).status_code == 200


def test_a_client_that_leaves_in_the_middle_does_no_harm(server):
    for _ in range(5):
        with connect(server.url) as wire:
            wire.sendall(b"GET /media/source?id=Fire/1.mp4 HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
    with connect(server.url) as wire:
        wire.sendall(
            b"POST /api/search HTTP/1.1\r\nHost: 127.0.0.1\r\nX-ProViCo: 1\r\nContent-Length: 999999\r\n"
            b"Content-Type: multipart/form-data; boundary=x\r\n\r\n--x\r\n"
        )
    assert httpx.get(f"{server.url}/media/source?id=Fire/1.mp4", timeout=None).status_code == 200


def test_many_uploads_at_once_are_all_answered(server, collection):
    content = (collection.videos / "Fire" / "1.mp4").read_bytes()
    statuses: list[int] = []

    def ask(number: int) -> None:
        body = content if number % 2 else b"nothing"
        answer = httpx.post(
            f"{server.url}/api/search", files={"file": ("a.mp4", body)}, headers=GUARD, timeout=None
        )
        statuses.append(answer.status_code)

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(statuses) == [200] * 4 + [422] * 4


def test_uploads_stop_no_search_and_ctrl_c_ends_them(start_server, collection, tmp_path, monkeypatch):
    """With the process that embeds stopped, uploads fill their queue; the next ones are turned away."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    running = start_server()
    content = (collection.videos / "Fire" / "1.mp4").read_bytes()
    with httpx.Client(base_url=running.url, timeout=None) as client:
        assert send(client, content).status_code == 200
        (child,) = psutil.Process(running.process.pid).children()
        child.suspend()
        turned_away: list[httpx.Response] = []

        def ask() -> None:
            with suppress(httpx.TransportError), httpx.Client(base_url=running.url, timeout=None) as own:
                answer = send(own, content)
                turned_away.extend([answer] if answer.status_code == 503 else [])

        threads = [threading.Thread(target=ask) for _ in range(12)]
        for thread in threads:
            thread.start()
        while not turned_away:
            time.sleep(0.01)
        assert turned_away[0].headers["Retry-After"] == "5"
        assert turned_away[0].json()["error"]["code"] == "busy"
        for path in ("/api/search?id=Fire/1.mp4&k=3", "/api/stats", "/media/frame?id=Fire/1.mp4&seconds=1"):
            assert client.get(path).status_code == 200
    running.process.send_signal(signal.SIGINT)
    assert running.process.wait() == 0
    for thread in threads:
        thread.join()
    assert not child.is_running()
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith("provico-")] == []


def test_no_code_of_the_folder_is_run_in_which_it_is_started(start_server, collection, tmp_path):
    set_traps(tmp_path)
    running = start_server(folder=tmp_path)
    content = (collection.videos / "Fire" / "1.mp4").read_bytes()
    with httpx.Client(base_url=running.url, timeout=None) as client:
        assert send(client, content).status_code == 200
        assert client.get("/media/frame?id=Fire/1.mp4&seconds=1").status_code == 200
    assert sprung(tmp_path) == []


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])
def test_an_empty_token_is_refused(server, fork_server, host):
    said = fork_server.start(
        "-m", "provico", "serve", server.index, "--port", "0", "--host", host, "--token", ""
    )
    assert said.wait() == 2
    assert "--token is empty" in said.stderr


@pytest.mark.parametrize("name", ["library.sqlite", "a-wal", "library.sqlite-journal", "lock", "ü" * 300])
def test_no_name_of_an_upload_means_anything(shared_client, collection, name):
    content = (collection.videos / "Fire" / "1.mp4").read_bytes()
    answer = send(shared_client, content, name)
    assert answer.status_code == 200, answer.text
    assert answer.json()["answer"]["query"] == safe_name(name)


def test_half_sent_headers_keep_nobody_out(server):
    """Far more than the server has room for; the oldest of them have to go, and who asks properly gets in."""
    with ExitStack() as stack:
        wires = [stack.enter_context(connect(server.url)) for _ in range(300)]
        for wire in wires:
            with suppress(OSError):
                wire.sendall(b"GET /api/stats HTTP/1.1\r\nHost: 127.0.0.1\r\n")
        assert httpx.get(f"{server.url}/api/stats", timeout=None).status_code == 200
        wires[0].settimeout(None)
        with suppress(ConnectionResetError):
            assert wires[0].recv(1) == b""


def test_a_header_that_does_not_come_is_not_waited_for(server):
    """Neither that of the first request of a connection, nor that of the second."""
    for before in (b"", b"GET /static/js/api.js HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"):
        with connect(server.url) as wire:
            wire.settimeout(None)
            wire.sendall(before + b"GET / HTTP/1.1\r\nHost: 127")
            answered = b"".join(iter(lambda: wire.recv(2**16), b""))  # until the server ends it
            assert answered.count(b"HTTP/1.1 200 OK") == bool(before)


@pytest.mark.parametrize("origin", ["http://[", "http://]x", "//[::", "http://[::1"])
def test_an_origin_that_is_no_address_is_answered_as_all_else(shared_client, origin):
    answer = shared_client.post(
        "/api/curation/undo", json={}, headers=GUARD | {"Origin": origin, "Host": "127.0.0.1"}
    )
    assert answer.status_code == 400
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert answer.headers["Content-Security-Policy"]


def test_what_is_no_index_is_said_at_once(tmp_path, fork_server):
    said = fork_server.start("-m", "provico", "serve", tmp_path, "--port", "0")
    assert (said.wait(), said.stdout) == (2, "")
    assert "is not an index" in said.stderr


def test_a_port_that_is_taken_is_said_with_a_way_out(server, fork_server):
    port = str(urlsplit(server.url).port)
    said = fork_server.start("-m", "provico", "serve", server.index, "--port", port)
    assert said.wait() == 2
    assert f"Port {port} of 127.0.0.1 is taken" in said.stderr
    assert "--port" in said.stderr


def test_ctrl_c_is_a_clean_end(start_server):
    running = start_server("--token", "auto")
    assert "/login?token=" in running.url
    with httpx.Client(follow_redirects=True, timeout=None) as client:
        assert client.get(running.url).status_code == 200
        assert (
            client.get(urlsplit(running.url)._replace(path="/api/stats", query="").geturl()).status_code
            == 200
        )
    running.process.send_signal(signal.SIGINT)
    assert running.process.wait() == 0
    assert len(running.process.stderr.splitlines()) == 1  # where it listens


def test_without_the_extra_it_is_said_what_to_install():
    script = (
        "import sys; sys.modules['fastapi'] = None; from provico.cli import main; main(['serve', 'index'])"
    )
    said = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert said.returncode == 2
    assert "pip install 'provico[explorer]'" in said.stderr


def test_a_body_that_never_comes_is_not_waited_for(open_client):
    app = open_client(upload_seconds=0.2).app
    sent: list[dict] = []

    async def ask() -> None:
        scope = {
            "type": "http",
            "method": "POST",
            "path": "/api/search",
            "raw_path": b"/api/search",
            "query_string": b"",
            "http_version": "1.1",
            "scheme": "http",
            "headers": [
                (b"host", b"localhost"),
                (b"x-provico", b"1"),
                (b"content-type", b"multipart/form-data; boundary=x"),
            ],
        }

        async def receive() -> dict:
            await asyncio.sleep(600)
            return {}

        async def keep(message: dict) -> None:
            sent.append(message)

        await app(scope, receive, keep)

    asyncio.run(asyncio.wait_for(ask(), 300))
    assert sent[0]["status"] == 408


def test_a_damaged_or_removed_index_is_a_clear_state(collection, tmp_path, monkeypatch):
    monkeypatch.setattr("provico.explorer.collection.SECONDS_BETWEEN_LOOKS", 0.0)
    monkeypatch.setattr("provico.explorer.collection.LOADING_SHARE", 0.0)
    index = shutil.copytree(collection.index, tmp_path / "index")
    with open_app(collection, tmp_path / "curation", index=index) as client:
        assert client.get("/api/stats").json()["trouble"] is None
        (index / "calibration.json").write_text("nonsense")
        for _ in range(2):
            answer = client.get("/api/stats")
            assert answer.status_code == 200
            assert "cannot be read" in answer.json()["trouble"]
            assert str(tmp_path) not in answer.text
        assert client.get("/api/search?id=Fire/1.mp4").status_code == 200
        (index / "calibration.json").unlink()
        assert client.get("/api/stats").json()["trouble"] is None
        shutil.rmtree(index)
        assert "was removed" in client.get("/api/stats").json()["trouble"]
        for path in (
            "/media/thumbnail?id=Fire/1.mp4",
            "/api/search?id=Fire/2.mp4",
            "/api/video?id=Fire/1.mp4",
        ):
            answer = client.get(path)
            assert answer.status_code in (200, 404, 503), answer.text
            assert str(tmp_path) not in answer.text
        assert not (index / "store").exists()
