"""One proof for each case, shared by the tests that look at it: two passes without the GPU, and two starts on it."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
from tests.gpu import evidence
from tests.gpu.cases import CASES, Case
from tests.gpu.evidence import Started
from tests.gpu.programs import Gpu, describe, serve, warmstart


@dataclasses.dataclass(frozen=True)
class Ours:
    """A start on what was compiled without the GPU: results of `precompile`, `run` and `verify`, and what the start left."""

    compiled: dict[str, Any]
    installed: dict[str, Any]
    before: frozenset[str]
    after: frozenset[str]
    started: Started
    ready_seconds: float
    verify_code: int
    verified: dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Native:
    """A start of the same server on an empty cache root, and a pass of ours whose whole cache root was kept."""

    root: Path
    pass_root: Path
    pass_result: dict[str, Any]
    started: Started
    ready_seconds: float


@pytest.fixture(scope="session")
def gpu(tmp_path_factory: pytest.TempPathFactory) -> Gpu:
    """Ask which GPU is here; without one nothing here can be proved."""
    return describe(tmp_path_factory.mktemp("gpu"))


@pytest.fixture(scope="module", params=CASES, ids=lambda case: case.name)
def case(request: pytest.FixtureRequest) -> Case:
    """Go through the cases one by one; pytest keeps the tests of one together."""
    found: Case = request.param
    return found


@pytest.fixture(scope="module")
def folder(case: Case, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a folder for everything of a case."""
    return tmp_path_factory.mktemp(case.name)


@pytest.fixture(scope="module")
def ours(case: Case, gpu: Gpu, folder: Path) -> Ours:
    """Compile and publish with the GPU hidden, install into an empty root, start a stock server there."""
    server = case.server(folder)
    spec = folder / "pod.json"
    spec.write_text(json.dumps(server.pod()))
    common = ("-f", str(spec), "--store", str(folder / "store"), *gpu.options)
    code, (compiled,) = warmstart("precompile", *common, env=server.env, hidden=True)
    assert code == 0, compiled
    root, log = folder / "ours", folder / "ours.log"
    code, installed = warmstart("run", *common, "--cache-root", str(root), "--on-miss", "skip", "--fail-closed", env=server.env)
    assert code == 0, installed
    before = evidence.listing(root)
    ready = serve(server, root, log)
    verify_code, verified = warmstart("verify", "--cache-root", str(root), "--server-log", str(log), env=server.env)
    started = evidence.read(log.read_text(errors="replace"))
    return Ours(compiled, installed, before, evidence.listing(root), started, ready, verify_code, verified)


@pytest.fixture(scope="module")
def native(case: Case, gpu: Gpu, folder: Path) -> Native:
    """Let the same server compile for itself, and keep the whole cache root of a pass of ours to compare with."""
    server = case.server(folder)
    pass_root, root, log = folder / "pass", folder / "native", folder / "native.log"
    code, result = warmstart(
        *("compile", server.model, *gpu.options, "--cache-root", str(pass_root)), *server.args, env=server.env, hidden=True
    )
    assert code == 0, result
    ready = serve(server, root, log)
    return Native(root, pass_root, result, evidence.read(log.read_text(errors="replace")), ready)
