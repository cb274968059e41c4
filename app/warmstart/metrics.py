"""A result as Prometheus metrics: a textfile for node-exporter, or a push to a Pushgateway.

    warmstart_outcome{command,outcome,error,model,gpu,vllm} 1      what the last call came to; `error` names the error's class
    warmstart_duration_seconds{command}                            the whole call
    warmstart_compile_duration_seconds{command}                    the compile pass
    warmstart_entry_raw_bytes, warmstart_entry_stored_bytes        the entry unpacked, and in the store
    warmstart_entry_graphs, _modules, _ranks                       what it holds
    warmstart_last_completion_timestamp_seconds{command}           when the call ended

prometheus_client is imported here only, when metrics are asked for. All values are made at the moment of collection, in an
own registry: its metric classes would write into PROMETHEUS_MULTIPROC_DIR, which stacks set for the server.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from warmstart.errors import shorten
from warmstart.log import Log
from warmstart.report import Result

LOG = Log("warmstart.metrics")

_PUSH_SECONDS = 5.0
_GAUGES = (
    ("warmstart_duration_seconds", "Seconds of the whole call.", "seconds"),
    ("warmstart_compile_duration_seconds", "Seconds of the compile pass.", "compile_seconds"),
    ("warmstart_entry_raw_bytes", "Bytes of the entry's files, unpacked.", "raw_bytes"),
    ("warmstart_entry_stored_bytes", "Bytes of the entry in the store.", "stored_bytes"),
    ("warmstart_entry_graphs", "Compiled graphs in the entry.", "graphs"),
    ("warmstart_entry_modules", "Compiled modules in the entry.", "modules"),
    ("warmstart_entry_ranks", "Ranks in the entry.", "ranks"),
)


class _Collector:
    """Yields a result's metrics; what prometheus_client calls a custom collector."""

    def __init__(self, result: Result, ended: float) -> None:
        self._result = result
        self._ended = ended

    def collect(self) -> Iterator[Any]:
        """Yield the metric families."""
        from prometheus_client.core import GaugeMetricFamily

        result = self._result
        names = ["command", "outcome", "error", "model", "gpu", "vllm"]
        outcome = GaugeMetricFamily("warmstart_outcome", "What the last call came to.", labels=names)
        outcome.add_metric([getattr(result, name) for name in names], 1)
        yield outcome
        for name, note, field in _GAUGES:
            gauge = GaugeMetricFamily(name, note, labels=["command"])
            gauge.add_metric([result.command], getattr(result, field))
            yield gauge
        moment = GaugeMetricFamily("warmstart_last_completion_timestamp_seconds", "When the call ended.", labels=["command"])
        moment.add_metric([result.command], self._ended)
        yield moment


def deliver(result: Result, textfile: Path | None, pushgateway: str | None) -> None:
    """Write and push the metrics; what goes wrong is logged and goes no further."""
    try:
        from prometheus_client import CollectorRegistry
    except ImportError:
        LOG.warning("metrics are asked for, but prometheus_client is not installed: pip install 'vllm-warmstart[metrics]'")
        return
    registry = CollectorRegistry()
    registry.register(_Collector(result, time.time()))
    if textfile is not None:
        write(textfile, registry)
    if pushgateway:
        push(pushgateway, registry, result)


def write(textfile: Path, registry: Any) -> None:
    """Write a registry's metrics to a file of node-exporter's textfile collector; a file that cannot be written is logged."""
    from prometheus_client import write_to_textfile

    try:
        write_to_textfile(str(textfile), registry)
    except OSError as error:
        LOG.warning("cannot write the metrics to %s: %s", textfile, error.strerror or error)


def push(url: str, registry: Any, result: Result) -> None:
    """Add a registry's metrics to a Pushgateway under the result's command, GPU and model; a failure is logged."""
    from prometheus_client import pushadd_to_gateway
    from prometheus_client.exposition import basic_auth_handler, default_handler

    try:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        address = urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))

        def handler(**request: Any) -> Any:
            if parts.username is None:
                return default_handler(**request)
            return basic_auth_handler(username=parts.username, password=parts.password or "", **request)

        grouping = {"command": result.command, "gpu": result.gpu or "unknown", "model": result.model or "unknown"}
        pushadd_to_gateway(
            address,
            job="warmstart",
            registry=registry,
            grouping_key=grouping,
            timeout=_PUSH_SECONDS,
            handler=lambda url, method, timeout, headers, data: handler(
                url=url, method=method, timeout=timeout, headers=headers, data=data
            ),
        )
    except Exception as error:  # noqa: BLE001 whatever a push meets must not change how the call ends
        LOG.warning("cannot push the metrics: %s", shorten(error).replace(url, "the Pushgateway"))
