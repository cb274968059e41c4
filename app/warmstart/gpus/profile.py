"""What a compile pass must know of a GPU type; one frozen value per catalog entry."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping

from warmstart.value import Value, field


class GpuProfile(Value, kw_only=True):
    """One GPU type, as its driver reports it.

    Sizes are bytes, clocks kHz, the bus width bits; the units are those of CUDA's device attributes. `sources` says for each
    figure where it was read; `verified` is true only where every figure was read from a device.
    """

    id: str
    name: str
    capability: tuple[int, int]
    multiprocessors: int
    memory_bytes: int
    shared_memory_per_block: int
    shared_memory_per_block_optin: int
    shared_memory_per_multiprocessor: int
    registers_per_multiprocessor: int
    max_threads_per_multiprocessor: int
    max_threads_per_block: int
    l2_cache_bytes: int
    warp_size: int
    clock_khz: int
    memory_clock_khz: int
    memory_bus_bits: int
    verified: bool = False
    sources: Mapping[str, str] = field(default_factory=dict, compare=False)

    @property
    def sm(self) -> int:
        """The compute capability as one number: 90 for (9, 0), 120 for (12, 0)."""
        return self.capability[0] * 10 + self.capability[1]

    def facts(self) -> dict[str, object]:
        """Return what of the profile decides a compiled artifact: every figure, without where it was read."""
        facts: dict[str, object] = self.items()
        for name in ("id", "verified", "sources"):
            facts.pop(name)
        facts["capability"] = list(self.capability)
        return facts

    def digest(self) -> str:
        """Return the SHA-256 (hex) of the facts: equal for equal hardware, whatever the entry is called."""
        return hashlib.sha256(json.dumps(self.facts(), sort_keys=True).encode()).hexdigest()
