"""A server on loopback that gives scripted answers: for what no S3 server at hand says (AWS regions, expiry)."""

from __future__ import annotations

import contextlib
import dataclasses
import http.server
import json
import ssl
import threading
from collections.abc import Callable, Iterator
from pathlib import Path


@dataclasses.dataclass(frozen=True)
class Answer:
    """One HTTP answer."""

    status: int
    body: bytes = b""
    headers: tuple[tuple[str, str], ...] = ()


@dataclasses.dataclass
class Scripted:
    """The running server: its address, and each request as method, path and headers."""

    endpoint: str
    requests: list[tuple[str, str, dict[str, str]]] = dataclasses.field(default_factory=list)


def s3_answer(status: int, code: str, message: str = "said by the test") -> Answer:
    """Return an S3 error document."""
    body = f"<Error><Code>{code}</Code><Message>{message}</Message><RequestId>REQ-1234</RequestId></Error>"
    return Answer(status, body.encode(), (("Content-Type", "application/xml"),))


def json_answer(document: object) -> Answer:
    """Return a JSON document."""
    return Answer(200, json.dumps(document).encode(), (("Content-Type", "application/json"),))


@contextlib.contextmanager
def scripted(
    answer: Callable[[str, str, dict[str, str]], Answer], *, certificate: tuple[Path, Path] | None = None
) -> Iterator[Scripted]:
    """Run a server that answers each request with what `answer(method, path, headers)` returns; over TLS with a certificate."""

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _respond(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            self.rfile.read(length)
            headers = {name.lower(): value for name, value in self.headers.items()}
            server.requests.append((self.command, self.path, headers))
            reply = answer(self.command, self.path, headers)
            self.send_response(reply.status)
            for name, value in reply.headers:
                self.send_header(name, value)
            body = b"" if self.command == "HEAD" else reply.body
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _respond  # noqa: N815

        def log_message(self, *_: object) -> None:
            """Stay quiet."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as listener:
        scheme = "http"
        if certificate:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*certificate)
            listener.socket = context.wrap_socket(listener.socket, server_side=True)
            scheme = "https"
        server = Scripted(f"{scheme}://127.0.0.1:{listener.server_address[1]}")
        thread = threading.Thread(target=listener.serve_forever, daemon=True)
        thread.start()
        try:
            yield server
        finally:
            listener.shutdown()
            thread.join()
