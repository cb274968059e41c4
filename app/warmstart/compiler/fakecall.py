"""The call of a compiled graph without its kernels: outputs of the traced shapes, for the sizes of the inputs at hand."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch.fx.node import map_arg
from torch.utils._pytree import tree_map

from warmstart.compiler.layers import enter
from warmstart.errors import CompileError

if TYPE_CHECKING:
    from collections.abc import Callable

    from warmstart.compiler.seams.base import Bench


class Counted(Protocol):
    """What a call is counted on."""

    calls: int


class FakeCall:
    """Stands in for the compiled call of one graph."""

    def __init__(self, module: Counted, graph_module: Callable[[], Any], bench: Bench) -> None:
        self._module = module
        self._load = graph_module
        self._bench = bench
        self._graph_module: Any = None

    def __call__(self, *args: Any) -> Any:
        """Return the outputs for these graph inputs."""
        if self._graph_module is None:
            self._graph_module = self._load()
        self._module.calls += 1
        nodes = list(self._graph_module.graph.nodes)
        inputs = [node for node in nodes if node.op == "placeholder"]
        sizes = _bind(inputs, args)
        given = dict(zip(inputs, args, strict=True))

        def fake(owner: Any, node: Any) -> Any:
            if node in given:
                return given[node]
            return tree_map(lambda value: _concrete(value, sizes, self._bench), _example(owner, node))

        def values(owner: Any, argument: Any) -> Any:
            return map_arg(argument, lambda node: fake(owner, node))

        if self._bench.launches.folder is not None:
            enter(self._graph_module, values, self._bench.launches)
        return values(self._graph_module, nodes[-1].args[0])


def _example(graph_module: Any, node: Any) -> Any:
    """Return the symbolic value that Dynamo traced for a node; vLLM's split graph keeps it inside the pieces."""
    if "example_value" in node.meta:
        return node.meta["example_value"]
    if node.op == "call_function" and node.target is operator.getitem:
        return _example(graph_module, node.args[0])[node.args[1]]
    if node.op == "call_module":
        piece = graph_module.get_submodule(node.target)
        return map_arg(next(iter(piece.graph.find_nodes(op="output"))).args[0], lambda inner: _example(piece, inner))
    raise CompileError(f"the traced graph has no value for {node.format_node()}")


def _bind(placeholders: list[Any], args: tuple[Any, ...]) -> dict[Any, int]:
    """Return the value of each symbol of the traced graph, read off the inputs."""
    sizes: dict[Any, int] = {}

    def learn(symbolic: Any, value: Any) -> None:
        expression = getattr(getattr(symbolic, "node", None), "expr", None)
        if expression is not None and expression.is_Symbol:
            sizes.setdefault(expression, int(value))

    for node, arg in zip(placeholders, args, strict=True):
        example = node.meta.get("example_value")
        if isinstance(example, torch.SymInt):
            learn(example, arg)
        elif isinstance(example, torch.Tensor):
            for dimension, size in zip(example.shape, arg.shape, strict=True):
                learn(dimension, size)
    return sizes


def _concrete(value: Any, sizes: dict[Any, int], bench: Bench) -> Any:
    """Return a traced value with its symbols replaced by numbers: an int, or a fake tensor without storage."""

    def number(dimension: Any) -> int:
        expression = getattr(getattr(dimension, "node", None), "expr", None)
        return int(dimension) if expression is None else int(expression.subs(sizes))

    if isinstance(value, torch.SymInt):
        return number(value)
    if not isinstance(value, torch.Tensor):
        return value
    with bench.mode:
        return torch.empty_strided(
            [number(size) for size in value.shape],
            [number(stride) for stride in value.stride()],
            dtype=value.dtype,
            device=value.device,
        )
