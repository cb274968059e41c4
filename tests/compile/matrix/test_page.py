"""The compatibility page and the results behind it."""

from __future__ import annotations

import importlib.metadata
import json
from collections import Counter
from pathlib import Path

from tests.compile.matrix import results
from tests.compile.matrix.case import MODELS, Case, merge
from tests.compile.matrix.judge import Result, chosen, fallbacks, of_error
from tests.compile.matrix.page import PAGE, counts, page
from tests.compile.matrix.registry import cases

from warmstart.errors import UnsupportedError, UsageError

LOG = """
(MainProcess pid=1) INFO 11-30 10:47:35 [cuda.py:508] Using FLASH_ATTN attention backend out of potential backends: ['A', 'B'].
(MainProcess pid=1) INFO 11-30 10:47:36 [moe.py:9] Using 'TRITON' Unquantized MoE backend out of potential backends
(MainProcess pid=1) INFO 11-30 10:47:37 [x.py:1] Falling back to the slow kernel
(MainProcess pid=1) INFO 11-30 10:47:37 [x.py:1] Chunked prefill is disabled
"""


def test_the_page_is_what_its_generator_gives() -> None:
    """Whoever changes the results, a case or the template runs `python -m tests.compile.matrix.page`."""
    assert PAGE.read_text() == page()


def test_the_results_are_of_this_vllm_and_of_cases_that_are_there() -> None:
    """The committed results are of the installed versions; the page names the cases that have none."""
    versions = json.loads(results.FILE.read_text())["versions"]
    assert versions == {name: importlib.metadata.version(name) for name in ("vllm", "torch")}
    assert set(results.read()) <= set(cases())


def test_the_goal_of_the_matrix_holds() -> None:
    """At least 120 cases, 97 % of them right, 30 architectures and every compute capability that vLLM serves."""
    found = results.read()
    status = Counter(result.status for result in found.values())
    assert status["pass"] >= 120
    assert status["fail"] <= 0.03 * len(found)
    compiled = {name: case for name, case in cases().items() if name in found and found[name].status == "pass"}
    models = {case.model for case in compiled.values()}
    assert len({json.loads((MODELS / model / "config.json").read_text())["architectures"][0] for model in models}) >= 30
    assert len({case.gpu for case in compiled.values()}) >= 7


def test_every_model_is_named_and_used() -> None:
    """A folder of models/ says which published model it is, and some case serves it or drafts with it."""
    folders = {path.name for path in MODELS.iterdir() if path.is_dir()}
    assert folders == set(json.loads((MODELS / "index.json").read_text()))
    assert folders == {case.model for case in cases().values()} | {draft for case in cases().values() for draft in case.drafts}


def test_what_vllm_chose_is_read_off_its_log() -> None:
    """Attention and MoE backends by name; a line about a fallback is found, one about a scheduling choice is not."""
    assert chosen(LOG) == ("FLASH_ATTN", "TRITON")
    assert fallbacks(LOG) == ["Falling back to the slow kernel"]


def test_a_refusal_is_right_only_in_its_own_words() -> None:
    """Another error, or other words, fail the case."""
    case = Case(name="a", topic="features", model="qwen3-0.6b", refused="UnsupportedError: two nodes")
    assert of_error(case, UnsupportedError("a server over two nodes is not supported")).status == "refused"
    assert of_error(case, UsageError("a server over two nodes is not supported")).status == "fail"
    assert of_error(case, UnsupportedError("something else")).status == "fail"


def test_results_are_kept_beside_those_of_other_cases(tmp_path: Path) -> None:
    """A run of one case replaces its line, keeps the others, and drops those of cases that are gone."""
    known = {name: Case(name=name, topic="features", model="qwen3-0.6b") for name in ("a", "b")}
    path = tmp_path / "results.json"
    results.write(path, [Result(name="a", status="pass", keys=("k",)), Result(name="gone", status="pass")], known)
    results.write(path, [Result(name="b", status="fail", why="broken")], known)
    assert results.read(path) == {
        "a": Result(name="a", status="pass", keys=("k",)),
        "b": Result(name="b", status="fail", why="broken"),
    }
    assert "| Features | 2 | 1 | 0 | 0 | 1 |" in counts(known, results.read(path))


def test_a_change_of_a_model_merges_and_removes() -> None:
    """Mappings are merged, None removes a name, everything else replaces it."""
    assert merge({"a": {"b": 1, "c": 2}, "d": 3}, {"a": {"b": 9}, "d": None, "e": [1]}) == {"a": {"b": 9, "c": 2}, "e": [1]}
