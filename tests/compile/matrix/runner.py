"""Run cases: those of one GPU type and environment share a process that has imported vLLM, each in a fork of its own."""

from __future__ import annotations

import collections
import dataclasses
import json
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tests.compile.matrix import judge
from tests.compile.matrix.case import HUB, Case, copy
from tests.compile.matrix.judge import Result

from warmstart.compiler import CompileRequest, hub
from warmstart.compiler.driver import run_in
from warmstart.compiler.process import Process
from warmstart.errors import TemporaryError, WarmstartError
from warmstart.gpus import load_catalog

Group = tuple[str, tuple[tuple[str, str], ...]]
_DEADLINE_SECONDS = 1800.0

OnResult = Callable[[Case, Result, str], None]
"""Called with a case, what came of it, and its log."""


class Runner:
    """Cases on their way through `workers` processes at once; `keep` is where caches and logs stay (None: they go)."""

    def __init__(self, work: Path, on_result: OnResult, *, workers: int = 1, keep: Path | None = None) -> None:
        self._work = work
        self._on_result = on_result
        self._workers = workers
        self._keep = keep
        self._lock = threading.Lock()
        self._groups: dict[Group, collections.deque[Case]] = {}

    def run(self, cases: Iterable[Case]) -> list[Result]:
        """Run all cases, the largest group first; returns results in the order of the cases."""
        asked = list(cases)
        for case in asked:
            self._groups.setdefault(group_of(case), collections.deque()).append(case)
        found: dict[str, Result] = {}
        with ThreadPoolExecutor(self._workers) as pool:
            for results in pool.map(lambda _worker: self._drain(), range(self._workers)):
                found.update(results)
        return [found[case.name] for case in asked]

    def _drain(self) -> dict[str, Result]:
        found: dict[str, Result] = {}
        while True:
            with self._lock:
                group = max(self._groups, key=lambda key: len(self._groups[key]), default=None)
                if group is None or not self._groups[group]:
                    return found
                first = self._groups[group].popleft()
            with tempfile.TemporaryDirectory(dir=self._work) as scratch:
                found.update(self._share(first, self._groups[group], Path(scratch)))

    def _share(self, case: Case, waiting: collections.deque[Case], scratch: Path) -> dict[str, Result]:
        """Run `case` and those waiting in one process, until none is left or one has broken it."""
        found: dict[str, Result] = {}
        for other in [case, *waiting]:
            lay_out(other, scratch)
        log = scratch / "log"
        with log.open("wb") as output:
            request = request_of(case, scratch)
            with Process(request, scratch, forks=True, log=output.fileno()) as process:
                while True:
                    begin = log.stat().st_size
                    result, whole = self._one(process, case, scratch, log, begin)
                    found[case.name] = result
                    with self._lock:
                        if not whole or not waiting:
                            return found
                        case = waiting.popleft()

    def _one(self, process: Process, case: Case, scratch: Path, log: Path, begin: int) -> tuple[Result, bool]:
        request = request_of(case, scratch)
        shutil.rmtree(request.cache_root, ignore_errors=True)
        request.cache_root.mkdir()
        events: list[dict[str, Any]] = []
        whole = True

        def said() -> str:
            with log.open("rb") as file:
                file.seek(begin)
                return file.read().decode(errors="replace")

        try:
            report = run_in(process, request, lambda event: events.append(dict(event)), hub=True)
            result = judge.of_report(case, report, events, request.cache_root, said())
            if self._keep is not None:
                (request.cache_root / "report.json").write_text(
                    json.dumps({"report": dataclasses.asdict(report), "events": events})
                )
        except WarmstartError as error:
            whole = not isinstance(error, TemporaryError) and any(event["event"] == "ended" for event in events)
            result = judge.of_error(case, error)
        cpu = sum(event["cpu_seconds"] for event in events if event["event"] == "ended")
        result = dataclasses.replace(result, cpu_seconds=cpu)
        self._on_result(case, result, said())
        if self._keep is not None:
            target = self._keep / case.name
            shutil.rmtree(target, ignore_errors=True)
            shutil.move(request.cache_root, target)
            (target / "log").write_text(said())
        return result, whole


def group_of(case: Case) -> Group:
    """Return what cases must have in common to share a process."""
    return case.gpu, tuple(sorted(case.environment.items()))


def request_of(case: Case, scratch: Path) -> CompileRequest:
    """Return the request of a case whose model was laid out in `scratch`."""
    return CompileRequest(
        model=case.hub_name,
        args=case.serve_args,
        env={**case.environment, "HF_HUB_CACHE": str(scratch / "hub"), "HF_HUB_DISABLE_TELEMETRY": "1"},
        gpu=load_catalog().get(case.gpu),
        cache_root=scratch / "cache",
        deadline_seconds=_DEADLINE_SECONDS,
        work=scratch.parent,
        kernels=False,
    )


def lay_out(case: Case, scratch: Path) -> None:
    """Put the models of a case into the hub cache of `scratch`."""
    folder = scratch / "models" / case.name
    hub.lay_out(case.hub_name, case.write_model(folder), scratch / "hub")
    for draft in case.drafts:
        hub.lay_out(f"{HUB}/{draft}", copy(draft, scratch / "models" / draft), scratch / "hub")
