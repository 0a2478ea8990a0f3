"""A stand-in for the HTTP interface of the Hugging Face Hub, on this machine: repositories in memory."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Repositories = dict[str, dict[str, bytes]]


class _Handler(BaseHTTPRequestHandler):
    repositories: Repositories
    asked: list[str]

    def log_message(self, *_: Any) -> None:
        pass

    def _body(self) -> bytes:
        return self.rfile.read(int(self.headers.get("Content-Length", 0)))

    def _answer(self, value: Any, *, status: int = 200, headers: dict[str, str] | None = None) -> None:
        data = value if isinstance(value, bytes) else json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        for name, text in (headers or {}).items():
            self.send_header(name, text)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def _not_found(self) -> None:
        code = {"X-Error-Code": "RepoNotFound", "X-Error-Message": "Repository not found"}
        self._answer({"error": "Repository not found"}, status=404, headers=code)

    def do_POST(self) -> None:
        self.asked.append(f"POST {self.path}")
        body = self._body()
        if self.headers.get("Authorization") != "Bearer secret":
            self._answer({"error": "Invalid user token."}, status=401)
        elif self.path == "/api/repos/create":
            given = json.loads(body)
            name = f"{given['organization']}/{given['name']}" if given.get("organization") else given["name"]
            self.repositories.setdefault(name, {})
            self._answer({"url": f"http://{self.headers['Host']}/{name}", "id": name})
        elif self.path == "/api/validate-yaml":
            self._answer({"errors": [], "warnings": []})
        elif "/preupload/" in self.path:
            files = [
                {"path": file["path"], "uploadMode": "regular", "shouldIgnore": False, "oid": None}
                for file in json.loads(body)["files"]
            ]
            self._answer({"files": files})
        elif found := re.fullmatch(r"/api/models/(.+)/commit/main", self.path):
            for line in map(json.loads, body.splitlines()):
                if line["key"] == "file":
                    content = base64.b64decode(line["value"]["content"])
                    self.repositories[found[1]][line["value"]["path"]] = content
            address = f"http://{self.headers['Host']}/{found[1]}/commit/{'1' * 40}"
            self._answer({"commitUrl": address, "commitOid": "1" * 40})
        else:
            self._not_found()

    def do_GET(self) -> None:
        self.asked.append(f"{self.command} {self.path}")
        path = self.path.partition("?")[0]
        if found := re.fullmatch(r"/api/models/([^/]+/[^/]+)(/revision/[^/]+|/tree/[^/]+)?", path):
            files = self.repositories.get(found[1])
            if files is None:
                self._not_found()
            elif (found[2] or "").startswith("/tree"):
                self._answer(
                    [
                        {
                            "type": "file",
                            "path": name,
                            "size": len(data),
                            "oid": hashlib.sha1(data).hexdigest(),
                        }
                        for name, data in files.items()
                    ]
                )
            else:
                siblings = [{"rfilename": name} for name in files]
                self._answer({"id": found[1], "sha": "1" * 40, "siblings": siblings, "tags": []})
        elif found := re.fullmatch(r"/([^/]+/[^/]+)/resolve/[^/]+/(.+)", path):
            data = self.repositories.get(found[1], {}).get(found[2])
            if data is None:
                self._not_found()
            else:
                tag = hashlib.sha1(data).hexdigest()
                self._answer(data, headers={"ETag": f'"{tag}"', "X-Repo-Commit": "1" * 40})
        else:
            self._not_found()

    def do_HEAD(self) -> None:
        self.do_GET()


@contextmanager
def hub_server() -> Iterator[tuple[str, Repositories, list[str]]]:
    """Its address, its repositories, and what it was asked for."""
    kind = type("_Bound", (_Handler,), {"repositories": {}, "asked": []})
    server = ThreadingHTTPServer(("127.0.0.1", 0), kind)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", kind.repositories, kind.asked  # type: ignore[attr-defined]
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
