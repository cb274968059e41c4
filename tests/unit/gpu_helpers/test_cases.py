"""The servers of the GPU tests are understood as they stand: by our own reader of pod specs, and each as another server."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.gpu.cases import CASES, COMMON, Case

from warmstart.settings import Settings
from warmstart.workflow import resolve


def target(case: Case, folder: Path) -> resolve.Target:
    settings = Settings(pod_spec=json.dumps(case.server(folder).pod()), gpu="h200")
    (request,), catalog = resolve.requests(settings, own_environment=False)
    return resolve.target(settings, request, catalog.get("h200"), resolve.code(settings))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_pod_says_what_the_server_is_started_with(case: Case, tmp_path: Path) -> None:
    """Model, options and variables come through unchanged, and the store's key can be computed."""
    server = case.server(tmp_path)
    found = target(case, tmp_path)
    assert (found.request.model, found.request.args) == (server.model, server.args)
    assert found.request.env.items() >= server.env.items()
    assert found.request.args[: len(COMMON)] == COMMON
    assert len(found.key) == 64


def test_no_two_cases_are_the_same_server(tmp_path: Path) -> None:
    """Each proves something of its own; with all models at one path, so that it is not the path that differs."""
    keys = {target(case, tmp_path).key for case in CASES}
    assert len(keys) == len(CASES)


def test_a_case_of_several_modules_names_a_model_that_is_there(tmp_path: Path) -> None:
    """The draft model lies where the options say."""
    (case,) = [case for case in CASES if case.modules > 1]
    server = case.server(tmp_path)
    draft = Path(json.loads(server.args[-1])["model"])
    assert json.loads((draft / "config.json").read_text())["architectures"] == ["LlamaForCausalLM"]
