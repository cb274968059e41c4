"""One rank of the pass: where it stands in the server's world, its run, and the report of what it left."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from warmstart.compiler import config as serve_config
from warmstart.compiler.device import Device
from warmstart.compiler.headers import HeaderReads
from warmstart.compiler.modules import Watch
from warmstart.compiler.reads import refuse_baked
from warmstart.compiler.seams.weights import settle
from warmstart.errors import UnsupportedError

if TYPE_CHECKING:
    from warmstart.compiler.child import Job, Ready, Reporter
    from warmstart.compiler.hybrid import HybridMode
    from warmstart.compiler.seams.base import Bench


_MOST_SHARES = 8
"""Processes that share the kernels beside the graphs: each goes through the whole warm-up, which then is most of its time."""


@dataclasses.dataclass(frozen=True)
class Place:
    """A rank's place: `rank` within its data-parallel rank, `device` on its node, `index` in the whole world."""

    index: int
    dp_rank: int
    rank: int
    device: int


def import_vllm(bench: Bench, torch_version: str) -> None:
    """Import vLLM and put its seams in place."""
    import vllm.v1.worker.gpu.model_runner
    import vllm.v1.worker.gpu_model_runner
    import vllm.v1.worker.gpu_worker

    bench.versions = f"vLLM {vllm.__version__}, torch {torch_version}"
    bench.install("vllm")


def configure(job: Job, ready: Ready, reporter: Reporter) -> Any:
    """Return the configuration of the API server."""
    if job.hub:
        serve_config.read_hub_from_cache(ready.bench)
    headers = HeaderReads()
    headers.install(ready.bench)
    namespace = serve_config.parse(ready.line, job.model, job.args)
    config = serve_config.engine_config(namespace)
    headers.refuse(quantization=config.model_config.quantization, dtype=namespace.dtype)
    reporter.phase("configuration")
    return config


def nothing_to_compile(config: Any) -> str:
    """Return why a server of this configuration compiles or keeps nothing; empty where it does."""
    from vllm import envs
    from vllm.config import CompilationMode

    mode = config.compilation_config.mode
    if mode in (None, CompilationMode.NONE):
        return "compilation is off (--enforce-eager, -O0, or vLLM's own choice for this model, which its log tells)"
    if mode != CompilationMode.VLLM_COMPILE:
        return f"compilation mode {mode.name} keeps no artifacts"
    if envs.VLLM_DISABLE_COMPILE_CACHE:
        return "VLLM_DISABLE_COMPILE_CACHE is set: the server would not look"
    if config.compilation_config.backend == "eager":
        return "the eager backend keeps no artifacts"
    return ""


def places(config: Any) -> list[Place]:
    """Return every rank of the server's world.

    Raises:
        UnsupportedError: the world is one that a single process cannot stand in for.

    """
    from vllm import envs

    parallel = config.parallel_config
    if parallel.nnodes > 1:
        raise UnsupportedError(
            f"a server over {parallel.nnodes} nodes is not supported",
            hint="compile with --nnodes 1, or let its first start compile",
        )
    if not envs.VLLM_USE_AOT_COMPILE:
        raise UnsupportedError("VLLM_USE_AOT_COMPILE=0 is not supported", hint="leave it at its default (1)")
    world, on_node = parallel.world_size, parallel.data_parallel_size_local or parallel.data_parallel_size
    return [
        Place(dp_rank * world + rank, dp_rank, rank, (dp_rank % on_node) * world + rank)
        for dp_rank in range(parallel.data_parallel_size)
        for rank in range(world)
    ]


def compile_place(place: Place, api_config: Any, job: Job, ready: Ready, reporter: Reporter) -> int:
    """Compile one rank and send its report or its error; returns its exit code."""
    try:
        report = _compile(place, api_config, job, ready, reporter)
        if report["modules"]:
            reporter.send("report", **report)
        else:
            reporter.send("nothing", reason="this model has no module that vLLM compiles")
    except Exception as error:  # noqa: BLE001 - whatever torch or vLLM raise ends here, with its place
        reporter.fail(error)
        return 1
    return 0


def _compile(place: Place, api_config: Any, job: Job, ready: Ready, reporter: Reporter) -> dict[str, Any]:
    import torch

    from warmstart.compiler import engine, warmup
    from warmstart.compiler.child import peak_bytes
    from warmstart.compiler.hybrid import HybridMode

    bench = ready.bench
    bench.device = place.device
    device = Device(place.device, bench.gpu, bench.tuning_bytes) if bench.real else None
    config = serve_config.as_in_engine_core(ready.line, api_config, place.dp_rank)
    watch = Watch(bench)
    watch.install()
    bench.mode = HybridMode()
    with bench.mode, torch.compiler.set_stance("force_eager"):
        executor = engine.start(ready.line, config, place, reporter.phase, lambda worker: _settled(worker, bench.mode))
    root = Path(os.environ["VLLM_CACHE_ROOT"])
    watch.check(root)
    refuse_baked(file for module in watch.modules for file in _generated(Path(module.path)))
    ready.warned.check()
    report = _report(place, executor.driver_worker.worker, watch, bench, root)
    if device:
        report["gpu_memory"] = device.figures()
    # A process that has used a GPU cannot be forked: driver.add_kernels takes them from a pass without one.
    if watch.modules and job.kernels and not bench.real and place.index == _sampling(config):
        jobs = min(_MOST_SHARES, max(1, ready.jobs // len(places(config))))  # what the ranks leave
        report |= warmup.compile_kernels(executor, bench, root, reporter, job.deadline or float("inf"), jobs)
        reporter.phase("kernels")
    return report | {"seconds": reporter.seconds, "peak_bytes": peak_bytes()}


def _sampling(config: Any) -> int:
    """Return the index of the first rank that samples: it launches what the others launch, and the sampler's kernels."""
    parallel = config.parallel_config
    return int(parallel.world_size - parallel.tensor_parallel_size)


def _generated(artifact: Path) -> list[Path]:
    """Return the code that Inductor generated for an artifact, beside it."""
    return sorted(artifact.parents[1].glob("inductor_cache/**/*.py"))


def _settled(worker: Any, mode: HybridMode) -> None:
    """End loading: no choice was open, and every model of a worker (its own, a draft model) has tensors that Dynamo knows."""
    from torch.nn import Module

    runner = worker.model_runner
    models = [runner.get_model()]
    for name in ("speculator", "drafter"):
        parts = getattr(getattr(runner, name, None), "__dict__", {})
        models += [part for part in parts.values() if isinstance(part, Module)]
    for model in models:
        settle(model)
    mode.check()


def _report(place: Place, worker: Any, watch: Watch, bench: Bench, root: Path) -> dict[str, Any]:
    keys = [Path(module.path).relative_to(root).parts[2] for module in watch.modules]
    return {
        "dp_rank": place.dp_rank,
        "aot_keys": list(dict.fromkeys(keys)),
        "modules": [vars(module) for module in watch.modules],
        "graphs_compiled": watch.graphs_compiled,
        "passes": dict(worker.get_compilation_match_table()),
        "reads": dict(bench.mode.reads),
        "factors": watch.factors,
    }
