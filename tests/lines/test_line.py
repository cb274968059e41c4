"""One line of vLLM, in an environment of its own: `make test-lines` runs this in each of them.

What is asked: every seam and entry point fits, the options are those of the data file, each class of server compiles, what the
pass leaves is what a server of that version looks for, and it can be taken to another place.
"""

from __future__ import annotations

import dataclasses
import hashlib
import importlib.metadata
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.compile.matrix.judge import Result
from tests.compile.matrix.runner import Runner, lay_out, request_of
from tests.lines.cases import CASES, DENSE
from tests.unit.podspec import generate_options

from warmstart.archive import Compiled, Packed, install, pack
from warmstart.archive.rules import RULES, decide
from warmstart.compiler import CompileReport, lines
from warmstart.compiler.driver import run_in
from warmstart.compiler.process import Process
from warmstart.podspec import options

pytestmark = pytest.mark.lines
LONG_AGO = 10**9
KEPT_FOR_EXPLAIN = "cache_key_factors.json"
FOR_A_GPU = re.compile(r"triton/[A-Z2-7]{52}/((__grp__)?triton_\w+\.(cubin|json)|cuda_utils\.[\w-]+\.so)")
VLLM = importlib.metadata.version("vllm")


@pytest.fixture(scope="session")
def outcomes(tmp_path_factory: pytest.TempPathFactory, record: dict[str, Any]) -> dict[str, Result]:
    """Run every case; those of one GPU type share a process that has imported vLLM."""
    runner = Runner(tmp_path_factory.mktemp("cases"), lambda *_: None)
    found = runner.run(CASES)
    told = ("name", "status", "why", "keys", "ranks", "modules", "graphs", "bytes", "seconds", "cpu_seconds", "chosen")
    record["cases"] = [{name: getattr(one, name) for name in told if getattr(one, name)} for one in found]
    return {result.name: result for result in found}


@dataclasses.dataclass(frozen=True)
class Travelled:
    """Two passes of one server, the second below another root, where what the first left was packed and installed.

    `installed` are the files that were, `unread` those of them that the second pass did not open.
    """

    first: CompileReport
    second: CompileReport
    installed: frozenset[str]
    unread: frozenset[str]


@pytest.fixture(scope="session")
def travelled(tmp_path_factory: pytest.TempPathFactory, record: dict[str, Any]) -> Travelled:
    """Compile for a server's root, take the cache there, and start again in a process that has compiled nothing."""
    work = tmp_path_factory.mktemp("travelled")
    scratch, server = work / "pass", work / "server" / "vllm"
    scratch.mkdir()
    lay_out(DENSE, scratch)
    asked = dataclasses.replace(request_of(DENSE, scratch), server_root=server)
    asked.cache_root.mkdir()
    with (scratch / "log").open("wb") as log, Process(asked, scratch, forks=True, log=log.fileno()) as process:
        first = run_in(process, asked, hub=True)
        packed = _take(asked.cache_root, server, first, work)
        installed = _files(server)
        second = run_in(process, dataclasses.replace(asked, cache_root=server), hub=True)
    after = _files(server)
    record["travelled"] = {
        "files": len(installed),
        "bytes": packed.manifest.raw_bytes,
        "stored_bytes": packed.stored_bytes,
        "modules_loaded": sum(rank.modules_loaded for rank in second.ranks),
        "graphs_compiled": sum(rank.graphs_compiled for rank in second.ranks),
    }
    unread = {path for path in installed if after[path].st_atime_ns == LONG_AGO}
    return Travelled(first, second, frozenset(installed), frozenset(unread))


def _take(root: Path, server: Path, report: CompileReport, work: Path) -> Packed:
    """Pack a cache, install it at the server's root, and remove the first. Access times of what is there are long ago."""
    facts = Compiled(
        model=DENSE.hub_name, gpu=report.gpu, vllm=report.vllm, torch=report.torch, aot_keys=report.aot_keys,
        outcome=report.outcome, ranks=1, modules=report.modules, graphs=report.graphs,
    )  # fmt: skip
    packed = pack(root, work / "layers", key=hashlib.sha256(b"a line").hexdigest(), factors={}, facts=facts)
    blobs = {item.layer.digest: item.path for item in packed.layers}

    def fetch(digest: str, size: int) -> Iterator[bytes]:
        del size
        yield blobs[digest].read_bytes()

    install(packed.manifest, fetch, server)
    shutil.rmtree(root)
    for path, status in _files(server).items():
        os.utime(server / path, ns=(LONG_AGO, status.st_mtime_ns))
    return packed


def _files(root: Path) -> dict[str, os.stat_result]:
    found = (path for path in root.rglob("*") if path.is_file() and ".warmstart" not in path.parts)
    return {str(path.relative_to(root)): path.stat() for path in found}


def test_every_seam_and_entry_point_fits() -> None:
    """The check that a nightly build goes through finds nothing in a supported line."""
    command = [sys.executable, "-m", "warmstart.compiler.seams.check", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert json.loads(done.stdout.splitlines()[-1])["line"] == lines.installed().vllm


def test_the_options_are_those_of_the_data_file() -> None:
    """The committed file of this version is what the generator writes from the installed parser and key."""
    assert options.known(VLLM) == VLLM
    command = [sys.executable, generate_options.__file__, "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd="/")
    assert done.returncode == 0, done.stderr[-2000:]


@pytest.mark.parametrize("name", [case.name for case in CASES])
def test_a_server_of_each_class_compiles(name: str, outcomes: dict[str, Result]) -> None:
    """Every module, every rank, no warning, read back whole."""
    assert outcomes[name].status == "pass", outcomes[name].why


def test_a_cache_is_loaded_below_another_root_and_nothing_compiled(travelled: Travelled) -> None:
    """The same keys, as many graphs, none of them compiled again."""
    first, second = travelled.first, travelled.second
    assert (first.outcome, second.outcome) == ("compiled", "loaded")
    assert second.aot_keys == first.aot_keys
    assert second.graphs == first.graphs > 0
    assert [rank.graphs_compiled for rank in second.ranks] == [0]


def test_what_travels_is_what_a_start_reads(travelled: Travelled) -> None:
    """No file travels that is not opened, but for the one that `explain` compares; each is known to a rule.

    What is loaded with a GPU (kernels of graphs, and Triton's module that launches them) is not opened here.
    """
    unread = {path for path in travelled.unread if not FOR_A_GPU.fullmatch(path)}
    assert {Path(path).name for path in unread} <= {KEPT_FOR_EXPLAIN}
    assert [path for path in travelled.installed if decide(path) not in RULES] == []


def test_a_stock_process_has_the_same_factors(outcomes: dict[str, Result]) -> None:
    """Environment, torch, Inductor and functorch, computed without the pass, are those of the pass's key."""
    stock = """
import hashlib, json
import vllm.envs as envs
from vllm.config.utils import hash_factors
from vllm.compilation.compiler_interface import get_inductor_factors
found = dict(zip(("system", "torch", "inductor", "functorch"), get_inductor_factors(), strict=True))
found["env"] = hash_factors(envs.compile_factors())
del found["system"]  # it names the device, and there is none here
print(json.dumps({name: hashlib.sha256(str(value).encode()).hexdigest()[:16] for name, value in found.items()}))
"""
    kept = {name: os.environ[name] for name in ("HOME", "TMPDIR", "LANG") if name in os.environ}
    env = {**kept, **DENSE.environment}
    done = subprocess.run([sys.executable, "-c", stock], capture_output=True, text=True, env=env, check=True)
    expected = json.loads(done.stdout.splitlines()[-1])
    assert {name: outcomes[DENSE.name].factors[name] for name in expected} == expected


def test_another_gpu_type_is_kept_apart(outcomes: dict[str, Result]) -> None:
    """By the AOT key where artifacts are whole; else by the name of the folder that holds the graphs."""
    ours, theirs = outcomes["line-dense"], outcomes["line-dense-h100"]
    assert "system" in [name for name in ours.factors if ours.factors[name] != theirs.factors[name]]
    assert (set(ours.keys).isdisjoint(theirs.keys)) == lines.installed().whole_artifacts
