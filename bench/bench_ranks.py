"""The compile pass of a server with 1, 2, 4 and 8 tensor-parallel ranks, beside as many passes that share nothing.

One process imports torch and vLLM and forks a rank for each GPU; `own processes` is what those ranks would cost as passes of
their own, from the one-rank pass of the same run. `with a core each` is worked out, not measured: the seconds before the fork
and those of the longest rank, which holds where ranks have a core each and memory enough; here as many run at once as there are
cores. The model is Qwen3-0.6B as published, 28 layers, for H200s.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(HERE / "app")]

from warmstart.compiler import CompileRequest, run_pass  # noqa: E402
from warmstart.gpus import load_catalog  # noqa: E402

MODEL = HERE / "examples" / "qwen3-0.6b" / "model"
BEFORE_THE_FORK = ("import torch", "import inductor", "import vllm", "configuration")
Row = dict[str, Any]


def main() -> int:
    """Measure, print the table and one JSON line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 2, 4, 8])
    parser.add_argument("--rounds", type=int, default=1, help="medians of so many")
    parser.add_argument("--gpu", default="h200")
    args = parser.parse_args()
    rows = [measure(ranks, args.gpu) for _ in range(args.rounds) for ranks in args.ranks]
    table(rows)
    print(json.dumps({"bench": "ranks", "cores": len(os.sched_getaffinity(0)), "gpu": args.gpu, "rows": rows}))
    return 0


def measure(ranks: int, gpu: str) -> Row:
    """Run one pass into an empty folder."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("WARMSTART_", "VLLM_"))}
    with tempfile.TemporaryDirectory(prefix="warmstart-bench-") as folder:
        log = os.open(Path(folder) / "log", os.O_WRONLY | os.O_CREAT)
        kept = os.dup(2)
        os.dup2(log, 2)
        before, begin = _cpu(), time.monotonic()
        try:
            report = run_pass(
                CompileRequest(
                    model=str(MODEL),
                    args=("--max-model-len", "4096", "--tensor-parallel-size", str(ranks)),
                    env=environment,
                    gpu=load_catalog().get(gpu),
                    cache_root=Path(folder) / "cache",
                    work=Path(folder),
                )
            )
        finally:
            os.dup2(kept, 2)
            os.close(kept)
            os.close(log)
        wall, cpu = time.monotonic() - begin, _cpu() - before
    shared = max(sum(rank.seconds[name] for name in BEFORE_THE_FORK) for rank in report.ranks)
    own = [sum(taken for name, taken in rank.seconds.items() if name not in BEFORE_THE_FORK) for rank in report.ranks]
    row = {
        "ranks": ranks,
        "graphs": report.graphs,
        "wall_seconds": round(wall, 1),
        "cpu_seconds": round(cpu, 1),
        "shared_seconds": round(shared, 1),
        "longest_rank_seconds": round(max(own), 1),
        "shortest_rank_seconds": round(min(own), 1),
    }
    print(json.dumps(row), flush=True)
    return row


def table(rows: list[Row]) -> None:
    """Print medians by number of ranks, each beside as many one-rank passes."""
    counts = sorted({row["ranks"] for row in rows})
    alone = _median(rows, counts[0], "cpu_seconds") / counts[0]
    single = _with_a_core_each(rows, counts[0])
    print("| ranks | graphs | wall, s | CPU, s | own processes, CPU s | with a core each, s | of one rank's |")
    print("| ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
    for count in counts:
        each = _with_a_core_each(rows, count)
        print(
            f"| {count} | {_median(rows, count, 'graphs'):.0f} | {_median(rows, count, 'wall_seconds'):.0f} | "
            f"{_median(rows, count, 'cpu_seconds'):.0f} | {alone * count:.0f} | {each:.0f} | {each / single:.2f} |"
        )


def _with_a_core_each(rows: list[Row], count: int) -> float:
    return _median(rows, count, "shared_seconds") + _median(rows, count, "longest_rank_seconds")


def _median(rows: list[Row], count: int, name: str) -> float:
    return statistics.median(float(row[name]) for row in rows if row["ranks"] == count)


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    sys.exit(main())
