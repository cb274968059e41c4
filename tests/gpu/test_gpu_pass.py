"""`--device cuda`: the pass on a GPU in sight, with weights that take none of its memory.

Its artifact lies under the same key as that of a pass without a GPU, and a stock server loads it. Figures go to the terminal.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from tests.gpu import evidence
from tests.gpu.cases import CASES
from tests.gpu.passes import entry, made_in
from tests.gpu.programs import Gpu, serving

from warmstart.compiler import CompileRequest, run_pass

pytestmark = pytest.mark.gpu
_LITTLE = 10_000_000
(DENSE,) = (case for case in CASES if case.name == "dense")


@pytest.mark.parametrize("tuning_bytes", [8 << 20, 0], ids=["8MiB", "no limit"])
def test_a_pass_on_the_gpu_arrives_at_the_same_key_and_is_loaded(
    tuning_bytes: int, tmp_path: Path, gpu: Gpu, capsys: pytest.CaptureFixture[str]
) -> None:
    """The server compiles nothing, kernels beside the graphs among it. With a limit, the pass takes less than 10 MB."""
    without = entry(DENSE, made_in(tmp_path), gpu)
    server, root = DENSE.server(without.folder), tmp_path / "root"
    report = run_pass(
        CompileRequest(
            model=server.model,
            args=server.args,
            env={**os.environ, **server.env},
            gpu=gpu.profile(),
            cache_root=root,
            gpu_count=1,
            device="cuda",
            tuning_bytes=tuning_bytes,
        )
    )
    assert list(report.aot_keys) == without.compiled["aot_keys"]
    (rank,) = report.ranks
    log, before = tmp_path / "server.log", evidence.own_kernels(evidence.listing(root))
    with serving(server, root, log, [0]) as running:
        ready = running.ready_seconds
    started = evidence.read(log.read_text(errors="replace"))
    figures = {"tuning_bytes": tuning_bytes, **rank.gpu_memory, "pass_seconds": report.seconds, "ready_seconds": ready}
    with capsys.disabled():
        print(f"\n{json.dumps({**figures, 'torch_compile_seconds': started.torch_compile_seconds})}", flush=True)
    assert started.loaded == frozenset(report.aot_keys)
    assert started.compiled_graphs == 0
    assert len(before) == report.kernels > 0
    assert evidence.own_kernels(evidence.listing(root)) == before
    if tuning_bytes:
        assert rank.gpu_memory["allocator_peak"] < _LITTLE
        assert rank.gpu_memory["driver"] < _LITTLE
    else:
        assert rank.gpu_memory["tuned"] > 0
        assert rank.gpu_memory["left"] == 0
