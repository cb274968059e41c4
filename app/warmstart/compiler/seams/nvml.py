"""NVML: what vLLM asks before it has a device."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
from typing import TYPE_CHECKING, Any

from warmstart.compiler.seams.base import Bench, stage

if TYPE_CHECKING:
    from types import ModuleType

# A driver version that every supported line accepts; vLLM only prints it. No artifact holds it.
_DRIVER = "580.0"
_MODULES = ("vllm.third_party.pynvml", "pynvml")


@stage(
    "driver",
    "nvml",
    "vllm.platforms asks NVML for devices, names and capabilities, and picks the CUDA platform by the answer",
    where="no-device",
)
def nvml(bench: Bench) -> None:
    """Answer NVML in both copies of pynvml, however late they are imported."""
    for name in _MODULES:
        if name in sys.modules:
            _answer(bench, sys.modules[name])
    sys.meta_path.insert(0, _Finder(bench))


class _Finder(importlib.abc.MetaPathFinder):
    """Let the real module load, then put the answers in. vLLM 0.26 decides while it is imported, 0.33 later."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench

    def find_spec(self, name: str, path: Any, target: ModuleType | None = None) -> Any:
        if name not in _MODULES:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is None or spec.loader is None:
            return None
        run: Any = spec.loader.exec_module

        def exec_module(module: ModuleType) -> None:
            run(module)
            _answer(self._bench, module)

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def _answer(bench: Bench, module: ModuleType) -> None:
    gpu = bench.gpu

    class Memory:
        total = free = gpu.memory_bytes
        used = 0

    answers: dict[str, Any] = {
        "nvmlInit": lambda: None,
        "nvmlShutdown": lambda: None,
        "nvmlSystemGetDriverVersion": lambda: _DRIVER,
        "nvmlDeviceGetCount": lambda: bench.visible,
        "nvmlDeviceGetHandleByIndex": lambda index: index,
        "nvmlDeviceGetCudaComputeCapability": lambda _: gpu.capability,
        "nvmlDeviceGetName": lambda _: gpu.name,
        "nvmlDeviceGetUUID": lambda handle: f"GPU-{handle:08d}-0000-0000-0000-000000000000",
        "nvmlDeviceGetMemoryInfo": lambda _: Memory,
        # Every pair of GPUs of a serving node reaches each other over NVLink or PCIe peer access (0: NVML_P2P_STATUS_OK).
        "nvmlDeviceGetP2PStatus": lambda _a, _b, _kind: 0,
    }
    for name, answer in answers.items():
        bench.replace(module, name, answer)
