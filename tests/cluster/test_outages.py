"""The API server goes away for a while: what is going on goes on, or says so, and comes back by itself."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from tests.cluster.conftest import eventually
from tests.cluster.cuttable import cuttable
from tests.cluster.test_prewarm import _config, _count, _deploy

from warmstart.cluster.api import Api, connect
from warmstart.cluster.leases import LeaseClaims
from warmstart.cluster.resources import JOBS
from warmstart.errors import TemporaryError
from warmstart.settings import Settings
from warmstart.workflow import prewarm
from warmstart.workflow.prewarming import Look
from warmstart.workflow.stopping import Stop

pytestmark = pytest.mark.cluster


def test_a_watch_outlives_the_api_server(kubeconfig: Path, admin: Api, namespace: str, tmp_path: Path) -> None:
    """During the outage a workload appears; once the server is back it gets its Job, and the process is the same."""
    stop = Stop()
    looks: list[Look] = []
    with cuttable(kubeconfig, tmp_path / "cuttable.kubeconfig") as (way, reaching):
        config = _config(tmp_path, namespace, resyncSeconds=3600)
        options = {"kubeconfig": reaching, "config": config, "watch": True, "told": looks.append}
        thread = threading.Thread(target=prewarm.main, args=(Settings(), stop), kwargs=options)
        thread.start()
        try:
            eventually(lambda: looks)
            way.cut()
            _deploy(admin, namespace, "qwen3")
            assert _count(admin, namespace) == 0
            way.mend()
            eventually(lambda: _count(admin, namespace) == 1)
        finally:
            stop.set()
            thread.join(30)
    assert not thread.is_alive()


def test_once_says_that_the_server_does_not_answer(kubeconfig: Path, namespace: str, tmp_path: Path) -> None:
    with cuttable(kubeconfig, tmp_path / "cuttable.kubeconfig") as (way, reaching):
        way.cut()
        with pytest.raises(TemporaryError, match="does not answer"):
            prewarm.main(Settings(), Stop(), kubeconfig=reaching, config=_config(tmp_path, namespace))


def test_a_claim_survives_an_outage_that_is_shorter_than_its_time_to_live(
    kubeconfig: Path, namespace: str, tmp_path: Path
) -> None:
    with cuttable(kubeconfig, tmp_path / "cuttable.kubeconfig") as (way, reaching):
        claim = LeaseClaims(connect(reaching), namespace).claim("ab" * 32, "pod-a", 60)
        assert claim is not None
        way.cut()
        with pytest.raises(TemporaryError):
            claim.heartbeat()
        way.mend()
        assert claim.heartbeat() is True


def test_a_list_that_breaks_off_is_an_error_not_a_short_list(
    kubeconfig: Path, admin: Api, namespace: str, tmp_path: Path
) -> None:
    """A look that saw half of the Jobs would create the other half again."""
    for number in range(3):
        _deploy(admin, namespace, f"web{number}", args=["--max-model-len", str(1024 * (number + 1))])
    prewarm.main(Settings(), Stop(), kubeconfig=kubeconfig, config=_config(tmp_path, namespace, concurrency=9))
    with cuttable(kubeconfig, tmp_path / "cuttable.kubeconfig") as (way, reaching):
        api = connect(reaching)
        jobs = api.list(JOBS, namespace, page=1)
        next(jobs)
        way.cut()
        with pytest.raises(TemporaryError):
            list(jobs)
