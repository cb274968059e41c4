"""Weights without data: built, passed through the loader and post-processed as on the server."""

from __future__ import annotations

from typing import Any

from warmstart.compiler.seams.base import Bench, stage

# What FakeTensor keeps of its own in an instance's __dict__; the rest are attributes that vLLM hung on the parameter.
_OWN = frozenset(
    [
        "fake_mode",
        "fake_device",
        "_fake_device",
        "constant",
        "real_tensor",
        "pytype",
        "dispatch_keys",
        "item_memo",
        "nonzero_memo",
        "unique_memo",
        "unique_consecutive_memo",
        "nested_int_memo",
        "_mode_key",
    ]
)
_classes: dict[type, type] = {}


def fake_class(cls: type) -> type:
    """Return a subclass of both `cls` (a vLLM Parameter class) and FakeTensor."""
    if cls not in _classes:
        import torch
        from torch._subclasses.fake_tensor import FakeTensor

        members = {
            "__init__": cls.__init__,  # type: ignore[misc]
            "__torch_function__": torch._C._disabled_torch_function_impl,
            "__torch_dispatch__": FakeTensor.__torch_dispatch__,
        }
        _classes[cls] = type(f"Fake{cls.__name__}", (cls, FakeTensor), members)
    return _classes[cls]


def attributes(tensor: Any) -> dict[str, Any]:
    """Return what vLLM hung on a parameter (weight loaders, dimensions, packing)."""
    return {name: value for name, value in vars(tensor).items() if name not in _OWN}


def settle(module: Any) -> int:
    """Make every parameter of a loaded model a plain FakeTensor again; Dynamo knows no other fake class.

    Returns the number of tensors that were of a Parameter subclass.
    """
    from torch._subclasses.fake_tensor import FakeTensor

    settled = 0
    for part in module.modules():
        for tensors in (part._parameters, part._buffers, vars(part)):
            for value in list(tensors.values()):
                if isinstance(value, FakeTensor) and type(value) is not FakeTensor:
                    value.__class__ = FakeTensor
                    settled += 1
    return settled


@stage("vllm", "weights.dummy-values", "the dummy loader fills weights with random numbers from a CUDA generator")
def dummy_values(bench: Bench) -> None:
    """Leave weights without values; everything else of the dummy load path runs."""
    bench.replace_everywhere(
        "vllm.model_executor.model_loader.weight_utils", "initialize_single_dummy_weight", lambda *_args, **_kwargs: None
    )


@stage(
    "vllm", "weights.to-meta", "parts that a server does not need are moved to the meta device, which a fake tensor cannot be"
)
def to_meta(bench: Bench) -> None:
    """Give such a part new parameters on the meta device, as torch does with real ones."""
    import torch

    move = torch.nn.Module.to

    def to(module: Any, *args: Any, **kwargs: Any) -> Any:
        if args != ("meta",) or kwargs:
            return move(module, *args, **kwargs)
        for part in module.modules():
            for name, value in part._parameters.items():
                if value is not None:
                    empty = torch.empty(tuple(value.shape), dtype=value.dtype, device="meta")
                    part._parameters[name] = torch.nn.Parameter(empty, requires_grad=value.requires_grad)
        return module

    bench.replace(torch.nn.Module, "to", to)


@stage(
    "vllm",
    "weights.parameter-classes",
    "torch.nn.Parameter drops its subclass when its data is a fake tensor; quantisation methods look at it",
)
def parameter_classes(bench: Bench) -> None:
    """Keep the class and the attributes of vLLM's parameters on fake tensors, in construction and in copies."""
    import torch
    from torch._subclasses.fake_tensor import FakeTensor

    base = bench.module("vllm.model_executor.parameter").BasevLLMParameter
    new = base.__new__

    def construct(cls: Any, data: Any = None, *args: Any, **kwargs: Any) -> Any:
        if not isinstance(data, FakeTensor):
            return new(cls, data, *args, **kwargs)
        tensor = data.detach()
        tensor._is_param = True
        tensor.__class__ = fake_class(cls)
        return tensor

    def shallow_copy(parameter: Any) -> Any:
        if not isinstance(parameter, FakeTensor):
            copy = torch.Tensor._make_subclass(type(parameter), parameter.data, parameter.requires_grad)
            vars(copy).update(vars(parameter))
            return copy
        copy = parameter.detach()
        copy._is_param = True
        copy.__class__ = parameter.__class__
        vars(copy).update(attributes(parameter))
        return copy

    bench.replace(base, "__new__", staticmethod(construct))
    bench.replace_everywhere("vllm.model_executor.kernels.linear.mixed_precision.MPLinearKernel", "_shallow_copy", shallow_copy)


@stage(
    "vllm", "weights.materialise", "online quantisation builds weights on the meta device and gives them storage layer by layer"
)
def materialise(bench: Bench) -> None:
    """Give meta tensors a fake CUDA tensor of the same layout, class and attributes."""
    import torch
    from torch._subclasses.fake_tensor import FakeTensor

    base = bench.module("vllm.model_executor.parameter").BasevLLMParameter

    def materialise_meta_tensor(meta: Any, *_args: Any, **_kwargs: Any) -> Any:
        tensor: Any = torch.empty_strided(
            tuple(meta.size()), tuple(meta.stride()), dtype=meta.dtype, requires_grad=False, device=f"cuda:{bench.device}"
        )
        cls = type(meta)
        if cls is not torch.Tensor and not isinstance(meta, FakeTensor):
            if issubclass(cls, base):
                tensor._is_param = True
                tensor.__class__ = fake_class(cls)
            elif issubclass(cls, torch.nn.Parameter):
                tensor = torch.nn.Parameter(tensor, requires_grad=False)
        vars(tensor).update(attributes(meta))
        return tensor

    bench.replace_everywhere("vllm.model_executor.model_loader.reload.meta", "materialize_meta_tensor", materialise_meta_tensor)
