"""The pass itself, inside a rank's process: vLLM's worker from init_device to the end of its profile run."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from warmstart.compiler import config as serve_config
from warmstart.compiler.modules import Watch
from warmstart.compiler.seams.weights import settle
from warmstart.errors import CompileError

if TYPE_CHECKING:
    from warmstart.compiler.child import Job, Reporter
    from warmstart.compiler.lines import Line
    from warmstart.compiler.seams.base import Bench


def compile_rank(job: Job, line: Line, bench: Bench, reporter: Reporter, torch: Any) -> dict[str, Any]:
    """Run one rank's worker until every module that it compiles has been compiled and saved."""
    import vllm
    import vllm.v1.worker.gpu.model_runner
    import vllm.v1.worker.gpu_model_runner
    import vllm.v1.worker.gpu_worker

    bench.versions = f"vLLM {vllm.__version__}, torch {torch.__version__}"
    reporter.phase("import vllm")
    namespace = serve_config.parse(line, job.model, job.args)
    api_config = serve_config.engine_config(namespace)
    config = serve_config.as_in_engine_core(api_config, job.dp_rank)
    reporter.phase("configuration")
    mode = config.compilation_config.mode
    if mode is None or int(mode) == 0:
        return _nothing(f"compilation is off (mode {mode})")
    bench.install("vllm")
    watch = Watch(bench)
    watch.install()
    worker = _run_worker(job, config, bench, reporter, torch)
    return _report(worker, watch, reporter)


def _run_worker(job: Job, config: Any, bench: Bench, reporter: Reporter, torch: Any) -> Any:
    from multiprocessing import Lock

    from vllm.config import set_current_vllm_config
    from vllm.platforms import current_platform
    from vllm.v1.worker.worker_base import WorkerWrapperBase

    from warmstart.compiler.hybrid import HybridMode

    bench.mode = HybridMode()
    with bench.mode:
        wrapper = WorkerWrapperBase(rpc_rank=job.rank)
        kwargs = {
            "vllm_config": config,
            "local_rank": job.device,
            "rank": job.rank,
            "distributed_init_method": "file:///unused",
            "is_driver_worker": job.rank % config.parallel_config.tensor_parallel_size == 0,
            "shared_worker_lock": Lock(),
        }
        wrapper.init_worker(all_kwargs=[kwargs] * (job.rank + 1))
        wrapper.init_device()
        reporter.phase("worker")
        worker = wrapper.worker
        worker.load_model(load_dummy_weights=True)
        _settle_models(worker.model_runner, torch)
        current_platform.update_block_size_for_backend(config)
        reporter.phase("model")
        with set_current_vllm_config(config), torch.inference_mode():
            worker.model_runner.profile_run()
        reporter.phase("compile")
    return worker


def _settle_models(runner: Any, torch: Any) -> None:
    models = [runner.get_model()]
    for name in ("speculator", "drafter"):
        models += [value for value in vars(getattr(runner, name, None) or object).values() if isinstance(value, torch.nn.Module)]
    for model in models:
        settle(model)


def _nothing(reason: str) -> dict[str, Any]:
    return {"outcome": "nothing-to-compile", "reason": reason}


def _report(worker: Any, watch: Watch, reporter: Reporter) -> dict[str, Any]:
    from vllm.compilation.counter import compilation_counter as counter

    from warmstart.compiler.child import peak_bytes

    if not watch.modules:
        raise CompileError("no module was compiled")
    keys = [os.path.relpath(module.path, os.environ["VLLM_CACHE_ROOT"]).split(os.sep)[2] for module in watch.modules]
    return {
        "outcome": "compiled",
        "reason": "",
        "aot_keys": list(dict.fromkeys(keys)),
        "modules": [vars(module) for module in watch.modules],
        "counter": {name: value for name, value in vars(counter).items() if value},
        "seconds": reporter.seconds,
        "peak_bytes": peak_bytes(),
        "passes": dict(worker.get_compilation_match_table()),
    }
