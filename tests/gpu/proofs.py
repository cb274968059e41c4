"""One proof for each case: a pass without the GPU, a start on what it published, and a start that compiles for itself.

Starts take minutes and little of a GPU, so several cases can run at once: GPU_TESTS_AT_ONCE says how many.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import os
import threading
from collections.abc import Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tests.gpu import evidence
from tests.gpu.cases import Case, Server
from tests.gpu.evidence import Started
from tests.gpu.passes import Entry, Kept, entry, kept, made_in, must
from tests.gpu.programs import Gpu, count, serving, warmstart

AT_ONCE = "GPU_TESTS_AT_ONCE"


@dataclasses.dataclass(frozen=True)
class Start:
    """What one start told: its log, the seconds to /health, its greedy answers, and the files of its root before and after."""

    started: Started
    ready_seconds: float
    answers: list[dict[str, Any]]
    before: frozenset[str]
    after: frozenset[str]

    def times(self) -> dict[str, float | None]:
        """Return vLLM's own seconds and those to the first good answer to /health."""
        return {
            "torch_compile_seconds": self.started.torch_compile_seconds,
            "init_engine_seconds": self.started.init_engine_seconds,
            "ready_seconds": self.ready_seconds,
        }


@dataclasses.dataclass(frozen=True)
class Proof:
    """Everything about one case. `pass_root` is the whole cache root of a second pass, kept to compare its graphs."""

    case: Case
    folder: Path
    entry: Entry
    kept: Kept
    installed: dict[str, Any]
    verified: tuple[int, dict[str, Any]]
    ours: Start
    native: Start

    def summary(self) -> dict[str, Any]:
        """Return what belongs into docs/proof: keys, what was compiled and loaded, times, and whether both sides are equal."""
        made, server = evidence.kernels(self.pass_root), evidence.kernels(self.native_root)
        return {
            "case": self.case.name,
            "vllm": self.compiled["vllm"],
            "aot_keys": self.compiled["aot_keys"],
            "ranks": self.compiled["ranks"],
            "graphs": self.compiled["graphs"],
            "compile_seconds": self.compiled["compile_seconds"],
            "stored_bytes": self.compiled["stored_bytes"],
            "loaded": len(self.ours.started.loaded),
            "compiled_by_server": self.ours.started.compiled_graphs,
            "new_files": len(self.ours.after - self.ours.before),
            "new_kinds": evidence.kinds(self.ours.after - self.ours.before),
            "unexpected_files": evidence.unexpected(self.ours.before, self.ours.after),
            "verify": self.verified[1].get("outcome"),
            "native_keys_equal": evidence.aot_keys(self.native.after) == frozenset(self.compiled["aot_keys"]),
            "graphs_equal": evidence.graphs(self.native_root) == evidence.graphs(self.pass_root),
            "kernels_only_ours": sorted(made - server),
            "kernels_only_native": sorted(server - made),
            "machine_code": {what: len(found) if what == "equal" else found for what, found in self.machine_code().items()},
            "choices": self.choices(),
            "own_kernels": len(evidence.own_kernels(self.ours.before)),
            "own_kernels_compiled_by_server": sorted(self.compiled_own_kernels().values()),
            "answers_equal": self.ours.answers == self.native.answers,
            "answers_apart": evidence.apart(self.ours.answers, self.native.answers),
            "ours_first": self.ours.times(),
            "native_cold": self.native.times(),
        }

    def compiled_own_kernels(self) -> dict[str, str]:
        """Return the kernels beside the graphs that the server compiled itself, on our root, by hash."""
        before = evidence.own_kernels(self.ours.before)
        return {digest: name for digest, name in evidence.own_kernels(self.ours.after).items() if digest not in before}

    def choices(self) -> dict[str, int]:
        """Return how many kernels of the graphs each server tuned, and how many of them alike: to the very same binary."""
        ours, native = evidence.choices(self.folder / "ours"), evidence.choices(self.native_root)
        return {"ours": len(ours), "native": len(native), "alike": len(ours.items() & native.items())}

    def machine_code(self) -> dict[str, list[str]]:
        """Return the kernels of the graphs that a native start compiled: equal to the entry's, other than it, or not in it."""
        entry = evidence.machine_code(self.folder / "ours", self.ours.before)
        server = evidence.machine_code(self.native_root, self.native.after)
        return {
            "equal": [kernel for kernel, code in server.items() if entry.get(kernel) == code],
            "other": [kernel for kernel, code in server.items() if entry.get(kernel, code) != code],
            "missing": [kernel for kernel in server if kernel not in entry],
        }

    @property
    def compiled(self) -> dict[str, Any]:
        """Return what `precompile` told."""
        return self.entry.compiled

    @property
    def pass_root(self) -> Path:
        """Return the cache root of the pass that was kept."""
        return self.kept.root

    @property
    def native_root(self) -> Path:
        """Return the cache root that the server filled itself."""
        return self.folder / "native"


class Proofs:
    """Proofs that are being made, in the order in which the cases were given; a case's failure is raised where it is asked."""

    def __init__(self, cases: Iterable[Case], gpu: Gpu, folder: Path) -> None:
        self._gpu = gpu
        self._places = _Places(count())
        self._passes = made_in(folder)
        at_once = int(os.environ.get(AT_ONCE, "1"))
        self._pool = ThreadPoolExecutor(at_once)
        self._of: Mapping[str, Future[Proof]] = {
            case.name: self._pool.submit(self._prove, case, folder / case.name) for case in cases
        }

    def of(self, case: Case) -> Proof:
        """Wait for a case's proof."""
        return self._of[case.name].result()

    def close(self) -> None:
        """Start no more."""
        self._pool.shutdown(cancel_futures=True)

    def _prove(self, case: Case, folder: Path) -> Proof:
        folder.mkdir(parents=True, exist_ok=True)
        made, whole = entry(case, self._passes, self._gpu), kept(case, self._passes, self._gpu)
        server, log, root = case.server(made.folder), folder / "warmstart.log", folder / "ours"
        code, installed = warmstart(
            *("run", "-f", str(made.spec), "--store", str(made.store), *self._gpu.options),
            *("--cache-root", str(root), "--on-miss", "skip", "--fail-closed"),
            env=server.env,
            log=log,
        )
        must(code == 0, installed)
        ours = self._start(server, folder, "ours")
        verified = warmstart(
            "verify", "--cache-root", str(root), "--server-log", str(folder / "ours.log"), env=server.env, log=log
        )
        native = self._start(server, folder, "native")
        proof = Proof(case, folder, made, whole, installed, verified, ours, native)
        (folder / "proof.json").write_text(json.dumps(proof.summary(), indent=1))
        return proof

    def _start(self, server: Server, folder: Path, name: str) -> Start:
        root, log = folder / name, folder / f"{name}.log"
        before = evidence.listing(root)
        with serving(server, root, log, self._places.next(server.gpus)) as running:
            answers = running.answers()
        started = evidence.read(log.read_text(errors="replace"))
        return Start(started, running.ready_seconds, answers, before, evidence.listing(root))


class _Places:
    """Which GPU the next server goes to: in turn; a server of several GPUs takes the first ones. GPUs are shared."""

    def __init__(self, gpus: int) -> None:
        self._turn = itertools.cycle(range(gpus))
        self._lock = threading.Lock()

    def next(self, gpus: int) -> list[int]:
        if gpus > 1:
            return list(range(gpus))
        with self._lock:
            return [next(self._turn)]
