"""The GPU of a pass that has one in sight: that it is the right one, how much of its memory the pass may take, and took."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from warmstart.errors import UnsupportedError, UsageError

if TYPE_CHECKING:
    from warmstart.gpus.profile import GpuProfile


class Device:
    """One rank's GPU. All figures are bytes.

    `tuned` counts Inductor's tuning blocks (one for each graph that has kernels) that ran, `left` those that did not fit.
    """

    tuned: ClassVar[int] = 0
    left: ClassVar[int] = 0

    def __init__(self, index: int, gpu: GpuProfile, limit: int) -> None:
        """Make a CUDA context on device `index`; `limit` is what the allocator may take (0: all that is free).

        Raises:
            UsageError: the device is another type than the pass is for.
            UnsupportedError: there is no such device: each rank needs one.

        """
        import torch

        if index >= torch.cuda.device_count():
            raise UnsupportedError(
                f"rank {index} needs a GPU of its own, and {torch.cuda.device_count()} are in sight",
                hint="compile without GPUs (--device none), or where as many are in sight as the server has ranks",
            )
        name = torch.cuda.get_device_name(index)
        if name != gpu.name:
            raise UsageError(
                f"the GPU in sight is {name}, and the pass is for {gpu.name}",
                hint="compile on the type that the server runs on, or without a GPU (--device none)",
            )
        self._index = index
        torch.cuda.set_device(index)
        torch.cuda.init()
        torch.cuda.synchronize(index)
        bare, total = torch.cuda.mem_get_info(index)
        self._load_code()
        self._free, _total = torch.cuda.mem_get_info(index)
        self._code = max(0, bare - self._free)
        if limit:
            torch.cuda.set_per_process_memory_fraction(min(1.0, limit / total), index)

    def _load_code(self) -> None:
        """Launch a kernel of torch's, which brings the library's code onto the device (97 MB on an H200).

        Every process that uses torch has it there, like the context; what the pass takes is counted from here on.
        """
        import torch

        torch.ones(1, device=self._index).fill_(0)
        torch.cuda.synchronize(self._index)
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(self._index)

    def figures(self) -> dict[str, Any]:
        """Return what the pass took: the allocator's peak, and by the driver, both beyond the CUDA context and `code`.

        The driver's figure counts loaded kernels and reserved memory at the end; another process on the GPU would falsify it.
        """
        import torch

        free, _total = torch.cuda.mem_get_info(self._index)
        return {
            "allocator_peak": torch.cuda.max_memory_allocated(self._index),
            "reserved_peak": torch.cuda.max_memory_reserved(self._index),
            "driver": max(0, self._free - free),
            "code": self._code,
            "tuned": Device.tuned,
            "left": Device.left,
        }
