"""Compiled modules: let vLLM compile and save each one, and stand in for the call of its kernels.

vLLM compiles a module at its first call: it traces, compiles every piece for every range, saves the artifact, and calls it.
Only that last step needs a GPU. `Watch` lets the first three happen as they are, reads the saved artifact back as a server
would, and gives its call another end: instead of running kernels it returns fake tensors of the shapes, dtypes and devices
that the traced graph says. So the run goes on, to the next module (an encoder, a draft model) and to the end of the profile
run.
"""

from __future__ import annotations

import dataclasses
import hashlib
import time
import weakref
from pathlib import Path
from typing import TYPE_CHECKING, Any

from warmstart.compiler.fakecall import FakeCall
from warmstart.errors import CompileError, UnsupportedError, shorten

if TYPE_CHECKING:
    from warmstart.compiler.seams.base import Bench


@dataclasses.dataclass
class Module:
    """One module with `support_torch_compile`, and what became of it.

    `pieces` counts the (graph, range) pairs that vLLM compiled, `entries` those that the artifact on disk holds, `artifacts`
    the distinct binaries behind them (equal layers share one). `graphs_folder` is where they lie where the artifact itself
    does not hold them.
    """

    name: str
    tag: str
    path: str
    loaded: bool = False
    pieces: int = 0
    entries: int = 0
    artifacts: int = 0
    bytes: int = 0
    graphs_folder: str = ""
    compile_seconds: float = 0.0
    calls: int = 0


# What vLLM's AOT key is made of, in the order of aot_compile_hash_factors; the module's own name and line come after them.
_FACTORS = ("env", "config", "system", "torch", "inductor", "functorch")


class Watch:
    """Every compiled module of this process, in the order of its first call."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self._found: list[weakref.ref[Any]] = []
        self._stored: tuple[int, int] | None = None
        self._graphs_compiled = 0
        self._traced: frozenset[str] = frozenset()
        self._load_artifact: Any = None
        self._called: set[int] = set()
        self.modules: list[Module] = []
        self.factors: dict[str, str] = {}

    def _not_called(self) -> list[str]:
        """Name the modules that were not compiled: those inside one that was are a part of its graph."""
        alive = self._alive()
        inside = {id(part) for module in alive if id(module) in self._called for part in module.modules()}
        return [type(module).__name__ for module in alive if id(module) not in self._called | inside]

    def _alive(self) -> list[Any]:
        alive = {id(module): module for module in (ref() for ref in self._found) if module is not None}
        return [module for module in alive.values() if not module.do_not_compile]

    @property
    def graphs_compiled(self) -> int:
        """Graphs that Inductor was asked to compile in this process; without whole artifacts, those that it did compile."""
        from vllm.compilation.counter import compilation_counter as counter

        return int(counter.num_inductor_compiles) if _whole() else self._graphs_compiled

    def install(self) -> None:
        """Take the last step of each compiled module; see the module's docstring."""
        bench = self._bench
        with bench.named("modules.call"):
            wrapper = bench.module("vllm.compilation.wrapper").TorchCompileWithNoGuardsWrapper
            decorators = bench.module("vllm.compilation.decorators")
            stored = bench.module("vllm.compilation.caching").StandaloneCompiledArtifacts
            make, compile_module, load = wrapper.__init__, wrapper.aot_compile, decorators._try_load_aot_compiled_fn
            self._load_artifact = load
            caching = bench.module("vllm.compilation.caching")
            load_all, hash_factors = stored.load_all, caching.aot_compile_hash_factors

            def init(module: Any, *args: Any, **kwargs: Any) -> None:
                make(module, *args, **kwargs)
                self._found.append(weakref.ref(module))

            def count_and_load(artifacts: Any) -> None:
                self._stored = (artifacts.num_entries(), artifacts.num_artifacts())
                load_all(artifacts)

            def record_factors(config: Any) -> Any:
                factors = hash_factors(config)
                # Without whole artifacts the compiler's factors are not in the AOT key, but in that of the graphs beside it.
                inner = [] if _whole() else caching.get_inductor_factors()
                self.factors = {
                    name: hashlib.sha256(str(value).encode()).hexdigest()[:16]
                    for name, value in zip(_FACTORS, [*factors, *inner], strict=True)
                }
                return factors

            bench.replace(caching, "aot_compile_hash_factors", record_factors)
            bench.replace(wrapper, "__init__", init)
            bench.replace(stored, "load_all", count_and_load)
            bench.replace(
                wrapper, "aot_compile", lambda module, *args, **kwargs: self._compile(compile_module, module, args, kwargs)
            )
            bench.replace(decorators, "_try_load_aot_compiled_fn", lambda module, path: self._load(load, module, path))
            if not _whole():
                self._install_beside(bench)

    def _install_beside(self, bench: Bench) -> None:
        """Count the graphs that Inductor compiles, and note by which files the folder of a module's graphs is named."""
        adaptor = bench.module("vllm.compilation.compiler_interface").InductorStandaloneAdaptor
        backend = bench.module("vllm.compilation.backends").VllmBackend
        compile_graph, run_backend = adaptor.compile, backend.__call__

        def count_and_compile(*args: Any, **kwargs: Any) -> Any:
            # vLLM leaves this call by an exception where it holds an equal graph already: that one is not compiled.
            compiled = compile_graph(*args, **kwargs)
            self._graphs_compiled += 1
            return compiled

        def note_and_run(itself: Any, *args: Any, **kwargs: Any) -> Any:
            # Of generated code there is no file, and vLLM leaves it out.
            self._traced = frozenset(itself.compilation_config.traced_files) - {"<string>"}
            return run_backend(itself, *args, **kwargs)

        bench.replace(adaptor, "compile", count_and_compile)
        bench.replace(backend, "__call__", note_and_run)

    def check(self, root: Path) -> None:
        """Compare what was found, compiled and saved; read each fresh artifact back through vLLM's own load path.

        Raises:
            UnsupportedError: vLLM saves no artifact of a module.
            CompileError: a module was never called, not saved, or its artifact is not what a server would load.

        """
        for module in self._alive():
            if not getattr(module, "_allow_aot_compile", True):
                raise UnsupportedError(
                    f"vLLM compiles {type(module).__name__} of this model without saving an artifact of it, as it does for "
                    "every model of its Transformers backend",
                    hint="use vLLM's own implementation where there is one (--model-impl vllm), or let its first start compile",
                )
        left = self._not_called()
        if left:
            called = ", ".join(module.name for module in self.modules) or "none"
            raise CompileError(
                f"{len(left)} modules that vLLM is to compile were not called ({', '.join(left)}); called: {called}"
            )
        for module in self.modules:
            path = Path(module.path)
            if not path.is_file():
                raise CompileError(f"{module.name} was compiled and not saved: {path.relative_to(root)} is not there")
            module.bytes = path.stat().st_size
            if module.graphs_folder:
                module.bytes += sum(file.stat().st_size for file in Path(module.graphs_folder).rglob("*") if file.is_file())
            if not module.entries:
                raise CompileError(f"the artifact of {module.name} holds no graphs: {path.relative_to(root)}")
            if not module.loaded and module.entries != module.pieces:
                raise CompileError(f"{module.name}: {module.pieces} graphs were compiled, {module.entries} are in its artifact")

    def _compile(self, compile_module: Any, module: Any, args: Any, kwargs: Any) -> Any:
        import torch
        from vllm.compilation.counter import compilation_counter as counter

        seen = Module(type(module).__name__, getattr(module, "_compile_tag", ""), module._aot_compilation_path)
        self.modules.append(seen)
        self._called.add(id(module))
        begin, pieces = time.monotonic(), counter.num_backend_compilations
        with outside_fake_mode(), torch.compiler.set_stance("default"):
            function = compile_module(module, *args, **kwargs)
        seen.compile_seconds = round(time.monotonic() - begin, 3)
        seen.pieces = counter.num_backend_compilations - pieces
        save = module.save_aot_compiled_function

        def save_and_read_back() -> None:
            with outside_fake_mode():
                save()
            if _whole():
                self._read_back(module, seen)
            else:
                self._read_back_beside(module, seen)

        # vLLM calls it right after this; an instance attribute hides the method for this one module.
        module.__dict__["save_aot_compiled_function"] = save_and_read_back
        return self._end(function, seen)

    def _load(self, load: Any, module: Any, path: str) -> Any:
        seen = Module(type(module).__name__, getattr(module, "_compile_tag", ""), path, loaded=True)
        function = self._load_and_count(load, module, seen)
        if function is None:
            return None
        self.modules.append(seen)
        self._called.add(id(module))
        return self._end(function, seen)

    def _load_and_count(self, load: Any, module: Any, seen: Module) -> Any:
        from vllm.compilation.counter import compilation_counter as counter

        pieces, artifacts = counter.num_backend_compilations, counter.num_compiled_artifacts_loaded
        with outside_fake_mode():
            function = load(module, seen.path)
        if _whole():
            seen.entries, seen.artifacts = self._stored or (0, 0)
        elif function is not None:
            seen.entries = counter.num_backend_compilations - pieces
            seen.artifacts = counter.num_compiled_artifacts_loaded - artifacts
            seen.graphs_folder = function._artifacts.compiled_fn.vllm_backend.compiler_manager.cache_dir
        return function

    def _read_back(self, module: Any, seen: Module) -> None:
        """Load what was just saved, by vLLM's own function, and count what is in it."""
        import torch
        from vllm.compilation import caching
        from vllm.config import set_current_vllm_config

        if not Path(seen.path).is_file():
            return  # `check` reports it; vLLM has logged why it could not save
        self._stored = None
        with outside_fake_mode(), set_current_vllm_config(module.vllm_config), Path(seen.path).open("rb") as file:
            function = torch.compiler.load_compiled_function(file, f_globals=module.forward.__globals__)
        if not isinstance(function._artifacts.compiled_fn, caching.VllmSerializableFunction):
            raise CompileError(f"the artifact of {seen.name} reads back as {type(function._artifacts.compiled_fn).__name__}")
        seen.entries, seen.artifacts = self._stored or (0, 0)

    def _read_back_beside(self, module: Any, seen: Module) -> None:
        """Load what was just saved as a server does that finds its graphs beside the artifact, by an index."""
        if not Path(seen.path).is_file():
            return
        traced, compiled = self._traced, self._graphs_compiled
        if self._load_and_count(self._load_artifact, module, seen) is None:
            raise CompileError(f"the artifact of {seen.name} does not read back", hint="vLLM's reason is in the log above")
        if self._traced != traced:
            other = shorten(", ".join(sorted(self._traced ^ traced)))
            raise CompileError(f"a server would look for the graphs of {seen.name} in another folder, by other code: {other}")
        if self._graphs_compiled != compiled:
            raise CompileError(f"{self._graphs_compiled - compiled} graphs of {seen.name} were compiled again when read back")

    def _end(self, function: Any, seen: Module) -> Any:
        from vllm.compilation.caching import VllmSerializableFunction

        compiled = function._artifacts.compiled_fn
        if not isinstance(compiled, VllmSerializableFunction):
            raise CompileError(f"{seen.name} was compiled to {type(compiled).__name__}, which vLLM cannot save")
        compiled.optimized_call = FakeCall(seen, lambda: _graph(compiled), self._bench)
        # The guards look at addresses and streams of real tensors; a server that loads the artifact switches them off too.
        function.disable_guard_check()
        return function


def _graph(compiled: Any) -> Any:
    """Return the traced graph of a compiled function; one that was loaded still holds it as bytes."""
    graph = compiled.graph_module
    if isinstance(graph, bytes):
        from torch._subclasses import FakeTensorMode
        from torch.fx.experimental.symbolic_shapes import ShapeEnv

        with outside_fake_mode():
            graph = type(compiled).deserialize_graph_module(graph, FakeTensorMode(shape_env=ShapeEnv()))
    return graph


def _whole() -> bool:
    """Return whether artifacts hold their graphs; else they lie beside, and vLLM compiles what it does not find there."""
    from vllm import envs

    return bool(envs.VLLM_USE_MEGA_AOT_ARTIFACT)


def outside_fake_mode() -> Any:
    """Leave the pass's own fake mode: tracing, compiling and saving bring their own."""
    from torch.utils._python_dispatch import _disable_current_modes

    return _disable_current_modes()
