"""Starts of a stock `vllm serve` on a GPU: on what a pass without one compiled, and on what vLLM compiles itself.

Kinds of start, in turn: `cold` (an empty cache root), `native warm` (the root that an earlier cold start left), `native warm,
home kept` (its Triton cache as well, which a stock server has outside of that root), `ours, first` (an empty root into which
`warmstart run` has just installed), `ours, second` (the same root again), `ours, tuned` (as the first, of a pass with
`--device cuda`) and `ours, chosen` (as the first, of an entry that a started server pushed). Each but the third is a start in
a new container: nothing but its cache root is kept, so stock servers begin with an empty Triton cache. Seconds are vLLM's own
(torch.compile, engine init), and those from the command's start to the first good answer to /health. New files are those below
VLLM_CACHE_ROOT after the start. An unmeasured cold start fills the native root, its home and the page cache before. With
--streams, several such rows run at once, spread over the GPUs, each in another order. The model is Qwen3-0.6B as published,
with dummy weights. `make bench-gpu` runs it on a machine with an NVIDIA GPU. GPU_TESTS_PASSES may name a folder of entries
(tests/gpu/passes.py).
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from gpu_servers import NAMES, Row, Servers, spread
from tests.gpu.programs import count, describe

COLD, WARM, KEPT = "cold", "native warm", "native warm, home kept"
FIRST, SECOND, TUNED, CHOSEN = "ours, first", "ours, second", "ours, tuned", "ours, chosen"
KINDS = COLD, WARM, KEPT, FIRST, SECOND, TUNED, CHOSEN
ENTRIES = {FIRST: "ours", TUNED: "tuned", CHOSEN: "chosen"}
# Each order keeps `second` behind `first`.
ORDERS = (
    (FIRST, WARM, SECOND, TUNED, COLD, KEPT, CHOSEN),
    (COLD, TUNED, CHOSEN, FIRST, KEPT, WARM, SECOND),
    (KEPT, CHOSEN, WARM, COLD, FIRST, SECOND, TUNED),
    (TUNED, FIRST, KEPT, CHOSEN, COLD, SECOND, WARM),
)
MEASURES = ("torch_compile_seconds", "init_engine_seconds", "ready_seconds", "new_files")


def main() -> int:
    """Measure, print the table and one JSON line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--case", default="dense", choices=NAMES, help="a case of tests/gpu/cases.py")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--streams", type=int, default=1, help="rows at once; with more than one, times are those of a busy machine"
    )
    parser.add_argument("--without", action="append", default=[], choices=KINDS, help="a kind of start to leave out")
    parser.add_argument("--work", type=Path, help="folder for roots and logs; default: a temporary one")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = args.work or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        servers = Servers(args.case, describe(folder), folder)
        servers.prepare()
        if CHOSEN not in args.without:
            servers.push()
        rows = starts(servers, args.streams, args.rounds, args.without)
    show(rows)
    print(json.dumps({"bench": "gpu_start", "case": args.case, "starts": rows}))
    return 0


def starts(servers: Servers, streams: int, rounds: int, without: list[str]) -> list[Row]:
    """Measure all kinds of start, `rounds` of them in each of `streams` rows."""

    def stream(number: int) -> list[Row]:
        rows = []
        for turn in range(rounds):
            place = servers.folder / f"stream-{number}-{turn}"
            for kind in ORDERS[(number + turn) % len(ORDERS)]:
                if kind not in without:
                    row = start(servers, kind, place, f"{number}-{turn}", number % count())
                    rows.append({"kind": kind, "stream": number, "round": turn, **row})
                    print(json.dumps(rows[-1]), flush=True)
        return rows

    with ThreadPoolExecutor(streams) as pool:
        return [row for rows in pool.map(stream, range(streams)) for row in rows]


def start(servers: Servers, kind: str, place: Path, name: str, device: int) -> Row:
    """Measure one start; what it needs besides the native root lies in `place`."""
    root = servers.native if kind in (WARM, KEPT) else place / slug(kind.replace(SECOND, FIRST))
    if kind in ENTRIES:
        servers.install(root, ENTRIES[kind])
    # Ours is told where its Triton kernels lie; a stock server looks in its home.
    home = {COLD: place / "home-cold", WARM: place / "home-warm", KEPT: servers.home}.get(kind)
    return servers.start(root, f"{slug(kind)}-{name}", device, home)


def slug(kind: str) -> str:
    """Return a kind of start as a file's name."""
    return kind.replace(", ", "-").replace(" ", "-")


def show(rows: list[Row]) -> None:
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
    for kind, other in itertools.product((FIRST, SECOND, TUNED, CHOSEN), (WARM, KEPT)):
        if kind in measured and other in measured:
            ratios = [ratio(rows, kind, other, name) for name in MEASURES[:3]]
            print(f"{kind} / {other}: torch.compile {ratios[0]}, engine init {ratios[1]}, to /health {ratios[2]}")


def ratio(rows: list[Row], kind: str, other: str, name: str) -> str:
    """Return the ratio of two kinds' medians."""
    medians = [statistics.median(row[name] for row in rows if row["kind"] == which) for which in (kind, other)]
    return f"{medians[0] / medians[1]:.3f}"


if __name__ == "__main__":
    sys.exit(main())
