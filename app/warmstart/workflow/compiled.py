"""`warmstart compile`: the compile pass alone, into a cache root."""

from __future__ import annotations

import dataclasses
import os
from typing import TYPE_CHECKING

from warmstart.errors import UnknownGpuError
from warmstart.settings import PREFIX
from warmstart.workflow import compiling, resolve
from warmstart.workflow.run import Progress

if TYPE_CHECKING:
    from warmstart.report import Result
    from warmstart.settings import Settings
    from warmstart.workflow.stopping import Stop


def compile_model(settings: Settings, stop: Stop, model: str, args: tuple[str, ...]) -> Result:
    """Compile `model` as `vllm serve MODEL ARGS` would, in this process's environment.

    Raises UnknownGpuError, and what the pass raises: UsageError, CompileError, NoSpaceError.
    """
    from warmstart import compiler
    from warmstart.gpus import load_catalog

    progress = Progress("compile")
    catalog = load_catalog(settings.gpu_file)
    live = resolve.device_in_sight()
    if len(settings.gpus) > 1:
        raise UnknownGpuError("one pass compiles for one GPU type", hint="call it once for each")
    if settings.gpus:
        gpu = catalog.get(settings.gpus[0])
    elif live is not None:
        gpu = catalog.get(live.name)
    else:
        raise UnknownGpuError("it is not said which GPU to compile for", hint="give --gpu NAME; `warmstart gpus` lists them")
    environ = {name: value for name, value in os.environ.items() if not name.startswith(PREFIX)}
    root = resolve.cache_root(settings, environ)
    progress.update(model=model, gpu=gpu.name, cache_root=str(root))
    request = compiler.CompileRequest(
        model=model,
        args=args,
        env=environ,
        gpu=gpu,
        cache_root=root,
        model_files=settings.model_files,
        jobs=settings.jobs,
        stub=settings.cuda_stub,
        work=settings.work_dir,
        deadline_seconds=compiling.seconds_left(stop),
        device=settings.device,
        tuning_bytes=settings.tuning_memory,
    )
    report = compiling.start(request, stop)
    progress.result = dataclasses.replace(
        progress.result,
        vllm=report.vllm,
        aot_keys=report.aot_keys,
        modules=report.modules,
        graphs=report.graphs,
        ranks=len(report.ranks),
        compile_seconds=report.seconds,
        gpu_memory_bytes=report.gpu_memory_bytes,
    )
    outcome = {"loaded": "hit"}.get(report.outcome, report.outcome)
    return progress.end(outcome, report.reason or ("every module came from the cache" if outcome == "hit" else ""))
