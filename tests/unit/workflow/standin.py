"""The command line with a recorded stand-in for the compile pass: `python standin.py run …`.

The pass itself takes minutes and is tested end to end in tests/compile. Here it is the one seam that is replaced: by something
that writes a cache tree of the shape that a real pass leaves (tests/store compares that with a real one) and obeys `stop`.
WARMSTART_TEST_PASS says how it behaves: seconds=N to take, fail=TEXT, nothing=TEXT, stuck=1.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import sys
import time
from pathlib import Path
from typing import Any

from warmstart.compiler.report import CompileReport, CompileRequest, RankReport
from warmstart.errors import CompileError, TemporaryError
from warmstart.workflow import compiling

KERNEL = "A" * 52
BEHAVIOUR = "WARMSTART_TEST_PASS"


def write_cache(root: Path, request_text: str, ranks: int) -> str:
    """Write what a pass leaves for `ranks` ranks below a cache root; return the AOT key."""
    key = hashlib.sha256(request_text.encode()).hexdigest()
    base = root / "torch_compile_cache" / "torch_aot_compile" / key
    for rank in range(ranks):
        folder = base / f"rank_{rank}_0"
        folder.mkdir(parents=True)
        (folder / "model").write_bytes((f"artifact of rank {rank} for {request_text} ".encode()) * 2000)
    inductor = base / "inductor_cache" / "ab"
    inductor.mkdir(parents=True)
    (inductor / "cabc.py").write_text("# intermediate\n")
    infos = root / "modelinfos"
    infos.mkdir(parents=True, exist_ok=True)
    (infos / "vllm-model_executor-models-qwen3.json").write_text('{"hash": "0", "modelinfo": {}}')
    kernel = root / "triton" / KERNEL
    kernel.mkdir(parents=True, exist_ok=True)
    for name in ("_k.json", "_k.cubin", "_k.source", "__grp___k.json"):
        (kernel / name).write_text(f"of a pass in {root}" if name.startswith("__grp__") else f"of {name}")
    return key


def run_pass(request: CompileRequest, stop: Any) -> CompileReport:
    """Behave as the compile pass does towards its caller."""
    behaviour = dict(item.partition("=")[::2] for item in os.environ.get(BEHAVIOUR, "").split(";") if item)
    compiling.on_event({"event": "phase", "name": "stand-in"})
    print(f"stand-in: pid {os.getpid()} in {request.cache_root}", file=sys.stderr, flush=True)
    end = time.monotonic() + float(behaviour.get("seconds", 0))
    while time.monotonic() < end and not stop():
        time.sleep(0.02)
    while "stuck" in behaviour:
        with contextlib.suppress(BaseException):  # a read that never returns
            time.sleep(1)
    if stop():
        raise TemporaryError("the compile pass was stopped")
    if "fail" in behaviour:
        raise CompileError(behaviour["fail"])
    if "nothing" in behaviour:
        return _report(request, "nothing-to-compile", behaviour["nothing"], (), 0)
    ranks = 2 if "--tensor-parallel-size=2" in request.args else 1
    key = write_cache(request.cache_root, f"{request.model} {request.args} {request.gpu.id}", ranks)
    return _report(request, "compiled", "", (key,), ranks)


def _report(request: CompileRequest, outcome: str, reason: str, keys: tuple[str, ...], ranks: int) -> CompileReport:
    reports = tuple(
        RankReport(
            rank=rank,
            aot_keys=keys,
            modules_found=1,
            modules_compiled=1,
            modules_saved=1,
            modules_loaded=0,
            graphs=29,
            graphs_compiled=4,
            seconds={"compile": 1.0},
            peak_bytes=1,
            passes={},
            reads={},
        )
        for rank in range(ranks)
    )
    return CompileReport(
        outcome=outcome,
        reason=reason,
        vllm="0.33.0",
        torch="2.14.0",
        gpu=request.gpu.name,
        aot_keys=keys,
        ranks=reports,
        seconds=1.5,
    )


compiling.start = run_pass

if __name__ == "__main__":
    from warmstart.cli import main

    sys.exit(main())
