"""Run a pass from the outside: prepare its folders, start its process, and make a report of its events.

Nothing of torch or vLLM is imported here. The caller can stop a pass at any moment; its processes are one group and end
together.
"""

from __future__ import annotations

import dataclasses
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from warmstart import errors
from warmstart.compiler import hub, index, lines
from warmstart.compiler.launches import FOLDER
from warmstart.compiler.process import Process
from warmstart.compiler.report import CompileReport, CompileRequest, RankReport
from warmstart.errors import CompileError, NoSpaceError, UsageError

OnEvent = Callable[[Mapping[str, Any]], None]


def run_pass(request: CompileRequest, on_event: OnEvent | None = None, stop: Callable[[], bool] | None = None) -> CompileReport:
    """Compile a model's cache into `request.cache_root`.

    `on_event` is called with each event of the pass (phases with seconds, the world, ranks done). `stop` is asked a few times a
    second; once it answers True the pass ends and TemporaryError is raised.

    Raises:
        UsageError: the arguments, the model's files or the GPU cannot be used; UnsupportedError names the combination.
        CompileError: the pass failed, or left something other than what a server would load.
        TemporaryError: stopped, out of time, or out of space.

    """
    lines.installed()
    request = _absolute(request)
    if request.device == "cuda" and not any(Path("/dev").glob("nvidia[0-9]*")):
        raise UsageError("no NVIDIA GPU is in sight", hint="give the container one, or compile without (--device none)")
    _writable(request.cache_root)
    with tempfile.TemporaryDirectory(prefix="warmstart-pass-", dir=request.work) as scratch:
        _see(request.model, Path(scratch))
        named = request.model_files is not None and not Path(request.model).is_dir()
        if request.model_files is not None and named:
            cache = hub.lay_out(request.model, request.model_files, Path(scratch, "hub"))
            request = dataclasses.replace(request, env={**request.env, "HF_HUB_CACHE": str(cache)})
        with Process(request, Path(scratch)) as process:
            report = run_in(process, request, on_event, stop, hub=named)
        if request.device == "cuda" and request.kernels and report.outcome != "nothing-to-compile":
            return add_kernels(report, request, Path(scratch), on_event, stop, hub=named)
        return report


def add_kernels(
    report: CompileReport,
    request: CompileRequest,
    scratch: Path,
    on_event: OnEvent | None = None,
    stop: Callable[[], bool] | None = None,
    *,
    hub: bool = False,
) -> CompileReport:
    """Add the kernels beside the graphs to what a pass with a GPU left, and return its report with them.

    A process that has used a GPU cannot be forked, and these are compiled in forks; so they come from a second pass, without
    it. What goes wrong there is told in the report, and left to the server. Raises TemporaryError where the caller stops it.
    """
    root, begin = scratch / "without", time.monotonic()
    left = max(1.0, request.deadline_seconds - report.seconds) if request.deadline_seconds else 0.0
    second = dataclasses.replace(request, device="none", cache_root=root, server_root=None, deadline_seconds=left)
    try:
        root.mkdir()
        with Process(second, scratch) as process:
            made = run_in(process, second, on_event, stop, hub=hub)
        _bring(root / FOLDER, request.cache_root / FOLDER)
    except (OSError, errors.WarmstartError) as error:
        if stop is not None and stop():
            raise
        reason = f"the pass without a GPU: {errors.shorten(error)}"
        ranks = (dataclasses.replace(report.ranks[0], kernels_reason=reason), *report.ranks[1:])
    else:
        ranks = tuple(
            dataclasses.replace(
                rank, kernels=of.kernels, kernels_reason=of.kernels_reason, kernels_unreached=of.kernels_unreached
            )
            for rank, of in zip(report.ranks, made.ranks, strict=True)
        )
    return dataclasses.replace(report, ranks=ranks, seconds=round(report.seconds + time.monotonic() - begin, 3))


def _bring(kernels: Path, target: Path) -> None:
    """Move the kernels that `target` has not got. The files by which Triton finds them hold absolute paths."""
    target.mkdir(exist_ok=True)
    for folder in sorted(kernels.iterdir()):
        if (target / folder.name).exists():
            continue
        for group in folder.glob("__grp__*"):
            group.write_text(group.read_text().replace(str(kernels), str(target)))
        shutil.move(folder, target)


def run_in(
    process: Process,
    request: CompileRequest,
    on_event: OnEvent | None = None,
    stop: Callable[[], bool] | None = None,
    *,
    hub: bool = False,
) -> CompileReport:
    """Run one pass in a process that was made for its GPU type and environment; raises as `run_pass` does.

    `hub` says that the model is a hub name whose files lie in the HF_HUB_CACHE of that environment.
    """
    begin = time.monotonic()
    events, code = process.run(request, on_event or (lambda _event: None), stop or (lambda: False), hub=hub)
    _check(request, events, code)
    if request.server_root is not None:
        index.write_for(request.server_root, request.cache_root)
    return _summary(request, events, time.monotonic() - begin)


def _absolute(request: CompileRequest) -> CompileRequest:
    """Return the request with absolute paths: the pass's processes work in another folder."""
    given = {name: getattr(request, name) for name in ("cache_root", "model_files", "stub", "work")}
    return dataclasses.replace(request, **{name: path.absolute() for name, path in given.items() if path is not None})


def _see(model: str, scratch: Path) -> None:
    """Let the pass, which works in `scratch`, find a model's folder at a relative path: vLLM's key holds the path as given."""
    path = Path(model)
    if path.is_absolute() or not path.is_dir():
        return
    if not path.parts or ".." in path.parts:
        raise UsageError(
            f"the model's path {model} is not below this folder", hint="write the absolute path, also for the server"
        )
    place = scratch / path
    place.parent.mkdir(parents=True, exist_ok=True)
    place.symlink_to(path.absolute())


def _check(request: CompileRequest, events: list[dict[str, Any]], code: int) -> None:
    for event in events:
        if event["event"] == "error":
            raise _error(event)
    if code != 0:
        if shutil.disk_usage(request.cache_root).free < (64 << 20):
            raise NoSpaceError(f"the disk of {request.cache_root} is full", hint="give the cache volume more space")
        died = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"
        raise CompileError(f"the compile process {died} without a report", hint="its log is above")


def _error(event: Mapping[str, Any]) -> Exception:
    kind = getattr(errors, event["kind"], CompileError)
    error: Exception = CompileError(event["message"], hint=event["hint"])
    if isinstance(kind, type) and issubclass(kind, errors.WarmstartError) and kind is not errors.SeamError:
        error = kind(event["message"], hint=event["hint"])
    if "No space left on device" in event["message"]:
        error = NoSpaceError(event["message"])
    return error


def _writable(root: Path) -> None:
    try:
        root.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=root):
            pass
    except OSError as error:
        raise UsageError(
            f"the cache root {root} cannot be written to: {error.strerror}",
            hint="mount it writable, or set VLLM_CACHE_ROOT elsewhere",
        ) from error


def _summary(request: CompileRequest, events: list[dict[str, Any]], seconds: float) -> CompileReport:
    import importlib.metadata

    versions = {name: importlib.metadata.version(name) for name in ("vllm", "torch")}
    nothing = [event["reason"] for event in events if event["event"] == "nothing"]
    reports = sorted((event for event in events if event["event"] == "report"), key=lambda event: event["rank"])
    expected = next((event["ranks"] for event in events if event["event"] == "world"), 0)
    if not nothing and len(reports) != expected:
        raise CompileError(f"{expected} ranks were to be compiled, {len(reports)} reported")
    ranks = tuple(_rank_report(report) for report in reports)
    compiled = sum(rank.modules_compiled for rank in ranks)
    return CompileReport(
        outcome="nothing-to-compile" if nothing else "compiled" if compiled else "loaded",
        reason=nothing[0] if nothing else "",
        vllm=versions["vllm"],
        torch=versions["torch"],
        gpu=request.gpu.name,
        aot_keys=tuple(dict.fromkeys(key for rank in ranks for key in rank.aot_keys)),
        ranks=ranks,
        seconds=round(seconds, 3),
    )


def _rank_report(report: Mapping[str, Any]) -> RankReport:
    modules = report["modules"]
    loaded = sum(module["loaded"] for module in modules)
    return RankReport(
        rank=report["rank"],
        aot_keys=tuple(report["aot_keys"]),
        modules_found=len(modules),
        modules_compiled=len(modules) - loaded,
        modules_saved=len(modules) - loaded,
        modules_loaded=loaded,
        graphs=sum(module["entries"] for module in modules),
        graphs_compiled=report["graphs_compiled"],
        seconds=report["seconds"],
        peak_bytes=report["peak_bytes"],
        passes=report["passes"],
        reads=report["reads"],
        factors=report["factors"],
        gpu_memory=report.get("gpu_memory", {}),
        kernels=report.get("kernels", 0),
        kernels_reason=report.get("kernels_reason", ""),
        kernels_unreached=tuple(report.get("kernels_unreached", ())),
    )
