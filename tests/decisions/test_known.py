"""Everything that vLLM asks of the machine it runs on has an answer that does not come from the builder's machine."""

from __future__ import annotations

import importlib.metadata
import importlib.util
from pathlib import Path

import pytest
from tests.decisions.known import ANSWERS, DOCUMENT, KINDS, Decisions
from tests.decisions.scan import findings

from warmstart.identity.code import OPTIONAL, PACKAGES
from warmstart.identity.environment import counts


@pytest.fixture(scope="module")
def decisions() -> Decisions:
    return Decisions.read()


@pytest.fixture(scope="module")
def found(decisions: Decisions) -> dict[str, set[str]]:
    """Read what the installed vLLM asks. The list is of one line of releases."""
    spec = importlib.util.find_spec("vllm")
    assert spec is not None
    assert spec.origin is not None
    assert importlib.metadata.version("vllm").startswith("0.33.")
    return findings(Path(spec.origin).parent, tuple(decisions.outside))


def test_every_question_has_an_answer(decisions: Decisions, found: dict[str, set[str]]) -> None:
    """A new one fails here by its name and by the files that ask it."""
    answered = {line for known in decisions.known for line in known.lines}
    assert {line: sorted(found[line]) for line in sorted(found.keys() - answered)} == {}


def test_no_answer_is_left_without_its_question(decisions: Decisions, found: dict[str, set[str]]) -> None:
    """What upstream no longer asks goes from the list, so that the list stays what it says."""
    answered = {line for known in decisions.known for line in known.lines}
    assert sorted(answered - found.keys()) == []


def test_each_question_stands_once_with_a_known_kind_and_answer(decisions: Decisions) -> None:
    lines = [line for known in decisions.known for line in known.lines]
    assert len(lines) == len(set(lines))
    assert {known.kind for known in decisions.known} == set(KINDS)
    assert {known.answer for known in decisions.known} == set(ANSWERS)
    assert all(len(known.how) > 20 for known in decisions.known)


def test_a_package_that_decides_is_in_the_code_fingerprint(decisions: Decisions) -> None:
    """By the name of its distribution or of what it imports as."""
    names = {name for packages in (PACKAGES, OPTIONAL) for names in packages.items() for name in (names[0], *names[1])}
    names.add("cutlass")  # what nvidia-cutlass-dsl imports as, from a folder that its .pth file names
    for known in decisions.known:
        if known.kind == "package" and known.answer == "image":
            for name in known.names:
                assert name.split(".")[0] in names or name.startswith("? in "), f"{name} is not in the code fingerprint"


def test_a_variable_that_decides_is_in_the_key(decisions: Decisions) -> None:
    for known in decisions.known:
        if known.kind == "environment" and known.answer == "request":
            assert [name for name in known.names if not name.startswith("?") and not counts(name)] == []


def test_the_page_is_made_of_the_list(decisions: Decisions) -> None:
    """`python -m tests.decisions` writes it."""
    assert decisions.page() == DOCUMENT.read_text()


def test_a_new_question_is_found_by_name(tmp_path: Path) -> None:
    """The scan sees calls, attributes, literals and variables, and names the file where that matters."""
    (tmp_path / "new.py").write_text(
        "import os, psutil, torch\n"
        "from importlib.util import find_spec\n"
        "from vllm.platforms import current_platform\n"
        "if torch.cuda.get_device_temperature() and current_platform.is_hot():\n"
        "    cores = psutil.cpu_count()\n"
        "if find_spec('fast_kernels') and os.environ['FAST'] == '1' and 'SLOW' not in os.environ:\n"
        "    pass\n"
    )
    assert sorted(findings(tmp_path, ())) == [
        "device current_platform.is_hot",
        "device torch.cuda",
        "device torch.cuda.get_device_temperature",
        "environment FAST",
        "environment SLOW",
        "machine new.py psutil.cpu_count",
        "package fast_kernels",
    ]
