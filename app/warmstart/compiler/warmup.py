"""vLLM's warm-up of its own kernels, once the model is compiled: what a server launches beside its graphs and in its layers.

It runs in a forked process: whatever kernel libraries do without a GPU, a crash among it, the model's cache is made and checked
by then, and what is missing here the server compiles, as it always did.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import time
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

from warmstart.compiler.launches import FOLDER
from warmstart.errors import shorten

if TYPE_CHECKING:
    from warmstart.compiler.child import Reporter
    from warmstart.compiler.engine import RankExecutor
    from warmstart.compiler.seams.base import Bench

_RESERVE_SECONDS = 10.0
"""What is left of the pass's time for its report."""
_TOLD_EACH_SECONDS = 5.0


def compile_kernels(executor: RankExecutor, bench: Bench, root: Path, reporter: Reporter, deadline: float) -> dict[str, Any]:
    """Compile the kernels into the Triton cache below `root`; return what a rank's report says of them.

    It ends a little before `deadline` (seconds of the monotonic clock): the model's cache is worth more than the rest of these.
    """
    ours, theirs = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(ours)
        with os.fdopen(theirs, "w") as pipe:
            json.dump(_run(executor, bench, root, reporter), pipe)
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)
    os.close(theirs)
    with os.fdopen(ours) as pipe:
        left = deadline - time.monotonic() - _RESERVE_SECONDS
        in_time = bool(select.select([pipe], [], [], None if left == float("inf") else max(left, 0))[0])
        if not in_time:
            os.kill(pid, signal.SIGKILL)
        told = pipe.read()
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if told:
        return dict(json.loads(told))
    how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"
    return {
        "kernels": len(list((root / FOLDER).glob("*/*.cubin"))),
        "kernels_reason": f"vLLM's warm-up {how}" if in_time else "the pass's time was up",
        "kernels_unreached": [],
    }


def _run(executor: RankExecutor, bench: Bench, root: Path, reporter: Reporter) -> dict[str, Any]:
    import torch

    launches, reason, told = bench.launches, "", time.monotonic()

    def tell(compiled: int) -> None:
        nonlocal told
        if time.monotonic() - told > _TOLD_EACH_SECONDS:
            told = time.monotonic()
            reporter.send("kernels", compiled=compiled)

    launches.folder, launches.tell = root / FOLDER, tell
    bench.mode.compiled = True
    try:
        with bench.mode, torch.compiler.set_stance("force_eager"):
            executor.warm_up(bench)
    except Exception as error:  # noqa: BLE001 - whatever torch or vLLM raise: it is told, and costs the server seconds
        traceback.print_exc()
        place = traceback.extract_tb(error.__traceback__)[-1]
        reason = f"{type(error).__name__} in {Path(place.filename).name}:{place.lineno}: {shorten(error)}"
    return {
        "kernels": len(launches.kernels),
        "kernels_reason": reason or "; ".join(launches.failed),
        "kernels_unreached": sorted(launches.unreached),
    }
