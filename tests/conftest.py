"""What holds for every test: no module leaves another environment than it found."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest


@pytest.fixture(scope="module", autouse=True)
def environment_put_back() -> Iterator[None]:
    """Put the environment back after each module: importing vLLM sets variables that count in keys."""
    before = dict(os.environ)
    yield
    os.environ.clear()
    os.environ.update(before)
