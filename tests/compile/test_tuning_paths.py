"""What a server tunes it keeps below its own cache root, wherever the pass ran."""

from __future__ import annotations

import os
import pickle
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.compile.conftest import Pass

from warmstart.compiler.seams.base import Bench
from warmstart.gpus import load_catalog

pytestmark = pytest.mark.compile

_SERVER = """
import pickle, sys
from types import SimpleNamespace
autotuner, save = pickle.loads(sys.stdin.buffer.read())
save(SimpleNamespace(kwargs={"XBLOCK": 8}, num_warps=4, num_stages=1), 1_000_000)
print(autotuner.filename)
"""


@pytest.fixture
def bench() -> Iterator[Bench]:
    made = Bench(gpu=load_catalog().get("h200"), visible=1)
    yield made
    made.remove()


def pickled(filename: Path) -> bytes:
    """Return a kernel's autotuner and its method that keeps the fastest configuration, as an artifact holds them."""
    from torch._inductor.runtime.autotune_cache import AutotuneCache
    from torch._inductor.runtime.triton_heuristics import CachingAutotuner

    autotuner: Any = CachingAutotuner.__new__(CachingAutotuner)
    autotuner.__dict__ |= {"filename": str(filename), "launchers": [], "inductor_meta": {}}
    cache: Any = AutotuneCache.create({}, str(filename), "configurations")
    return pickle.dumps((autotuner, cache.save))


def test_a_server_keeps_what_it_tunes_below_its_own_cache_folder(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It knows torch only, and has another folder; where the pass ran there is none."""
    from warmstart.compiler.seams.inductor import tuning_paths

    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "pass"))
    tuning_paths(bench)
    artifact = pickled(tmp_path / "pass" / "be" / "kernel.py")
    (tmp_path / "pass").rename(tmp_path / "gone")
    server = tmp_path / "server"
    environment = {"PATH": os.environ["PATH"], "TORCHINDUCTOR_CACHE_DIR": str(server)}
    told = subprocess.run([sys.executable, "-c", _SERVER], input=artifact, capture_output=True, env=environment, check=True)
    assert told.stdout.decode().strip() == str(server / "be" / "kernel.py")
    assert [path.parent for path in server.rglob("*.best_config")] == [server / "be"]
    assert not (tmp_path / "pass").exists()
    assert b"warmstart" not in artifact


def test_a_path_elsewhere_stays(bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only what lies below Inductor's folder moves with it."""
    from warmstart.compiler.seams.inductor import tuning_paths

    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "pass"))
    tuning_paths(bench)
    autotuner, _save = pickle.loads(pickled(tmp_path / "elsewhere" / "kernel.py"))  # noqa: S301 - made a line above
    assert autotuner.filename == str(tmp_path / "elsewhere" / "kernel.py")


def test_an_artifact_names_no_file_of_tuning_where_it_was_made(first: Pass) -> None:
    """Not one is named with its folder; that the names are there shows that the artifact holds such kernels."""
    for artifact in first.request.cache_root.glob("torch_compile_cache/torch_aot_compile/*/rank_*/model"):
        names = re.findall(rb"[\x20-\x7e]*\.best_config", artifact.read_bytes())
        assert names
        assert [name for name in names if str(first.request.cache_root).encode() in name] == []
