"""`--record FOLDER` keeps what came of a line's cases as `results-VERSION.json`, for the compatibility page."""

from __future__ import annotations

import datetime
import importlib.metadata
import json
import platform
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare the option; it is known where this folder is named on the command line."""
    parser.addoption("--record", type=Path, default=None, help="write results-VERSION.json into this folder")


@pytest.fixture(scope="session")
def record(request: pytest.FixtureRequest) -> Iterator[dict[str, Any]]:
    """Collect a line's results, and write them at the end where that was asked for."""
    versions = {name: importlib.metadata.version(name) for name in ("vllm", "torch", "transformers")}
    found: dict[str, Any] = {**versions, "python": platform.python_version(), "date": _today()}
    yield found
    folder = request.config.getoption("--record", default=None)
    if folder is not None:
        cases = ",\n".join(f"  {json.dumps(case)}" for case in found.pop("cases", []))
        head = json.dumps(found)[:-1]
        (folder / f"results-{versions['vllm']}.json").write_text(f'{head}, "cases": [\n{cases}\n]}}\n')


def _today() -> str:
    return datetime.datetime.now(datetime.UTC).date().isoformat()
