"""Humming (humming-kernels, from vLLM 0.33): kernels that vLLM prefers to Marlin on sm_90, tuned by the device's figures."""

from __future__ import annotations

import importlib.util
import inspect
import os
from typing import TYPE_CHECKING, Any

from warmstart.compiler.seams.base import Bench, stage

if TYPE_CHECKING:
    from warmstart.gpus.profile import GpuProfile

_KIB = 1024
# Of humming/csrc/device_info.cpp: no device attribute tells them, so humming knows them by capability.
_L1_KIB = {75: 96, 80: 192, 86: 128, 87: 192, 89: 128, 90: 256}
_L1_KIB_BY_GENERATION = {10: 256, 11: 256, 12: 128}
_OPERATIONS_PER_CLOCK = {75: 1024, 80: 2048, 86: 1024, 87: 2048, 89: 1024, 90: 4096, 120: 1024, 121: 1024}
_OPERATIONS_BY_GENERATION = {10: 8192, 11: 8192}
_HALF_RATE = frozenset([75, 86, 89])
_DATA_RATE_IS_TOLD = 121
# dtype → (times the rate of float16, first capability that has it)
_RATES = {
    "float16": (1.0, 75),
    "bfloat16": (1.0, 80),
    "float8e3m4": (2.0, 100),
    "float8e4m3": (2.0, 89),
    "float8e5m2": (2.0, 89),
    "float6e2m3": (2.0, 100),
    "float6e3m2": (2.0, 100),
    "float4e0m3": (4.0, 100),
    "float4e2m1": (4.0, 100),
    "int8": (2.0, 75),
    "int4": (4.0, 75),
}


class HummingDevice:
    """The attributes of humming's `_DeviceInfo` for a catalog entry: bytes, kHz, bits, GB/s, and TOPS by dtype."""

    is_ppu = False

    def __init__(self, gpu: GpuProfile, index: int) -> None:
        self.index = index
        self.name = gpu.name
        self.sm_count = gpu.multiprocessors
        self.max_threads_per_block = gpu.max_threads_per_block
        self.max_threads_per_sm = gpu.max_threads_per_multiprocessor
        self.max_registers_per_sm = gpu.registers_per_multiprocessor
        self.sm_major, self.sm_minor = gpu.capability
        self.sm_version = gpu.sm
        self.l2_cache_size = gpu.l2_cache_bytes
        self.l2_cache_size_mb = gpu.l2_cache_bytes / _KIB / _KIB
        self.l1_cache_size = _KIB * _L1_KIB.get(gpu.sm, _L1_KIB_BY_GENERATION.get(self.sm_major, 0))
        self.l1_cache_size_kb = self.l1_cache_size / _KIB
        self.default_smem_size = gpu.shared_memory_per_block
        self.max_smem_size = gpu.shared_memory_per_block_optin
        self.max_smem_size_kb = gpu.shared_memory_per_block_optin / _KIB
        self.memory_clock_khz = gpu.memory_clock_khz
        self.memory_bus_width = gpu.memory_bus_bits
        self.sm_clock_khz = gpu.clock_khz
        transfers = 1 if gpu.sm == _DATA_RATE_IS_TOLD else 2
        self.memory_bandwidth_gbps = gpu.memory_clock_khz * transfers * gpu.memory_bus_bits / 8 / 1e6
        self._operations = _OPERATIONS_PER_CLOCK.get(gpu.sm, _OPERATIONS_BY_GENERATION.get(self.sm_major, 0))

    @property
    def tensorcore_tops(self) -> dict[str, float]:
        """Return the peak rate of each dtype that this GPU multiplies."""
        base = self.sm_count * self._operations * self.sm_clock_khz / 1e9
        rates = {
            dtype: base * times / (2 if self.sm_version in _HALF_RATE and not dtype.startswith("int") else 1)
            for dtype, (times, first) in _RATES.items()
            if self.sm_version >= first
        }
        return {dtype: rate for dtype, rate in rates.items() if rate}


@stage("driver", "humming.no-build", "importing humming starts a second interpreter that builds what launches its kernels")
def no_build(_bench: Bench) -> None:
    """Say in humming's own words that nothing is to be built; no key holds the variable."""
    os.environ.setdefault("HUMMING_DISABLE_PARALLEL_BUILD", "1")


@stage(
    "vllm", "humming.one-scale", "humming compares the scales of a layer's parts by value, also where vLLM has left only one"
)
def one_scale(bench: Bench) -> None:
    """Take a single scale for equal to itself. Several are compared as they are: `reads` says why that refuses the pass."""
    if importlib.util.find_spec("humming") is None:
        return
    schema = bench.module("humming.schema.base").BaseWeightSchema
    process = schema._may_process_global_scale
    signature = inspect.signature(process)

    def may_process_global_scale(*args: Any, **kwargs: Any) -> Any:
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        scale = bound.arguments["scale"].view(bound.arguments["num_experts"] or 1, -1)
        if scale.size(1) == 1 and not bound.arguments["force_repeat"]:
            return scale[:, 0]
        return process(*args, **kwargs)

    bench.replace(schema, "_may_process_global_scale", may_process_global_scale)


@stage(
    "vllm",
    "humming.device",
    "humming asks the driver for the device's figures, and chooses tile shapes and their number by them",
    where="no-device",
)
def humming_device(bench: Bench) -> None:
    """Answer from the catalog. The number of configurations is in the graph: it is the size of a tensor of launch settings."""
    if importlib.util.find_spec("humming") is None:
        return

    class Extension:
        @staticmethod
        def _DeviceInfo(index: int = -1) -> Any:  # noqa: N802 - humming's name
            return HummingDevice(bench.gpu, bench.device if index == -1 else index)

    bench.replace("humming.device", "_get_device_info_extension", lambda: Extension)
