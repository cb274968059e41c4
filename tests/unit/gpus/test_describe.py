"""Reading a live device: a real ctypes path into a compiled stand-in for the driver's two libraries."""

from __future__ import annotations

import ctypes
import dataclasses
import datetime
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import warmstart
from warmstart.errors import UsageError
from warmstart.gpus import GpuProfile, compare, describe, load_catalog, to_document, to_entry
from warmstart.gpus.entries import SOURCED

APP = Path(warmstart.__file__).parents[1]
SOURCE = Path(__file__).with_name("driver.c")
DAY = datetime.date(2026, 11, 30)
READ = "read from the device, driver 575.57.08, 2026-11-30"

Driver = Callable[..., str]


@pytest.fixture
def driver(tmp_path: Path) -> Driver:
    """Compile a driver with the given definitions and return its path: one library that plays both."""

    def build(*definitions: str) -> str:
        library = tmp_path / f"libdriver{len(list(tmp_path.iterdir()))}.so"
        arguments = [f"-D{definition}" for definition in definitions]
        subprocess.run(["gcc", "-shared", "-fPIC", "-Wall", "-Werror", *arguments, "-o", str(library), str(SOURCE)], check=True)
        return str(library)

    return build


def _describe(library: str, index: int = 0) -> GpuProfile:
    return describe(index, cuda_library=library, nvml_library=library, today=DAY)


def test_every_figure_is_the_devices_own(driver: Driver) -> None:
    """Attributes from CUDA, name and memory from NVML, and a source that names driver and day."""
    profile = _describe(driver())
    h200 = load_catalog().get("h200")
    assert dataclasses.replace(profile, verified=h200.verified) == h200
    assert profile.verified
    assert dict(profile.sources) == dict.fromkeys(SOURCED, READ)


def test_nvml_is_closed_again(driver: Driver) -> None:
    """No NVML session stays open, also when reading fails."""
    library = driver('NAME="NVIDIA H200"')
    _describe(library)
    assert ctypes.CDLL(library).open_sessions() == 0
    failing = driver("MIG", "COUNT=1", "WITHOUT_UUID")
    with pytest.raises(UsageError):
        _describe(failing)
    assert ctypes.CDLL(failing).open_sessions() == 0


def test_a_mig_slice_is_found_by_its_own_uuid(driver: Driver) -> None:
    """CUDA sees the slice as a device; NVML knows it under MIG-<uuid>."""
    profile = _describe(driver("MIG", 'NAME="NVIDIA H200 MIG 1g.18gb"', "SMS=16"))
    assert (profile.id, profile.multiprocessors) == ("h200-mig-1g.18gb", 16)


def test_unified_memory_that_nvml_does_not_count_is_cudas_total(driver: Driver) -> None:
    """A GB10 has no memory by NVML; the source says whose figure stands there."""
    profile = _describe(driver("NO_NVML_MEMORY", 'NAME="NVIDIA GB10"'))
    assert (profile.id, profile.memory_bytes) == ("gb10", 150045458432)
    assert profile.sources["memory_bytes"] == "read from the device by cuDeviceTotalMem, driver 575.57.08, 2026-11-30"


@pytest.mark.parametrize(
    ("name", "id_"), [("NVIDIA X100 (rev. 2)  SXM", "x100-rev.-2-sxm"), ("NVIDIA RTX PRO 4500", "rtx-pro-4500"), ("???", "gpu")]
)
def test_a_card_that_the_catalog_lacks_gets_an_id_from_its_name(driver: Driver, tmp_path: Path, name: str, id_: str) -> None:
    """The entry of a new card can be written to a file and used at once."""
    profile = _describe(driver(f'NAME="{name.replace("?", chr(92) + "?")}"'))
    assert (profile.id, profile.name) == (id_, name)
    path = tmp_path / "own.json"
    path.write_text(json.dumps(to_document(profile)))
    assert load_catalog(path).get(id_) == profile


def test_an_entry_of_a_live_device_replaces_the_built_in_one(driver: Driver, tmp_path: Path) -> None:
    """`warmstart gpus describe > own.json` gives a file that is taken as it is, and verified."""
    profile = _describe(driver("SMS=130"))
    path = tmp_path / "own.json"
    path.write_text(json.dumps(to_document(profile)))
    assert to_entry(profile)["sources"] == {"*": READ}
    found = load_catalog(path).parse("H200")
    assert found == profile
    assert found.verified


FAILURES = [
    (("CU_INIT=100",), 0, "cuInit failed with 100: no CUDA device is visible"),
    (("CU_INIT=803",), 0, "cuInit failed with 803: driver and library are of different versions"),
    (("CU_INIT=777",), 0, "cuInit failed with 777: unknown"),
    (("COUNT=0",), 0, "there is no CUDA device 0: 0 visible"),
    ((), 1, "there is no CUDA device 1: 1 visible"),
    ((), -1, "there is no CUDA device -1: 1 visible"),
    (("ATTRIBUTE_STATUS=999",), 0, "cuDeviceGetAttribute failed with 999"),
    (("WITHOUT_UUID",), 0, "has no cuDeviceGetUuid_v2"),
    (("NVML_INIT=9",), 0, "nvmlInit_v2 failed with 9: driver not loaded"),
]


@pytest.mark.parametrize(("definitions", "index", "said"), FAILURES)
def test_a_driver_that_fails_is_said_in_one_line(driver: Driver, definitions: tuple[str, ...], index: int, said: str) -> None:
    """Which call failed, with what, and what to do."""
    with pytest.raises(UsageError, match=said) as error:
        _describe(driver(*definitions), index)
    assert "\n" not in str(error.value)
    assert error.value.hint


@pytest.mark.parametrize("name", ["cuda_library", "nvml_library"])
def test_a_machine_without_a_driver_is_told_so(driver: Driver, tmp_path: Path, name: str) -> None:
    """Neither a missing library nor a file that is none ends in a traceback."""
    junk = tmp_path / "junk.so"
    junk.write_text("no library")
    good = driver()
    for path in ("libnot-there.so.1", str(junk)):
        libraries = {"cuda_library": good, "nvml_library": good, name: path}
        with pytest.raises(UsageError, match=r"no NVIDIA driver here: .* cannot be loaded"):
            describe(**libraries)


def test_the_loader_finds_the_libraries_under_their_own_names(driver: Driver, tmp_path: Path) -> None:
    """As in a container: libcuda.so.1 and libnvidia-ml.so.1 on the loader's path, in a process of its own."""
    library = Path(driver())
    for name in ("libcuda.so.1", "libnvidia-ml.so.1"):
        (tmp_path / name).symlink_to(library)
    code = "from warmstart.gpus import describe; print(describe().id, describe().memory_bytes)"
    environment = {"PYTHONPATH": str(APP), "LD_LIBRARY_PATH": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["h200", "150754820096"]


def test_comparing_names_the_fields_that_a_compile_pass_can_see(driver: Driver) -> None:
    """Clocks and a sliver of memory are a board's settings; everything else is another card."""
    live = _describe(driver())
    assert compare(load_catalog().get("h200"), live) == ()
    assert compare(live, dataclasses.replace(live, clock_khz=1, memory_clock_khz=1)) == ()
    assert compare(live, dataclasses.replace(live, memory_bytes=int(live.memory_bytes * 0.99))) == ()
    assert compare(live, dataclasses.replace(live, memory_bytes=live.memory_bytes // 2)) == ("memory_bytes",)
    other = load_catalog().get("h100-pcie-80gb")
    assert compare(load_catalog().get("h200"), other) == (
        "name",
        "multiprocessors",
        "memory_bytes",
        "l2_cache_bytes",
        "memory_bus_bits",
    )
    assert compare(live, dataclasses.replace(live, capability=(9, 1), warp_size=64)) == ("capability", "warp_size")
