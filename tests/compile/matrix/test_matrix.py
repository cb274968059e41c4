"""The matrix: each case run for real. `make test` runs a shard that has a bit of everything, `make test-matrix` all of it."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

import pytest
from tests.compile.matrix.case import SERVER, names
from tests.compile.matrix.judge import Result
from tests.compile.matrix.registry import cases
from tests.compile.matrix.runner import Runner

from warmstart.compiler import CompileRequest, run_pass
from warmstart.gpus import load_catalog

CASES = cases()
SHARD = names("""
    qwen3-0.6b deepseek-v2-lite granite-4.0-h-micro gemma-3-1b bge-m3 mm-encoder lora ngram tp2 pp2 dense-b200 dense-t4
    dense-ct-nvfp4-b200 moe-gptq-h200 two-nodes enforce-eager
""")
BOTH_WAYS = ("qwen3-0.6b", "tp2")
# Run by every interpreter that has it on its path: another host name, as Python tells it.
OTHER_HOST = """
import os, platform, socket
uname = os.uname_result(("Linux", "another-host", *os.uname()[2:]))
os.uname = lambda: uname
socket.gethostname = socket.getfqdn = platform.node = lambda *_: "another-host"
"""


@pytest.fixture(scope="session")
def outcomes(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Result]:
    """Run the cases of the tests that were selected, in processes that share the imports."""
    wanted = [item.callspec.params["name"] for item in request.session.items if "outcomes" in getattr(item, "fixturenames", ())]
    runner = Runner(tmp_path_factory.mktemp("matrix"), lambda *_: None, workers=min(2, len(os.sched_getaffinity(0))))
    done = runner.run([CASES[name] for name in dict.fromkeys(wanted)])
    return {result.name: result for result in done}


@pytest.mark.compile
@pytest.mark.parametrize("name", SHARD)
def test_case_of_the_shard(name: str, outcomes: dict[str, Result]) -> None:
    """The pass comes to what its case says: the right graph, or the right refusal."""
    assert outcomes[name].status != "fail", outcomes[name].why


@pytest.mark.matrix
@pytest.mark.parametrize("name", [name for name in CASES if name not in SHARD])
def test_case(name: str, outcomes: dict[str, Result]) -> None:
    """The pass comes to what its case says: the right graph, or the right refusal."""
    assert outcomes[name].status != "fail", outcomes[name].why


@pytest.mark.compile
@pytest.mark.parametrize("name", BOTH_WAYS)
def test_a_key_is_the_same_whoever_compiles_where(name: str, outcomes: dict[str, Result], tmp_path: Path) -> None:
    """A process of its own, another root, HOME, user, host name and hash seed: the same keys, factors and graphs as forked."""
    case = CASES[name]
    for folder in ("home", "site"):
        (tmp_path / folder).mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(OTHER_HOST)
    elsewhere = {"HOME": str(tmp_path / "home"), "USER": "somebody", "LOGNAME": "somebody", "PYTHONHASHSEED": "7"}
    own = run_pass(
        CompileRequest(
            model=case.hub_name,
            model_files=case.write_model(tmp_path / "model"),
            args=case.serve_args,
            env={**case.environment, **elsewhere, "PYTHONPATH": str(tmp_path / "site")},
            gpu=load_catalog().get(case.gpu),
            cache_root=tmp_path / "cache",
            kernels=False,
        )
    )
    shared = outcomes[name]
    assert (own.aot_keys, own.modules, own.graphs) == (shared.keys, shared.modules, shared.graphs)
    assert own.ranks[0].factors == shared.factors


def test_the_names_of_the_shard_cover_every_topic() -> None:
    """What `make test` runs has models, features, parallel layouts, GPU types and a refusal among it."""
    assert {CASES[name].topic for name in SHARD} >= {"models", "features", "parallel", "gpus", "quantisation"}
    assert any(CASES[name].refused for name in SHARD)
    assert set(BOTH_WAYS) <= set(SHARD)


def test_a_case_that_changes_its_model_has_a_name_of_its_own() -> None:
    """Two models under one name would share a key of vLLM by accident."""
    changed = dataclasses.replace(CASES["qwen3-0.6b"], name="changed", config={"hidden_size": 2048})
    assert changed.hub_name == "matrix/changed"
    assert CASES["qwen3-0.6b"].hub_name == "matrix/qwen3-0.6b"
    assert CASES["qwen3-0.6b"].environment == SERVER
