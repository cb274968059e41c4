"""Starts and service of a stock `vllm serve` on a GPU: on what a pass without one compiled, and on what vLLM compiles itself.

Four kinds of start, in turn: `cold` (an empty cache root), `native warm` (the root that an earlier cold start left),
`ours, first` (an empty root into which `warmstart run` has just installed) and `ours, second` (the same root again). Each is a
start in a new container: nothing but its cache root is kept, so stock servers begin with an empty Triton cache. Seconds
are vLLM's own (torch.compile, engine init), and those from the command's start to the first good answer to /health. New files
are those below VLLM_CACHE_ROOT after the start. An unmeasured cold start fills the native root and the page cache before. With
--streams, several such rows run at once, spread over the GPUs, each in another order.

Then service: two servers side by side on one GPU, one on each cache, asked in turn by vLLM's own `bench serve` with the same
seed. The model is Qwen3-0.6B as published, with dummy weights. `make bench-gpu` runs it on a machine with an NVIDIA GPU.
"""

from __future__ import annotations

import argparse
import json
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
from tests.gpu.programs import count, describe, serving, warmstart  # noqa: E402

COLD, WARM, FIRST, SECOND = "cold", "native warm", "ours, first", "ours, second"
# Each order keeps `second` behind `first`.
ORDERS = ((FIRST, WARM, SECOND, COLD), (COLD, FIRST, WARM, SECOND), (WARM, COLD, FIRST, SECOND), (FIRST, SECOND, COLD, WARM))
MEASURES = ("torch_compile_seconds", "init_engine_seconds", "ready_seconds", "new_files")
Row = dict[str, Any]


def main() -> int:
    """Measure, print both tables and one JSON line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--case", default="dense", help="a case of tests/gpu/cases.py")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--streams", type=int, default=1, help="rows at once; with more than one, times are those of a busy machine"
    )
    parser.add_argument("--service-rounds", type=int, default=5, help="0 leaves service out")
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
        self.server: Server = self.case.server(folder / "server")
        self.gpu = describe(folder)
        self.spec = folder / "pod.json"
        self.spec.write_text(json.dumps(self.server.pod()))
        self.native = folder / "native"
        self.common = ("-f", str(self.spec), "--store", str(folder / "store"), *self.gpu.options)

    def prepare(self) -> None:
        """Publish an entry, compiled with the GPU hidden, while a cold start fills the native root and the page cache."""
        with ThreadPoolExecutor(1) as pool:
            cold = pool.submit(self.start, self.native, "prepare", 0)
            code, result = warmstart("precompile", *self.common, env=self.server.env, log=self.logs / "precompile", hidden=True)
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
            order = ORDERS[(stream + turn) % len(ORDERS)]
            place = self.folder / f"stream-{stream}-{turn}"
            for kind in order:
                root = {COLD: place / "cold", WARM: self.native, FIRST: place / "ours", SECOND: place / "ours"}[kind]
                if kind == FIRST:
                    self.install(root)
                row = self.start(root, f"{kind.replace(', ', '-').replace(' ', '-')}-{stream}-{turn}", stream % count())
                rows.append({"kind": kind, "stream": stream, "round": turn, **row})
                print(json.dumps(rows[-1]), flush=True)
        return rows

    def install(self, root: Path) -> None:
        """Run the init container's command into an empty root."""
        code, result = warmstart(
            *("run", *self.common, "--cache-root", str(root), "--on-miss", "skip", "--fail-closed"),
            env=self.server.env,
            log=self.logs / "run",
        )
        if code != 0 or result["outcome"] != "hit":
            raise SystemExit(json.dumps(result))

    def start(self, root: Path, name: str, device: int) -> Row:
        """Start the server once and stop it."""
        log = self.logs / name
        before = evidence.listing(root)
        # Ours is told where its Triton kernels lie; a stock server looks in its home, which is a new one.
        triton = None if "ours" in name else self.folder / "homes" / name
        with serving(self.server, root, log, [device], triton) as running:
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
        """Ask both servers in turn; the order changes from round to round."""
        root = self.folder / "service"
        self.install(root)
        rows = []
        with (
            serving(self.server, root, self.logs / "service-ours", [0]) as ours,
            serving(self.server, self.native, self.logs / "service-native", [0]) as native,
        ):
            pair = [("ours", ours.port), ("native", native.port)]
            for name, port in pair:
                ask(port, self.server.model, 32, seed=1)
                print(f"{name} is warm", flush=True)
            for turn in range(self.args.service_rounds):
                for name, port in pair if turn % 2 == 0 else pair[::-1]:
                    rows.append(
                        {"server": name, "round": turn, **ask(port, self.server.model, self.args.requests, seed=7 + turn)}
                    )
                    print(json.dumps(rows[-1]), flush=True)
        return rows


def ask(port: int, model: str, requests: int, seed: int) -> Row:
    """Run vLLM's `bench serve` in this process (its imports take longer than it) and return what it measured."""
    from vllm.benchmarks import serve
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    parser = FlexibleArgumentParser()
    serve.add_cli_args(parser)
    words = ["--port", str(port), "--model", model, "--dataset-name", "random", "--seed", str(seed), "--disable-tqdm"]
    words += ["--random-input-len", "512", "--random-output-len", "128", "--num-prompts", str(requests), "--ignore-eos"]
    found = serve.main(parser.parse_args([*words, "--max-concurrency", "64", "--percentile-metrics", "ttft,tpot,itl,e2el"]))
    names = ("request_throughput", "output_throughput", "median_ttft_ms", "median_tpot_ms", "median_e2el_ms", "completed")
    return {name: found[name] for name in names}


def print_starts(rows: list[Row]) -> None:
    """Print medians and ranges of each kind, and ratios to a native warm start."""
    print(
        "\n| start | n | torch.compile, s | engine init, s | to /health, s | new files | graphs compiled | artifacts loaded |"
    )
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
    for kind in (COLD, WARM, FIRST, SECOND):
        of = [row for row in rows if row["kind"] == kind]
        cells = [spread([row[name] for row in of]) for name in MEASURES]
        cells += [spread([row[name] for row in of]) for name in ("compiled_graphs", "loaded")]
        print(f"| {kind} | {len(of)} | {' | '.join(cells)} |")
    for kind in (FIRST, SECOND):
        ratios = [ratio(rows, kind, WARM, name) for name in MEASURES[:3]]
        print(f"{kind} / native warm: torch.compile {ratios[0]}, engine init {ratios[1]}, to /health {ratios[2]}")


def print_service(rows: list[Row]) -> None:
    """Print medians of both servers, and their ratio."""
    print("\n| service | requests/s | output tokens/s | TTFT, ms | TPOT, ms | whole request, ms |")
    print("| --- | ---: | ---: | ---: | ---: | ---: |")
    names = ("request_throughput", "output_throughput", "median_ttft_ms", "median_tpot_ms", "median_e2el_ms")
    for server in ("ours", "native"):
        print(f"| {server} | {' | '.join(spread([row[name] for row in rows if row['server'] == server]) for name in names)} |")
    if rows:
        both = [
            [statistics.median(row[name] for row in rows if row["server"] == server) for server in ("ours", "native")]
            for name in names
        ]
        print(f"| ours / native | {' | '.join(f'{ours / native:.3f}' for ours, native in both)} |")


def spread(values: list[Any]) -> str:
    """Return the median, and the range where there is one."""
    known = [value for value in values if value is not None]
    if not known:
        return "-"
    low, middle, high = min(known), statistics.median(known), max(known)
    return f"{middle:.4g}" if low == high else f"{middle:.4g} ({low:.4g} to {high:.4g})"


def ratio(rows: list[Row], kind: str, other: str, name: str) -> str:
    """Return the ratio of two kinds' medians."""
    medians = [statistics.median(row[name] for row in rows if row["kind"] == which) for which in (kind, other) if rows]
    return f"{medians[0] / medians[1]:.3f}" if medians else "-"


if __name__ == "__main__":
    sys.exit(main())
