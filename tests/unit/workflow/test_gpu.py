"""Which GPU type counts, where a device is in sight: the device must be what the catalog says of the type asked for.

A machine with a GPU is not at hand here, so the reading of the device is replaced; tests/gpu reads a real one.
"""

from __future__ import annotations

import dataclasses

import pytest
from tests.unit.workflow.conftest import Place

from warmstart.gpus import GpuProfile, load_catalog
from warmstart.workflow import resolve


def live(monkeypatch: pytest.MonkeyPatch, id_: str, **changes: object) -> None:
    """Put a device of a catalog's type, with some figures changed, in sight."""
    profile: GpuProfile = dataclasses.replace(load_catalog().get(id_), id="live", **changes)  # type: ignore[arg-type]
    monkeypatch.setattr(resolve, "device_in_sight", lambda: profile)


def test_the_device_in_sight_decides_where_the_spec_names_several_or_none(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.serve(nodeSelector={})
    live(monkeypatch, "l4")
    done = place.call("run", "--on-miss=skip")
    assert (done.document["outcome"], done.document["gpu"]) == ("miss", "NVIDIA L4")


def test_a_device_has_the_key_of_its_type_in_the_catalog(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    without = place.call("run", "--on-miss=skip").document["request_key"]
    live(monkeypatch, "h200", clock_khz=1, memory_bytes=load_catalog().get("h200").memory_bytes - 1)
    assert place.call("run", "--on-miss=skip").document["request_key"] == without


def test_a_device_that_is_not_the_type_asked_for_is_a_miss_with_its_reason(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    live(monkeypatch, "l4")
    done = place.call("run", WARMSTART_GPU="h200")
    assert done.code == 0
    assert done.document["outcome"] == "miss"
    assert "name NVIDIA L4 instead of NVIDIA H200" in done.document["reason"]


def test_a_device_whose_figures_differ_from_the_catalogs_is_a_miss_with_its_reason(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    live(monkeypatch, "h200", multiprocessors=131)
    done = place.call("run")
    assert "multiprocessors 131 instead of 132" in done.document["reason"]
    assert "gpus describe" in done.document["reason"]
    assert (done.code, done.document["outcome"]) == (0, "miss")
    assert place.call("run", "--fail-closed").code == 2


def test_a_device_that_the_catalog_does_not_know_is_named(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    live(monkeypatch, "h200", name="NVIDIA X9000")
    done = place.call("run")
    assert "NVIDIA X9000" in done.document["reason"]


def test_compile_takes_the_device_in_sight(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    live(monkeypatch, "l4")
    assert place.call("compile", "m").document["gpu"] == "NVIDIA L4"
