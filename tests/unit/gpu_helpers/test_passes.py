"""Passes that were made before, here or on another machine, are taken; what is missing is made."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.gpu import passes
from tests.gpu.cases import CASES
from tests.gpu.programs import Gpu, ProgramError

GPU = Gpu("h200", ("--gpu", "h200"))


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, dict[str, Any]]]:
    """Return the answers that `precompile` gives, one after the other."""
    prepared: list[tuple[int, dict[str, Any]]] = []

    def warmstart(*words: str, env: dict[str, str], log: Path, hidden: bool) -> tuple[int, Any]:
        assert (words[0], hidden) == ("precompile", True)
        assert Path(words[2]).is_file()
        assert log.parent.is_dir()
        assert env["HF_HUB_OFFLINE"] == "1"
        code, document = prepared.pop(0)
        return code, [document]

    monkeypatch.setattr(passes, "warmstart", warmstart)
    return prepared


def test_an_entry_is_made_once(answers: list[tuple[int, dict[str, Any]]], tmp_path: Path) -> None:
    answers.append((0, {"outcome": "compiled", "aot_keys": ["a"]}))
    first = passes.entry(CASES[0], tmp_path, GPU)
    again = passes.entry(CASES[0], tmp_path, GPU)
    assert first == again
    assert (first.compiled["aot_keys"], answers) == (["a"], [])
    assert json.loads(first.spec.read_text())["spec"]["containers"][0]["command"][2] == str(first.folder / "model")


def test_a_pass_that_failed_leaves_no_result(answers: list[tuple[int, dict[str, Any]]], tmp_path: Path) -> None:
    answers.append((12, {"reason": "no such thing"}))
    with pytest.raises(ProgramError, match="no such thing"):
        passes.entry(CASES[0], tmp_path, GPU)
    assert not list(tmp_path.rglob("entry.json"))


def test_a_folder_of_passes_is_named_by_a_variable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(passes.PASSES, raising=False)
    assert passes.made_in(tmp_path) == tmp_path
    monkeypatch.setenv(passes.PASSES, "/passes")
    assert passes.made_in(tmp_path) == Path("/passes")
