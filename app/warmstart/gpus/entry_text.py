"""A profile as a catalog entry, and what differs between the catalog's and a live device's profile."""

from __future__ import annotations

from collections import Counter
from typing import Any

from warmstart.gpus.entries import FIGURES, SCHEMA, built_in
from warmstart.gpus.profile import GpuProfile

# Clocks are a setting of the board and its power budget; they change no compiled artifact.
_NO_MATTER = frozenset({"clock_khz", "memory_clock_khz"})
_MEMORY_TOLERANCE = 0.02
"""Drivers differ by as much in what they keep of a card's memory (V100: 32510 MiB by one, 32768 by the next)."""


def to_entry(profile: GpuProfile) -> dict[str, Any]:
    """Return the profile as one entry of a catalog file, ready for JSON; the key that it belongs under is its id."""
    major, minor = profile.capability
    return {
        "name": profile.name,
        "capability": f"{major}.{minor}",
        **{figure: getattr(profile, figure) for figure in FIGURES},
        "verified": profile.verified,
        "sources": _short_sources(profile),
    }


def to_document(profile: GpuProfile) -> dict[str, Any]:
    """Return a whole catalog file with the profile as its only entry, which replaces the built-in one where there is one."""
    entry = to_entry(profile)
    if any(known.profile.id == profile.id for known in built_in()):
        entry["replaces"] = True
    return {"schema": SCHEMA, "gpus": {profile.id: entry}}


def compare(catalog: GpuProfile, live: GpuProfile) -> tuple[str, ...]:
    """Return the names of the fields in which the live device differs from the catalog in a way that a compile pass can see.

    Clocks are left out, and memory counts only beyond 2%.
    """
    differing = []
    for field in ("name", "capability", *FIGURES):
        expected, found = getattr(catalog, field), getattr(live, field)
        if field == "memory_bytes":
            if abs(expected - found) > _MEMORY_TOLERANCE * expected:
                differing.append(field)
        elif field not in _NO_MATTER and expected != found:
            differing.append(field)
    return tuple(differing)


def _short_sources(profile: GpuProfile) -> dict[str, str]:
    """Return the sources with the commonest as "*"."""
    if not profile.sources:
        return {}
    commonest = Counter(profile.sources.values()).most_common(1)[0][0]
    return {"*": commonest, **{name: text for name, text in profile.sources.items() if text != commonest}}
