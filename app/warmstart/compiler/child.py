"""The process in which passes happen: it imports vLLM once, and forks one process for each rank.

Its standard input holds a line for what all of its passes share (`Setup`) and a line for each pass (`Job`), both JSON. Events
go as JSON packets to the socket named in the setup, reports and errors among them; the log goes to standard error. Nothing of
torch or vLLM is imported before the driver seams are in place. With `forks`, each pass has a forked process of its own, so
that many passes for one GPU type and environment share the imports, which are more than half of a small pass.
"""

from __future__ import annotations

import ctypes
import dataclasses
import functools
import json
import os
import resource
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from warmstart.compiler.launches import FOLDER
from warmstart.compiler.lines import Line, installed
from warmstart.compiler.seams import Bench
from warmstart.compiler.warned import Warned
from warmstart.errors import CompileError, WarmstartError, shorten
from warmstart.gpus.profile import GpuProfile


@dataclasses.dataclass(frozen=True, kw_only=True)
class Setup:
    """What all passes of the process share: `visible` GPUs of one type in the server's container, at most `jobs` ranks at once.

    `descriptor` is the socket for events. Without a `stub` for libcuda, the GPUs in sight are used; `tuning_bytes` of each may
    be taken for tuning (0: no limit).
    """

    gpu: dict[str, Any]
    stub: str
    visible: int
    descriptor: int
    jobs: int = 1
    forks: bool = False
    tuning_bytes: int = 0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Job:
    """One pass. `folder` is its working folder, `cache_root` its VLLM_CACHE_ROOT.

    `hub` says that the model is a hub name whose files were laid out in a local hub cache for this pass. With `kernels`, those
    that the server launches beside the model are compiled too. `deadline` is when the pass must have ended, in seconds of the
    monotonic clock, which processes share (0: none).
    """

    model: str
    args: tuple[str, ...]
    cache_root: str
    folder: str
    hub: bool = False
    kernels: bool = True
    deadline: float = 0.0


@dataclasses.dataclass(frozen=True)
class Ready:
    """A process that has imported vLLM, with every seam in place."""

    line: Line
    bench: Bench
    warned: Warned
    jobs: int


class Reporter:
    """Events of one process: which phase has ended and how long it took, and in the end a report or an error."""

    def __init__(self, events: socket.socket, rank: int | None = None) -> None:
        self._socket = events
        self._rank = rank
        self._begin = self._last = time.monotonic()
        self.seconds: dict[str, float] = {}

    def of(self, rank: int) -> Reporter:
        """Return a reporter for a forked rank; phases before the fork stay in its seconds."""
        reporter = Reporter(self._socket, rank)
        reporter.seconds = dict(self.seconds)
        reporter._begin = self._begin
        return reporter

    def phase(self, name: str) -> None:
        """Say that the phase `name` has ended."""
        now = time.monotonic()
        self.seconds[name] = round(now - self._last, 3)
        self._last = now
        self.send("phase", name=name, seconds=self.seconds[name], elapsed=round(now - self._begin, 3))

    def send(self, event: str, **fields: Any) -> None:
        """Send one event as one packet: forked ranks share the socket, and packets do not mix."""
        self._socket.send(json.dumps({"event": event, "rank": self._rank, **fields}).encode())

    def fail(self, error: Exception) -> None:
        """Write an error, with its place where it was not raised on purpose."""
        if isinstance(error, WarmstartError):
            self.send("error", kind=type(error).__name__, message=error.message, hint=error.hint)
            return
        traceback.print_exc()
        place = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{Path(place.filename).name}:{place.lineno}"
        self.send("error", kind="CompileError", message=f"{type(error).__name__} in {where}: {shorten(error)}", hint="")


def main() -> int:
    """Run the passes on standard input; returns 0 when every rank of the only one, or of the last, wrote a report."""
    setup = Setup(**json.loads(sys.stdin.readline()))
    events = socket.socket(fileno=setup.descriptor)
    reporter = Reporter(events)
    code = 0
    try:
        ready = _prepare(setup, reporter)
        for text in sys.stdin:
            job = Job(**json.loads(text))
            if not setup.forks:
                return _run(job, ready, reporter)
            code, seconds = _fork(functools.partial(_guarded, job, ready, Reporter(events)))
            reporter.send("ended", code=code, cpu_seconds=seconds)
    except Exception as error:  # noqa: BLE001 - whatever torch or vLLM raise ends here, with its place
        reporter.fail(error)
        return 1
    return code


def _prepare(setup: Setup, reporter: Reporter) -> Ready:
    """Import torch and vLLM between the seams."""
    line = installed()
    gpu = GpuProfile(**{**setup.gpu, "capability": tuple(setup.gpu["capability"])})
    bench = Bench(
        gpu=gpu,
        visible=setup.visible,
        versions=f"vLLM {line.vllm}",
        absent=line.absent,
        real=not setup.stub,
        standin=setup.stub,
        tuning_bytes=setup.tuning_bytes,
    )
    warned = Warned()
    warned.install()
    # vLLM sets it when it is imported; here Inductor is imported first, and would start a pool of compile processes.
    os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"
    if setup.stub:
        ctypes.CDLL(setup.stub, mode=ctypes.RTLD_GLOBAL)
    bench.install("driver")
    import torch

    reporter.phase("import torch")
    bench.install("torch")
    reporter.phase("import inductor")

    from warmstart.compiler import rank

    rank.import_vllm(bench, torch.__version__)
    reporter.phase("import vllm")
    return Ready(line, bench, warned, setup.jobs)


def _guarded(job: Job, ready: Ready, reporter: Reporter) -> int:
    try:
        return _run(job, ready, reporter)
    except Exception as error:  # noqa: BLE001 - as in main, in a forked process
        reporter.fail(error)
        return 1


def _run(job: Job, ready: Ready, reporter: Reporter) -> int:
    from warmstart.compiler import rank

    os.environ["VLLM_CACHE_ROOT"] = job.cache_root
    # Where the server is to look for kernels. An artifact holds its own, too, with all that a compile leaves, and torch writes
    # each that it does not find there before the model is called.
    os.environ["TRITON_CACHE_DIR"] = str(Path(job.cache_root, FOLDER))
    os.chdir(job.folder)
    config = rank.configure(job, ready, reporter)
    reason = rank.nothing_to_compile(config)
    if reason:
        reporter.send("nothing", reason=reason)
        return 0
    places = rank.places(config)
    reporter.send("world", ranks=len(places))
    if len(places) == 1:
        return rank.compile_place(places[0], config, job, ready, reporter.of(places[0].index))
    return _fork_each(
        places, ready.jobs, reporter, lambda place: rank.compile_place(place, config, job, ready, reporter.of(place.index))
    )


def _fork(run: Callable[[], int]) -> tuple[int, float]:
    """Run something in a forked process; returns its exit code (a signal's number, negative) and its processor seconds."""
    pid = os.fork()
    if pid == 0:
        _exit(run())
    _, status, used = os.wait4(pid, 0)
    return os.waitstatus_to_exitcode(status), round(used.ru_utime + used.ru_stime, 1)


def _fork_each(places: list[Any], jobs: int, reporter: Reporter, compile_place: Callable[[Any], int]) -> int:
    """Compile each place in a process of its own, at most `jobs` at once; the first failure ends the others."""
    waiting, running, failed = list(places), dict[int, int](), False
    while (waiting and not failed) or running:
        while waiting and not failed and len(running) < jobs:
            place = waiting.pop(0)
            pid = os.fork()
            if pid == 0:
                _exit(compile_place(place))
            running[pid] = place.index
        pid, status = os.wait()
        index = running.pop(pid, None)
        if index is None:
            continue  # a helper process that some library had started before the fork
        if status and not failed:
            failed = True
            if os.WIFSIGNALED(status):
                name = signal.Signals(os.WTERMSIG(status)).name
                reporter.of(index).fail(
                    CompileError(f"the process of rank {index} was killed by {name}", hint=_HINTS.get(name, ""))
                )
            for other in running:
                os.kill(other, signal.SIGKILL)
    return int(failed)


_HINTS = {"SIGKILL": "it may have run out of memory: give it 2 GiB for each rank compiled at once (--jobs)"}


def peak_bytes() -> int:
    """Return the resident peak of this process."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _exit(code: int) -> None:
    """End without interpreter shutdown: destructors would call into a CUDA that is not there."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    _exit(main())
