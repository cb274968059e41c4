"""A real S3 server that is killed half-way and started again, and one that stands still."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from tests import servers
from tests.faults.conftest import Place, on_s3, says_why, visible
from tests.faults.proxy import Fault, Proxy, Request, proxied

DEADLINE = 40


def kill_at(server: servers.S3Server, number: int) -> object:
    """Return a rule that kills the server at that request."""

    def rule(request: Request) -> Fault | None:
        if request.number == number:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(server.process.pid, signal.SIGKILL)
            server.process.wait()
        return None

    return rule


@pytest.mark.parametrize("number", [1, 4])
def test_a_server_killed_in_the_middle_of_a_publish_and_of_an_install_loses_nothing(
    number: int, place: Place, tmp_path: Path
) -> None:
    data = tmp_path / "weed"
    data.mkdir()
    settings: dict[str, str] = {}
    with servers.seaweedfs(folder=data) as server, proxied(server.endpoint) as proxy:
        port = int(urlsplit(server.endpoint).port or 0)
        settings = on_s3(server, proxy.endpoint, "p", WARMSTART_DEADLINE=str(DEADLINE), WARMSTART_STORE_TIMEOUT="2s")
        done = _run_under(proxy, kill_at(server, number), place, settings)
        # The pod compiles for itself and starts, or is told why not; either way in time.
        assert done.document["outcome"] in ("compiled", "failed"), done.document
        assert done.document["outcome"] != "failed" or says_why(done.document)
    place.root.rename(tmp_path / "first") if place.root.exists() else None
    with servers.seaweedfs(folder=data, port=port) as server, proxied(server.endpoint) as proxy:
        settings |= on_s3(server, proxy.endpoint, "p")
        again = place.call("run", **settings)
        assert again.document["outcome"] in ("compiled", "hit"), again.document
        whole = visible(place.root)
        place.root.rename(tmp_path / "second")
        done = _run_under(proxy, kill_at(server, min(number, 2)), place, {**settings, "WARMSTART_ON_MISS": "skip"})
        assert done.document["outcome"] in ("failed", "hit"), done.document
        assert visible(place.root) in ({}, whole)
    with servers.seaweedfs(folder=data, port=port) as server:
        settings |= on_s3(server, server.endpoint, "p")
        assert place.call("run", "--on-miss=skip", **settings).document["outcome"] == "hit"
        assert visible(place.root) == whole
        assert place.call("store", "verify", **settings).code == 0


def _run_under(proxy: Proxy, rule: object, place: Place, settings: dict[str, str]) -> object:
    begin = time.monotonic()
    with proxy.faulty(rule):  # type: ignore[arg-type]
        done = place.call("run", **settings)
    assert done.code == 0
    assert time.monotonic() - begin < DEADLINE
    assert not place.left_over()
    return done


def test_a_server_that_stands_still_costs_no_more_than_the_deadline(place: Place, tmp_path: Path) -> None:
    data = tmp_path / "weed"
    data.mkdir()
    with servers.seaweedfs(folder=data) as server:
        settings = on_s3(server, server.endpoint, "p")
        place.call("run", **settings)
        whole = visible(place.root)
        place.root.rename(tmp_path / "first")
        os.killpg(server.process.pid, signal.SIGSTOP)
        try:
            begin = time.monotonic()
            done = place.call("run", **settings, WARMSTART_DEADLINE="8", WARMSTART_STORE_TIMEOUT="30s")
            assert time.monotonic() - begin < 8 + 2
        finally:
            os.killpg(server.process.pid, signal.SIGCONT)
        assert (done.code, done.document["outcome"]) == (0, "failed")
        assert says_why(done.document)
        assert visible(place.root) == {}
        assert place.call("run", "--on-miss=skip", **settings).document["outcome"] == "hit"
        assert visible(place.root) == whole
