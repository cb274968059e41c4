"""What the benchmark of service makes of its rounds."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest

BENCH = Path(__file__).parents[3] / "bench"


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Import the script as its own folder would."""
    monkeypatch.syspath_prepend(str(BENCH))
    return importlib.import_module("gpu_service")


def test_more_work_and_less_time_are_both_faster(bench: Any) -> None:
    """Throughput doubled and times halved: twice as fast in every measure."""
    native = dict.fromkeys((*bench.THROUGHPUT, *bench.TIMES), 10.0)
    ours = {**dict.fromkeys(bench.THROUGHPUT, 20.0), **dict.fromkeys(bench.TIMES, 5.0)}
    assert bench.speeds([(ours, native)]) == ["2.0000"] * len(native)


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ([], "-"),
        ([1.0, 2.0, 3.0, 4.0, 5.0], "3.0000"),
        ([6.0, 1.0, 2.0, 3.0, 4.0, 5.0], "3.5000 (1.0000 to 6.0000)"),
        ([float(value) for value in range(1, 10)], "5.0000 (2.0000 to 8.0000)"),
    ],
)
def test_an_interval_is_told_where_there_are_values_enough(bench: Any, values: list[float], told: str) -> None:
    """Six at least: two heads or tails in a row five times happen more often than one time in twenty."""
    assert bench.interval(values) == told
