"""Real servers on loopback, for tests and benchmarks: started on free ports, stopped on the way out.

They live in their own environment (`make servers`). Nothing here is pytest's: the suites' conftest files wrap these.
"""

from __future__ import annotations

import contextlib
import dataclasses
import http.client
import json
import os
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

BIN = Path(__file__).resolve().parent.parent / ".venv-servers" / "bin"
_START_SECONDS = 60.0


@dataclasses.dataclass(frozen=True)
class Credentials:
    """One user of a server."""

    key: str
    secret: str


@dataclasses.dataclass(frozen=True)
class S3Server:
    """A running S3 server. `writer` may do anything, `reader` read and list; where not `checks`, it believes everybody."""

    endpoint: str
    bucket: str
    writer: Credentials
    reader: Credentials
    checks: bool
    process: subprocess.Popen[bytes]

    def storage(self, user: Credentials | None = None, **more: object) -> dict[str, object]:
        """Return fsspec storage options for s3fs that reach this server as `user`."""
        user = user or self.writer
        return {
            "key": user.key,
            "secret": user.secret,
            "endpoint_url": self.endpoint,
            "client_kwargs": {"region_name": "us-east-1"},
            **more,
        }

    def environment(self, user: Credentials | None = None) -> dict[str, str]:
        """Return the AWS_* variables that reach this server as `user`."""
        user = user or self.writer
        return {
            "AWS_ACCESS_KEY_ID": user.key,
            "AWS_SECRET_ACCESS_KEY": user.secret,
            "AWS_ENDPOINT_URL_S3": self.endpoint,
            "AWS_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
        }


WRITER = Credentials("warmstart-writer", "writer-secret-not-for-logs")
READER = Credentials("warmstart-reader", "reader-secret-not-for-logs")


def free_ports(count: int, *, ceiling: int = 65535) -> list[int]:
    """Return ports that nobody listens on now; below `ceiling`, for servers that add to theirs."""
    sockets: list[socket.socket] = []
    try:
        while len(sockets) < count:
            sock = socket.socket()
            sock.bind(("127.0.0.1", 0))
            if sock.getsockname()[1] <= ceiling:
                sockets.append(sock)
            else:
                sock.close()
        return [sock.getsockname()[1] for sock in sockets]
    finally:
        for sock in sockets:
            sock.close()


@contextlib.contextmanager
def seaweedfs(bucket: str = "warm", folder: Path | None = None, *, port: int = 0) -> Iterator[S3Server]:
    """Run SeaweedFS with real authentication. With `folder`, its data stay there; with `port`, S3 listens on that one."""
    identities = {
        "identities": [
            _identity("writer", WRITER, ["Admin", "Read", "Write", "List", "Tagging"]),
            _identity("reader", READER, ["Read", "List"]),
        ]
    }
    with contextlib.ExitStack() as stack:
        data = folder or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="weed-")))
        config = data / "identities.json"
        config.write_text(json.dumps(identities))
        names = ("master", "volume", "filer", "s3")
        ports = free_ports(2 * len(names))
        if port:
            ports[names.index("s3")] = port
        flags = [f"-{name}.port={number}" for name, number in zip(names, ports, strict=False)]
        flags += [f"-{name}.port.grpc={number}" for name, number in zip(names, ports[len(names) :], strict=True)]
        command = [
            str(BIN / "weed"), "server", f"-dir={data}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1", "-filer", "-s3",
            f"-s3.config={config}", "-s3.port.iceberg=0", "-s3.port.lance=0", "-volume.max=0", "-master.volumeSizeLimitMB=1024",
            "-master.telemetry=false", "-volume.minFreeSpace=1", *flags,
        ]  # fmt: skip
        endpoint = f"http://127.0.0.1:{ports[names.index('s3')]}"
        process = stack.enter_context(_running(command, data, {"HOME": str(data)}))
        server = S3Server(endpoint, bucket, WRITER, READER, True, process)
        _create_bucket(server)
        yield server


@contextlib.contextmanager
def moto(bucket: str = "warm") -> Iterator[S3Server]:
    """Run moto's S3 and STS, which believe any credentials."""
    (port,) = free_ports(1)
    with tempfile.TemporaryDirectory(prefix="moto-") as data:
        command = [str(BIN / "moto_server"), "-H", "127.0.0.1", "-p", str(port)]
        with _running(command, Path(data), {}) as process:
            server = S3Server(f"http://127.0.0.1:{port}", bucket, WRITER, READER, False, process)
            _create_bucket(server)
            yield server


@contextlib.contextmanager
def rclone_s3(bucket: str = "warm") -> Iterator[S3Server]:
    """Run rclone's S3 server over a folder: one of those that ignore If-None-Match."""
    (port,) = free_ports(1)
    with tempfile.TemporaryDirectory(prefix="rclone-") as data:
        (Path(data) / bucket).mkdir()
        command = [
            str(BIN / "rclone"), "serve", "s3", data, "--addr", f"127.0.0.1:{port}", "--vfs-cache-mode", "writes",
            "--auth-key", f"{WRITER.key},{WRITER.secret}", "--cache-dir", f"{data}/.cache", "--config", "/dev/null",
        ]  # fmt: skip
        with _running(command, Path(data), {}) as process:
            server = S3Server(f"http://127.0.0.1:{port}", bucket, WRITER, READER, True, process)
            _wait_until(lambda: _status(server) < 500, process, "rclone")
            yield server


def _identity(name: str, user: Credentials, actions: list[str]) -> dict[str, object]:
    return {"name": name, "credentials": [{"accessKey": user.key, "secretKey": user.secret}], "actions": actions}


@contextlib.contextmanager
def _running(command: list[str], folder: Path, env: Mapping[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    """Run a server in its own process group; stop that group, firmly, on the way out."""
    log = folder / "server.log"
    kept = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, cwd=folder, stdout=output, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
            env={**kept, **env}, start_new_session=True,
        )  # fmt: skip
        try:
            yield process
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _create_bucket(server: S3Server) -> None:
    """Create the bucket as soon as the server answers; obstore cannot, s3fs can."""
    import botocore.config
    import botocore.session

    client = botocore.session.get_session().create_client(
        "s3",
        region_name="us-east-1",
        endpoint_url=server.endpoint,
        aws_access_key_id=server.writer.key,
        aws_secret_access_key=server.writer.secret,
        config=botocore.config.Config(retries={"max_attempts": 0}, connect_timeout=2, read_timeout=20),
    )

    def created() -> bool:
        # A server that was started over the data of an earlier one has it already.
        with contextlib.suppress(client.exceptions.BucketAlreadyOwnedByYou):
            client.create_bucket(Bucket=server.bucket)
        client.put_object(Bucket=server.bucket, Key="tried-out", Body=b"x")
        client.delete_object(Bucket=server.bucket, Key="tried-out")
        return True

    _wait_until(created, server.process, server.endpoint)


def _wait_until(ready: object, process: subprocess.Popen[bytes], what: str) -> None:
    assert callable(ready)
    last: Exception | None = None
    deadline = time.monotonic() + _START_SECONDS
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise RuntimeError(f"{what} ended with {process.returncode} instead of starting")
        try:
            if ready():
                return
        except Exception as error:  # noqa: BLE001 - whatever it is while the server starts, it is tried again
            last = error
        time.sleep(0.1)
    raise RuntimeError(f"{what} did not start: {last}")


def _status(server: S3Server) -> int:
    connection = http.client.HTTPConnection(server.endpoint.removeprefix("http://"), timeout=5)
    try:
        connection.request("GET", "/")
        return connection.getresponse().status
    finally:
        connection.close()
