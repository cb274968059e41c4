"""The mode under which vLLM's worker runs in the pass: CUDA tensors fake, CPU tensors real.

FakeTensorMode alone makes every tensor fake. vLLM's worker computes sizes, block tables and token counts on the CPU and reads
them back, so here an operation becomes fake only when a CUDA device or a fake tensor takes part in it. Where Python asks a
fake tensor for a value (`.item()`, `.any()`), there is none: the answer is a constant, and `reads` counts how often and where
it was asked, because code that branches on a weight's value may go another way on the server.
"""

from __future__ import annotations

import collections
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

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
        answer = _DATA_DEPENDENT.get(func) if fake else None
        if answer is not None:
            self.reads[str(func)] += 1
            found = answer(self, args, kwargs)
            if found is not NotImplemented:
                return found
        return super().__torch_dispatch__(func, types, args, kwargs)

    def empty(self, shape: Any, like: Any, dtype: Any = None) -> Any:
        """Return a fake tensor of `shape` on the device of `like`."""
        with self:
            return torch.empty(shape, dtype=dtype or like.dtype, device=like.device)


def _scalar(_mode: HybridMode, args: Any, _kwargs: Any) -> Any:
    dtype = args[0].dtype
    if dtype == torch.bool:
        return False
    return 1.0 if dtype.is_floating_point else 0


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
    return mode.empty([kwargs.get("output_size") or args[0].numel()], args[0], torch.int64)


def _unique(mode: HybridMode, args: Any, _kwargs: Any) -> Any:
    count = args[0].numel()
    return mode.empty([count], args[0]), mode.empty([count], args[0], torch.int64), mode.empty([count], args[0], torch.int64)


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
