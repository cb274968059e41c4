"""Run a pass from the outside: prepare its environment, start its process, follow its events, and make a report of them.

Nothing of torch or vLLM is imported here. The caller can stop a pass at any moment; its processes are one group and end
together.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from warmstart import errors
from warmstart.compiler import hub, lines, stub
from warmstart.compiler.report import CompileReport, CompileRequest, RankReport
from warmstart.compiler.room import jobs_for
from warmstart.errors import CompileError, NoSpaceError, TemporaryError, UsageError

OnEvent = Callable[[Mapping[str, Any]], None]
_WHOLE_NODE = 8
_GRACE_SECONDS = 5.0
_POLL_SECONDS = 0.2


def run_pass(request: CompileRequest, on_event: OnEvent | None = None, stop: Callable[[], bool] | None = None) -> CompileReport:
    """Compile a model's cache into `request.cache_root`.

    `on_event` is called with each event of the pass (phases with seconds, the world, ranks done). `stop` is asked a few times a
    second; once it answers True the pass ends and TemporaryError is raised.

    Raises:
        UsageError: the arguments, the model's files or the GPU cannot be used; UnsupportedError names the combination.
        CompileError: the pass failed, or left something other than what a server would load.
        TemporaryError: stopped, out of time, or out of space.

    """
    lines.installed()
    begin = time.monotonic()
    request = _absolute(request)
    _writable(request.cache_root)
    with tempfile.TemporaryDirectory(prefix="warmstart-pass-", dir=request.work) as scratch:
        pass_ = _Pass(request, Path(scratch), on_event or (lambda _event: None), stop or (lambda: False))
        events = pass_.run()
    return _summary(request, events, time.monotonic() - begin)


def _absolute(request: CompileRequest) -> CompileRequest:
    """Return the request with absolute paths: the pass's processes work in another folder."""
    given = {name: getattr(request, name) for name in ("cache_root", "model_files", "stub", "work")}
    return dataclasses.replace(request, **{name: path.absolute() for name, path in given.items() if path is not None})


@dataclasses.dataclass
class _Pass:
    request: CompileRequest
    scratch: Path
    on_event: OnEvent
    stop: Callable[[], bool]

    def run(self) -> list[dict[str, Any]]:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with ours:
            job = self._job(theirs.fileno())
            process = self._start(theirs)
            try:
                _hand_over(process, job)
                events = list(self._follow(ours))
                process.wait(_GRACE_SECONDS)  # its last packet has come; its exit code is about to
            finally:
                _end_group(process)
        return self._checked(events, process.returncode)

    def _job(self, descriptor: int) -> dict[str, Any]:
        request = self.request
        return {
            "model": request.model,
            "args": list(request.args),
            "gpu": {**request.gpu.facts(), "id": request.gpu.id},
            "stub": str(stub.ensure(request.work or self.scratch, request.stub)),
            "visible": request.gpu_count or _WHOLE_NODE,
            "jobs": request.jobs or jobs_for(),
            "hub": request.model_files is not None and not _is_folder(request.model),
            "descriptor": descriptor,
        }

    def _start(self, theirs: socket.socket) -> subprocess.Popen[bytes]:
        with theirs:
            return subprocess.Popen(
                [sys.executable, "-m", "warmstart.compiler.child"],
                stdin=subprocess.PIPE,
                stdout=sys.stderr.fileno() if _has_descriptor(sys.stderr) else subprocess.DEVNULL,
                env=self._environment(),
                cwd=self.scratch,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )

    def _environment(self) -> dict[str, str]:
        """Return the server's environment, with what the pass needs and vLLM's key leaves out."""
        request = self.request
        keep = {name: value for name, value in os.environ.items() if name in _INHERITED}
        environment = {**keep, **request.env}
        package = str(Path(errors.__file__).parents[1])
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, [package, environment.get("PYTHONPATH", "")]))
        environment["VLLM_CACHE_ROOT"] = str(request.cache_root)
        environment["VLLM_NO_USAGE_STATS"] = "1"
        environment["VLLM_LOGGING_LEVEL"] = "INFO"  # a warning that is not logged cannot be refused
        if request.model_files is not None and not _is_folder(request.model):
            environment["HF_HUB_CACHE"] = str(hub.lay_out(request.model, request.model_files, self.scratch / "hub"))
        return environment

    def _follow(self, ours: socket.socket) -> Iterator[dict[str, Any]]:
        """Yield the events of the pass until its last process has ended.

        Raises:
            TemporaryError: the caller stopped the pass, or its time is up.

        """
        deadline = time.monotonic() + (self.request.deadline_seconds or float("inf"))
        with selectors.DefaultSelector() as selector:
            selector.register(ours, selectors.EVENT_READ)
            while True:
                if self.stop():
                    raise TemporaryError("the compile pass was stopped")
                if time.monotonic() > deadline:
                    raise TemporaryError(
                        f"the compile pass took longer than its {self.request.deadline_seconds:.0f} s",
                        hint="raise the deadline, or give it more cores",
                    )
                if not selector.select(_POLL_SECONDS):
                    continue
                packet = ours.recv(1 << 20)
                if not packet:
                    return
                event = json.loads(packet)
                self.on_event(event)
                yield event

    def _checked(self, events: list[dict[str, Any]], code: int) -> list[dict[str, Any]]:
        for event in events:
            if event["event"] == "error":
                raise _error(event)
        if code != 0:
            if shutil.disk_usage(self.request.cache_root).free < (64 << 20):
                raise NoSpaceError(f"the disk of {self.request.cache_root} is full", hint="give the cache volume more space")
            died = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"
            raise CompileError(f"the compile process {died} without a report", hint="its log is above")
        return events


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


def _error(event: Mapping[str, Any]) -> Exception:
    kind = getattr(errors, event["kind"], CompileError)
    error: Exception = CompileError(event["message"], hint=event["hint"])
    if isinstance(kind, type) and issubclass(kind, errors.WarmstartError) and kind is not errors.SeamError:
        error = kind(event["message"], hint=event["hint"])
    if "No space left on device" in event["message"]:
        error = NoSpaceError(event["message"])
    return error


def _hand_over(process: subprocess.Popen[bytes], job: dict[str, Any]) -> None:
    stdin = process.stdin
    if stdin is not None:
        with contextlib.suppress(BrokenPipeError):  # it died at once; its exit code says so
            stdin.write(json.dumps(job).encode())
            stdin.close()


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


def _writable(root: Path) -> None:
    try:
        root.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=root):
            pass
    except OSError as error:
        raise UsageError(
            f"the cache root {root} cannot be written to: {error.strerror}",
            hint="mount it writable, or set VLLM_CACHE_ROOT elsewhere",
        ) from error


def _is_folder(model: str) -> bool:
    return Path(model).is_dir()


def _has_descriptor(stream: Any) -> bool:
    try:
        return isinstance(stream.fileno(), int)
    except (AttributeError, OSError, ValueError):
        return False


def _summary(request: CompileRequest, events: list[dict[str, Any]], seconds: float) -> CompileReport:
    import importlib.metadata

    versions = {name: importlib.metadata.version(name) for name in ("vllm", "torch")}
    nothing = [event["reason"] for event in events if event["event"] == "nothing"]
    reports = sorted((event for event in events if event["event"] == "report"), key=lambda event: event["rank"])
    expected = next((event["ranks"] for event in events if event["event"] == "world"), 0)
    if not nothing and len(reports) != expected:
        raise CompileError(f"{expected} ranks were to be compiled, {len(reports)} reported")
    ranks = tuple(_rank_report(report) for report in reports)
    compiled = sum(rank.modules_compiled for rank in ranks)
    return CompileReport(
        outcome="nothing-to-compile" if nothing else "compiled" if compiled else "loaded",
        reason=nothing[0] if nothing else "",
        vllm=versions["vllm"],
        torch=versions["torch"],
        gpu=request.gpu.name,
        aot_keys=tuple(dict.fromkeys(key for rank in ranks for key in rank.aot_keys)),
        ranks=ranks,
        seconds=round(seconds, 3),
    )


def _rank_report(report: Mapping[str, Any]) -> RankReport:
    modules = report["modules"]
    loaded = sum(module["loaded"] for module in modules)
    return RankReport(
        rank=report["rank"],
        aot_keys=tuple(report["aot_keys"]),
        modules_found=len(modules),
        modules_compiled=len(modules) - loaded,
        modules_saved=len(modules) - loaded,
        modules_loaded=loaded,
        graphs=sum(module["entries"] for module in modules),
        graphs_compiled=report["graphs_compiled"],
        seconds=report["seconds"],
        peak_bytes=report["peak_bytes"],
        passes=report["passes"],
        reads=report["reads"],
        factors=report["factors"],
    )
