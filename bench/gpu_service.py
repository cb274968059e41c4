"""Service of a stock `vllm serve` on a GPU: with what a pass without one compiled, and with what the server compiled itself.

For each --case three servers stand side by side on one GPU (`ours`, `tuned`: of a pass with `--device cuda`, `native`), each on
its own cache, and vLLM's own `bench serve` asks them in turn, one server at a time and all others idle: many requests at once,
one at a time, and long prompts, which keep a GPU busiest. All three get the same prompts. What is compared is each round with
the one beside it, for a machine's pace changes: the median of these ratios, and in brackets where it lies with 95 % (by the
ratios' own order, so whatever their distribution). How far a server's own rounds are apart says what can be told. Weights are
dummies. `make bench-gpu` runs it on a machine with an NVIDIA GPU. GPU_TESTS_PASSES may name a folder of entries
(tests/gpu/passes.py).
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import itertools
import json
import math
import statistics
import sys
import tempfile
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from gpu_servers import NAMES, Row, Servers, spread
from tests.gpu import evidence
from tests.gpu.programs import describe, serving

WHICH = "ours", "tuned", "native"
# What grows with speed is compared as it is, times the other way round: above 1 is faster than native, everywhere.
THROUGHPUT = ("request_throughput", "output_throughput")
TIMES = ("median_ttft_ms", "median_tpot_ms", "median_e2el_ms")


@dataclasses.dataclass(frozen=True)
class Load:
    """What is asked in a round: so many requests at once, of so many tokens, answered with so many; `part` of --requests."""

    name: str
    at_once: int
    prompt: int
    answer: int
    part: int


LOADS = (
    Load("64 at once", 64, 512, 128, 1),
    Load("one at a time", 1, 512, 128, 32),
    Load("long prompts", 16, 3500, 8, 4),
)


def main() -> int:
    """Measure, print a table for each case and one JSON line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--case", action="append", choices=NAMES, help="of tests/gpu/cases.py, may be repeated; default: llama-8b-whole, dense"
    )
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--requests", type=int, default=256)
    parser.add_argument("--work", type=Path, help="folder for roots and logs; default: a temporary one")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch, contextlib.ExitStack() as stack:
        folder = args.work or Path(scratch)
        prepared = prepare(args.case or ["llama-8b-whole", "dense"], folder)
        ports = stand(stack, prepared)
        chosen = {servers.case.name: choices(servers) for servers in prepared}
        rows = [row for name in ports for row in rounds(name, ports[name], args.rounds, args.requests)]
    for name in ports:
        show(name, [row for row in rows if row["case"] == name])
        print(f"\nkernels tuned, and how many to the same binary as native: {json.dumps(chosen[name])}")
    print(json.dumps({"bench": "gpu_service", "chosen": chosen, "rows": rows}))
    return 0


def prepare(cases: list[str], folder: Path) -> list[Servers]:
    """Make the entries of each case and three roots, in which everything is tuned: one after the other, on a quiet GPU.

    `ours` is tuned at a first start; one that was tuned beside eight other starting servers was an eighth slower afterwards.
    """
    folder.mkdir(parents=True, exist_ok=True)
    gpu = describe(folder)
    found = [Servers(case, gpu, folder / case) for case in cases]
    for servers in found:
        servers.prepare()
        for which in ("ours", "tuned"):
            servers.install(root(servers, which), which)
        servers.start(root(servers, "ours"), "service-ours-first", 0, None)
    return found


def root(servers: Servers, which: str) -> Path:
    """Return a server's cache root."""
    return servers.native if which == "native" else servers.folder / f"service-{which}"


def choices(servers: Servers) -> dict[str, list[int]]:
    """Return for each server how many kernels of its graphs were tuned, and how many of these as `native` has them."""
    found = {which: evidence.choices(root(servers, which)) for which in WHICH}
    return {which: [len(tuned), len(tuned.items() & found["native"].items())] for which, tuned in found.items()}


def stand(stack: contextlib.ExitStack, cases: list[Servers]) -> dict[str, dict[str, tuple[int, str]]]:
    """Start all servers, side by side; return port and model of each, by case and by whose compile it has."""

    def start(servers: Servers, which: str) -> contextlib.AbstractContextManager[object]:
        return serving(servers.server, root(servers, which), servers.logs / f"service-{which}", [0])

    wanted = list(itertools.product(cases, WHICH))
    with ThreadPoolExecutor(len(wanted)) as pool:
        running = list(pool.map(lambda one: stack.enter_context(start(*one)), wanted))
    ports: dict[str, dict[str, tuple[int, str]]] = {}
    for (servers, which), server in zip(wanted, running, strict=True):
        ports.setdefault(servers.case.name, {})[which] = (server.port, server.model)
    return ports


def rounds(case: str, ports: dict[str, tuple[int, str]], number: int, requests: int) -> Iterator[Row]:
    """Ask the servers of a case in turn; the order changes from round to round, the first one is not counted."""
    for turn in range(-1, number):
        for place, load in enumerate(LOADS):
            for which in WHICH[:: 1 if turn % 2 else -1]:
                port, model = ports[which]
                told = ask(port, model, load, max(1, requests // load.part), seed=1000 * place + turn + 7)
                if turn >= 0:
                    row = {"case": case, "server": which, "round": turn, "load": load.name, **told}
                    print(json.dumps(row), flush=True)
                    yield row


def ask(port: int, model: str, load: Load, requests: int, seed: int) -> Row:
    """Run vLLM's `bench serve` in this process (its imports take longer than it) and return what it measured."""
    from vllm.benchmarks import serve
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    parser = FlexibleArgumentParser()
    serve.add_cli_args(parser)
    words = ["--port", str(port), "--model", model, "--dataset-name", "random", "--seed", str(seed), "--disable-tqdm"]
    words += ["--random-input-len", str(load.prompt), "--random-output-len", str(load.answer), "--num-prompts", str(requests)]
    words += ["--ignore-eos", "--max-concurrency", str(load.at_once), "--percentile-metrics", "ttft,tpot,itl,e2el"]
    found = serve.main(parser.parse_args(words))
    if found["completed"] != requests:
        raise SystemExit(f"{requests - found['completed']} of {requests} requests failed")
    return {name: found[name] for name in (*THROUGHPUT, *TIMES)}


def show(case: str, rows: list[Row]) -> None:
    """Print medians of the servers for each load, and the median of the rounds' speeds beside native."""
    print(f"\n{case}")
    print("\n| load | service | requests/s | output tokens/s | TTFT, ms | TPOT, ms | whole request, ms |")
    print("| --- | --- | ---: | ---: | ---: | ---: | ---: |")
    for load in LOADS:
        of = {which: [row for row in rows if (row["load"], row["server"]) == (load.name, which)] for which in WHICH}
        for which, found in of.items():
            cells = [spread([row[measure] for row in found]) for measure in (*THROUGHPUT, *TIMES)]
            print(f"| {load.name} | {which} | {' | '.join(cells)} |")
        for name, pairs in (
            ("speed, ours beside native", zip(of["ours"], of["native"], strict=True)),
            ("speed, tuned beside native", zip(of["tuned"], of["native"], strict=True)),
            ("speed, native, round to round", itertools.pairwise(of["native"])),
        ):
            print(f"| {load.name} | {name} | {' | '.join(speeds(pairs))} |")


def speeds(pairs: Iterable[tuple[Row, Row]]) -> list[str]:
    """Return how fast the one of each pair is, the other being 1, in each measure."""
    both = list(pairs)
    found = [interval([one[measure] / other[measure] for one, other in both]) for measure in THROUGHPUT]
    return [*found, *(interval([other[measure] / one[measure] for one, other in both]) for measure in TIMES)]


def interval(values: list[float]) -> str:
    """Return the median and the interval that holds the true one with at least 95 %, for which it takes six values."""
    ordered, number = sorted(values), len(values)
    # The true median is below the k-th smallest value, or above the k-th largest, as often as coins show fewer than k heads.
    outside = [2 * sum(math.comb(number, heads) for heads in range(k)) / 2**number for k in range(1, number // 2 + 1)]
    k = sum(share <= 0.05 for share in outside)
    middle = f"{statistics.median(ordered):.4f}" if ordered else "-"
    return f"{middle} ({ordered[k - 1]:.4f} to {ordered[-k]:.4f})" if k else middle


if __name__ == "__main__":
    sys.exit(main())
