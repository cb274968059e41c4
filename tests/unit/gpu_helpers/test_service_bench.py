"""What the benchmark of service makes of its rounds."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.gpu import evidence

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


def test_it_is_told_how_many_kernels_run_as_native(bench: Any, tmp_path: Path) -> None:
    """Of two kernels ours runs one as the binary that native runs; a root that was tuned by nobody runs none."""
    servers = SimpleNamespace(folder=tmp_path, native=tmp_path / "native")
    for which, second in (("ours", "C"), ("native", "B")):
        for kernel, binary in (("first", "A"), ("second", second)):
            file = bench.root(servers, which) / evidence.AOT / "key" / "inductor_cache" / "6j" / f"{kernel}.best_config"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(json.dumps({"triton_cache_hash": binary}))
    assert bench.choices(servers) == {"ours": [2, 1], "tuned": [0, 0], "native": [2, 2]}
