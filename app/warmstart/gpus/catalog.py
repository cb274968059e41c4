"""The catalog: every known GPU type, and the one place that turns a name into types.

The built-in entries are `catalog.json` beside this file; `entries.py` decodes them, `user_file.py` checks a user's own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from warmstart.errors import UnknownGpuError, shorten
from warmstart.gpus import resolve, spelling
from warmstart.gpus.entries import Entry, built_in
from warmstart.gpus.profile import GpuProfile
from warmstart.value import Value

_NEAR_SPELLINGS = 5
_NEAR_ENOUGH = 0.4
_LONGEST_QUOTE = 80


class Catalog(Value):
    """GPU types by id, with every spelling that names them. Immutable; made by `load_catalog`."""

    profiles: Mapping[str, GpuProfile]
    spellings: Mapping[str, tuple[str, ...]]
    slices: Mapping[str, tuple[str, ...]]
    """Plain MIG profile to the ids of the slices of that profile."""
    parents: Mapping[str, str]
    """Id of a MIG slice to the id of its card."""

    def __iter__(self) -> Iterator[GpuProfile]:
        """Iterate over every profile, in the catalog's order."""
        return iter(self.profiles.values())

    def ids(self) -> tuple[str, ...]:
        """Return every id, in the catalog's order."""
        return tuple(self.profiles)

    def get(self, id_or_name: str) -> GpuProfile:
        """Return the type with this id, or with this name as the driver reports it.

        Raises UnknownGpuError as `parse` does, which reads whatever is neither.
        """
        wanted = id_or_name.strip() if isinstance(id_or_name, str) else ""
        profile = self.profiles.get(wanted.lower())
        return self.parse(id_or_name) if profile is None else profile

    def parse(self, text: str) -> GpuProfile:
        """Return the one type that a spelling names: an id, a driver's name, a label value, or a name in common use.

        Raises UnknownGpuError: with the candidates where the text covers several types, with near spellings where it covers
        none.
        """
        found = self.candidates(text)
        if len(found) > 1:
            raise UnknownGpuError(
                f"GPU name {quote(text)} covers {len(found)} types: {listed(found)}", hint="name one of them, by its id"
            )
        return found[0]

    def candidates(self, text: str) -> tuple[GpuProfile, ...]:
        """Return every type that a spelling covers, at least one. Raises UnknownGpuError where it covers none."""
        ids = self.matches(text)
        if not ids:
            raise UnknownGpuError(f"unknown GPU {quote(text)}", hint=self.suggest(text))
        return tuple(self.profiles[id_] for id_ in ids)

    def matches(self, text: str) -> tuple[str, ...]:
        """Return the ids of every type that a spelling covers; none for text that names no type."""
        if not isinstance(text, str) or not text.strip() or len(text) > spelling.LONGEST_NAME or not text.isascii():
            return ()
        name = spelling.without_sharing(text)
        exact = self.profiles.get(name.lower())
        if exact is not None:
            return (exact.id,)
        card, profile = spelling.split_mig(name)
        if profile is None:
            return self.spellings.get(spelling.plain(card), ())
        slices = self.slices.get(profile, ())
        if not spelling.plain(card):
            return slices
        cards = self.spellings.get(spelling.plain(card), ())
        return tuple(id_ for id_ in slices if self.parents[id_] in cards) or self.spellings.get(spelling.plain(name), ())

    def from_labels(self, labels: Mapping[str, str], *, resource: str | None = None) -> tuple[GpuProfile, ...]:
        """Return every type that a node with these labels can have, in the catalog's order; none if no label speaks of a GPU.

        `resource` is the resource name that the container asks for where known: "nvidia.com/gpu", or
        "nvidia.com/mig-3g.20gb" under the device plugin's mixed MIG strategy.

        Raises UnknownGpuError: a label names a type that the catalog does not hold, or no model at all, or two labels
        contradict each other.
        """
        return resolve.resolve(self, labels, resource)

    def from_dra(self, product_name: str) -> tuple[GpuProfile, ...]:
        """Return every type that a DRA `productName` attribute covers. Raises UnknownGpuError where it covers none."""
        return self.candidates(product_name)

    def suggest(self, text: object) -> str:
        """Return a hint for a name that is not in the catalog: the nearest spellings, and where to see all."""
        import difflib  # 4 ms that only a wrong name needs

        name = spelling.plain(text[: spelling.LONGEST_NAME]) if isinstance(text, str) else ""
        near = difflib.get_close_matches(name, self.spellings, n=_NEAR_SPELLINGS, cutoff=_NEAR_ENOUGH)
        ids = list(dict.fromkeys(id_ for spelled in near for id_ in self.spellings[spelled]))[:_NEAR_SPELLINGS]
        nearest = f"nearest: {', '.join(ids)}; " if ids else ""
        return f"{nearest}`warmstart gpus` lists all {len(self.profiles)}, docs/gpus.md says how to add one"


def load_catalog(extra: Path | None = None) -> Catalog:
    """Return the built-in catalog, with the entries of a user's file added where one is given.

    Raises UsageError: the file cannot be read, or an entry in it is not right (the message names file, entry and field).
    """
    entries = built_in()
    if extra is not None:
        from warmstart.gpus.user_file import read_entries

        ordered = {entry.profile.id: entry for entry in entries}
        ordered.update((entry.profile.id, entry) for entry in read_entries(extra, entries))
        entries = tuple(ordered.values())
    return _index(entries)


def _index(entries: Iterable[Entry]) -> Catalog:
    profiles: dict[str, GpuProfile] = {}
    spellings: dict[str, dict[str, None]] = {}
    slices: dict[str, tuple[str, ...]] = {}
    parents: dict[str, str] = {}
    for entry in entries:
        profile = entry.profile
        profiles[profile.id] = profile
        parent, mig = _slice_of(entry, spellings)
        if parent is not None:
            parents[profile.id] = parent
            slices[mig] = (*slices.get(mig, ()), profile.id)
            continue
        for text in (profile.id, profile.name, *entry.aliases):
            spellings.setdefault(spelling.plain(text), {})[profile.id] = None
    return Catalog(profiles, {text: tuple(ids) for text, ids in spellings.items()}, slices, parents)


def _slice_of(entry: Entry, spellings: Mapping[str, Mapping[str, None]]) -> tuple[str | None, str]:
    """Return the id of an entry's card and its MIG profile; (None, "") for a whole card.

    An entry that `describe` wrote for a slice stands by itself; its name says which card it is cut from.
    """
    if entry.parent is not None:
        return entry.parent, spelling.plain(entry.mig_profile)
    card, mig = spelling.split_mig(entry.profile.name)
    cards = tuple(spellings.get(spelling.plain(card), ())) if mig else ()
    return (cards[0], mig) if mig and len(cards) == 1 else (None, "")


def quote(text: object) -> str:
    """Return foreign text in quotes, short enough for one line."""
    return repr(shorten(text, _LONGEST_QUOTE))


def listed(profiles: Iterable[GpuProfile]) -> str:
    """Return candidates as one line: id and the driver's name of each."""
    return ", ".join(f"{profile.id} ({profile.name})" for profile in profiles)
