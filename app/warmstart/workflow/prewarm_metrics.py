"""What one look of pre-warming came to, as Prometheus metrics.

    warmstart_prewarm_targets{state}                  workloads times GPU types, by what became of them; all states are named
    warmstart_prewarm_workloads                       workloads that opted in
    warmstart_prewarm_last_look_timestamp_seconds     when the look ended

Delivered as the metrics of every command are: to a textfile, to a Pushgateway. A cluster that has stopped being looked at shows
in the timestamp, one whose Jobs fail in `warmstart_prewarm_targets{state="failed"}`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from warmstart import metrics
from warmstart.report import Result

if TYPE_CHECKING:
    from warmstart.settings import Settings
    from warmstart.workflow.prewarming import Look


class _Collector:
    """Yields the metrics of a look."""

    def __init__(self, look: Look) -> None:
        self._look = look
        self._ended = time.time()

    def collect(self) -> Iterator[Any]:
        """Yield the metric families."""
        from prometheus_client.core import GaugeMetricFamily

        targets = GaugeMetricFamily("warmstart_prewarm_targets", "Workloads times GPU types, by state.", labels=["state"])
        for state, count in self._look.counts().items():
            targets.add_metric([state], count)
        yield targets
        workloads = self._look.document()["workloads"]
        yield GaugeMetricFamily("warmstart_prewarm_workloads", "Workloads that opted in.", value=workloads)
        yield GaugeMetricFamily("warmstart_prewarm_last_look_timestamp_seconds", "When the look ended.", value=self._ended)


def deliver(look: Look, settings: Settings) -> None:
    """Write and push the metrics of a look where the settings name a place; what goes wrong is logged and goes no further."""
    if settings.metrics_textfile is None and not settings.pushgateway:
        return
    try:
        from prometheus_client import CollectorRegistry
    except ImportError:
        metrics.LOG.warning(
            "metrics are asked for, but prometheus_client is not installed: pip install 'vllm-warmstart[metrics]'"
        )
        return
    registry = CollectorRegistry()
    registry.register(_Collector(look))
    if settings.metrics_textfile is not None:
        metrics.write(settings.metrics_textfile, registry)
    if settings.pushgateway:
        metrics.push(settings.pushgateway, registry, Result(command="prewarm", outcome="looked"))
