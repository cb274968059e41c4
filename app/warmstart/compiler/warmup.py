"""vLLM's warm-up of its own kernels, once the model is compiled: what a server launches beside its graphs and in its layers.

It runs in forked processes: whatever kernel libraries do without a GPU, a crash among it, the model's cache is made and checked
by then, and what is missing here the server compiles, as it always did.
"""

from __future__ import annotations

import functools
import json
import os
import selectors
import signal
import sys
import time
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

from warmstart.compiler import cuda_utils
from warmstart.compiler.launches import FOLDER
from warmstart.errors import shorten

if TYPE_CHECKING:
    from collections.abc import Callable

    from warmstart.compiler.child import Reporter
    from warmstart.compiler.engine import RankExecutor
    from warmstart.compiler.seams.base import Bench

_RESERVE_SECONDS = 10.0
"""What is left of the pass's time for its report."""
_TOLD_EACH_SECONDS = 5.0
_QUIET_SECONDS = 300.0
"""After so long without a kernel compiled or a layer entered, it hangs."""


def compile_kernels(
    executor: RankExecutor, bench: Bench, root: Path, reporter: Reporter, deadline: float, jobs: int = 1
) -> dict[str, Any]:
    """Compile the kernels into the Triton cache below `root`; return what a rank's report says of them.

    `jobs` processes go through the same warm-up, and each compiles its share. They end a little before `deadline` (seconds of
    the monotonic clock): the model's cache is worth more than the rest of these. They also end where nothing happens for
    minutes.
    """
    before = _compiled(root)
    workers = [_Worker(functools.partial(_run, executor, bench, root, (index, jobs))) for index in range(jobs)]
    ended = _follow(workers, reporter, deadline - _RESERVE_SECONDS)
    told = [worker.end(ended) for worker in workers]
    return {
        # Those that had lain there before, or of a process that could not tell.
        "kernels": max(sum(found["kernels"] for found in told), _compiled(root) - before),
        "kernels_reason": "; ".join(dict.fromkeys(reason for found in told for reason in found["reasons"])),
        "kernels_unreached": sorted({place for found in told for place in found["unreached"]}),
    }


class _Worker:
    """A forked process that tells how many kernels it has compiled, a line each time, and in the end its result."""

    def __init__(self, run: Callable[[Callable[[int], None]], dict[str, Any]]) -> None:
        self.pipe, theirs = os.pipe()
        self.compiled, self._text, self._told = 0, b"", b""
        self._pid = os.fork()
        if self._pid == 0:
            os.close(self.pipe)
            with os.fdopen(theirs, "w", buffering=1) as pipe:
                print(json.dumps(run(lambda compiled: print(compiled, file=pipe))), file=pipe)
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(0)
        os.close(theirs)

    def read(self) -> bool:
        """Read what it tells; return whether there may be more."""
        chunk = os.read(self.pipe, 1 << 16)
        *lines, self._text = (self._text + chunk).split(b"\n")
        for line in lines:
            if line.isdigit():
                self.compiled = int(line)
            else:
                self._told = line
        return bool(chunk)

    def end(self, ended: str) -> dict[str, Any]:
        """Wait for its end and return its result. Where there is no time for that (`ended` says why), end it."""
        os.close(self.pipe)
        if ended and not self._told:
            os.kill(self._pid, signal.SIGKILL)
        code = os.waitstatus_to_exitcode(os.waitpid(self._pid, 0)[1])
        if self._told:
            return dict(json.loads(self._told))
        how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"
        return {"kernels": self.compiled, "reasons": [ended or f"vLLM's warm-up {how}"], "unreached": []}


def _compiled(root: Path) -> int:
    """Count the kernels below `root`: those of the graphs lie there too."""
    return len(list((root / FOLDER).glob("*/*.cubin")))


def _follow(workers: list[_Worker], reporter: Reporter, deadline: float) -> str:
    """Pass on how many kernels there are by now, until all workers have ended; return why to wait no longer, if so."""
    told = time.monotonic()
    with selectors.DefaultSelector() as selector:
        for worker in workers:
            selector.register(worker.pipe, selectors.EVENT_READ, worker)
        while selector.get_map():
            left = min(deadline - time.monotonic(), _QUIET_SECONDS)
            ready = selector.select(left) if left > 0 else []
            if not ready:
                return "the pass's time was up" if left < _QUIET_SECONDS else f"nothing happened for {_QUIET_SECONDS:.0f} s"
            for key, _ in ready:
                if not key.data.read():
                    selector.unregister(key.fileobj)
            if time.monotonic() - told > _TOLD_EACH_SECONDS:
                told = time.monotonic()
                reporter.send("kernels", compiled=sum(worker.compiled for worker in workers))
    return ""


def _run(
    executor: RankExecutor, bench: Bench, root: Path, share: tuple[int, int], tell: Callable[[int], None]
) -> dict[str, Any]:
    import torch

    launches, folder = bench.launches, root / FOLDER
    launches.folder, launches.tell, launches.share = folder, tell, share
    bench.mode.compiled = True

    def warm_up() -> None:
        with bench.mode, torch.compiler.set_stance("force_eager"):
            executor.warm_up(bench)

    first, _ = share
    module = [] if first else _tried(lambda: cuda_utils.compile_module(bench, folder, Path(bench.standin)))
    failed = _tried(warm_up)
    return {
        "kernels": len(launches.kernels),
        "reasons": [*module, *(failed or launches.failed)],
        "unreached": list(launches.unreached),
    }


def _tried(do: Callable[[], object]) -> list[str]:
    """Return why something did not come to its end: whatever torch or vLLM raise is told, and costs the server seconds."""
    try:
        do()
    except Exception as error:  # noqa: BLE001 - see above
        place = traceback.extract_tb(error.__traceback__)[-1]
        return [f"{type(error).__name__} in {Path(place.filename).name}:{place.lineno}: {shorten(error)}"]
    return []
