"""Starts and service of a stock `vllm serve` on a GPU: on what a pass without one compiled, and on what vLLM compiles itself.

Kinds of start, in turn: `cold` (an empty cache root), `native warm` (the root that an earlier cold start left), `native warm,
home kept` (its Triton cache as well, which a stock server has outside of that root), `ours, first` (an empty root into which
`warmstart run` has just installed), `ours, second` (the same root again) and `ours, tuned` (as the first, of a pass with
`--device cuda`). Each but the third is a start in a new container: nothing but its cache root is kept, so stock servers begin
with an empty Triton cache. Seconds are vLLM's own (torch.compile, engine init), and those from the command's start to the first
good answer to /health. New files are those below VLLM_CACHE_ROOT after the start. An unmeasured cold start fills the native
root, its home and the page cache before. With --streams, several such rows run at once, spread over the GPUs, each in another
order.

Then service: three servers side by side on one GPU (ours, tuned, native), each on its cache, asked in turn by vLLM's own `bench
serve` with the same seed, many requests at once and one at a time. What is compared is each round with the one beside it, for a
machine's pace changes: the median of these ratios, and in brackets where it lies with 95 % (by the ratios' own order, so
whatever their distribution). How far a server's own rounds are apart says what can be told. The model is Qwen3-0.6B as
published, with dummy weights. `make bench-gpu` runs it on a machine with an NVIDIA GPU. GPU_TESTS_PASSES may name a folder of
entries (tests/gpu/passes.py).
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import math
import statistics
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(HERE / "app"), str(HERE)]

from tests.gpu import evidence  # noqa: E402
from tests.gpu.cases import CASES, Server  # noqa: E402
from tests.gpu.passes import Entry, entry, made_in  # noqa: E402
from tests.gpu.programs import count, describe, serving, warmstart  # noqa: E402

COLD, WARM, KEPT = "cold", "native warm", "native warm, home kept"
FIRST, SECOND, TUNED = "ours, first", "ours, second", "ours, tuned"
KINDS = COLD, WARM, KEPT, FIRST, SECOND, TUNED
# Each order keeps `second` behind `first`.
ORDERS = (
    (FIRST, WARM, SECOND, TUNED, COLD, KEPT),
    (COLD, TUNED, FIRST, KEPT, WARM, SECOND),
    (KEPT, WARM, COLD, FIRST, SECOND, TUNED),
    (TUNED, FIRST, KEPT, COLD, SECOND, WARM),
)
MEASURES = ("torch_compile_seconds", "init_engine_seconds", "ready_seconds", "new_files")
# Requests at once, and which part of --requests they are: one at a time is the GPU's and the engine's own latency.
LOADS = {64: 1, 1: 32}
SERVICE = ("request_throughput", "output_throughput", "median_ttft_ms", "median_tpot_ms", "median_e2el_ms")
Row = dict[str, Any]


def main() -> int:
    """Measure, print both tables and one JSON line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--case", default="dense", help="a case of tests/gpu/cases.py")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--streams", type=int, default=1, help="rows at once; with more than one, times are those of a busy machine"
    )
    parser.add_argument("--without", action="append", default=[], choices=KINDS, help="a kind of start to leave out")
    parser.add_argument("--service-rounds", type=int, default=20, help="0 leaves service out")
    parser.add_argument("--requests", type=int, default=256)
    parser.add_argument("--work", type=Path, help="folder for roots and logs; default: a temporary one")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        bench = Bench(args, args.work or Path(scratch))
        bench.prepare()
        rows = bench.starts() if args.rounds else []
        service = bench.service() if args.service_rounds else []
    print_starts(rows)
    print_service(service)
    print(json.dumps({"bench": "gpu_start", "case": args.case, "starts": rows, "service": service}))
    return 0


class Bench:
    """One server, its pod spec, a store with its entry, and a root that the server filled itself."""

    def __init__(self, args: argparse.Namespace, folder: Path) -> None:
        self.args, self.folder = args, folder
        self.logs = folder / "logs"
        self.logs.mkdir(parents=True)
        (self.case,) = (case for case in CASES if case.name == args.case)
        self.gpu = describe(folder)
        self.native, self.home = folder / "native", folder / "home"
        self.server: Server
        self.entries: dict[str, tuple[str, ...]] = {}

    def prepare(self) -> None:
        """Publish two entries, made without and with the GPU, while a cold start fills the native root and the page cache."""
        made = made_in(self.folder)
        self.server = self.case.server(made / self.case.name)
        with ThreadPoolExecutor(2) as pool:
            cold = pool.submit(self.start, self.native, "prepare", 0, self.home)
            hidden: Entry = pool.submit(entry, self.case, made, self.gpu).result()
            words = ("-f", str(hidden.spec), *self.gpu.options)
            tuned = (*words, "--store", str(self.folder / "store-tuned"))
            self.entries = {FIRST: (*words, "--store", str(hidden.store)), TUNED: tuned}
            log = self.logs / "precompile-tuned"
            code, result = warmstart(
                "precompile", *tuned, "--device", "cuda", "--tuning-memory", "0", env=self.server.env, log=log
            )
            if code != 0:
                raise SystemExit(json.dumps(result))
            cold.result()

    def starts(self) -> list[Row]:
        """Measure all kinds of start, --rounds of them in each of --streams rows."""
        with ThreadPoolExecutor(self.args.streams) as pool:
            return [row for rows in pool.map(self._stream, range(self.args.streams)) for row in rows]

    def _stream(self, stream: int) -> list[Row]:
        rows = []
        for turn in range(self.args.rounds):
            order = [kind for kind in ORDERS[(stream + turn) % len(ORDERS)] if kind not in self.args.without]
            place = self.folder / f"stream-{stream}-{turn}"
            for kind in order:
                root = self.native if kind in (WARM, KEPT) else place / slug(kind.replace(SECOND, FIRST))
                if kind in self.entries:
                    self.install(root, kind)
                # Ours is told where its Triton kernels lie; a stock server looks in its home.
                home = {COLD: place / "home-cold", WARM: place / "home-warm", KEPT: self.home}.get(kind)
                row = self.start(root, f"{slug(kind)}-{stream}-{turn}", stream % count(), home)
                rows.append({"kind": kind, "stream": stream, "round": turn, **row})
                print(json.dumps(rows[-1]), flush=True)
        return rows

    def install(self, root: Path, kind: str) -> None:
        """Run the init container's command into an empty root."""
        code, result = warmstart(
            *("run", *self.entries[kind], "--cache-root", str(root), "--on-miss", "skip", "--fail-closed"),
            env=self.server.env,
            log=self.logs / "run",
        )
        if code != 0 or result["outcome"] != "hit":
            raise SystemExit(json.dumps(result))

    def start(self, root: Path, name: str, device: int, home: Path | None) -> Row:
        """Start the server once and stop it."""
        log = self.logs / name
        before = evidence.listing(root)
        with serving(self.server, root, log, [device], home) as running:
            ready = running.ready_seconds
        told = evidence.read(log.read_text(errors="replace"))
        return {
            "torch_compile_seconds": told.torch_compile_seconds,
            "init_engine_seconds": told.init_engine_seconds,
            "ready_seconds": ready,
            "new_files": len(evidence.listing(root) - before),
            "loaded": len(told.loaded),
            "compiled_graphs": told.compiled_graphs,
        }

    def service(self) -> list[Row]:
        """Ask the servers in turn; the order changes from round to round."""
        roots = {"ours": self.folder / "service-ours", "tuned": self.folder / "service-tuned", "native": self.native}
        self.install(roots["ours"], FIRST)
        self.install(roots["tuned"], TUNED)
        rows = []
        with contextlib.ExitStack() as stack, ThreadPoolExecutor(len(roots)) as pool:
            servers = {name: serving(self.server, root, self.logs / f"service-{name}", [0]) for name, root in roots.items()}
            ports = {
                name: running.port
                for name, running in zip(servers, pool.map(stack.enter_context, servers.values()), strict=True)
            }
            for name, port in ports.items():
                ask(port, self.server.model, 32, seed=1)
                print(f"{name} is warm", flush=True)
            for turn in range(self.args.service_rounds):
                for at_once, part in LOADS.items():
                    for name, port in sorted(ports.items(), reverse=turn % 2 == 1):
                        told = ask(port, self.server.model, self.args.requests // part, seed=7 + turn, at_once=at_once)
                        rows.append({"server": name, "round": turn, "at_once": at_once, **told})
                        print(json.dumps(rows[-1]), flush=True)
        return rows


def slug(kind: str) -> str:
    """Return a kind of start as a file's name."""
    return kind.replace(", ", "-").replace(" ", "-")


def ask(port: int, model: str, requests: int, seed: int, at_once: int = 64) -> Row:
    """Run vLLM's `bench serve` in this process (its imports take longer than it) and return what it measured."""
    from vllm.benchmarks import serve
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    parser = FlexibleArgumentParser()
    serve.add_cli_args(parser)
    words = ["--port", str(port), "--model", model, "--dataset-name", "random", "--seed", str(seed), "--disable-tqdm"]
    words += ["--random-input-len", "512", "--random-output-len", "128", "--num-prompts", str(requests), "--ignore-eos"]
    found = serve.main(
        parser.parse_args([*words, "--max-concurrency", str(at_once), "--percentile-metrics", "ttft,tpot,itl,e2el"])
    )
    return {name: found[name] for name in (*SERVICE, "completed")}


def print_starts(rows: list[Row]) -> None:
    """Print medians and ranges of each kind, and ratios to a native warm start."""
    print(
        "\n| start | n | torch.compile, s | engine init, s | to /health, s | new files | graphs compiled | artifacts loaded |"
    )
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
    measured = [kind for kind in KINDS if any(row["kind"] == kind for row in rows)]
    for kind in measured:
        of = [row for row in rows if row["kind"] == kind]
        cells = [spread([row[name] for row in of]) for name in MEASURES]
        cells += [spread([row[name] for row in of]) for name in ("compiled_graphs", "loaded")]
        print(f"| {kind} | {len(of)} | {' | '.join(cells)} |")
    for kind, other in itertools.product((FIRST, SECOND, TUNED), (WARM, KEPT)):
        if kind in measured and other in measured:
            ratios = [ratio(rows, kind, other, name) for name in MEASURES[:3]]
            print(f"{kind} / {other}: torch.compile {ratios[0]}, engine init {ratios[1]}, to /health {ratios[2]}")


def print_service(rows: list[Row]) -> None:
    """Print medians of the servers for each load, and the median of the rounds' ratios."""
    print("\n| at once | service | requests/s | output tokens/s | TTFT, ms | TPOT, ms | whole request, ms |")
    print("| ---: | --- | ---: | ---: | ---: | ---: | ---: |")
    for at_once in LOADS:
        load = [row for row in rows if row["at_once"] == at_once]
        of = {name: [row for row in load if row["server"] == name] for name in ("ours", "tuned", "native")}
        for name, found in of.items():
            print(f"| {at_once} | {name} | {' | '.join(spread([row[measure] for row in found]) for measure in SERVICE)} |")
        for name, pairs in (
            ("ours / native", zip(of["ours"], of["native"], strict=True)),
            ("tuned / native", zip(of["tuned"], of["native"], strict=True)),
            ("native, round to round", itertools.pairwise(of["native"])),
        ):
            both = list(pairs)
            ratios = [interval([one[measure] / other[measure] for one, other in both]) for measure in SERVICE]
            print(f"| {at_once} | {name} | {' | '.join(ratios)} |")


def spread(values: list[Any]) -> str:
    """Return the median, and the range where there is one."""
    known = [value for value in values if value is not None]
    if not known:
        return "-"
    low, middle, high = min(known), statistics.median(known), max(known)
    return f"{middle:.4g}" if low == high else f"{middle:.4g} ({low:.4g} to {high:.4g})"


def interval(values: list[float]) -> str:
    """Return the median and the interval that holds the true one with at least 95 %, for which it takes six values."""
    ordered, number = sorted(values), len(values)
    # The true median is below the k-th smallest value, or above the k-th largest, as often as coins show fewer than k heads.
    outside = [2 * sum(math.comb(number, heads) for heads in range(k)) / 2**number for k in range(1, number // 2 + 1)]
    k = sum(share <= 0.05 for share in outside)
    middle = f"{statistics.median(ordered):.4f}" if ordered else "-"
    return f"{middle} ({ordered[k - 1]:.4f} to {ordered[-k]:.4f})" if k else middle


def ratio(rows: list[Row], kind: str, other: str, name: str) -> str:
    """Return the ratio of two kinds' medians."""
    medians = [statistics.median(row[name] for row in rows if row["kind"] == which) for which in (kind, other) if rows]
    return f"{medians[0] / medians[1]:.3f}" if medians else "-"


if __name__ == "__main__":
    sys.exit(main())
