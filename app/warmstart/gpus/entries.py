"""From the catalog's JSON to profiles: what one entry holds, and what a MIG slice takes over from its card.

The built-in file is decoded without checks, because the tests check it; a user's file passes `user_file.py` first.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from warmstart.gpus.profile import GpuProfile

BUILT_IN = Path(__file__).with_name("catalog.json")
SCHEMA = 1

FIGURES = tuple(name for name in GpuProfile.__fields__ if name not in ("id", "name", "verified", "sources", "capability"))
"""The integer figures of an entry, as its JSON spells them."""
SOURCED = ("name", "capability", *FIGURES)
"""Everything in an entry that must say where it was read."""
MIG_FIGURES = ("multiprocessors", "memory_bytes", "l2_cache_bytes", "memory_bus_bits")
"""What differs between a MIG slice and its card; the rest belongs to the chip and is taken over."""


class Entry(NamedTuple):
    """A profile with what the catalog needs to find it."""

    profile: GpuProfile
    aliases: tuple[str, ...] = ()
    parent: str | None = None
    mig_profile: str = ""


def built_in() -> tuple[Entry, ...]:
    """Return the entries that come with warmstart."""
    return decode(json.loads(BUILT_IN.read_bytes()))


def decode(document: Mapping[str, Any]) -> tuple[Entry, ...]:
    """Return the entries of a catalog document whose form is known to be right: each card followed by its slices."""
    texts = document.get("sources", {})
    entries: list[Entry] = []
    for id_, raw in document["gpus"].items():
        card = _card(id_, raw, texts)
        entries.append(Entry(card, tuple(raw.get("aliases", ()))))
        entries.extend(_slice(card, profile, figures, texts) for profile, figures in raw.get("mig", {}).items())
    return tuple(entries)


def _card(id_: str, raw: Mapping[str, Any], texts: Mapping[str, str]) -> GpuProfile:
    major, _, minor = raw["capability"].partition(".")
    return GpuProfile(
        id=id_,
        name=raw["name"],
        capability=(int(major), int(minor)),
        verified=raw.get("verified", False),
        sources=_sources(raw["sources"], texts),
        **{figure: raw[figure] for figure in FIGURES},
    )


def _slice(card: GpuProfile, profile: str, raw: Mapping[str, Any], texts: Mapping[str, str]) -> Entry:
    sources = {**card.sources, **{name: text for name, text in _sources(raw["sources"], texts).items() if name in MIG_FIGURES}}
    sliced = card.replace(
        id=f"{card.id}-mig-{profile}",
        name=f"{card.name} MIG {profile}",
        verified=raw.get("verified", False),
        sources=sources,
        **{figure: raw[figure] for figure in MIG_FIGURES},
    )
    return Entry(sliced, parent=card.id, mig_profile=profile)


def _sources(raw: Mapping[str, str], texts: Mapping[str, str]) -> dict[str, str]:
    """Return the source of every figure: "*" in the file stands for all that are not named, a short name for its full text."""
    rest = raw.get("*", "")
    return {name: texts.get(source, source) for name in SOURCED if (source := raw.get(name, rest))}
