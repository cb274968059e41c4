"""vLLM's warm-up of its own kernels, once the model is compiled: what a server launches beside its graphs and in its layers.

It runs in a forked process: whatever kernel libraries do without a GPU, a crash among it, the model's cache is made and checked
by then, and what is missing here the server compiles, as it always did.
"""

from __future__ import annotations

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


def compile_kernels(executor: RankExecutor, bench: Bench, root: Path, reporter: Reporter, deadline: float) -> dict[str, Any]:
    """Compile the kernels into the Triton cache below `root`; return what a rank's report says of them.

    It ends a little before `deadline` (seconds of the monotonic clock): the model's cache is worth more than the rest of these.
    It also ends where nothing happens for minutes.
    """
    (ours, theirs), before = os.pipe(), _compiled(root)
    pid = os.fork()
    if pid == 0:
        os.close(ours)
        with os.fdopen(theirs, "w", buffering=1) as pipe:
            print(json.dumps(_run(executor, bench, root, lambda compiled: print(compiled, file=pipe))), file=pipe)
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)
    os.close(theirs)
    told, ended = _follow(ours, reporter, deadline - _RESERVE_SECONDS)
    os.close(ours)
    if ended:
        os.kill(pid, signal.SIGKILL)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if told:
        return dict(json.loads(told))
    how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"
    return {
        "kernels": _compiled(root) - before,
        "kernels_reason": ended or f"vLLM's warm-up {how}",
        "kernels_unreached": [],
    }


def _compiled(root: Path) -> int:
    """Count the kernels below `root`: those of the graphs lie there too."""
    return len(list((root / FOLDER).glob("*/*.cubin")))


def _follow(pipe: int, reporter: Reporter, deadline: float) -> tuple[str, str]:
    """Read how many kernels there are by now, and pass it on; return the result, or why there is none to wait for."""
    told, text = time.monotonic(), b""
    with selectors.DefaultSelector() as selector:
        selector.register(pipe, selectors.EVENT_READ)
        while True:
            left = min(deadline - time.monotonic(), _QUIET_SECONDS)
            if left <= 0 or not selector.select(left):
                return "", "the pass's time was up" if left < _QUIET_SECONDS else f"nothing happened for {_QUIET_SECONDS:.0f} s"
            chunk = os.read(pipe, 1 << 16)
            *lines, text = (text + chunk).split(b"\n")
            counts = [int(line) for line in lines if line.isdigit()]
            if not chunk or len(counts) < len(lines):
                return lines[-1].decode() if lines else "", ""
            if counts and time.monotonic() - told > _TOLD_EACH_SECONDS:
                told = time.monotonic()
                reporter.send("kernels", compiled=counts[-1])


def _run(executor: RankExecutor, bench: Bench, root: Path, tell: Callable[[int], None]) -> dict[str, Any]:
    import torch

    launches, folder = bench.launches, root / FOLDER
    launches.folder, launches.tell = folder, tell
    bench.mode.compiled = True

    def warm_up() -> None:
        with bench.mode, torch.compiler.set_stance("force_eager"):
            executor.warm_up(bench)

    reasons = [
        *_tried(lambda: cuda_utils.compile_module(bench, folder, Path(bench.standin))),
        *(_tried(warm_up) or launches.failed),
    ]
    return {
        "kernels": len(launches.kernels),
        "kernels_reason": "; ".join(reasons),
        "kernels_unreached": sorted(launches.unreached),
    }


def _tried(do: Callable[[], object]) -> list[str]:
    """Return why something did not come to its end: whatever torch or vLLM raise is told, and costs the server seconds."""
    try:
        do()
    except Exception as error:  # noqa: BLE001 - see above
        place = traceback.extract_tb(error.__traceback__)[-1]
        return [f"{type(error).__name__} in {Path(place.filename).name}:{place.lineno}: {shorten(error)}"]
    return []
