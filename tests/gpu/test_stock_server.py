"""A stock `vllm serve` on a real GPU uses what was compiled without one, and would have compiled the very same.

`make test-gpu` runs this on a machine with an NVIDIA GPU. Each case takes two passes and two starts, and ends with one JSON
line for docs/proof.
"""

from __future__ import annotations

import json

import pytest
from tests.gpu import evidence
from tests.gpu.cases import Case
from tests.gpu.conftest import Native, Ours
from tests.gpu.programs import Gpu

pytestmark = pytest.mark.gpu


def test_the_server_loads_every_artifact_and_compiles_nothing(case: Case, ours: Ours) -> None:
    """Each module's artifact is loaded from where it was installed; not one graph is compiled, nothing is saved."""
    keys = frozenset(ours.compiled["aot_keys"])
    assert (ours.compiled["outcome"], ours.installed["outcome"]) == ("compiled", "hit")
    assert len(keys) == case.modules
    assert ours.started.loaded == keys
    assert (ours.started.compiled_graphs, ours.started.saved) == (0, 0)


def test_the_server_looks_under_our_keys_and_no_others(ours: Ours) -> None:
    """For each key that it looks up, vLLM makes a folder. New files are those that torch unpacks from the artifacts."""
    assert evidence.aot_keys(ours.before) == frozenset(ours.compiled["aot_keys"])
    assert evidence.aot_keys(ours.after) == evidence.aot_keys(ours.before)
    assert evidence.unexpected(ours.before, ours.after) == []


def test_verify_says_that_it_was_used(ours: Ours) -> None:
    """What an operator would ask says the same as the log."""
    assert (ours.verify_code, ours.verified["outcome"]) == (0, "used"), ours.verified


def test_a_native_start_has_the_same_keys(ours: Ours, native: Native) -> None:
    """On an empty root the server compiles, and saves under the keys of the pass."""
    assert native.started.compiled_graphs > 0
    assert native.started.loaded == frozenset()
    assert evidence.aot_keys(evidence.listing(native.root)) == frozenset(ours.compiled["aot_keys"])
    assert frozenset(native.pass_result["aot_keys"]) == frozenset(ours.compiled["aot_keys"])


def test_the_graphs_are_those_that_the_server_traces(case: Case, native: Native) -> None:
    """A wrong graph under the right key cannot hide: what vLLM dumps is equal but for comments."""
    server, made = evidence.graphs(native.root), evidence.graphs(native.pass_root)
    assert len(server) >= case.modules
    assert made == server


def test_the_generated_kernels_are_those_of_the_server(native: Native) -> None:
    """The same fusions: Inductor generated kernels of the same names on both sides."""
    server = evidence.kernels(native.root)
    assert server
    assert evidence.kernels(native.pass_root) == server


def test_the_seconds_are_told(case: Case, gpu: Gpu, ours: Ours, native: Native, capsys: pytest.CaptureFixture[str]) -> None:
    """Both logs state vLLM's own times; one JSON line of them goes to the terminal. No time is judged here."""
    times = {
        name: {
            "torch_compile_seconds": side.started.torch_compile_seconds,
            "init_engine_seconds": side.started.init_engine_seconds,
            "ready_seconds": round(side.ready_seconds, 1),
        }
        for name, side in (("ours_first", ours), ("native_cold", native))
    }
    line = {
        "case": case.name,
        "gpu": gpu.id,
        "vllm": ours.compiled["vllm"],
        "graphs": ours.compiled["graphs"],
        "compile_seconds": ours.compiled["compile_seconds"],
        "stored_bytes": ours.compiled["stored_bytes"],
        "new_files": len(ours.after - ours.before),
        **times,
    }
    with capsys.disabled():
        print(f"\n{json.dumps(line)}", flush=True)
    assert all(value is not None for side in times.values() for value in side.values())
