"""The engine core around one rank: vLLM's own start-up sequence, up to the point where every module has been compiled.

`vllm serve` compiles inside EngineCore's start-up: the executor makes the workers and loads the model, then the KV cache
layout is resolved (it is part of vLLM's key), then memory is profiled, which calls the model for the first time. The pass
goes through the same methods of the same classes, with an executor that has one worker, this rank's, and ends each of the
GPU-bound steps after its model run.
"""

from __future__ import annotations

import importlib
import os
import pickle
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vllm.config import set_current_vllm_config
from vllm.platforms import current_platform
from vllm.v1.engine.core import EngineCore
from vllm.v1.executor.abstract import Executor
from vllm.v1.executor.uniproc_executor import UniProcExecutor
from vllm.v1.worker.worker_base import WorkerWrapperBase

from warmstart.compiler.lines import ENCODER_WIDTHS, RANDOMIZED_PROFILE, REGISTRY, WARM_UP
from warmstart.errors import UsageError, shorten

if TYPE_CHECKING:
    from collections.abc import Callable

    from warmstart.compiler.lines import Line
    from warmstart.compiler.rank import Place
    from warmstart.compiler.seams.base import Bench


class RankExecutor(UniProcExecutor):  # type: ignore[misc]
    """An executor whose world has many ranks and one worker.

    `phase` is called with a name at the end of each step. `settle` is called with the worker after its model is loaded.
    """

    line: Line
    place: Place
    phase: Callable[[str], None]
    settle: Callable[[Any], None]

    def _init_executor(self) -> None:
        from multiprocessing import Lock

        config, rank = self.vllm_config, self.place.rank
        if Executor.get_class(config) is not UniProcExecutor:
            # Workers of a multi-process executor hold a copy: what the engine core changes later does not reach them by itself.
            config = pickle.loads(pickle.dumps(config))  # noqa: S301 - our own bytes
        tensor_parallel = config.parallel_config.tensor_parallel_size
        self.driver_worker = WorkerWrapperBase(rpc_rank=rank, global_rank=rank)
        kwargs = {
            "vllm_config": config,
            "local_rank": rank,
            "rank": rank,
            # vLLM opens the file, nobody meets there; the pass's working directory is its scratch folder.
            "distributed_init_method": f"file://{Path.cwd()}/world-{self.place.index}",
            "is_driver_worker": rank % tensor_parallel == 0,
            "shared_worker_lock": Lock(),
        }
        self.driver_worker.init_worker(all_kwargs=[kwargs] * (rank + 1))
        try:
            self.driver_worker.init_device()
        except ValueError as error:
            raise UsageError(f"vLLM refuses this server on its GPU type: {shorten(error)}") from error
        self.phase("worker")
        # The dummy load path of vLLM: everything that loading a checkpoint does but reading it.
        self.driver_worker.worker.load_model(load_dummy_weights=True)
        self.settle(self.driver_worker.worker)
        current_platform.update_block_size_for_backend(self.vllm_config)
        self.phase("model")

    def determine_available_memory(self) -> list[int]:
        """Run the model as memory profiling does (this compiles it); nothing is measured, the answer is the request."""
        self._run_model()
        return [int(self.driver_worker.worker.requested_memory)]

    def initialize_from_config(self, kv_cache_configs: Any) -> None:
        """Allocate no KV cache yet; `warm_up` does."""
        self._kv_cache_config = kv_cache_configs[0]
        if not self.line.has(WARM_UP):
            self.compile_or_warm_up_model()

    def compile_or_warm_up_model(self) -> None:
        """Capture and warm up nothing: with AOT compilation every range was compiled at the model's first call.

        A model without a KV cache (an encoder) is not profiled: vLLM calls it first here, to warm up its kernels, with as many
        tokens as profiling would.
        """
        if not self._ran:
            self._run_model()

    _ran = False
    _kv_cache_config: Any = None

    def warm_up(self, bench: Bench) -> None:
        """Go through what a server does between its model and its first request, as far as it launches Triton kernels.

        These are the model run of memory profiling once more (now its layers are entered), the calls that were put off (the
        sampler's run), the kernels that were registered for it, then, with the newer model runner, requests on an empty KV
        cache and a call of the model for each size of a CUDA graph.
        """
        worker = self.driver_worker.worker
        with set_current_vllm_config(worker.vllm_config), _inference_mode():
            self._profile_layers(worker)
            for call in bench.later:
                call()
            newer = getattr(worker, "use_v2_model_runner", False) and self._kv_cache_config is not None
            if newer:
                worker.initialize_from_config(self._kv_cache_config)
            self._compile_registered(worker, bench)
            if not newer:
                return
            received = getattr(worker.model_runner, "intermediate_tensors", None)
            if received is not None:
                with bench.named("warmup.pipeline"):
                    # The stages before this one are not there to send anything.
                    stage = bench.module("vllm.distributed.parallel_state").get_pp_group()
                    bench.replace(stage, "irecv_tensor_dict", lambda **_options: (received.tensors, [], []))
            warm_up = importlib.import_module("vllm.v1.worker.gpu.warmup").warmup_kernels
            warm_up(worker.model_runner, worker.execute_model, worker.sample_tokens)
            bench.launches.each_layer = False
            config = worker.vllm_config
            captured = config.compilation_config.cudagraph_capture_sizes or ()
            for size in (*captured, config.scheduler_config.max_num_batched_tokens):  # the last is what profiling runs
                worker.model_runner._dummy_run(size)
                bench.launches.alive()

    def _profile_layers(self, worker: Any) -> None:
        """Call the model as profiling does, without a KV cache: state-space layers warm up all of their kernels there."""
        runner = worker.model_runner
        without = {"skip_attn": True} if getattr(worker, "use_v2_model_runner", False) else {}
        runner._dummy_run(runner.max_num_tokens, is_profile=True, **without)

    def _compile_registered(self, worker: Any, bench: Bench) -> None:
        """Compile what layers and samplers registered for a start, for every shape that may come, and what some models need."""
        if not self.line.has(REGISTRY) or not worker.vllm_config.kernel_config.enable_jit_warmup:
            return
        os.environ["VLLM_TRITON_JIT_WARMUP_NUM_THREADS"] = "1"  # what stands in for a launch is for one thread
        runner, of_models = worker.model_runner, bench.module("vllm.model_executor.warmup.kernel_warmup")
        calls: dict[str, Callable[[], Any]] = {
            "registered kernels": lambda: runner.jit_warmup_registry.warmup(),
            "Qwen": lambda: of_models.qwen_triton_warmup(runner, worker.vllm_config.model_config),
            "Qwen-VL": lambda: of_models.qwen_vl_triton_warmup(runner),
        }
        if hasattr(runner, "kv_cache_config"):  # not laid out with the older model runner
            calls["state space"] = lambda: of_models.mamba_triton_warmup(runner)
        for what, call in calls.items():
            try:
                call()
            except Exception as error:  # noqa: BLE001 - the server compiles these itself, then; the rest goes on
                bench.launches.failed[f"{what}: {type(error).__name__}: {shorten(error)}"] += 1

    def _run_model(self) -> None:
        worker = self.driver_worker.worker
        inputs = {"randomize_inputs": worker.randomize_dummy_inputs} if self.line.has(RANDOMIZED_PROFILE) else {}
        with set_current_vllm_config(worker.vllm_config), _inference_mode():
            worker.model_runner.profile_run(**inputs)
        self._ran = True
        self.phase("compile")


def start(line: Line, config: Any, place: Place, phase: Callable[[str], None], settle: Callable[[Any], None]) -> Any:
    """Start the engine core of this rank as far as compilation goes, and return its executor."""
    from vllm.plugins import load_general_plugins

    load_general_plugins()
    members = {"line": line, "place": place, "phase": staticmethod(phase), "settle": staticmethod(settle)}
    executor_class = type("RankExecutor", (RankExecutor,), members)
    core = EngineCore.__new__(EngineCore)
    core.vllm_config = config
    core.log_stats = False
    core.available_gpu_memory_for_kv_cache = -1
    core.model_executor = executor_class(config)
    if line.has(ENCODER_WIDTHS):
        module, _, measure = ENCODER_WIDTHS.rpartition(".")
        getattr(importlib.import_module(module), measure)(config, core.model_executor.collective_rpc)
    core._initialize_kv_caches(config)
    return core.model_executor


def _inference_mode() -> Any:
    import torch

    return torch.inference_mode()
