"""Only files of the index are served, only to who may ask, and nothing changes by looking."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from provico.data.catalog import open_catalog
from provico.data.library import Library
from provico.explorer.files import OpenFile
from provico.explorer.problems import Problem, without_paths
from provico.search.index import Index

ODD = "Rain/50% off & more #1?.mp4"
GUARD = {"X-ProViCo": "1"}
DECISION = {"id": ODD, "decision": "keep"}


@pytest.fixture
def copy(collection, tmp_path) -> tuple[Path, Path]:
    """Videos that a test may change, and their index."""
    videos = Path(shutil.copytree(collection.videos, tmp_path / "videos"))
    index = Index.create(tmp_path / "index", Index.open(collection.index).encoder, num_clips=2, num_samples=2)
    catalog = open_catalog(videos)
    fire = catalog.subset(number for number, video in enumerate(catalog) if video.label == "Fire")
    index.add(fire, library=Library(collection.home))
    return videos, index.path


TRAVERSALS = [
    "../../../../etc/passwd",
    "/etc/passwd",
    "..%2f..%2fetc%2fpasswd",
    "Rain/../../index/index.json",
    "file:///etc/passwd",
    "Rain/\0.mp4",
    "....//....//etc/passwd",
    "\\..\\..\\etc\\passwd",
    "",
    "x" * 4000,
]


@pytest.mark.parametrize("name", TRAVERSALS)
@pytest.mark.parametrize("path", ["thumbnail", "preview", "source", "frame"])
def test_what_is_no_id_is_no_file(shared_client, path, name):
    assert shared_client.get(f"/media/{path}", params={"id": name}).status_code == 404
    assert shared_client.get("/api/video", params={"id": name}).status_code == 404


@pytest.mark.parametrize(
    "path",
    [
        "/static/../app.py",
        "/static/%2e%2e/app.py",
        "/static/..%2fapp.py",
        "/static//etc/passwd",
        "/static/js/../../settings.py",
        "/reports/first/../../index/index.json",
        "/reports/first/%2e%2e/%2e%2e/index/index.json",
        "/reports/first/..%2f..%2findex%2findex.json",
        "/reports/first//etc/hosts.txt",
        "/reports/first/metrics.jsonl",
        "/reports/..%2findex/index.json",
        "/reports/first/%00.html",
        "/reports/first/",
        "/reports/nothing/report.html",
    ],
)
def test_paths_do_not_lead_out(shared_client, path):
    # As raw bytes: shared_clients tidy such paths up before they send them.
    request = shared_client.build_request("GET", "/")
    request.url = request.url.copy_with(raw_path=path.encode())
    answer = shared_client.send(request)
    assert answer.status_code in (404, 405)
    assert "root:" not in answer.text
    assert "format_version" not in answer.text


def test_a_link_out_of_the_folder_is_not_followed(open_client, copy, tmp_path):
    videos, index = copy
    client = open_client(index=index)
    assert client.get("/media/source", params={"id": "Fire/1.mp4"}).status_code == 200
    outside = tmp_path / "outside.mp4"
    (videos / "Fire" / "1.mp4").rename(outside)  # the same file with the same times
    (videos / "Fire" / "1.mp4").symlink_to(outside)
    refused = client.get("/media/source", params={"id": "Fire/1.mp4"})
    assert refused.status_code == 404
    assert "--root" in refused.json()["error"]["hint"]
    assert client.get("/media/frame", params={"id": "Fire/1.mp4"}).status_code == 404
    assert client.get("/api/search", params={"id": "Fire/1.mp4", "start": 0, "end": 1}).status_code == 404
    assert client.get("/api/video", params={"id": "Fire/1.mp4"}).json()["source"] is None
    allowed = open_client(index=index, roots=(tmp_path,))
    assert allowed.get("/media/source", params={"id": "Fire/1.mp4"}).status_code == 200


def test_a_folder_that_became_a_link_is_not_followed(open_client, copy, tmp_path):
    videos, index = copy
    (videos / "Fire").rename(tmp_path / "elsewhere")
    (videos / "Fire").symlink_to(tmp_path / "elsewhere")
    assert open_client(index=index).get("/media/source", params={"id": "Fire/1.mp4"}).status_code == 404


def test_only_the_file_that_was_indexed_is_served(open_client, copy):
    videos, index = copy
    client = open_client(index=index)
    path = videos / "Fire" / "1.mp4"
    status, content = path.stat(), path.read_bytes()
    path.write_bytes(content + b"more")
    assert client.get("/media/preview", params={"id": "Fire/1.mp4"}).status_code == 404, "of another file"
    path.write_bytes(content)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert client.get("/media/preview", params={"id": "Fire/1.mp4"}).status_code == 200
    path.write_bytes(content + b"more")
    refused = client.get("/media/source", params={"id": "Fire/1.mp4"})
    assert (refused.status_code, refused.json()["error"]["code"]) == (404, "no_file")
    path.unlink()
    os.mkfifo(path)  # nobody may wait for a writer
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert client.get("/media/source", params={"id": "Fire/1.mp4"}).status_code == 404
    path.unlink()
    path.mkdir()
    assert client.get("/media/source", params={"id": "Fire/1.mp4"}).status_code == 404
    kept = client.get("/media/preview", params={"id": "Fire/1.mp4"})
    assert kept.status_code == 200, "it was made while the file was there"


def test_roots_that_were_given_are_the_only_ones(open_client, collection):
    client = open_client(roots=(collection.videos / "Rain",))
    assert client.get("/media/source", params={"id": ODD}).status_code == 200
    assert client.get("/media/source", params={"id": "Fire/1.mp4"}).status_code == 404


def test_a_text_that_calls_itself_a_video_is_not_served(open_client, copy):
    videos, index = copy
    path = videos / "Fire" / "1.mp4"
    status = path.stat()
    path.write_bytes(b"<script>alert(1)</script>".ljust(status.st_size, b"\n"))
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    answer = open_client(index=index).get("/media/source", params={"id": "Fire/1.mp4"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "not_playable")


def test_an_open_file_is_the_one_that_was_checked(tmp_path):
    (tmp_path / "in").mkdir()
    path = tmp_path / "in" / "a.mp4"
    path.write_bytes(b"right")
    file = OpenFile(path, roots=[tmp_path / "in"])
    path.unlink()
    path.write_bytes(b"wrong")
    assert file.begin(9) == b"right"
    file.close()
    with pytest.raises(Problem):
        OpenFile(tmp_path / "in" / ".." / "in.mp4", roots=[tmp_path / "in"])
    (tmp_path / "inside.mp4").write_bytes(b"")
    with pytest.raises(Problem):  # a name that begins like the folder's is not in it
        OpenFile(tmp_path / "inside.mp4", roots=[tmp_path / "in"])


def test_a_link_in_a_report_does_not_lead_out(open_client, collection, tmp_path):
    runs = Path(shutil.copytree(collection.runs, tmp_path / "runs"))
    (runs / "first" / "secret.txt").symlink_to(collection.index / "index.json")
    answer = open_client(runs=(runs,)).get("/reports/first/secret.txt")
    assert answer.status_code == 404


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1", 200),
        ("127.0.0.1:8420", 200),
        ("localhost:1", 200),
        ("[::1]:8420", 200),
        ("192.168.1.5:8420", 200),
        ("known.example", 200),
        ("KNOWN.example.:80", 200),
        ("evil.example", 403),
        ("localhost.evil.example", 403),
        ("127.0.0.1.evil.example", 403),
        ("", 403),
        ("[", 403),
        ("loc\xe4lhost", 403),
    ],
)
def test_a_stranger_cannot_lead_its_name_here(open_client, host, status):
    client = open_client(hosts=("known.example",))
    answer = client.get("/api/stats", headers={"Host": host.encode("latin-1")})
    assert answer.status_code == status


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"X-ProViCo": "0"},
        GUARD | {"Origin": "http://evil.example"},
        GUARD | {"Origin": "null"},
        GUARD | {"Origin": "http://127.0.0.1:9"},
        GUARD | {"Sec-Fetch-Site": "cross-site"},
        GUARD | {"Sec-Fetch-Site": "same-site"},
    ],
)
@pytest.mark.parametrize("path", ["/api/curation/decisions", "/api/curation/undo", "/api/search"])
def test_another_site_can_change_nothing(shared_client, headers, path):
    refused = shared_client.post(path, json=DECISION, headers=headers)
    assert (refused.status_code, refused.json()["error"]["code"]) == (403, "cross_site")
    assert shared_client.get("/api/curation").json()["revision"] == 0


def test_the_page_itself_may_change_things(client):
    own = GUARD | {"Origin": "http://127.0.0.1", "Sec-Fetch-Site": "same-origin"}
    assert client.post("/api/curation/decisions", json=DECISION, headers=own).status_code == 200


def test_another_site_may_not_even_look(shared_client):
    for path in ("/api/stats", "/media/thumbnail?id=Fire/1.mp4"):
        assert shared_client.get(path, headers={"Sec-Fetch-Site": "cross-site"}).status_code == 403
    assert (
        shared_client.get("/", headers={"Sec-Fetch-Site": "cross-site"}).status_code == 200
    )  # a link to the page


def test_looking_changes_nothing(client, tmp_path, collection):
    def files() -> dict[Path, int]:
        """But for previews, which are made when they are looked at."""
        paths = (path for path in collection.index.rglob("*") if path.is_file())
        return {path: path.stat().st_mtime_ns for path in paths if path.suffix != ".mp4"}

    before = files()
    for path in client.get("/api/openapi.json").json()["paths"]:
        client.get(path, params={"id": ODD})
        client.head(path, params={"id": ODD})
    for method in ("GET", "HEAD", "PUT", "DELETE", "PATCH"):
        answer = client.request(method, "/api/curation/decisions", headers=GUARD)
        assert answer.status_code == 405
    assert not (tmp_path / "curation").exists()
    assert files() == before


def test_with_a_token_nothing_is_told_without_it(open_client):
    client = open_client(token="right", cookie_name="cookie-here")
    for path in (
        "/",
        "/api/stats",
        "/media/thumbnail?id=Fire/1.mp4",
        "/api/openapi.json",
        "/reports/first/report.html",
    ):
        assert client.get(path).status_code == 401
        for wrong in ("Bearer wrong", "Bearer", "right", "Basic right", "Bearer ä"):
            headers = {"Authorization": wrong.encode("latin-1")}
            assert client.get(path, headers=headers).status_code == 401
        assert client.get(path, headers={"Authorization": "Bearer right"}).status_code == 200
    assert client.post("/api/curation/undo", json={}, headers=GUARD).status_code == 401
    assert client.get("/static/js/api.js").status_code == 200


def test_the_link_trades_the_token_for_a_cookie(open_client):
    client = open_client(token="right", cookie_name="cookie-here")
    refused = client.get("/login", params={"token": "wrong"})
    assert refused.status_code == 401
    assert "set-cookie" not in refused.headers
    entered = client.get("/login", params={"token": "right"})
    assert (entered.status_code, entered.headers["location"]) == (303, "/")
    cookie = entered.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    assert "right" not in cookie
    assert client.get("/api/stats").status_code == 200  # the client has kept the cookie
    client.cookies.set("cookie-here", "right")
    client.cookies.clear()
    assert client.get("/api/stats", headers={"Cookie": "cookie-here=right"}).status_code == 401


@pytest.mark.parametrize("path", ["/", "/api/stats", "/nothing", "/static/js/api.js", "/api/video?id=no"])
def test_every_answer_tells_the_browser_what_is_forbidden(shared_client, path):
    headers = shared_client.get(path).headers
    policy = headers["content-security-policy"]
    assert "default-src 'self'" in policy
    assert "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["cross-origin-resource-policy"] == "same-origin"
    assert headers["referrer-policy"] == "no-referrer"
    assert "server" not in headers


def test_refusals_carry_them_too(open_client):
    client = open_client(token="right")
    for headers in ({}, {"Host": "evil.example"}):
        refused = client.get("/", headers={"Accept": "text/html"} | headers)
        assert refused.status_code in (401, 403)
        assert "default-src 'self'" in refused.headers["content-security-policy"]


def test_pages_hold_no_script_or_style_of_their_own(shared_client):
    """What the policy forbids would not work, so there is none."""
    for path in ("/", "/search", "/video", "/map", "/runs", "/curate"):
        page = shared_client.get(path).text
        assert "http://" not in page.replace("http://www.w3.org/", "")
        assert "https://" not in page
        assert " style=" not in page
        assert " onclick=" not in page
        assert "<style" not in page
        for tag in page.split("<script")[1:]:
            assert "src=" in tag.split(">")[0]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            "There is no video in /home/jane/my films or its folders.",
            "There is no video in …/my films or its folders.",
        ),
        ("'/srv/a/b.mp4' is gone (/x is not).", "'…/b.mp4' is gone (/x is not)."),
        ("Ask http://localhost:8420/api/work, or a/b/c.", "Ask http://localhost:8420/api/work, or a/b/c."),
    ],
)
def test_files_are_named_without_their_folders(text, told):
    assert without_paths(text, Path("/home/jane/my films"), Path("/home/jane")) == told
