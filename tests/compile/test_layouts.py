"""Fake weights have, after vLLM's post-processing, the layout that real ones have: compared with real numbers on the CPU.

The same cases as on a GPU (tests/gpu/test_weights_layout.py), as far as a CPU goes: most methods that pack weights do it in a
kernel that only a GPU has, and end there. What is left is every method in torch alone, vLLM's own code on real numbers.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.gpu.test_weights_layout import differences

pytestmark = pytest.mark.compile
GPU = "h200"
AT_LEAST = 18
"""Cases that a CPU can load: no kernel of vLLM's, humming's or DeepGEMM's is called on the way."""

Side = dict[str, dict[str, Any]]


def load(side: str, folder: Path, only: list[str]) -> Side:
    output = folder / f"{side.replace(':', '-')}.json"
    root = str(Path(__file__).parents[2])
    path = os.pathsep.join([root, str(Path(root, "app")), os.environ.get("PYTHONPATH", "")])
    told = {"VLLM_CACHE_ROOT": str(folder / "cache"), "VLLM_NO_USAGE_STATS": "1", "PYTHONPATH": path, "ONLY": ",".join(only)}
    command = [sys.executable, "-m", "tests.gpu.layouts", side, str(output)]
    done = subprocess.run(command, env={**os.environ, **told}, cwd=folder, stderr=subprocess.PIPE, text=True)
    assert output.is_file(), done.stderr[-3000:]
    cases: Side = json.loads(output.read_text().replace('"cuda:0"', '"cpu"'))["cases"]
    return cases


def test_fake_weights_are_laid_out_as_real_ones(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    real = load(f"cpu:{GPU}", tmp_path, [])
    loaded = [name for name, found in real.items() if "error" not in found]
    fake = load(GPU, tmp_path, loaded)
    tensors = sum(len(real[name]["tensors"]) for name in loaded)
    values = sum(len(real[name]["values"]) for name in loaded)
    with capsys.disabled():
        print(f"\n{len(loaded)} of {len(real)} cases, {tensors} tensors, {values} values compared", flush=True)
    assert len(loaded) >= AT_LEAST
    assert {name: lines for name in loaded if (lines := differences(real[name], fake[name]))} == {}
