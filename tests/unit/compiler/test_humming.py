"""What humming is told of a GPU type that is not there follows from the catalog's entry."""

from __future__ import annotations

import pytest

from warmstart.compiler.seams.humming import HummingDevice
from warmstart.gpus import load_catalog


def test_figures_are_the_entrys_own() -> None:
    gpu = load_catalog().get("h200")
    device = HummingDevice(gpu, 3)
    assert (device.index, device.name, device.sm_version, device.sm_count) == (3, gpu.name, 90, gpu.multiprocessors)
    assert (device.max_smem_size, device.default_smem_size) == (gpu.shared_memory_per_block_optin, gpu.shared_memory_per_block)
    assert device.memory_bandwidth_gbps == pytest.approx(2 * gpu.memory_clock_khz * gpu.memory_bus_bits / 8 / 1e6)


@pytest.mark.parametrize(
    ("name", "dtypes", "absent"),
    [
        ("t4", {"float16", "int8", "int4"}, {"bfloat16", "float8e4m3"}),
        ("a100-sxm4-80gb", {"bfloat16", "int8"}, {"float8e4m3", "float4e2m1"}),
        ("h200", {"float8e4m3", "int8"}, {"float4e2m1"}),
        ("b200", {"float8e4m3", "float4e2m1"}, set()),
    ],
)
def test_a_gpu_multiplies_the_dtypes_of_its_generation(name: str, dtypes: set[str], absent: set[str]) -> None:
    """Eight bits are twice as fast as sixteen, four bits twice as fast again."""
    tops = HummingDevice(load_catalog().get(name), 0).tensorcore_tops
    assert dtypes <= tops.keys()
    assert not absent & tops.keys()
    if "bfloat16" in tops and "float8e4m3" in tops:
        assert tops["float8e4m3"] == pytest.approx(2 * tops["bfloat16"])
