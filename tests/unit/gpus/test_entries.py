"""What every entry of the built-in catalog must hold."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from warmstart.gpus import GpuProfile, load_catalog
from warmstart.gpus.device import READ_FROM_DEVICE
from warmstart.gpus.entries import BUILT_IN, FIGURES, MIG_FIGURES, SOURCED

CATALOG = load_catalog()
CARDS = [profile for profile in CATALOG if profile.id not in CATALOG.parents]
SLICES = [profile for profile in CATALOG if profile.id in CATALOG.parents]

# CUDA C++ Programming Guide, technical specifications per compute capability. Per block opt-in, per SM (bytes), threads per SM.
LIMITS = {
    (7, 0): (96 * 1024, 96 * 1024, 2048),
    (7, 5): (64 * 1024, 64 * 1024, 1024),
    (8, 0): (163 * 1024, 164 * 1024, 2048),
    (8, 6): (99 * 1024, 100 * 1024, 1536),
    (8, 9): (99 * 1024, 100 * 1024, 1536),
    (9, 0): (227 * 1024, 228 * 1024, 2048),
    (10, 0): (227 * 1024, 228 * 1024, 2048),
    (10, 3): (227 * 1024, 228 * 1024, 2048),
    (12, 0): (99 * 1024, 100 * 1024, 1536),
    (12, 1): (99 * 1024, 100 * 1024, 1536),
}

# The cards that the catalog promises, by the driver's name.
PROMISED = {
    "Tesla T4": (7, 5),
    "Tesla V100-SXM2-16GB": (7, 0),
    "Tesla V100-SXM2-32GB": (7, 0),
    "Tesla V100-PCIE-16GB": (7, 0),
    "Tesla V100-PCIE-32GB": (7, 0),
    "NVIDIA A10": (8, 6),
    "NVIDIA A10G": (8, 6),
    "NVIDIA A30": (8, 0),
    "NVIDIA A40": (8, 6),
    "NVIDIA A100-SXM4-40GB": (8, 0),
    "NVIDIA A100-PCIE-40GB": (8, 0),
    "NVIDIA A100-SXM4-80GB": (8, 0),
    "NVIDIA A100 80GB PCIe": (8, 0),
    "NVIDIA L4": (8, 9),
    "NVIDIA L40": (8, 9),
    "NVIDIA L40S": (8, 9),
    "NVIDIA GeForce RTX 3090": (8, 6),
    "NVIDIA GeForce RTX 4090": (8, 9),
    "NVIDIA GeForce RTX 5090": (12, 0),
    "NVIDIA RTX 6000 Ada Generation": (8, 9),
    "NVIDIA RTX PRO 6000 Blackwell Server Edition": (12, 0),
    "NVIDIA H100 80GB HBM3": (9, 0),
    "NVIDIA H100 PCIe": (9, 0),
    "NVIDIA H100 NVL": (9, 0),
    "NVIDIA H20": (9, 0),
    "NVIDIA H200": (9, 0),
    "NVIDIA H200 NVL": (9, 0),
    "NVIDIA GH200 480GB": (9, 0),
    "NVIDIA B200": (10, 0),
    "NVIDIA B300 SXM6 AC": (10, 3),
    "NVIDIA GB200": (10, 0),
    "NVIDIA GB300": (10, 3),
    "NVIDIA GB10": (12, 1),
}


def _ids(profiles: list[GpuProfile]) -> list[str]:
    return [profile.id for profile in profiles]


def test_every_promised_card_is_there_with_its_capability() -> None:
    """The issue's list of cards, by the exact name the driver reports."""
    assert {profile.name: profile.capability for profile in CARDS if profile.name in PROMISED} == PROMISED


@pytest.mark.parametrize("profile", list(CATALOG), ids=_ids(list(CATALOG)))
def test_an_entry_is_complete_and_every_figure_has_a_source(profile: GpuProfile) -> None:
    """No figure is zero, and none stands without where it was read."""
    assert all(getattr(profile, figure) > 0 for figure in FIGURES)
    assert set(profile.sources) == set(SOURCED)
    assert all(len(text) > 3 and "confirmed" not in text for text in profile.sources.values())


@pytest.mark.parametrize("profile", list(CATALOG), ids=_ids(list(CATALOG)))
def test_limits_are_those_of_the_compute_capability(profile: GpuProfile) -> None:
    """Shared memory, threads, registers and warp size belong to the chip's generation, not to the card."""
    optin, per_sm, threads = LIMITS[profile.capability]
    assert profile.shared_memory_per_block == 48 * 1024
    assert profile.shared_memory_per_block_optin == optin
    assert profile.shared_memory_per_multiprocessor == per_sm
    assert profile.max_threads_per_multiprocessor == threads
    assert (profile.registers_per_multiprocessor, profile.max_threads_per_block, profile.warp_size) == (65536, 1024, 32)


@pytest.mark.parametrize("profile", CARDS, ids=_ids(CARDS))
def test_figures_are_of_the_magnitude_their_unit_says(profile: GpuProfile) -> None:
    """A figure in the wrong unit would be a thousand times off."""
    assert 12 * 2**30 < profile.memory_bytes < 300 * 2**30
    assert profile.memory_bytes % 2**20 == 0, "NVML counts whole MiB"
    assert 4 * 2**20 <= profile.l2_cache_bytes <= 256 * 2**20
    assert 1_000_000 <= profile.clock_khz <= 3_000_000
    assert 800_000 <= profile.memory_clock_khz <= 20_000_000
    assert 128 <= profile.memory_bus_bits <= 8192
    assert 40 <= profile.multiprocessors <= 200


@pytest.mark.parametrize("profile", SLICES, ids=_ids(SLICES))
def test_a_slice_is_no_larger_than_its_card_and_shares_the_rest(profile: GpuProfile) -> None:
    """A MIG slice differs from its card in four figures, and none of them is larger."""
    card = CATALOG.get(CATALOG.parents[profile.id])
    assert all(0 < getattr(profile, figure) <= getattr(card, figure) for figure in MIG_FIGURES)
    assert all(getattr(profile, figure) == getattr(card, figure) for figure in FIGURES if figure not in MIG_FIGURES)
    assert profile.name.startswith(f"{card.name} MIG ")
    nominal = int(profile.name.rpartition(".")[2].removesuffix("gb"))
    assert 0.9 < profile.memory_bytes / (nominal * 10**9) < 1.2


def test_slices_of_the_data_centre_cards_are_there() -> None:
    """MIG slices of A100, H100 and H200, in every form that has one."""
    with_slices = {CATALOG.parents[profile.id] for profile in SLICES}
    wanted = [card.id for card in CARDS if card.id.startswith(("a100", "h100", "h200"))]
    assert with_slices == set(wanted)
    for card in wanted:
        assert len([1 for parent in CATALOG.parents.values() if parent == card]) == 6


def test_only_entries_read_from_a_device_throughout_are_verified() -> None:
    """`verified` promises that every figure was read from a device."""
    for profile in CATALOG:
        if profile.verified:
            assert all(text.startswith(READ_FROM_DEVICE) for text in profile.sources.values()), profile.id


def test_the_h200_holds_what_a_device_reported() -> None:
    """The figures that were read from an NVIDIA H200."""
    h200 = CATALOG.get("h200")
    assert (h200.name, h200.capability, h200.multiprocessors) == ("NVIDIA H200", (9, 0), 132)
    assert (h200.memory_bytes, h200.l2_cache_bytes) == (150754820096, 62914560)
    assert (h200.clock_khz, h200.memory_clock_khz, h200.memory_bus_bits) == (1980000, 3201000, 6016)
    assert (h200.shared_memory_per_block_optin, h200.shared_memory_per_multiprocessor) == (232448, 233472)


def test_no_two_entries_share_a_name() -> None:
    """A live device's name leads to one entry."""
    names = [profile.name for profile in CATALOG]
    assert len(names) == len(set(names))


def test_the_catalogs_own_file_passes_the_check_of_a_users_file(tmp_path: Path) -> None:
    """The built-in file has the form that users' files must have."""
    document = json.loads(BUILT_IN.read_bytes())
    for entry in document["gpus"].values():
        entry["replaces"] = True
    path = tmp_path / "own.json"
    path.write_text(json.dumps(document))
    again = load_catalog(path)
    assert again.profiles == CATALOG.profiles
    assert again.ids() == CATALOG.ids()
