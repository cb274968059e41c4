"""The fake tensor mode: CUDA tensors have a shape, a dtype and a device, and no storage; CPU tensors are real."""

from __future__ import annotations

from typing import Any

from warmstart.compiler.seams.base import Bench, stage


@stage(
    "torch",
    "fake.device-init",
    "the first fake tensor, and every tensor literal, would initialise CUDA for real",
    where="no-device",
)
def device_init(bench: Bench) -> None:
    """Tell FakeTensor that the device must not be initialised."""
    fake = bench.module("torch._subclasses.fake_tensor")
    bench.replace(fake.FakeTensorMode, "avoid_device_init", property(lambda _self: True))
    bench.replace(fake, "init_gpu_context", lambda _device: None)


@stage(
    "torch",
    "fake.to",
    "under inference mode aten.to arrives undecomposed and FakeTensor propagates it as a constant on the real device",
)
def undecomposed_to(bench: Bench) -> None:
    """Decompose aten.to inside the mode, as autograd would have done."""
    import torch

    mode = bench.module("torch._subclasses.fake_tensor").FakeTensorMode
    dispatch = mode.dispatch
    overloads = {getattr(torch.ops.aten.to, name) for name in torch.ops.aten.to.overloads()}

    def decomposed(self: Any, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in overloads:
            with self:
                return func.decompose(*args, **(kwargs or {}))
        return dispatch(self, func, types, args, kwargs or {})

    bench.replace(mode, "dispatch", decomposed)


@stage("torch", "fake.values", "code around the model reads addresses and values of weights, which a fake tensor has not")
def values(bench: Bench) -> None:
    """Give fake tensors an address that is aligned and never null, and zeros where Python asks for values."""
    import torch

    fake = bench.module("torch._subclasses.fake_tensor").FakeTensor

    def zeros(tensor: Any) -> Any:
        return torch.zeros(tuple(tensor.shape), dtype=tensor.dtype)

    for name, answer in {
        "data_ptr": lambda self: 4096 + 256 * (id(self) % (1 << 30)),
        "tolist": lambda self: zeros(self).tolist(),
        "numpy": lambda self, *_, **__: zeros(self).numpy(),
        "pin_memory": lambda self, *_: self,
    }.items():
        bench.replace(fake, name, answer)
