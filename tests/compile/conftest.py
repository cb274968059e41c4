"""Real passes, shared by the tests that look at what one left: each takes a minute on two cores."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import Any

import pytest
from tests.compile.models import narrow

from warmstart.compiler import CompileReport, CompileRequest, run_pass
from warmstart.gpus import load_catalog

ARGS = ("--max-model-len", "4096")


def pytest_configure(config: pytest.Config) -> None:
    """Name the marker of what `make test-matrix` runs and `make test` does not."""
    config.addinivalue_line("markers", "matrix: a case of the compatibility matrix outside its shard; run by make test-matrix")


@dataclasses.dataclass(frozen=True)
class Pass:
    """One pass: what was asked, what came of it, and its events."""

    request: CompileRequest
    report: CompileReport
    events: list[dict[str, Any]]


def request(model: str | Path, root: Path, *args: str, gpu: str = "h200", **fields: Any) -> CompileRequest:
    """Return a request for a pass in this process's environment."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("WARMSTART_")}
    env = {**environment, **fields.pop("env", {})}
    return CompileRequest(
        model=str(model),
        args=(*ARGS, *args),
        env=env,
        gpu=load_catalog().get(gpu),
        cache_root=root,
        # The same for every small model, and longer than its graphs take: test_kernels.py looks at them.
        **{"kernels": False, **fields},
    )


def compiled(asked: CompileRequest) -> Pass:
    """Run a pass."""
    events: list[dict[str, Any]] = []
    return Pass(asked, run_pass(asked, lambda event: events.append(dict(event))), events)


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a folder with the narrow model's configuration and nothing else."""
    return narrow(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="session")
def first(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Pass:
    """Run the pass of the narrow model for one H200, from nothing."""
    return compiled(request(model, tmp_path_factory.mktemp("first")))
