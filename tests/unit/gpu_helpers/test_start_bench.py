"""The order of the benchmark of starts."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

BENCH = Path(__file__).parents[3] / "bench"


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Import the script as its own folder would."""
    monkeypatch.syspath_prepend(str(BENCH))
    return importlib.import_module("gpu_start")


def test_each_row_has_every_kind_of_start_once(bench: Any) -> None:
    """In another order each; the second start on a root comes after the first."""
    assert all(sorted(order) == sorted(bench.KINDS) for order in bench.ORDERS)
    assert len({order[0] for order in bench.ORDERS}) == len(bench.ORDERS)
    assert all(order.index(bench.FIRST) < order.index(bench.SECOND) for order in bench.ORDERS)


def test_each_kind_of_start_has_a_root_of_its_own_but_the_second(bench: Any, tmp_path: Path) -> None:
    """The second of ours goes to the root of the first, native warm ones to the native root."""
    servers = SimpleNamespace(native=tmp_path / "native", home=tmp_path / "home")
    installed: dict[Path, str] = {}
    servers.install = installed.setdefault
    servers.start = lambda root, _name, _device, home: {"root": root, "home": home}
    rows = {kind: bench.start(servers, kind, tmp_path / "row", "0-0", 0) for kind in bench.ORDERS[0]}
    assert installed == {rows[kind]["root"]: entry for kind, entry in bench.ENTRIES.items()}
    assert rows[bench.SECOND] == rows[bench.FIRST]
    assert rows[bench.WARM]["root"] == rows[bench.KEPT]["root"] == servers.native
    assert len({row["root"] for row in rows.values()}) == len(rows) - 2
    assert {kind for kind, row in rows.items() if row["home"] is None} == {*bench.ENTRIES, bench.SECOND}
