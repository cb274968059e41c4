"""torch.cuda and torch.accelerator: the answers of the catalog's GPU, and streams and events that do nothing."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from warmstart.compiler.seams.base import Bench, stage

if TYPE_CHECKING:
    from collections.abc import Iterator


class VirtualStream:
    """A CUDA stream on which nothing runs; all of them are one stream."""

    stream_id = cuda_stream = device_index = priority = 0
    device_type = 1

    def __init__(self, *_args: Any, **_kwargs: Any) -> None:
        pass

    @property
    def device(self) -> Any:
        import torch

        return torch.device("cuda", torch.cuda.current_device())

    def __enter__(self) -> VirtualStream:
        return self

    def __exit__(self, *_exc: object) -> None: ...

    def synchronize(self, *_args: Any) -> None: ...

    def wait_stream(self, *_args: Any) -> None: ...

    def wait_event(self, *_args: Any) -> None: ...

    def record_event(self, event: Any = None) -> Any:
        return event or VirtualEvent()

    def query(self) -> bool:
        return True

    def __eq__(self, other: object) -> bool:
        return isinstance(other, VirtualStream)

    def __hash__(self) -> int:
        return 1


class VirtualEvent:
    """A CUDA event that has always happened; the time between two is one millisecond."""

    def __init__(self, *_args: Any, **_kwargs: Any) -> None:
        pass

    def record(self, *_args: Any) -> None: ...

    def wait(self, *_args: Any) -> None: ...

    def synchronize(self) -> None: ...

    def query(self) -> bool:
        return True

    def elapsed_time(self, _other: Any) -> float:
        return 1.0


class DeviceProperties:
    """What torch.cuda.get_device_properties answers; attribute names are those of torch's own class."""

    def __init__(self, bench: Bench) -> None:
        gpu = bench.gpu
        self.name = gpu.name
        self.gcnArchName = gpu.name  # torch fills it with the name on CUDA
        self.major, self.minor = gpu.capability
        self.total_memory = gpu.memory_bytes
        self.multi_processor_count = gpu.multiprocessors
        self.max_threads_per_multi_processor = gpu.max_threads_per_multiprocessor
        self.max_threads_per_block = gpu.max_threads_per_block
        self.regs_per_multiprocessor = gpu.registers_per_multiprocessor
        self.shared_memory_per_block = gpu.shared_memory_per_block
        self.shared_memory_per_block_optin = gpu.shared_memory_per_block_optin
        self.shared_memory_per_multiprocessor = gpu.shared_memory_per_multiprocessor
        self.L2_cache_size = gpu.l2_cache_bytes
        self.warp_size = gpu.warp_size
        self.clock_rate = gpu.clock_khz
        self.memory_clock_rate = gpu.memory_clock_khz
        self.memory_bus_width = gpu.memory_bus_bits
        self.is_integrated = self.is_multi_gpu_board = 0
        self.pci_bus_id = self.pci_device_id = self.pci_domain_id = 0
        self.uuid = "GPU-00000000-0000-0000-0000-000000000000"

    def __repr__(self) -> str:
        return f"{type(self).__name__}({vars(self)})"


@contextlib.contextmanager
def _nothing(*_args: Any, **_kwargs: Any) -> Iterator[None]:
    yield


def _replace_all(bench: Bench, module: Any, answers: dict[str, Any]) -> None:
    """Replace functions of a module by answers that bear their names.

    A traced graph may call some of them (`with torch.cuda.device(…)`); the artifact then holds the name, and the server finds
    torch's own function by it.
    """
    for name, answer in answers.items():
        if getattr(answer, "__name__", "") == "<lambda>":
            answer.__name__ = answer.__qualname__ = name
            answer.__module__ = module.__name__
        bench.replace(module, name, answer)


def _index(bench: Bench, device: Any) -> int:
    import torch

    if isinstance(device, str):
        device = torch.device(device)
    if isinstance(device, int):
        return device
    index = getattr(device, "index", None)
    return bench.device if index is None else int(index)


@stage(
    "torch",
    "torch.cuda",
    "configuration, Dynamo and Inductor ask torch.cuda which GPU is there and how large it is",
    where="no-device",
)
def torch_cuda(bench: Bench) -> None:
    """Replace the queries of torch.cuda."""
    import torch

    gpu, properties = bench.gpu, DeviceProperties(bench)
    stream = VirtualStream()

    def set_device(device: Any) -> None:
        bench.device = _index(bench, device)

    memory = (gpu.memory_bytes, gpu.memory_bytes)
    answers: dict[str, Any] = {
        "is_available": lambda: True,
        # A serving process has initialised CUDA when it compiles; FakeTensor then resolves "cuda" to the current device.
        "is_initialized": lambda: True,
        "_lazy_init": lambda: None,
        "device_count": lambda: bench.visible,
        "_device_count_nvml": lambda: bench.visible,
        "current_device": lambda: bench.device,
        "set_device": set_device,
        "_exchange_device": lambda _: bench.device,
        "_maybe_exchange_device": lambda _: bench.device,
        "get_device_properties": lambda _=None: properties,
        "get_device_capability": lambda _=None: gpu.capability,
        "get_device_name": lambda _=None: gpu.name,
        "is_bf16_supported": lambda *_, **__: gpu.capability >= (8, 0),
        "can_device_access_peer": lambda _a, _b: True,
        "mem_get_info": lambda _=None: memory,
        "empty_cache": lambda: None,
        "ipc_collect": lambda: None,
        "synchronize": lambda _=None: None,
        "utilization": lambda _=None: 0,
        "is_current_stream_capturing": lambda: False,
        "graph_pool_handle": lambda: (0, 0),
        "get_rng_state": lambda _="cuda": torch.zeros(16, dtype=torch.uint8),
        "set_rng_state": lambda *_, **__: None,
        "manual_seed": lambda _: None,
        "manual_seed_all": lambda _: None,
        "current_stream": lambda _=None: stream,
        "default_stream": lambda _=None: stream,
        "set_stream": lambda _: None,
        "stream": _nothing,
        "memory_stats": lambda _=None: {},
        "memory_allocated": lambda _=None: 0,
        "max_memory_allocated": lambda _=None: 0,
        "memory_reserved": lambda _=None: 0,
        "max_memory_reserved": lambda _=None: 0,
        "reset_peak_memory_stats": lambda _=None: None,
        "Stream": VirtualStream,
        "Event": VirtualEvent,
        "ExternalStream": VirtualStream,
        "use_mem_pool": _nothing,
    }
    _replace_all(bench, torch.cuda, answers)
    bench.replace(torch, "Event", VirtualEvent)
    bench.replace(torch, "Stream", VirtualStream)
    bench.replace(torch.Tensor, "record_stream", lambda _self, _stream: None)

    class Generator(torch.Generator):  # type: ignore[misc]
        """A generator of the CPU's, whichever device it was asked for: no number of a fake tensor is drawn."""

        def __new__(cls, device: Any = None) -> Any:
            del device
            return super().__new__(cls)

    bench.replace(torch, "Generator", Generator)
    bench.replace(torch._C, "_cuda_getCurrentRawStream", lambda _: 0)
    bench.replace(torch._C, "_cuda_getDevice", lambda: bench.device)


@stage(
    "torch",
    "torch.accelerator",
    "vLLM 0.33 asks the device-neutral interface for what it asked torch.cuda before",
    where="no-device",
)
def torch_accelerator(bench: Bench) -> None:
    """Replace the queries of torch.accelerator."""
    import torch

    gpu, stream = bench.gpu, VirtualStream()

    def set_device(device: Any) -> None:
        bench.device = _index(bench, device)

    answers: dict[str, Any] = {
        "is_available": lambda: True,
        "device_count": lambda: bench.visible,
        "current_device_index": lambda: bench.device,
        "current_device_idx": lambda: bench.device,
        "set_device_index": set_device,
        "set_device_idx": set_device,
        "current_stream": lambda _=None: stream,
        "set_stream": lambda _: None,
        "synchronize": lambda _=None: None,
        "empty_cache": lambda: None,
        "empty_host_cache": lambda: None,
        "get_memory_info": lambda _=None: (gpu.memory_bytes, gpu.memory_bytes),
        "memory_stats": lambda _=None: {},
        "memory_allocated": lambda _=None: 0,
        "max_memory_allocated": lambda _=None: 0,
        "memory_reserved": lambda _=None: 0,
        "max_memory_reserved": lambda _=None: 0,
        "reset_peak_memory_stats": lambda _=None: None,
    }
    _replace_all(bench, torch.accelerator, answers)
