"""Weights without data have, after vLLM's post-processing, the layout that real weights have on a GPU.

Every quantisation method's layers are loaded twice: on the GPU in sight with real kernels, and without it as the pass does.
Shape, strides, dtype, device and name of every parameter, buffer and tensor attribute must be equal, and so must every number,
flag and choice that the layers keep, for a traced graph may hold it. `pytest tests/gpu/test_weights_layout.py -m gpu -s` prints
a table.
"""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.gpu.layouts import CASES
from tests.gpu.programs import describe

from warmstart.compiler.reads import MARK

pytestmark = pytest.mark.gpu
_SECONDS = 900
_CORES = 4  # for each pair of processes
# Numbers of real weights, and what counts bytes or names objects of one process: no layout.
_VALUES = ("scale_float", "_scale_cpu", "_ptr", "seed")


@dataclasses.dataclass(frozen=True)
class Both:
    """What each side found, by case, and what humming knows of the device there."""

    real: dict[str, Any]
    fake: dict[str, Any]
    real_device: dict[str, Any]
    fake_device: dict[str, Any]


@pytest.fixture(scope="session")
def both(tmp_path_factory: pytest.TempPathFactory) -> Both:
    """Load every case on both sides, at the same time, in as many processes as the machine has cores for."""
    folder = tmp_path_factory.mktemp("layouts")
    shares, gpu = max(1, (os.cpu_count() or 1) // _CORES), describe(folder).id
    loads = [
        Load(side, folder / f"{side}-{share}", [case.name for case in CASES[share::shares]])
        for share in range(shares)
        for side in ("real", gpu)
    ]
    for load in loads:
        load.wait()
    real, fake = ([load.found for load in loads if (load.side == "real") == is_real] for is_real in (True, False))
    return Both(_merged(real), _merged(fake), real[0]["humming"], fake[0]["humming"])


class Load:
    """A process that loads some of the cases on one side; it starts at once."""

    def __init__(self, side: str, place: Path, names: list[str]) -> None:
        self.side, self._place, self._output = side, place, place.with_suffix(".json")
        root = str(Path(__file__).parents[2])
        path = os.pathsep.join([root, str(Path(root, "app")), os.environ.get("PYTHONPATH", "")])
        env = {**os.environ, "VLLM_CACHE_ROOT": str(place), "VLLM_NO_USAGE_STATS": "1", "PYTHONPATH": path}
        if side != "real":
            env["CUDA_VISIBLE_DEVICES"] = ""
        with place.with_suffix(".log").open("wb") as log:
            command = [sys.executable, "-m", "tests.gpu.layouts", side, str(self._output)]
            self._process = subprocess.Popen(
                command, stdout=log, stderr=log, env={**env, "ONLY": ",".join(names)}, cwd=place.parent
            )

    def wait(self) -> None:
        """Wait until it has ended, and fail where it left no result."""
        try:
            self._process.wait(_SECONDS)
        finally:
            self._process.kill()
        if not self._output.is_file():
            log = self._place.with_suffix(".log").read_text(errors="replace")
            pytest.fail(f"{self._place.name} ended with {self._process.returncode}:\n{log[-3000:]}")

    @property
    def found(self) -> dict[str, Any]:
        """Return what it wrote."""
        found: dict[str, Any] = json.loads(self._output.read_text())
        return found


def _merged(found: list[dict[str, Any]]) -> dict[str, Any]:
    return {name: result for part in found for name, result in part["cases"].items()}


def differences(real: dict[str, Any], fake: dict[str, Any]) -> list[str]:
    """Return what is not equal of two results of one case, a line each."""
    if fake.get("error", "").startswith("UnsupportedError"):
        return []  # the pass refuses it, and says why
    if "error" in real or "error" in fake:
        told = [f"{side}: {found.get('error', 'loaded')}" for side, found in (("real", real), ("fake", fake))]
        return [] if "error" in real and "error" in fake else told
    lines = []
    for kind in ("tensors", "values"):
        for name in sorted({*real[kind], *fake[kind]}):
            one, other = real[kind].get(name, "absent"), fake[kind].get(name, "absent")
            of_weights = kind == "values" and (other == MARK or name.endswith(_VALUES))
            if json.dumps(one) != json.dumps(other) and not of_weights:  # as text, where NaN is equal to itself
                lines.append(f"{name}: {one} on the GPU, {other} without")
    return lines


def test_the_table_of_layouts(both: Both, capsys: pytest.CaptureFixture[str]) -> None:
    """Print, for every case, the kernels chosen, how much was compared, and what differs."""
    with capsys.disabled():
        print()
        for case in CASES:
            real, fake = both.real[case.name], both.fake[case.name]
            found = differences(real, fake)
            result = "equal" if not found else f"{len(found)} DIFFERENT: {found[0]}"
            if "error" in fake and not found:
                result = f"refused{' by both' if 'error' in real else ' by the pass'}: {fake['error'][:160]}"
            size = f"{len(real.get('tensors', []))} tensors, {len(real.get('values', []))} values"
            print(f"{case.name} | {' '.join(real.get('kernels', []))} | {size} | {result}", flush=True)
    assert any("error" not in found for found in both.real.values())


def test_humming_is_told_what_the_device_tells(both: Both) -> None:
    """Each attribute that humming reads from the driver, from the catalog's entry."""
    assert _flat(both.fake_device) == pytest.approx(_flat(both.real_device))


def _flat(found: dict[str, Any]) -> dict[str, Any]:
    """Return nested attributes by dotted names."""
    flat = {}
    for name, value in found.items():
        flat |= {f"{name}.{key}": part for key, part in value.items()} if isinstance(value, dict) else {name: value}
    return flat


@pytest.mark.parametrize("name", [case.name for case in CASES])
def test_a_fake_weight_has_the_layout_of_a_real_one(both: Both, name: str) -> None:
    """Nothing is compared where vLLM itself cannot load the case on this GPU; then the pass cannot either."""
    assert differences(both.real[name], both.fake[name]) == []
