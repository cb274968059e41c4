"""Both helm binaries, and a user's chart that has warmstart as its dependency."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
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


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Yield the kubeconfig of a cluster's administrator: a real control plane, or the one of WARMSTART_TEST_KUBECONFIG."""
    if given := os.environ.get("WARMSTART_TEST_KUBECONFIG"):
        yield Path(given)
        return
    from tests.cluster import control_plane

    with control_plane.running(tmp_path_factory.mktemp("control-plane")) as plane:
        yield plane.kubeconfig
