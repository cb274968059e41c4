"""What a model's layers hold after vLLM has loaded and post-processed their weights: with a GPU, or as the pass sees it.

`python -m tests.gpu.layouts real OUTPUT`, `… h200 OUTPUT` or `… cpu:h200 OUTPUT`: loads every case by vLLM's own dummy
loader into one process, with real kernels on the GPU in sight, with the seams of the pass for the named GPU type of the
catalog, or with real numbers on the CPU, where that GPU type is only talked of and a kernel ends the case. Writes a JSON
object, case → what was found, or the error that ended it. `ONLY` in the environment names cases.
"""

from __future__ import annotations

import ctypes
import dataclasses
import enum
import gc
import json
import os
import re
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from tests.compile import quantised

from warmstart.compiler import config as serve_config
from warmstart.compiler.lines import installed

_DEEPEST = 5
# Configurations and references to other parts of the model: they are compared where they belong, or are no result of loading.
_ELSEWHERE = frozenset(
    ["quant_config", "vllm_config", "hf_config", "config", "model_config", "compilation_config", "router", "runner"]
)
# Seams by which the pass stands in for kernels and for weights: with real numbers on the CPU, nothing may.
_STAND_INS = ("weights.", "kernels.", "humming.", "flashinfer.")
_NOT_OURS = ("vllm.config", "vllm.transformers_utils", "vllm.distributed", "vllm.forward_context", "vllm.lora")


@dataclasses.dataclass(frozen=True)
class Case:
    """One checkpoint and the options with which it is served."""

    name: str
    write: Callable[[Path], Path]
    args: tuple[str, ...] = ()


def _cases() -> Iterator[Case]:
    # Experts first: groups of ranks are made for the first case, and only a model with experts asks for all of them.
    for scheme in quantised.SCHEMES:
        yield Case(f"experts {scheme}", partial(quantised.checkpoint, scheme=scheme, experts=True))
    for scheme in quantised.SCHEMES:
        yield Case(f"dense {scheme}", partial(quantised.checkpoint, scheme=scheme))
    for method in quantised.ONLINE:
        for experts in (False, True):
            kind = "experts" if experts else "dense"
            write = partial(quantised.checkpoint, scheme="none", experts=experts)
            yield Case(f"{kind} --quantization {method}", write, ("--quantization", method))
    yield Case("dense --kv-cache-dtype fp8", partial(quantised.checkpoint, scheme="none"), ("--kv-cache-dtype", "fp8"))
    yield Case("gpt-oss", quantised.gpt_oss)
    for scheme in ("none", "fp8-block", "modelopt-nvfp4"):
        yield Case(f"deepseek {scheme}", partial(quantised.deepseek, scheme=scheme))
    # Kernels that other GPUs take by themselves, and that this one can run.
    for scheme in ("fp8-dynamic", "fp8-block", "awq", "gptq", "gptq-8", "ct-w4a16", "ct-nvfp4"):
        yield Case(
            f"dense {scheme} --linear-backend marlin",
            partial(quantised.checkpoint, scheme=scheme),
            ("--linear-backend", "marlin"),
        )
    for backend in ("cutlass", "triton", "deep_gemm"):
        yield Case(
            f"dense fp8-block --linear-backend {backend}",
            partial(quantised.checkpoint, scheme="fp8-block"),
            ("--linear-backend", backend),
        )
    yield Case("gpt-oss --moe-backend marlin", quantised.gpt_oss, ("--moe-backend", "marlin"))
    for scheme, backends in {
        "fp8-block": ("deep_gemm", "cutlass", "marlin"),
        "fp8-static": ("triton", "cutlass", "marlin"),
        "gptq": ("marlin",),
        "ct-w4a16": ("marlin",),
        "ct-nvfp4": ("marlin",),
    }.items():
        for backend in backends:
            yield Case(
                f"experts {scheme} --moe-backend {backend}",
                partial(quantised.checkpoint, scheme=scheme, experts=True),
                ("--moe-backend", backend),
            )


CASES = tuple(_cases())


def prepare(gpu: str, folder: Path) -> Any:
    """Import vLLM, with the seams of the pass for a GPU type; "real": without any. Returns the mode to load under, or None."""
    if gpu == "real":
        _fill_evenly()
        return None
    from warmstart.compiler import stub
    from warmstart.compiler.seams import Bench, seams_of
    from warmstart.gpus import load_catalog

    side, _, name = gpu.rpartition(":")
    bench = Bench(gpu=load_catalog().parse(name), visible=1, versions="vLLM")
    os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"
    ctypes.CDLL(str(stub.ensure(folder)), mode=ctypes.RTLD_GLOBAL)
    bench.install("driver")
    import torch  # noqa: F401 - between the two stages

    bench.install("torch")
    import vllm.v1.worker.gpu.model_runner
    import vllm.v1.worker.gpu_model_runner
    import vllm.v1.worker.gpu_worker  # noqa: F401 - the seams replace what these import by name

    if side == "cpu":
        for seam in seams_of("vllm"):
            if seam.fits(real=False) and not seam.name.startswith(_STAND_INS):
                with bench.named(seam.name):
                    seam.install(bench)
        _fill_evenly()
        return on_cpu()
    bench.install("vllm")
    from warmstart.compiler.hybrid import HybridMode

    bench.mode = HybridMode()
    return bench.mode


def on_cpu() -> Any:
    """Return a mode under which every tensor that is asked for on a GPU is a real one on the CPU."""
    import torch
    from torch.overrides import TorchFunctionMode
    from torch.utils._pytree import tree_map

    def here(value: Any) -> Any:
        if isinstance(value, torch.device) and value.type == "cuda":
            return torch.device("cpu")
        return "cpu" if isinstance(value, str) and re.fullmatch(r"cuda(:\d+)?", value) else value

    class OnCpu(TorchFunctionMode):
        places: dict[str, int] = {}  # noqa: RUF012 - what HybridMode counts, here always empty

        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            del types
            if func is torch.Tensor.cuda:
                return args[0]
            args, kwargs = tree_map(here, (args, dict(kwargs or {})))
            kwargs.pop("pin_memory", None)
            return func(*args, **kwargs)

    return OnCpu()


def _fill_evenly() -> None:
    """Fill dummy weights with ones, packed ones with zeros.

    So the scales of parts that vLLM puts together are equal, as the tools that write checkpoints make them. vLLM's own dummy
    numbers are random, and some layouts depend on that.
    """
    import torch
    from vllm.model_executor.model_loader import dummy_loader, weight_utils

    def fill(tensor: torch.Tensor, *_args: Any, **_kwargs: Any) -> None:
        with torch.no_grad():
            if tensor.dtype == torch.float8_e8m0fnu:
                tensor.view(torch.uint8).fill_(127)
            else:
                tensor.fill_(1 if tensor.is_floating_point() else 0)

    for module in (dummy_loader, weight_utils):
        module.initialize_single_dummy_weight = fill


def load(case: Case, folder: Path, mode: Any) -> dict[str, Any]:
    """Load one case and say what its layers hold: `tensors`, `values` (numbers, flags, names), `kernels` (classes chosen)."""
    import contextlib

    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode
    from vllm.config import set_current_vllm_config
    from vllm.distributed.parallel_state import ensure_model_parallel_initialized, init_distributed_environment
    from vllm.model_executor.model_loader import get_model

    from warmstart.compiler.seams.weights import settle

    half = ("--dtype", "half") if torch.cuda.get_device_capability() < (8, 0) else ()
    words = ("--max-model-len", "4096", "--load-format", "dummy", "--skip-tokenizer-init", *half, *case.args)
    config = serve_config.engine_config(serve_config.parse(installed(), str(case.write(folder)), words))
    # As in the pass: what vLLM compiles for itself while it prepares weights runs as it is written.
    stance = torch.compiler.set_stance("default" if mode is None else "force_eager")
    if mode is not None:
        mode.places.clear()
    with set_current_vllm_config(config), mode or contextlib.nullcontext(), stance:
        if not torch.distributed.is_initialized():
            init_distributed_environment(1, 0, f"file://{folder}/world", 0, "nccl")
            ensure_model_parallel_initialized(1, 1)
        model = get_model(vllm_config=config)
        if isinstance(mode, FakeTensorMode):
            settle(model)
        found = Found()
        for name, module in model.named_modules():
            found.module(name, module)
    del model
    gc.collect()
    torch.accelerator.empty_cache()
    return {
        "tensors": found.tensors,
        "values": found.values,
        "kernels": sorted(found.kernels),
        "reads": dict(mode.places) if mode is not None else {},
    }


def humming_device() -> dict[str, Any]:
    """Return what humming knows of the device: it chooses tile shapes, and their number, by it."""
    from humming.device import DeviceInfo

    device = DeviceInfo(0)
    figures = {name: getattr(device, name) for name, value in vars(DeviceInfo).items() if isinstance(value, property)}
    return {**figures, **figures.pop("tensorcore_tops")}


class Found:
    """What the walk through a model's modules has found."""

    def __init__(self) -> None:
        self.tensors: dict[str, list[Any]] = {}
        self.values: dict[str, Any] = {}
        self.kernels: set[str] = set()
        self._seen: set[int] = set()

    def module(self, name: str, module: Any) -> None:
        """Take what a module holds: parameters, buffers, and tensors in plain attributes, however deep in vLLM's objects."""
        for kind, tensors in (("parameter", module._parameters), ("buffer", module._buffers)):
            for attribute, tensor in tensors.items():
                if tensor is not None:
                    self.tensors[f"{name}.{attribute}"] = [kind, *layout(tensor)]
        for attribute, value in vars(module).items():
            if attribute not in _ELSEWHERE and not attribute.startswith("_"):
                self._take(f"{name}.{attribute}", value, 0)

    def _take(self, path: str, value: Any, depth: int) -> None:
        import torch

        if isinstance(value, torch.Tensor):
            self.tensors[path] = ["attribute", *layout(value)]
        elif isinstance(value, enum.Enum):
            self.values[path] = str(value)
            if "backend" in type(value).__name__.lower():
                self.kernels.add(value.name)
        elif isinstance(value, (bool, int, float, str, torch.dtype, torch.Size)) or value is None:
            self.values[path] = value if isinstance(value, (bool, int, float, str)) else str(value)
        elif isinstance(value, (list, tuple)) and depth < _DEEPEST:
            for index, item in enumerate(value):
                self._take(f"{path}[{index}]", item, depth + 1)
        elif isinstance(value, dict) and depth < _DEEPEST:
            for key, item in value.items():
                self._take(f"{path}[{key}]", item, depth + 1)
        elif self._is_inside(value) and depth < _DEEPEST:
            self._object(path, value, depth)

    def _object(self, path: str, value: Any, depth: int) -> None:
        self.values[path] = type(value).__name__
        if any(word in type(value).__name__ for word in ("Kernel", "Experts", "Method", "Scheme", "Impl")):
            self.kernels.add(type(value).__name__)
        if id(value) in self._seen:
            return
        self._seen.add(id(value))
        for attribute, inner in vars(value).items():
            if attribute not in _ELSEWHERE:
                self._take(f"{path}.{attribute}", inner, depth + 1)

    @staticmethod
    def _is_inside(value: Any) -> bool:
        import torch

        module = type(value).__module__
        inside = module.startswith(("vllm.", "triton_kernels")) and not module.startswith(_NOT_OURS)
        return inside and hasattr(value, "__dict__") and not isinstance(value, torch.nn.Module)


def layout(tensor: Any) -> list[Any]:
    """Return shape, strides, dtype, device and offset of a tensor: what a traced graph knows of it."""
    return [list(tensor.shape), list(tensor.stride()), str(tensor.dtype), str(tensor.device), tensor.storage_offset()]


def main(gpu: str, output: Path) -> None:
    """Load every case and write what was found."""
    results: dict[str, Any] = {}
    only = [name for name in os.environ.get("ONLY", "").split(",") if name]
    with tempfile.TemporaryDirectory(prefix="layouts-") as scratch:
        mode = prepare(gpu, Path(scratch))
        for index, case in enumerate(CASES):
            if only and case.name not in only:
                continue
            begin = time.monotonic()
            try:
                results[case.name] = load(case, Path(scratch, str(index)), mode)
            except Exception as error:  # noqa: BLE001 - a case that cannot be loaded here is a result
                traceback.print_exc()
                results[case.name] = {"error": f"{type(error).__name__}: {str(error)[:400]}"}
            seconds = round(time.monotonic() - begin, 1)
            print(
                f"LAYOUT {gpu} {case.name} {seconds} s {results[case.name].get('error', 'loaded')}", file=sys.stderr, flush=True
            )
    humming = {} if gpu.startswith("cpu:") else humming_device()
    output.write_text(json.dumps({"cases": results, "humming": humming}))
    os._exit(0)  # destructors would call into a CUDA that may not be there


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
