"""The process in which a pass happens: it imports vLLM once, and forks one process for each rank.

Reads a job (JSON) from standard input, sends events as JSON packets to the socket named in the job (reports and errors
among them), and logs to standard error. Nothing of torch or vLLM is imported before the driver seams are in place.
"""

from __future__ import annotations

import ctypes
import dataclasses
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

from warmstart.compiler.lines import installed
from warmstart.compiler.seams import Bench
from warmstart.compiler.warned import Warned
from warmstart.errors import CompileError, WarmstartError, shorten
from warmstart.gpus.profile import GpuProfile


@dataclasses.dataclass(frozen=True, kw_only=True)
class Job:
    """What the process is told: `visible` GPUs in the server's container, at most `jobs` ranks at once, where events go.

    `hub` says that the model is a hub name whose files were laid out in a local hub cache for this pass.
    """

    model: str
    args: tuple[str, ...]
    gpu: dict[str, Any]
    stub: str
    visible: int
    descriptor: int
    jobs: int = 1
    hub: bool = False


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
    """Run the job on standard input; returns 0 when every rank wrote a report."""
    job = Job(**json.load(sys.stdin))
    reporter = Reporter(socket.socket(fileno=job.descriptor))
    try:
        return _run(job, reporter)
    except Exception as error:  # noqa: BLE001 - whatever torch or vLLM raise ends here, with its place
        reporter.fail(error)
        return 1


def _run(job: Job, reporter: Reporter) -> int:
    line = installed()
    gpu = GpuProfile(**{**job.gpu, "capability": tuple(job.gpu["capability"])})
    bench = Bench(gpu=gpu, visible=job.visible, versions=f"vLLM {line.vllm}")
    warned = Warned()
    warned.install()
    # vLLM sets it when it is imported; here Inductor is imported first, and would start a pool of compile processes.
    os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"
    ctypes.CDLL(job.stub, mode=ctypes.RTLD_GLOBAL)
    bench.install("driver")
    import torch

    reporter.phase("import torch")
    bench.install("torch")
    reporter.phase("import inductor")

    from warmstart.compiler import rank

    config = rank.configure(job, line, bench, reporter, torch.__version__)
    reason = rank.nothing_to_compile(config)
    if reason:
        reporter.send("nothing", reason=reason)
        return 0
    places = rank.places(config)
    reporter.send("world", ranks=len(places))
    if len(places) == 1:
        return rank.compile_place(places[0], config, bench, warned, reporter.of(places[0].index))
    return _fork_each(
        places, job.jobs, reporter, lambda place: rank.compile_place(place, config, bench, warned, reporter.of(place.index))
    )


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
