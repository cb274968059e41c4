"""Fake weights have, after vLLM's post-processing, the layout that real ones have: compared with real numbers on the CPU.

The same cases as on a GPU (tests/gpu/test_weights_layout.py), as far as a CPU goes: most methods that pack weights do it in a
kernel that only a GPU has, and end there. What is left is every method in torch alone, vLLM's own code on real numbers.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from tests.gpu.test_weights_layout import differences

pytestmark = pytest.mark.compile
GPU = "h200"
CASES = (
    "experts none",
    "experts ct-int8",
    "experts ct-fp8",
    "dense none",
    "dense ct-int8",
    "dense ct-int8-static",
    "dense ct-fp8",
    "dense modelopt-fp8",
    "dense modelopt-fp8-kv",
    "dense --quantization fp8_per_channel",
    "dense --quantization int8_per_channel_weight_only",
    "experts --quantization int8_per_channel_weight_only",
    "dense --quantization nvfp4_per_token",
    "dense --kv-cache-dtype fp8",
    "gpt-oss",
    "deepseek none",
    "dense fp8-block --linear-backend cutlass",
    "dense fp8-block --linear-backend triton",
)
"""Of tests/gpu/layouts.py those that a CPU can load: no kernel of vLLM's, humming's or DeepGEMM's is called on the way."""

Side = dict[str, dict[str, Any]]


def load(side: str, folder: Path) -> Side:
    output = folder / f"{side.replace(':', '-')}.json"
    root = str(Path(__file__).parents[2])
    path = os.pathsep.join([root, str(Path(root, "app")), os.environ.get("PYTHONPATH", "")])
    told = {"VLLM_CACHE_ROOT": f"{output}.cache", "VLLM_NO_USAGE_STATS": "1", "PYTHONPATH": path, "ONLY": ",".join(CASES)}
    command = [sys.executable, "-m", "tests.gpu.layouts", side, str(output)]
    done = subprocess.run(command, env={**os.environ, **told}, cwd=folder, stderr=subprocess.PIPE, text=True)
    assert output.is_file(), done.stderr[-3000:]
    cases: Side = json.loads(output.read_text().replace('"cuda:0"', '"cpu"'))["cases"]
    return cases


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> tuple[Side, Side]:
    """Load every case with real numbers on the CPU, and as the pass does, at the same time."""
    folder = tmp_path_factory.mktemp("layouts")
    with ThreadPoolExecutor(2) as pool:
        real, fake = pool.map(lambda side: load(side, folder), (f"cpu:{GPU}", GPU))
    return real, fake


@pytest.mark.parametrize("name", CASES)
def test_a_fake_weight_is_laid_out_as_a_real_one(name: str, both: tuple[Side, Side]) -> None:
    real, fake = both[0][name], both[1][name]
    assert "error" not in real
    assert real["tensors"]
    assert differences(real, fake) == []
