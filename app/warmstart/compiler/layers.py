"""vLLM's layers inside a compiled graph (attention, experts, state space): entered for the Triton kernels that they launch.

In the graph such a layer is one operator that names the layer and hides what it does. A pass never runs the graph, so here each
of these operators is called by itself, with fake tensors of the shapes at hand, through the function that vLLM registered for
a GPU.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from warmstart.errors import shorten

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from warmstart.compiler.launches import Launches

# LoRA's products beside each linear layer; they name no layer, and launch kernels for the number of tokens at hand.
_ADAPTERS = frozenset({"vllm::lora_shrink", "vllm::lora_expand"})


def enter(graph_module: Any, values: Callable[[Any, Any], Any], launches: Launches) -> None:
    """Call each layer's operator of a traced graph, unless `launches` knows one of these shapes.

    `values(graph_module, argument)` returns a node's argument with fake tensors and numbers in the place of nodes. What an
    operator cannot do without a GPU is noted in `launches.unreached`.
    """
    from vllm.forward_context import get_forward_context, is_forward_context_available

    # Without attention's metadata layers do what belongs to profiling.
    metadata = is_forward_context_available() and get_forward_context().attn_metadata is not None
    for owner, node, operator in _operators(graph_module):
        args = [_plain(value) for value in values(owner, list(node.args))]
        kwargs = {name: _plain(value) for name, value in values(owner, dict(node.kwargs)).items()}
        _with_adapters(operator, args, kwargs)
        if launches.knows(operator.name(), [metadata, *args, *kwargs.values()]):
            continue
        launches.alive()
        try:
            operator._op_dk(torch._C.DispatchKey.CUDA, *args, **kwargs)
        except Exception as error:  # noqa: BLE001 - whatever a kernel library raises: the server's own call will do
            launches.unreached[f"{operator.name()}: {type(error).__name__}: {shorten(error)}"] += 1


def _operators(graph_module: Any) -> Iterator[tuple[Any, Any, Any]]:
    """Yield graph, node and operator of each layer, those of the graph's pieces among them."""
    for node in graph_module.graph.nodes:
        if node.op == "call_module":
            yield from _operators(graph_module.get_submodule(node.target))
        elif node.op == "call_function":
            operator = getattr(node.target, "default", node.target)
            if isinstance(operator, torch._ops.OpOverload) and _is_layer(operator):
                yield graph_module, node, operator


def _is_layer(operator: Any) -> bool:
    named = any(argument.name == "layer_name" for argument in operator._schema.arguments)
    return operator.namespace == "vllm" and (named or operator._schema.name in _ADAPTERS)


def _with_adapters(operator: Any, args: list[Any], kwargs: dict[str, Any]) -> None:
    """Say that some token has an adapter: the flag comes from a device, where nothing has been computed."""
    for index, argument in enumerate(operator._schema.arguments):
        if argument.name == "no_lora_flag_cpu" and index < len(args):
            args[index] = torch.zeros(1, dtype=torch.bool)
        elif argument.name == "no_lora_flag_cpu":
            kwargs[argument.name] = torch.zeros(1, dtype=torch.bool)


def _plain(value: Any) -> Any:
    """Return a value; in the place of what tracing put around an opaque object (a layer's name), the object."""
    return getattr(value, "real_obj", value)
