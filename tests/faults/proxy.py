"""A loopback proxy in front of an S3 server that does to answers what networks and overloaded servers do.

It reads one HTTP/1.1 request at a time, passes it on unchanged (signatures stay valid: the host header is the client's), and
treats the answer as the rule says that the test has set. One connection to the server for each request, so that a fault never
outlives its request.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import random
import re
import threading
import time
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from email.utils import format_datetime, parsedate_to_datetime
from urllib.parse import urlsplit

_LISTED_TIME = re.compile(rb"<LastModified>([^<]+)</LastModified>")


@dataclasses.dataclass(frozen=True)
class Request:
    """What a rule decides by. `number` counts the requests since the rule was set, from 0."""

    number: int
    method: str
    target: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Fault:
    """What happens to one request. Without any field set, nothing does.

    `status` and `code` answer in the server's place; `delay` is seconds before the answer; `reset` cuts the connection before
    the answer, `after` also lets the server do the work first; `cut` ends the connection after that share of the body;
    `corrupt` flips one bit at that share of it, `corrupt_sent` does that to the request's body; `skew` moves the server's
    clock by seconds.
    """

    status: int = 0
    code: str = ""
    delay: float = 0.0
    reset: bool = False
    after: bool = False
    cut: float | None = None
    corrupt: float | None = None
    corrupt_sent: float | None = None
    skew: float = 0.0


Rule = Callable[[Request], Fault | None]


class Proxy:
    """A running proxy."""

    def __init__(self, host: str, port: int) -> None:
        self._upstream = (host, port)
        self._rule: Rule = lambda _: None
        self._number = 0
        self.endpoint = ""
        self.served = 0
        self.faults = 0

    @contextlib.contextmanager
    def faulty(self, rule: Rule) -> Iterator[None]:
        """Apply a rule inside the block."""
        self._rule, self._number = rule, 0
        try:
            yield
        finally:
            self._rule = lambda _: None

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one client connection."""
        try:
            while await self._one(reader, writer):
                pass
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            writer.transport.abort()

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = await reader.readuntil(b"\r\n\r\n")
        method, target, _ = head.split(b"\r\n", 1)[0].decode().split(" ", 2)
        headers = _headers(head)
        if headers.get("expect"):
            writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        body = await _body(reader, headers)
        fault = self._rule(Request(self._number, method, target)) or Fault()
        self._number += 1
        self.served += 1
        self.faults += fault != Fault()
        if fault.corrupt_sent is not None:
            body = _flipped(body, fault.corrupt_sent)
        if fault.delay:
            await asyncio.sleep(fault.delay)
        if fault.reset and not fault.after:
            return False
        if fault.status:
            answer, sent = _refusal(method, fault), b""
        else:
            answer, sent = await self._ask(method, head, body)
        if fault.reset:
            return False
        answer, sent = _treated(answer, sent, fault)
        if fault.cut is not None and sent:
            writer.write(answer + sent[: int(len(sent) * fault.cut)])
            await writer.drain()
            return False
        writer.write(answer + sent)
        await writer.drain()
        return True

    async def _ask(self, method: str, head: bytes, body: bytes) -> tuple[bytes, bytes]:
        """Pass a request on; return the answer's head, with a length in it, and its body."""
        reader, writer = await asyncio.open_connection(*self._upstream, limit=1 << 20)
        try:
            lines = [line for line in head.split(b"\r\n") if not line.lower().startswith((b"connection:", b"expect:"))]
            writer.write(b"\r\n".join([*lines[:-2], b"Connection: close", b"", b""]) + body)
            await writer.drain()
            while True:
                answer = await reader.readuntil(b"\r\n\r\n")
                if not answer.startswith(b"HTTP/1.1 1"):
                    break
            status = int(answer.split(b" ", 2)[1])
            sent = b"" if method == "HEAD" or status in (204, 304) else await _body(reader, _headers(answer), to_end=True)
            dropped = (b"connection:", b"transfer-encoding:") + (() if method == "HEAD" else (b"content-length:",))
            lines = [line for line in answer.split(b"\r\n")[:-2] if not line.lower().startswith(dropped)]
            if method != "HEAD" and status not in (204, 304):
                lines.append(b"Content-Length: %d" % len(sent))
            return b"\r\n".join([*lines, b"", b""]), sent
        finally:
            writer.transport.abort()


def _headers(head: bytes) -> dict[str, str]:
    pairs = (line.split(":", 1) for line in head.decode("latin-1").split("\r\n")[1:] if ":" in line)
    return {name.lower(): value.strip() for name, value in pairs}


async def _body(reader: asyncio.StreamReader, headers: dict[str, str], *, to_end: bool = False) -> bytes:
    if "chunked" in headers.get("transfer-encoding", ""):
        data = b""
        while size := int((await reader.readline()).split(b";")[0], 16):
            data += await reader.readexactly(size)
            await reader.readline()
        await reader.readline()
        return data
    if "content-length" in headers:
        return await reader.readexactly(int(headers["content-length"]))
    return await reader.read() if to_end else b""


def _refusal(method: str, fault: Fault) -> bytes:
    body = b"" if method == "HEAD" else (
        b"<?xml version='1.0'?><Error><Code>%b</Code><Message>by the proxy</Message></Error>" % fault.code.encode()
    )  # fmt: skip
    head = f"HTTP/1.1 {fault.status} X\r\nContent-Type: application/xml\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


def _treated(head: bytes, body: bytes, fault: Fault) -> tuple[bytes, bytes]:
    if fault.corrupt is not None:
        body = _flipped(body, fault.corrupt)
    if fault.skew:
        body = _LISTED_TIME.sub(lambda found: b"<LastModified>%b</LastModified>" % _moved_iso(found[1], fault.skew), body)
        lines = head.split(b"\r\n")
        for number, line in enumerate(lines):
            name, _, value = line.partition(b":")
            if name.lower() in (b"last-modified", b"date"):
                moved = parsedate_to_datetime(value.decode().strip()) + timedelta(seconds=fault.skew)
                lines[number] = name + b": " + format_datetime(moved, usegmt=True).encode()
            elif name.lower() == b"content-length" and body:
                lines[number] = b"Content-Length: %d" % len(body)
        head = b"\r\n".join(lines)
    return head, body


def _flipped(body: bytes, share: float) -> bytes:
    changed = bytearray(body)
    if changed:
        changed[min(len(body) - 1, int(len(body) * share))] ^= 0x10
    return bytes(changed)


def _moved_iso(value: bytes, skew: float) -> bytes:
    moved = datetime.fromisoformat(value.decode().replace("Z", "+00:00")) + timedelta(seconds=skew)
    return moved.strftime("%Y-%m-%dT%H:%M:%S.000Z").encode()


@contextlib.contextmanager
def proxied(endpoint: str) -> Iterator[Proxy]:
    """Run a proxy in front of `endpoint`, in a thread of its own."""
    parts = urlsplit(endpoint)
    proxy = Proxy(str(parts.hostname), int(parts.port or 80))
    loop = asyncio.new_event_loop()
    started = threading.Event()

    async def serve() -> None:
        server = await asyncio.start_server(proxy.serve, "127.0.0.1", 0, limit=1 << 20)
        proxy.endpoint = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        started.set()
        await stop.wait()
        server.close()
        others = asyncio.all_tasks(loop) - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        await asyncio.sleep(0)

    stop = asyncio.Event()
    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),), daemon=True)
    thread.start()
    assert started.wait(10)
    try:
        yield proxy
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(10)
        loop.close()


def flaky(seed: int, share: float) -> Rule:
    """Return a rule under which that share of requests meets a fault of any kind, drawn by `seed`."""
    draw = random.Random(seed)  # noqa: S311
    kinds = (
        lambda: Fault(delay=draw.uniform(0.05, 0.3)),
        lambda: Fault(reset=True),
        lambda: Fault(reset=True, after=True),
        lambda: Fault(cut=draw.random()),
        lambda: Fault(corrupt=draw.random()),
        lambda: Fault(status=500, code="InternalError"),
        lambda: Fault(status=503, code="SlowDown"),
        lambda: Fault(status=503, code="ServiceUnavailable"),
        lambda: Fault(status=403, code="AccessDenied"),
    )
    lock = threading.Lock()

    def rule(_: Request) -> Fault | None:
        with lock:
            return draw.choice(kinds)() if draw.random() < share else None

    return rule


def until(moment: float, fault: Fault) -> Rule:
    """Return a rule under which every request meets the fault until that moment of time.monotonic()."""
    return lambda _: fault if time.monotonic() < moment else None
