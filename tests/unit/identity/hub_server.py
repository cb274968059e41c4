"""A Hugging Face hub on loopback, as much of it as huggingface_hub asks for small files: a real HTTP server."""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

COMMIT = "89abcdef0123456789abcdef0123456789abcdef"


class Hub:
    """What the server holds, how it misbehaves, and what it was asked for."""

    def __init__(self, files: Mapping[str, bytes], model: str = "Qwen/Qwen3-0.6B") -> None:
        self.files = dict(files)
        self.model = model
        self.status = 200
        self.error_code = ""
        self.token = ""
        self.asked: list[str] = []
        self.sent = 0
        self.sizes: dict[str, int] = {}
        self.url = ""


class _Handler(BaseHTTPRequestHandler):
    hub: Hub

    def do_HEAD(self) -> None:
        self._answer(body=False)

    def do_GET(self) -> None:
        self._answer(body=True)

    def _answer(self, *, body: bool) -> None:
        hub = self.hub
        path = self.path.partition("?")[0]
        hub.asked.append(path)
        if hub.status != 200:
            return self._send(hub.status, b"{}", {"X-Error-Code": hub.error_code, "X-Error-Message": "no"}, body=body)
        if hub.token and self.headers.get("Authorization") != f"Bearer {hub.token}":
            return self._send(401, b"{}", {"X-Error-Code": "GatedRepo", "X-Error-Message": "gated"}, body=body)
        if path.startswith("/api/models/") and "/tree/" in path:
            tree = [{"type": "file", "path": name, "size": len(data), "oid": "0"} for name, data in hub.files.items()]
            return self._send(200, json.dumps(tree).encode(), {"Content-Type": "application/json"}, body=body)
        if path.startswith("/api/models/"):
            siblings = [{"rfilename": name, "size": hub.sizes.get(name, len(data))} for name, data in hub.files.items()]
            info = {"id": hub.model, "sha": COMMIT, "siblings": siblings}
            return self._send(200, json.dumps(info).encode(), {"Content-Type": "application/json"}, body=body)
        name = path.partition(f"/resolve/{COMMIT}/")[2] or path.partition("/resolve/main/")[2]
        if name not in hub.files:
            return self._send(404, b"", {"X-Error-Code": "EntryNotFound"}, body=body)
        data = hub.files[name]
        headers = {"ETag": f'"{hashlib.sha1(data).hexdigest()}"', "X-Repo-Commit": COMMIT}  # noqa: S324
        part = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        if part is None:
            return self._send(200, data, headers, body=body)
        begin, end = int(part[1]), min(int(part[2]) + 1, len(data))
        headers["Content-Range"] = f"bytes {begin}-{end - 1}/{len(data)}"
        return self._send(206, data[begin:end], headers, body=body)

    def _send(self, status: int, data: bytes, headers: Mapping[str, str], *, body: bool) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if body:
            self.hub.sent += len(data)
            self.wfile.write(data)

    def log_message(self, *_args: object) -> None:
        return


@contextmanager
def serve(hub: Hub) -> Iterator[Hub]:
    """Serve `hub` on a free port."""
    handler = type("Handler", (_Handler,), {"hub": hub})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    hub.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
