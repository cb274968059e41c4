"""The mode under which vLLM's worker runs in the pass: CUDA tensors fake, CPU tensors real.

FakeTensorMode alone makes every tensor fake. vLLM's worker computes sizes, block tables and token counts on the CPU and reads
them back, so here an operation becomes fake only when a CUDA device or a fake tensor takes part in it. Where Python asks a
fake tensor for a value (`.item()`, `.any()`), there is none: the answer is a constant, and `reads` counts how often and where
it was asked, because code that branches on a weight's value may go another way on the server.
"""

from __future__ import annotations

import collections
import sys
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode, UnsupportedOperatorException

from warmstart.compiler import reads
from warmstart.errors import CompileError, UnsupportedError

aten = torch.ops.aten


def _leaves(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        for item in value:
            yield from _leaves(item)
    elif isinstance(value, dict):
        for item in value.values():
            yield from _leaves(item)
    else:
        yield value


class HybridMode(FakeTensorMode):  # type: ignore[misc]
    """Fake on CUDA, real on the CPU."""

    def __init__(self) -> None:
        super().__init__(allow_non_fake_inputs=True, allow_fallback_kernels=False)
        self.reads: collections.Counter[str] = collections.Counter()
        self.places: collections.Counter[str] = collections.Counter()
        self.loading = True
        self.compiled = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if kwargs.get("pin_memory"):
            kwargs["pin_memory"] = False
        leaves = list(_leaves((args, kwargs)))
        fake = any(isinstance(leaf, FakeTensor) for leaf in leaves)
        if not fake and not any(isinstance(leaf, torch.device) and leaf.type == "cuda" for leaf in leaves):
            if func is aten._pin_memory.default:
                return args[0]
            if func is aten.is_pinned.default:
                return True
            return func(*args, **kwargs)
        if kwargs.get("generator") is not None:
            kwargs["generator"] = None  # no number of a fake tensor is drawn
        answer = _DATA_DEPENDENT.get(func) if fake else None
        if answer is not None:
            self.reads[str(func)] += 1
            found = self._asked(place()) if func in _BRANCHES and _is_choice(func, args) else None
            if found is None:
                found = answer(self, args, kwargs)
            if found is not NotImplemented:
                return found
        try:
            result = super().__torch_dispatch__(func, types, args, kwargs)
        except UnsupportedOperatorException:
            # Inside a layer: what writes into its arguments and returns nothing leaves nothing to stand in for.
            if self.compiled and not func._schema.returns:
                return None
            raise
        if func is aten._to_copy.default and not fake and args[0].numel() <= _KNOWN_VALUES:
            result.known = args[0]
        return result

    def _asked(self, where: str) -> bool | None:
        """Return which way a checkpoint's weights take a branch; None after loading, where no layout depends on it."""
        self.places[where] += 1
        if not self.loading:
            return None
        read = reads.known(where)
        if read is not None and read.refused:
            asks = where.rpartition(":")[2]
            raise UnsupportedError(f"{asks} chooses a layout by the values of weights: {read.why}", hint=read.refused)
        return None if read is None else read.answer

    def check(self) -> None:
        """End the time of loading.

        Raises:
            CompileError: a branch was taken on a weight's value where it is not known which way a checkpoint goes.

        """
        self.loading = False
        unknown = [where for where in self.places if reads.known(where) is None]
        if unknown:
            raise CompileError(
                f"a weight's value was asked for at {', '.join(unknown)}, and a pass has no weights",
                hint="report this line; the server's own first start compiles meanwhile",
            )

    def empty(self, shape: Any, like: Any, dtype: Any = None) -> Any:
        """Return a fake tensor of `shape` on the device of `like`."""
        with self:
            return torch.empty(shape, dtype=dtype or like.dtype, device=like.device)


def _scalar(mode: HybridMode, args: Any, _kwargs: Any) -> Any:
    dtype = args[0].dtype
    if dtype == torch.bool:
        return False
    if not dtype.is_floating_point:
        return 0
    return reads.MARK if mode.loading else 1.0


def _to_cpu(_mode: HybridMode, args: Any, kwargs: Any) -> Any:
    device = kwargs.get("device")
    if device is None or torch.device(device).type != "cpu":
        return NotImplemented
    return torch.zeros(tuple(args[0].shape), dtype=kwargs.get("dtype") or args[0].dtype)


def _indexed_by_mask(mode: HybridMode, args: Any, _kwargs: Any) -> Any:
    mask = next(
        (index for index in args[1] if isinstance(index, torch.Tensor) and index.dtype in (torch.bool, torch.uint8)), None
    )
    if mask is None:
        return NotImplemented
    return mode.empty([mask.numel(), *args[0].shape[mask.dim() :]], args[0])


def _repeated(mode: HybridMode, args: Any, kwargs: Any) -> Any:
    known = getattr(args[0], "known", None)
    size = kwargs.get("output_size") or (args[0].numel() if known is None else int(known.sum()))
    return mode.empty([size], args[0], torch.int64)


def _unique(mode: HybridMode, args: Any, _kwargs: Any) -> Any:
    # Scales of parts that are put together are one; elsewhere (LoRA's indices) the most that there can be.
    count = 1 if mode.loading else args[0].numel()
    return mode.empty([count], args[0]), mode.empty([count], args[0], torch.int64), mode.empty([count], args[0], torch.int64)


# Operators by which Python takes a branch, or keeps a number, that depends on a value.
_BRANCHES = frozenset(
    [aten._local_scalar_dense.default, aten.item.default, aten.equal.default, aten.allclose.default, aten.is_nonzero.default]
)
_NUMBERS = frozenset([aten._local_scalar_dense.default, aten.item.default])
# Small tensors of numbers that Python made (sizes of stacked parts) keep them when they go to the device.
_KNOWN_VALUES = 64


def _is_choice(func: Any, args: Any) -> bool:
    """Tell a branch from a number that is read."""
    return func not in _NUMBERS or args[0].dtype == torch.bool


def place() -> str:
    """Return where the library code stands that asked torch for a value: its module and its function."""
    frame = sys._getframe(2)
    while frame.f_back is not None and _is_passed_on(frame.f_globals.get("__name__", "")):
        frame = frame.f_back
    return f"{frame.f_globals.get('__name__', '')}:{frame.f_code.co_qualname}"


def _is_passed_on(module: str) -> bool:
    return not module or module.split(".", 1)[0] in {"torch", "warmstart"}


# Operators whose result depends on values: what stands in for it. Shapes are upper bounds.
_DATA_DEPENDENT: dict[Any, Any] = {
    aten._local_scalar_dense.default: _scalar,
    aten.item.default: _scalar,
    aten.equal.default: lambda _mode, _args, _kwargs: True,
    aten.allclose.default: lambda _mode, _args, _kwargs: True,
    aten.is_nonzero.default: lambda _mode, _args, _kwargs: False,
    aten._to_copy.default: _to_cpu,
    aten.copy_.default: lambda _mode, args, _kwargs: args[0],
    aten.nonzero.default: lambda mode, args, _kwargs: mode.empty([args[0].numel(), args[0].dim()], args[0], torch.int64),
    aten.index.Tensor: _indexed_by_mask,
    aten.masked_select.default: lambda mode, args, _kwargs: mode.empty([args[0].numel()], args[0]),
    aten.repeat_interleave.Tensor: _repeated,
    aten._unique2.default: _unique,
}
