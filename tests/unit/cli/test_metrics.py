"""Metrics: a textfile that node-exporter takes, a push that a gateway takes, and neither going wrong changes the result."""

from __future__ import annotations

import base64
import logging
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from warmstart import metrics
from warmstart.report import Result

RESULT = Result(
    command="run",
    outcome="hit",
    model='Qwen/"odd"\n',
    gpu="NVIDIA H200",
    vllm="0.33.0",
    seconds=0.25,
    compile_seconds=31.5,
    raw_bytes=27_000_000,
    stored_bytes=500_000,
    graphs=29,
    modules=1,
    ranks=1,
)


def samples(text: str) -> dict[str, float]:
    return {sample.name: sample.value for family in text_string_to_metric_families(text) for sample in family.samples}


class Gateway:
    """A Pushgateway's HTTP interface on loopback: keeps what was put there."""

    def __init__(self) -> None:
        self.pushed: list[tuple[str, str, str, str]] = []
        self.status = 200
        self.url = ""


@pytest.fixture
def gateway() -> Iterator[Gateway]:
    state = Gateway()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            state.pushed.append((self.command, self.path, body, self.headers.get("Authorization", "")))
            self.send_response(state.status)
            self.end_headers()

        def log_message(self, *_args: object) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    state.url = f"127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield state
    server.shutdown()
    server.server_close()
    thread.join()


def test_a_textfile_holds_every_figure(tmp_path: Path) -> None:
    metrics.deliver(RESULT, tmp_path / "warmstart.prom", None)
    values = samples((tmp_path / "warmstart.prom").read_text())
    assert values.pop("warmstart_last_completion_timestamp_seconds") > 1_700_000_000
    assert values == {
        "warmstart_outcome": 1,
        "warmstart_duration_seconds": 0.25,
        "warmstart_compile_duration_seconds": 31.5,
        "warmstart_entry_raw_bytes": 27_000_000,
        "warmstart_entry_stored_bytes": 500_000,
        "warmstart_entry_graphs": 29,
        "warmstart_entry_modules": 1,
        "warmstart_entry_ranks": 1,
    }


def test_the_outcome_carries_its_labels_escaped(tmp_path: Path) -> None:
    metrics.deliver(RESULT, tmp_path / "m.prom", None)
    (outcome,) = [
        sample
        for family in text_string_to_metric_families((tmp_path / "m.prom").read_text())
        for sample in family.samples
        if sample.name == "warmstart_outcome"
    ]
    assert outcome.labels["outcome"] == "hit"
    assert outcome.labels["model"] == RESULT.model


def test_a_textfile_is_replaced_whole(tmp_path: Path) -> None:
    metrics.deliver(RESULT, tmp_path / "m.prom", None)
    metrics.deliver(RESULT, tmp_path / "m.prom", None)
    assert [path.name for path in tmp_path.iterdir()] == ["m.prom"]


def test_a_gateway_gets_them_grouped_by_what_was_compiled(gateway: Gateway) -> None:
    metrics.deliver(RESULT, None, f"http://{gateway.url}")
    ((method, path, body, authorization),) = gateway.pushed
    assert method == "POST"
    assert path.startswith("/metrics/job/warmstart/")
    assert "command/run" in path
    assert samples(body)["warmstart_entry_graphs"] == 29
    assert authorization == ""


def test_credentials_in_the_url_become_basic_auth(gateway: Gateway) -> None:
    metrics.deliver(RESULT, None, f"http://user:hunter2@{gateway.url}")
    assert gateway.pushed[0][3] == "Basic " + base64.b64encode(b"user:hunter2").decode()


@pytest.mark.parametrize("url", ["http://user:hunter2@127.0.0.1:9", "nonsense://user:hunter2@x", "http://[", "::::"])
def test_a_gateway_that_does_not_take_them_is_no_error_and_leaks_nothing(url: str, caplog: pytest.LogCaptureFixture) -> None:
    logging.getLogger("warmstart").propagate = True
    metrics.deliver(RESULT, None, url)
    assert "cannot push the metrics" in caplog.text
    assert "hunter2" not in caplog.text


def test_a_gateway_that_refuses_is_no_error(gateway: Gateway) -> None:
    gateway.status = 500
    metrics.deliver(RESULT, None, gateway.url)
    assert len(gateway.pushed) == 1


def test_a_textfile_that_cannot_be_written_is_no_error(tmp_path: Path) -> None:
    metrics.deliver(RESULT, tmp_path / "missing" / "m.prom", None)


def test_the_servers_multiprocess_folder_is_not_written_to(tmp_path: Path) -> None:
    shared = tmp_path / "multiproc"
    shared.mkdir()
    code = (
        "from pathlib import Path; from warmstart import metrics; from warmstart.report import Result; "
        f"metrics.deliver(Result(command='run', outcome='hit', graphs=7), Path({str(tmp_path / 'm.prom')!r}), None)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, env={**os.environ, "PROMETHEUS_MULTIPROC_DIR": str(shared)})
    assert list(shared.iterdir()) == []
    assert samples((tmp_path / "m.prom").read_text())["warmstart_entry_graphs"] == 7
