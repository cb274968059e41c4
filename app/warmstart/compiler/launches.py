"""Launches of Triton kernels outside the compiled graphs (sampler, model runner): compiled for the server, never launched.

A server compiles these at its first start in a new container, for 14 s and more, after the model. Triton finds a kernel by a
hash of its source, of the types and alignments of its arguments and of the compiler, so what is compiled here is either what
the server asks for, or never looked at.
"""

from __future__ import annotations

import collections
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from warmstart.errors import shorten

if TYPE_CHECKING:
    from collections.abc import Callable

FOLDER = "triton"
"""The folder below the cache root that a server's TRITON_CACHE_DIR has to name."""


class Tensor:
    """What Triton asks of a tensor: its type, and an address that is aligned as the device's would be.

    Allocations are aligned more than Triton cares for (16 bytes), so only where a view begins in its storage counts.
    """

    def __init__(self, tensor: Any) -> None:
        self.dtype = tensor.dtype
        self._offset: int = tensor.storage_offset() * tensor.element_size()

    def data_ptr(self) -> int:
        """Return the offset of the first element in its storage, in bytes."""
        return self._offset


class Launches:
    """What becomes of launches: nothing, or, while `folder` is set, a kernel in a Triton cache there.

    `kernels` are their hashes. Of `share`, (0, 4) say, the first of four processes compiles its part of them. `failed` counts
    the kernels that could not be compiled, `unreached` the layers that could not be entered, by reason. With `each_layer`,
    layers that differ in nothing but their name are entered one by one. `tell` is called with the number of kernels whenever
    something has happened.
    """

    def __init__(self) -> None:
        self.folder: Path | None = None
        self.tell: Callable[[int], None] = lambda _compiled: None
        self.each_layer = True
        self.share = (0, 1)
        self.kernels: set[str] = set()
        self.failed: collections.Counter[str] = collections.Counter()
        self.unreached: collections.Counter[str] = collections.Counter()
        self._entered: set[str] = set()

    def alive(self) -> None:
        """Say that something has happened."""
        self.tell(len(self.kernels))

    def knows(self, operator: str, args: Any) -> bool:
        """Tell whether a layer's operator was entered with arguments like these before, and remember it."""
        import torch

        def kind(value: Any) -> Any:
            if isinstance(value, torch.Tensor):
                return tuple(value.shape), value.dtype
            return value if self.each_layer or isinstance(value, (bool, int, float)) else None

        signature = f"{operator} {[kind(value) for value in args]}"
        known = signature in self._entered
        self._entered.add(signature)
        return known

    def compile(self, warm_up: Callable[..., Any], kernel: Any, args: Any, kwargs: Any) -> None:
        """Compile a kernel for the arguments of a launch. One that cannot be compiled here is the server's to compile."""
        import torch
        from triton import knobs

        if self.folder is None:
            return

        def described(value: Any) -> Any:
            return Tensor(value) if isinstance(value, torch.Tensor) else value

        try:
            with knobs.cache.scope(), knobs.compilation.scope(), knobs.runtime.scope():
                knobs.cache.dir = str(self.folder)
                # Of all that a compile leaves, a start reads the binary and its description.
                knobs.compilation.store_binary_only = True
                knobs.runtime.jit_cache_hook = self._is_of_another
                made = warm_up(kernel, *map(described, args), **{name: described(value) for name, value in kwargs.items()})
            if made is not None:
                self.kernels.add(made.hash)
        except Exception as error:  # noqa: BLE001 - of the compiler's; the server's own start will tell
            self.failed[f"{getattr(kernel, '__name__', kernel)}: {type(error).__name__}: {shorten(error)}"] += 1
        self.alive()

    def _is_of_another(self, *, key: str, fn: Any, **_others: Any) -> bool:
        """Tell Triton whether another process compiles a kernel that it has not got."""
        index, number = self.share
        return zlib.crc32(f"{fn.name}{key}".encode()) % number != index
