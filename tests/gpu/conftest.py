"""The proofs are made for all cases that were asked for, several at once; the tests then look at them one by one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.gpu.cases import CASES, Case
from tests.gpu.programs import Gpu, count, describe
from tests.gpu.proofs import Proof, Proofs


@pytest.fixture(scope="session")
def gpu(tmp_path_factory: pytest.TempPathFactory) -> Gpu:
    """Ask which GPU is here; without one nothing here can be proved."""
    return describe(tmp_path_factory.mktemp("gpu"))


@pytest.fixture(scope="session")
def proofs(request: pytest.FixtureRequest, gpu: Gpu, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proofs]:
    """Begin with the proofs of the cases whose tests were chosen and that fit this machine."""
    chosen = {item.callspec.params["case"].name for item in request.session.items if hasattr(item, "callspec")}
    here = count()
    cases = [case for case in CASES if case.name in chosen and case.gpus <= here]
    made = Proofs(cases, gpu, tmp_path_factory.mktemp("proofs"))
    yield made
    made.close()


@pytest.fixture(scope="module", params=CASES, ids=lambda case: case.name)
def case(request: pytest.FixtureRequest) -> Case:
    """Go through the cases one by one; pytest keeps the tests of one together."""
    found: Case = request.param
    if found.gpus > count():
        pytest.skip(f"needs {found.gpus} GPUs")
    return found


@pytest.fixture(scope="module")
def proof(case: Case, proofs: Proofs) -> Proof:
    """Wait for the proof of a case."""
    return proofs.of(case)
