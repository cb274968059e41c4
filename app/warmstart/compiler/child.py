"""One rank of the pass: a process that stands for one worker of `vllm serve`, from its arguments to its saved artifacts.

Reads a job (JSON) from standard input, writes events and its report as JSON lines to the descriptor named in the job, and logs to
standard error. Nothing of torch or vLLM is imported before the driver seams are in place.
"""

from __future__ import annotations

import ctypes
import dataclasses
import json
import os
import resource
import sys
import time
from pathlib import Path
from typing import Any

from warmstart.compiler.lines import installed
from warmstart.compiler.seams import Bench
from warmstart.errors import CompileError, WarmstartError, shorten
from warmstart.gpus.profile import GpuProfile


@dataclasses.dataclass(frozen=True, kw_only=True)
class Job:
    """What one rank's process is told. `rank` counts within one data-parallel rank; `device` is its index on its node."""

    model: str
    args: tuple[str, ...]
    gpu: dict[str, Any]
    stub: str
    visible: int
    rank: int = 0
    dp_rank: int = 0
    device: int = 0
    hub_from_folder: bool = False
    descriptor: int = 1


class Reporter:
    """Events of one rank: which phase it is in, how long each took, and in the end its report or its error."""

    def __init__(self, descriptor: int) -> None:
        self._file = os.fdopen(descriptor, "w", buffering=1)
        self._begin = self._last = time.monotonic()
        self.seconds: dict[str, float] = {}

    def phase(self, name: str) -> None:
        """Say that the phase `name` has ended."""
        now = time.monotonic()
        self.seconds[name] = round(now - self._last, 3)
        self._last = now
        self.send("phase", name=name, seconds=self.seconds[name], elapsed=round(now - self._begin, 3))

    def send(self, event: str, **fields: Any) -> None:
        """Write one event."""
        self._file.write(json.dumps({"event": event, **fields}) + "\n")


def main() -> int:
    """Run the job on standard input; returns 0 when a report was written, 1 when an error was."""
    job = Job(**json.load(sys.stdin))
    reporter = Reporter(job.descriptor)
    try:
        report = run(job, reporter)
    except WarmstartError as error:
        reporter.send("error", kind=type(error).__name__, message=error.message, hint=error.hint)
        return 1
    except Exception as error:  # noqa: BLE001 - whatever torch or vLLM raise ends here, with its place
        import traceback

        traceback.print_exc()
        reporter.send("error", kind="CompileError", message=f"{type(error).__name__}: {shorten(error)} ({_place(error)})", hint="")
        return 1
    reporter.send("report", **report)
    return 0


def run(job: Job, reporter: Reporter) -> dict[str, Any]:
    """Compile one rank and return its report's fields."""
    line = installed()
    gpu = GpuProfile(**{**job.gpu, "capability": tuple(job.gpu["capability"])})
    bench = Bench(gpu=gpu, visible=job.visible, device=job.device, versions=f"vLLM {line.vllm}")
    ctypes.CDLL(job.stub, mode=ctypes.RTLD_GLOBAL)
    bench.install("driver")
    import torch

    reporter.phase("import torch")
    bench.install("torch")
    reporter.phase("stand in for the GPU")

    from warmstart.compiler import rank

    return rank.compile_rank(job, line, bench, reporter, torch)


def _place(error: BaseException) -> str:
    import traceback

    frames = traceback.extract_tb(error.__traceback__)
    frame = frames[-1]
    return f"{Path(frame.filename).name}:{frame.lineno}"


def peak_bytes() -> int:
    """Return the resident peak of this process."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


__all__ = ["CompileError", "Job", "Reporter", "main", "peak_bytes", "run"]

if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    # Not sys.exit: interpreter shutdown would run destructors that call into a CUDA that is not there.
    os._exit(code)
