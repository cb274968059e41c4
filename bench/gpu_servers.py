"""What the benchmarks on a GPU have in common: one server's entries in a store, and a root that the server filled itself."""

from __future__ import annotations

import json
import statistics
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(HERE / "app"), str(HERE)]

from tests.gpu import evidence  # noqa: E402
from tests.gpu.cases import CASES, Server  # noqa: E402
from tests.gpu.passes import Entry, entry, made_in  # noqa: E402
from tests.gpu.programs import Gpu, serving, warmstart  # noqa: E402

NAMES = tuple(case.name for case in CASES)
Row = dict[str, Any]


class Servers:
    """One case: its server, native roots, and three entries.

    `ours` is made without the GPU, `tuned` with `--device cuda`, and `chosen` is what a server pushed that had started on ours.
    """

    def __init__(self, name: str, gpu: Gpu, folder: Path) -> None:
        self.folder, self.gpu = folder, gpu
        self.logs = folder / "logs"
        self.logs.mkdir(parents=True)
        (self.case,) = (case for case in CASES if case.name == name)
        self.native, self.home = folder / "native", folder / "home"
        self.server: Server
        self._entries: dict[str, tuple[str, ...]] = {}

    def prepare(self) -> None:
        """Publish two entries, made without and with the GPU, while a cold start fills the native root and the page cache.

        Whatever times kernels does so alone on the GPU: the cold start first, then the pass with the GPU.
        """
        made = made_in(self.folder)
        self.server = self.case.server(made / self.case.name)
        with ThreadPoolExecutor(2) as pool:
            cold = pool.submit(self.start, self.native, "prepare", 0, self.home)
            hidden: Entry = pool.submit(entry, self.case, made, self.gpu).result()
            cold.result()
        words = ("-f", str(hidden.spec), *self.gpu.options)
        stores = {"ours": hidden.store, **{name: self.folder / f"store-{name}" for name in ("tuned", "chosen")}}
        self._entries = {name: (*words, "--store", str(store)) for name, store in stores.items()}
        self._publish("precompile", "tuned", "--device", "cuda", "--tuning-memory", "0")

    def push(self) -> None:
        """Publish the cache root of a server that started on `ours`, alone on the GPU, with what it found fastest."""
        root = self.folder / "pushed"
        self.install(root, "ours")
        self.start(root, "prepare-chosen", 0, None)
        self._publish("push", "chosen", "--cache-root", str(root))

    def _publish(self, command: str, which: str, *options: str) -> None:
        log = self.logs / f"{command}-{which}"
        code, result = warmstart(command, *self._entries[which], *options, env=self.server.env, log=log)
        if code != 0:
            raise SystemExit(json.dumps(result))

    def install(self, root: Path, which: str) -> None:
        """Run the init container's command into an empty root; `which` is an entry: `ours`, `tuned` or `chosen`."""
        code, result = warmstart(
            *("run", *self._entries[which], "--cache-root", str(root), "--on-miss", "skip", "--fail-closed"),
            env=self.server.env,
            log=self.logs / "run",
        )
        if code != 0 or result["outcome"] != "hit":
            raise SystemExit(json.dumps(result))

    def start(self, root: Path, name: str, device: int, home: Path | None) -> Row:
        """Start the server once and stop it; `home` is where it keeps Triton's kernels, as in tests.gpu.programs.serving."""
        log = self.logs / name
        before = evidence.listing(root)
        with serving(self.server, root, log, [device], home) as running:
            ready = running.ready_seconds
        told = evidence.read(log.read_text(errors="replace"))
        new = sorted(evidence.listing(root) - before)
        return {
            "torch_compile_seconds": told.torch_compile_seconds,
            "init_engine_seconds": told.init_engine_seconds,
            "ready_seconds": ready,
            "new_files": len(new),
            "new_kinds": evidence.kinds(new),
            "loaded": len(told.loaded),
            "compiled_graphs": told.compiled_graphs,
        }


def spread(values: list[Any]) -> str:
    """Return the median, and the range where there is one."""
    known = [value for value in values if value is not None]
    if not known:
        return "-"
    low, middle, high = min(known), statistics.median(known), max(known)
    return f"{middle:.4g}" if low == high else f"{middle:.4g} ({low:.4g} to {high:.4g})"
