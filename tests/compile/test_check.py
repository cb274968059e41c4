"""The check for a new vLLM: what fits, what a version breaks, and how it ends."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

pytestmark = pytest.mark.compile
# Takes two names away as a newer vLLM might, and makes of a third a function that takes other arguments.
BROKEN = """
import sys
from warmstart.compiler.seams import check

before = check.seams_of

def seams_of(stage):
    if stage == "vllm":
        import vllm._custom_ops as ops
        import vllm.v1.worker.worker_base as worker
        del ops.get_max_shared_memory_per_block_device_attribute
        worker.WorkerWrapperBase.init_worker = lambda self, everything: None
    return before(stage)

check.seams_of = seams_of
sys.exit(check.main(["--json"]))
"""


def findings(*command: str) -> tuple[int, dict[str, Any]]:
    done = subprocess.run([sys.executable, *command], capture_output=True, text=True, check=False)
    assert done.stdout, done.stderr[-2000:]
    return done.returncode, json.loads(done.stdout.splitlines()[-1])


def test_a_version_that_breaks_something_is_told_by_name() -> None:
    """Each seam and each entry point that does not fit, with what is wrong; all others go on."""
    code, told = findings("-c", BROKEN)
    wrong = {one["name"]: one["wrong"] for one in told["findings"] if one["wrong"]}
    assert wrong == {
        "kernels.shared-memory": "vllm._custom_ops has no get_max_shared_memory_per_block_device_attribute",
        "vllm.v1.worker.worker_base:WorkerWrapperBase.init_worker(all_kwargs)": "takes no all_kwargs",
    }
    assert code == 1
