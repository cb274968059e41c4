"""The process of passes, from the outside: start it, hand it jobs, follow its events, end it with all that it started."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from warmstart import errors
from warmstart.compiler import stub
from warmstart.compiler.report import CompileRequest
from warmstart.compiler.room import jobs_for
from warmstart.errors import TemporaryError

_WHOLE_NODE = 8
_GRACE_SECONDS = 5.0
_POLL_SECONDS = 0.2


class Process:
    """A process of `warmstart.compiler.child`, made for the GPU type and the environment of `request`.

    With `forks` it takes one pass after the other, each in a forked process of its own. `log` is where its output goes (a
    descriptor; None: this process's standard error).
    """

    def __init__(self, request: CompileRequest, scratch: Path, *, forks: bool = False, log: int | None = None) -> None:
        self._scratch = scratch
        self._forks = forks
        self._events, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        setup = {
            "gpu": {**request.gpu.facts(), "id": request.gpu.id},
            "stub": "" if request.device == "cuda" else str(stub.ensure(request.work or scratch, request.stub)),
            "tuning_bytes": request.tuning_bytes,
            "visible": request.gpu_count or _WHOLE_NODE,
            "jobs": request.jobs or jobs_for(),
            "descriptor": theirs.fileno(),
            "forks": forks,
        }
        output = log if log is not None else sys.stderr.fileno() if _has_descriptor(sys.stderr) else subprocess.DEVNULL
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "warmstart.compiler.child"],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=log,
                env=_environment(request),
                cwd=scratch,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        self._write(setup)

    def run(
        self,
        request: CompileRequest,
        on_event: Callable[[Mapping[str, Any]], None],
        stop: Callable[[], bool],
        *,
        hub: bool,
    ) -> tuple[list[dict[str, Any]], int]:
        """Run one pass; returns its events, and the exit code of its process (negative: a signal's number).

        Raises:
            TemporaryError: the caller stopped the pass, or its time is up. The process is of no more use then.

        """
        self._write(
            {
                "model": request.model,
                "args": list(request.args),
                "cache_root": str(request.cache_root),
                "folder": str(self._scratch),
                "hub": hub,
                "kernels": request.kernels,
                "deadline": time.monotonic() + request.deadline_seconds if request.deadline_seconds else 0.0,
            }
        )
        events: list[dict[str, Any]] = []
        for event in self._follow(request.deadline_seconds, stop):
            on_event(event)
            if event["event"] == "ended":
                return events, event["code"]
            events.append(event)
        return events, self._process.wait(_GRACE_SECONDS)  # its last packet has come; its exit code is about to

    def __enter__(self) -> Process:
        return self

    def __exit__(self, *_exc: object) -> None:
        """End every process of the group: politely, then not."""
        _end_group(self._process)
        self._events.close()
        if self._process.stdin is not None:
            with contextlib.suppress(BrokenPipeError):  # it ended without reading what was written
                self._process.stdin.close()

    def _write(self, value: dict[str, Any]) -> None:
        stdin = self._process.stdin
        if stdin is not None:
            with contextlib.suppress(BrokenPipeError):  # it died at once; its exit code says so
                stdin.write(json.dumps(value).encode() + b"\n")
                stdin.flush()

    def _follow(self, seconds: float, stop: Callable[[], bool]) -> Iterator[dict[str, Any]]:
        """Yield events until the pass's last process has ended."""
        deadline = time.monotonic() + (seconds or float("inf"))
        with selectors.DefaultSelector() as selector:
            selector.register(self._events, selectors.EVENT_READ)
            while True:
                if stop():
                    raise TemporaryError("the compile pass was stopped")
                if time.monotonic() > deadline:
                    raise TemporaryError(
                        f"the compile pass took longer than its {seconds:.0f} s",
                        hint="raise the deadline, or give it more cores",
                    )
                if not selector.select(_POLL_SECONDS):
                    continue
                packet = self._events.recv(1 << 20)
                if not packet:
                    return
                yield json.loads(packet)


def _environment(request: CompileRequest) -> dict[str, str]:
    """Return the server's environment, with what the pass needs and vLLM's key leaves out."""
    keep = {name: value for name, value in os.environ.items() if name in _INHERITED}
    environment = {**keep, **request.env}
    package = str(Path(errors.__file__).parents[1])
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, [package, environment.get("PYTHONPATH", "")]))
    environment["VLLM_CACHE_ROOT"] = str(request.cache_root)
    environment.pop("TRITON_CACHE_DIR", None)  # the server's; each pass has its own
    environment["VLLM_NO_USAGE_STATS"] = "1"
    environment["VLLM_LOGGING_LEVEL"] = "INFO"  # a warning that is not logged cannot be refused
    return environment


# What a child needs of this process's own environment; everything else comes from the server's.
_INHERITED = frozenset(
    [
        "PATH",
        "HOME",
        "USER",
        "LANG",
        "LC_ALL",
        "TMPDIR",
        "LD_LIBRARY_PATH",
        "PYTHONPATH",
        "CUDA_HOME",
        "HF_HOME",
        "HF_HUB_CACHE",
        "HF_TOKEN",
        "SSL_CERT_FILE",
    ]
)


def _end_group(process: subprocess.Popen[bytes]) -> None:
    """End every process of the pass: politely, then not."""
    for signal_number in (signal.SIGTERM, signal.SIGKILL):
        if process.poll() is not None:
            break
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal_number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_GRACE_SECONDS)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)  # ranks that outlived it


def _has_descriptor(stream: Any) -> bool:
    try:
        return isinstance(stream.fileno(), int)
    except (AttributeError, OSError, ValueError):
        return False
