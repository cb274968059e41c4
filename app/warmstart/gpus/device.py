"""The profile of a live GPU, read through the driver's own libraries; needs neither torch nor a Python binding.

Every figure but the name and the memory comes from libcuda's device attributes. Name and memory come from NVML, because that
is what `nvidia-smi`, node labels and vLLM's memory accounting show: CUDA's own total is smaller by what the driver keeps.
"""

from __future__ import annotations

import contextlib
import datetime
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from warmstart.errors import UsageError
from warmstart.gpus.profile import GpuProfile

if TYPE_CHECKING:
    import ctypes

READ_FROM_DEVICE = "read from the device"
"""What the source of a figure begins with where a device gave it."""

# Numbers of CUdevice_attribute in cuda.h.
_ATTRIBUTES = {
    "max_threads_per_block": 1,
    "shared_memory_per_block": 8,
    "warp_size": 10,
    "clock_khz": 13,
    "multiprocessors": 16,
    "memory_clock_khz": 36,
    "memory_bus_bits": 37,
    "l2_cache_bytes": 38,
    "max_threads_per_multiprocessor": 39,
    "shared_memory_per_multiprocessor": 81,
    "registers_per_multiprocessor": 82,
    "shared_memory_per_block_optin": 97,
}
_MAJOR, _MINOR = 75, 76
_CUDA_ERRORS = {
    3: "the driver is not initialised",
    34: "this is the stub library, not the driver",
    35: "the driver is older than its library",
    100: "no CUDA device is visible",
    101: "no such device",
    802: "the system is not ready (is the fabric manager running?)",
    803: "driver and library are of different versions",
    804: "the driver does not support this compatibility package",
}
_NVML_ERRORS = {3: "not supported", 4: "no permission", 6: "not found", 9: "driver not loaded", 18: "driver and library differ"}
_NVML_NOT_SUPPORTED = 3
_TEXT_BYTES = 256


class _Library(NamedTuple):
    """A driver library, whose every call is checked."""

    path: str
    handle: Any
    errors: dict[int, str]

    def call(self, function: str, *arguments: Any, also: tuple[int, ...] = ()) -> int:
        """Call and return the status: 0, or one of `also`. Raises UsageError for any other, and for a missing function."""
        try:
            entry = getattr(self.handle, function)
        except AttributeError:
            raise UsageError(f"{self.path} has no {function}", hint="the NVIDIA driver is too old or broken") from None
        status = int(entry(*arguments))
        if status and status not in also:
            meaning = self.errors.get(status, "unknown")
            raise UsageError(
                f"{self.path}: {function} failed with {status}: {meaning}", hint="check the driver with nvidia-smi"
            )
        return status


def describe(
    index: int = 0,
    *,
    cuda_library: str = "libcuda.so.1",
    nvml_library: str = "libnvidia-ml.so.1",
    today: datetime.date | None = None,
) -> GpuProfile:
    """Return the profile of CUDA device `index`, counted among the visible ones.

    Its id is the catalog's where the driver's name is there, else made from that name. The dynamic loader finds the two
    libraries; pass a path for another driver's.

    Raises UsageError: no driver or no such device here, or the driver fails or lacks a function.
    """
    import ctypes

    cuda = _load(cuda_library, _CUDA_ERRORS)
    cuda.call("cuInit", 0)
    count = ctypes.c_int()
    cuda.call("cuDeviceGetCount", ctypes.byref(count))
    if not 0 <= index < count.value:
        raise UsageError(f"there is no CUDA device {index}: {count.value} visible", hint="they are counted from 0")
    device = ctypes.c_int()
    cuda.call("cuDeviceGet", ctypes.byref(device), index)
    major, minor = _attribute(cuda, device, _MAJOR), _attribute(cuda, device, _MINOR)
    figures = {name: _attribute(cuda, device, number) for name, number in _ATTRIBUTES.items()}
    with _nvml(nvml_library) as nvml:
        card = _same_card(cuda, nvml, device)
        name = _text(nvml, "nvmlDeviceGetName", card)
        memory = _nvml_memory(nvml, card)
        driver = _text(nvml, "nvmlSystemGetDriverVersion")
    when = (today or datetime.datetime.now(tz=datetime.UTC).date()).isoformat()
    source = f"{READ_FROM_DEVICE}, driver {driver}, {when}"
    sources = dict.fromkeys(("name", "capability", "memory_bytes", *figures), source)
    if memory is None:  # unified memory: NVML counts none
        memory = _cuda_memory(cuda, device)
        sources["memory_bytes"] = f"{READ_FROM_DEVICE} by cuDeviceTotalMem, driver {driver}, {when}"
    return GpuProfile(
        id=_id_for(name), name=name, capability=(major, minor), memory_bytes=memory, verified=True, sources=sources, **figures
    )


def _load(path: str, errors: dict[int, str]) -> _Library:
    import ctypes

    try:
        return _Library(path, ctypes.CDLL(path), errors)
    except OSError:
        raise UsageError(
            f"no NVIDIA driver here: {path} cannot be loaded",
            hint="run this where a GPU is, in a container started with GPU access",
        ) from None


@contextlib.contextmanager
def _nvml(path: str) -> Iterator[_Library]:
    library = _load(path, _NVML_ERRORS)
    library.call("nvmlInit_v2")
    try:
        yield library
    finally:
        library.call("nvmlShutdown")


def _attribute(cuda: _Library, device: ctypes.c_int, number: int) -> int:
    import ctypes

    value = ctypes.c_int()
    cuda.call("cuDeviceGetAttribute", ctypes.byref(value), number, device)
    return value.value


def _cuda_memory(cuda: _Library, device: ctypes.c_int) -> int:
    import ctypes

    size = ctypes.c_size_t()
    cuda.call("cuDeviceTotalMem_v2", ctypes.byref(size), device)
    return size.value


def _same_card(cuda: _Library, nvml: _Library, device: ctypes.c_int) -> ctypes.c_void_p:
    """Return NVML's handle of CUDA's device, by UUID: the two count devices differently."""
    import ctypes
    import uuid

    raw = (ctypes.c_char * 16)()
    cuda.call("cuDeviceGetUuid_v2", raw, device)
    identity = uuid.UUID(bytes=bytes(raw))
    handle = ctypes.c_void_p()
    for kind in ("GPU", "MIG"):
        text = f"{kind}-{identity}".encode()
        also = (2, 6) if kind == "GPU" else ()
        if nvml.call("nvmlDeviceGetHandleByUUID", text, ctypes.byref(handle), also=also) == 0:
            break
    return handle


def _nvml_memory(nvml: _Library, card: ctypes.c_void_p) -> int | None:
    import ctypes

    memory = (ctypes.c_ulonglong * 3)()  # nvmlMemory_t: total, free, used
    status = nvml.call("nvmlDeviceGetMemoryInfo", card, memory, also=(_NVML_NOT_SUPPORTED,))
    return None if status or not memory[0] else int(memory[0])


def _text(nvml: _Library, function: str, *arguments: Any) -> str:
    import ctypes

    text = ctypes.create_string_buffer(_TEXT_BYTES)
    nvml.call(function, *arguments, text, ctypes.c_uint(_TEXT_BYTES))
    return text.value.decode("ascii", "replace").strip()


def _id_for(name: str) -> str:
    from warmstart.gpus.entries import built_in

    known = [entry.profile.id for entry in built_in() if entry.profile.name == name]
    if len(known) == 1:
        return known[0]
    kept = "".join(letter if letter.isalnum() or letter == "." else "-" for letter in name.lower().removeprefix("nvidia "))
    return "-".join(part for part in kept.split("-") if part)[:63].rstrip(".-") or "gpu"
