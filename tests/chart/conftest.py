"""Both helm binaries, and a user's chart that has warmstart as its dependency."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from tests.chart.tools import CHART, HERE, Helm


@pytest.fixture(scope="session", params=["helm3", "helm4"])
def helm(request: pytest.FixtureRequest) -> Helm:
    """Each helm in turn."""
    return Helm(request.param)


@pytest.fixture(scope="session")
def helm4() -> Helm:
    """Return the newer helm, where one is enough."""
    return Helm("helm4")


@pytest.fixture(scope="session")
def parent(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a user's chart with warmstart unpacked below charts/, as `helm dependency build` would leave it."""
    chart = tmp_path_factory.mktemp("charts") / "parent"
    shutil.copytree(HERE / "parent", chart)
    shutil.copytree(CHART, chart / "charts" / "warmstart")
    return chart
