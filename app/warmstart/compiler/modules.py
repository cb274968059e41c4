"""Compiled modules: let vLLM compile and save each one, and stand in for the call of its kernels.

vLLM compiles a module at its first call: it traces, compiles every piece for every range, saves the artifact, and calls it. Only that
last step needs a GPU. `watch` lets the first three happen as they are and gives the artifact's call another end: instead of running
kernels it returns fake tensors of the shapes, dtypes and devices that the traced graph says. So the run goes on, to the next module
(an encoder, a draft model) and to the end of the profile run.
"""

from __future__ import annotations

import dataclasses
import time
from typing import TYPE_CHECKING, Any

from warmstart.errors import CompileError

if TYPE_CHECKING:
    from collections.abc import Callable

    from warmstart.compiler.seams.base import Bench


@dataclasses.dataclass
class Module:
    """One module with `support_torch_compile`, and what became of it."""

    name: str
    tag: str
    path: str = ""
    loaded: bool = False
    compile_seconds: float = 0.0
    calls: int = 0


class FakeCall:
    """Stands in for the compiled call of one graph: outputs of the traced shapes, for the sizes of the inputs at hand."""

    def __init__(self, module: Module, graph_module: Callable[[], Any], bench: Bench) -> None:
        self._module = module
        self._load = graph_module
        self._bench = bench
        self._graph_module: Any = None

    def __call__(self, *args: Any) -> Any:
        from torch.fx.node import map_arg
        from torch.utils._pytree import tree_map

        if self._graph_module is None:
            self._graph_module = self._load()
        self._module.calls += 1
        nodes = list(self._graph_module.graph.nodes)
        inputs = [node for node in nodes if node.op == "placeholder"]
        sizes = _bind(inputs, args)
        given = dict(zip(inputs, args, strict=True))

        def fake(node: Any) -> Any:
            if node in given:
                return given[node]
            return tree_map(lambda value: _concrete(value, sizes, self._bench), _example(self._graph_module, node))

        return map_arg(nodes[-1].args[0], fake)


def _example(graph_module: Any, node: Any) -> Any:
    """Return the symbolic value that Dynamo traced for a node; vLLM's split graph keeps it inside the pieces."""
    import operator

    from torch.fx.node import map_arg

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
    import torch

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
    import torch

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


class Watch:
    """Every compiled module of this process, in the order of its first call."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self.modules: list[Module] = []

    def install(self) -> None:
        """Take the last step of each compiled module; see the module's docstring."""
        bench = self._bench
        bench._active = "modules.call"
        wrapper = bench.module("vllm.compilation.wrapper").TorchCompileWithNoGuardsWrapper
        decorators = bench.module("vllm.compilation.decorators")
        compile_module, load_module = wrapper.aot_compile, decorators._try_load_aot_compiled_fn

        def aot_compile(module: Any, *args: Any, **kwargs: Any) -> Any:
            seen = self._seen(module)
            begin = time.monotonic()
            with _outside_fake_mode():
                function = compile_module(module, *args, **kwargs)
            seen.compile_seconds = time.monotonic() - begin
            self._end(function, seen, bench)
            return function

        def load(module: Any, path: str) -> Any:
            with _outside_fake_mode():
                function = load_module(module, path)
            if function is not None:
                seen = self._seen(module)
                seen.loaded, seen.path = True, path
                self._end(function, seen, bench)
            return function

        bench.replace(wrapper, "aot_compile", aot_compile)
        bench.replace(decorators, "_try_load_aot_compiled_fn", load)
        bench._active = ""

    def _seen(self, module: Any) -> Module:
        self.modules.append(
            Module(
                name=type(module).__name__,
                tag=getattr(module, "_compile_tag", ""),
                path=getattr(module, "_aot_compilation_path", None) or "",
            )
        )
        return self.modules[-1]

    def _end(self, function: Any, seen: Module, bench: Bench) -> None:
        from vllm.compilation.caching import VllmSerializableFunction

        compiled = function._artifacts.compiled_fn
        if not isinstance(compiled, VllmSerializableFunction):
            raise CompileError(f"{seen.name} was compiled to {type(compiled).__name__}, which vLLM cannot save")

        def graph_module() -> Any:
            graph = compiled.graph_module
            if isinstance(graph, bytes):
                from torch._subclasses import FakeTensorMode
                from torch.fx.experimental.symbolic_shapes import ShapeEnv

                with _outside_fake_mode():
                    graph = VllmSerializableFunction.deserialize_graph_module(graph, FakeTensorMode(shape_env=ShapeEnv()))
            return graph

        compiled.optimized_call = FakeCall(seen, graph_module, bench)
        # The guards look at addresses and streams of real tensors; a server that loads the artifact switches them off too.
        function.disable_guard_check()


def _outside_fake_mode() -> Any:
    from torch.utils._python_dispatch import _disable_current_modes

    return _disable_current_modes()
