"""`warmstart job -f SPEC | kubectl apply -f -`, with real kubectl: what the README tells people to type."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.chart.tools import ROOT, program

from warmstart.cluster.api import Api
from warmstart.cluster.resources import JOBS

pytestmark = pytest.mark.cluster

EXAMPLE = ROOT / "examples" / "qwen3-0.6b" / "deployment.yaml"


@pytest.mark.parametrize("output", ["text", "json"])
def test_the_printed_job_is_applied_and_applied_again(kubeconfig: Path, admin: Api, namespace: str, output: str) -> None:
    """The second time nothing changes: the name is that of what is compiled."""
    printed = _warmstart("job", "-f", str(EXAMPLE), "--namespace", namespace, "--output", output)
    assert printed.returncode == 0, printed.stderr
    first = _apply(kubeconfig, printed.stdout)
    assert " created" in first
    assert " unchanged" in _apply(kubeconfig, printed.stdout)
    (job,) = admin.list(JOBS, namespace)
    assert job["metadata"]["labels"]["warmstart.dev/gpu"] == "h200"


def test_an_error_reaches_kubectl_as_nothing(tmp_path: Path) -> None:
    """Standard output stays empty, so that kubectl has nothing to apply; the one line is on standard error."""
    spec = tmp_path / "spec.yaml"
    spec.write_text("kind: Deployment\n")
    printed = _warmstart("job", "-f", str(spec))
    assert printed.returncode == 2
    assert printed.stdout == ""
    assert len(printed.stderr.strip().splitlines()) == 1


def _warmstart(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "warmstart", *arguments, "--log-format", "text"]
    options = ["--image", "warmstart:1", "--store", "s3://bucket/cache"]
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT / "app"), "HOME": "/nonexistent"}
    return subprocess.run([*command, *options], capture_output=True, text=True, check=False, env=env)


def _apply(kubeconfig: Path, manifest: str) -> str:
    env = {"PATH": os.environ["PATH"], "KUBECONFIG": str(kubeconfig), "HOME": "/nonexistent"}
    command = [program("kubectl"), "apply", "--validate=strict", "-f", "-"]
    done = subprocess.run(command, input=manifest, capture_output=True, text=True, check=False, env=env)
    assert done.returncode == 0, done.stderr
    return done.stdout
