"""Where the pass calls into vLLM, or is called by it, as it is: what must be there beside the names that seams replace.

Each is a place `module:attribute.attribute` with the arguments by name that the pass gives it. `seams/check.py` looks for all
of them in an environment; a test holds the imports of this room to the list.
"""

from __future__ import annotations

import dataclasses
import importlib
import inspect
from collections.abc import Iterator
from typing import Any

from warmstart.compiler.lines import ENCODER_WIDTHS, INDEPENDENT_RANK, RANDOMIZED_PROFILE, REGISTRY, WARM_UP, Line


@dataclasses.dataclass(frozen=True)
class EntryPoint:
    """A place, the arguments that the pass names there, and the name in `Line.absent` of lines that have it not."""

    place: str
    gives: tuple[str, ...] = ()
    newer: str = ""


_CORE = "vllm.v1.engine.core:EngineCore"
_EXECUTOR = "vllm.v1.executor.uniproc_executor:UniProcExecutor"
_WRAPPER = "vllm.v1.worker.worker_base:WorkerWrapperBase"
_WORKER = "vllm.v1.worker.gpu_worker:Worker"
_RUNNERS = ("vllm.v1.worker.gpu_model_runner:GPUModelRunner", "vllm.v1.worker.gpu.model_runner:GPUModelRunner")
_COUNTER = "vllm.compilation.counter:compilation_counter"
_FUNCTION = "vllm.compilation.caching:VllmSerializableFunction"


def entry_points(line: Line) -> Iterator[EntryPoint]:
    """Yield every place of a line, in the order in which a pass comes to them."""
    yield EntryPoint(f"{line.arg_parser}:make_arg_parser")
    yield EntryPoint(f"{line.arg_parser}:validate_parsed_serve_args")
    yield EntryPoint("vllm.utils.argparse_utils:FlexibleArgumentParser")
    yield EntryPoint("vllm.engine.arg_utils:AsyncEngineArgs.from_cli_args")
    yield EntryPoint("vllm.engine.arg_utils:AsyncEngineArgs.create_engine_config", ("usage_context",))
    yield EntryPoint("vllm.usage.usage_lib:UsageContext.OPENAI_API_SERVER")
    yield EntryPoint("vllm.transformers_utils.config:maybe_register_config_serialize_by_value")
    yield EntryPoint("vllm.transformers_utils.config:get_safetensors_params_metadata")
    yield EntryPoint("vllm.config:CompilationMode.VLLM_COMPILE")
    yield EntryPoint("vllm.config:ParallelConfig.reconfigure_for_independent_dp_rank", newer=INDEPENDENT_RANK)
    for name in ("VLLM_USE_AOT_COMPILE", "VLLM_USE_MEGA_AOT_ARTIFACT", "VLLM_DISABLE_COMPILE_CACHE"):
        yield EntryPoint(f"vllm:envs.{name}")
    yield EntryPoint("vllm.plugins:load_general_plugins")
    yield EntryPoint("vllm.config:set_current_vllm_config")
    yield EntryPoint(ENCODER_WIDTHS.replace("_width.", "_width:"), newer=ENCODER_WIDTHS)
    yield EntryPoint(f"{_CORE}._initialize_kv_caches", ("vllm_config",))
    yield EntryPoint("vllm.v1.executor.abstract:Executor.get_class")
    # What RankExecutor overrides: under another name, vLLM would call its own.
    for name in ("_init_executor", "determine_available_memory", "initialize_from_config"):
        yield EntryPoint(f"{_EXECUTOR}.{name}")
    yield EntryPoint(f"{_EXECUTOR}.compile_or_warm_up_model", newer=WARM_UP)
    yield EntryPoint(_WRAPPER, ("rpc_rank", "global_rank"))
    yield EntryPoint(f"{_WRAPPER}.init_worker", ("all_kwargs",))
    yield EntryPoint(f"{_WRAPPER}.init_device")
    yield EntryPoint(_WORKER, ("vllm_config", "local_rank", "rank", "distributed_init_method", "is_driver_worker"))
    yield EntryPoint(f"{_WORKER}.load_model", ("load_dummy_weights",))
    yield EntryPoint(f"{_WORKER}.randomize_dummy_inputs", newer=RANDOMIZED_PROFILE)
    yield EntryPoint(f"{_WORKER}.get_compilation_match_table")
    for runner in _RUNNERS:
        yield EntryPoint(f"{runner}.get_model")
        yield EntryPoint(f"{runner}.profile_run")
        yield EntryPoint(f"{runner}.profile_run", ("randomize_inputs",), newer=RANDOMIZED_PROFILE)
        yield EntryPoint(f"{runner}._dummy_run", ("is_profile",))
    yield EntryPoint(f"{_RUNNERS[1]}._dummy_run", ("skip_attn",))
    yield EntryPoint("vllm.forward_context:get_forward_context")
    yield EntryPoint("vllm.forward_context:is_forward_context_available")
    yield EntryPoint("vllm.platforms:current_platform.update_block_size_for_backend")
    for name in ("num_backend_compilations", "num_inductor_compiles", "num_compiled_artifacts_loaded"):
        yield EntryPoint(f"{_COUNTER}.{name}")
    yield EntryPoint("vllm.compilation:caching.get_inductor_factors")
    yield EntryPoint(f"{_FUNCTION}.deserialize_graph_module")
    yield EntryPoint("vllm.model_executor.warmup.jit_warmup:JitWarmupRegistry.warmup", newer=REGISTRY)
    for name in ("qwen_triton_warmup", "qwen_vl_triton_warmup", "mamba_triton_warmup"):
        yield EntryPoint(f"vllm.model_executor.warmup.kernel_warmup:{name}", newer=REGISTRY)
    yield EntryPoint("torch.compiler:load_compiled_function")
    yield EntryPoint("torch.compiler:set_stance")
    yield EntryPoint("torch.utils._python_dispatch:_disable_current_modes")


def problem(point: EntryPoint) -> str:
    """Return what is wrong with a place in this environment; empty where it is there and takes what the pass gives."""
    module, _, path = point.place.partition(":")
    try:
        found: Any = importlib.import_module(module)
    except ImportError as error:
        return f"cannot import {module} ({error})"
    for name in path.split("."):
        if not hasattr(found, name):
            return f"{getattr(found, '__qualname__', module)} has no {name}"
        found = getattr(found, name)
    if not point.gives:
        return ""
    parameters = inspect.signature(found).parameters.values()
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return ""
    lacking = set(point.gives) - {parameter.name for parameter in parameters}
    return f"takes no {', '.join(sorted(lacking))}" if lacking else ""
