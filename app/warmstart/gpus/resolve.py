"""From a node's labels to GPU types: every label that speaks of a GPU is a claim, and the claims narrow each other."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

from warmstart.errors import UnknownGpuError, shorten
from warmstart.gpus import spelling
from warmstart.gpus.labels import MIG_PREFIX, NAMING, NARROWING, Naming
from warmstart.pattern import pattern

if TYPE_CHECKING:
    from warmstart.gpus.catalog import Catalog
    from warmstart.gpus.profile import GpuProfile

_LONGEST_QUOTE = 80
_PROFILE = pattern(r"[0-9]+g\.[0-9]+gb")


class _Claim(NamedTuple):
    """What one label says: `text` for the reader, and the ids that it allows."""

    text: str
    ids: frozenset[str]


def resolve(catalog: Catalog, labels: Mapping[str, str], resource: str | None) -> tuple[GpuProfile, ...]:
    """Return the types that all labels allow together; see `Catalog.from_labels`."""
    slices = _slices(catalog, labels, resource)
    names = list(_names(catalog, labels))
    if slices is not None:
        names = [_Claim(claim.text, _with_slices(catalog, claim.ids)) for claim in names]
        names.append(slices)
    properties = list(_properties(catalog, labels, of_card=slices is not None))
    if not names and not properties:
        _refuse_nameless(labels)
        return ()
    # Without a label that asks for a slice, a property alone ("major 8") means whole cards.
    agreed = frozenset(catalog.ids()) if names else frozenset(catalog.ids()) - frozenset(catalog.parents)
    seen: list[_Claim] = []
    for claim in (*names, *properties):
        if not agreed & claim.ids:
            _contradict(catalog, seen, claim)
        agreed &= claim.ids
        seen.append(claim)
    return tuple(profile for profile in catalog if profile.id in agreed)


def _names(catalog: Catalog, labels: Mapping[str, str]) -> Iterator[_Claim]:
    for row in NAMING:
        value = labels.get(row.label)
        if value is None or _says_nothing(row, value):
            continue
        ids = _listed(row, value) or (() if row.prefixes else catalog.matches(value))
        known = frozenset(id_ for id_ in ids if id_ in catalog.profiles)
        if known:
            yield _Claim(_written(row.label, value), known)
        elif not row.prefixes:
            raise UnknownGpuError(f"label {_written(row.label, value)} names a GPU unknown here", hint=catalog.suggest(value))


def _says_nothing(row: Naming, value: str) -> bool:
    return isinstance(value, str) and value.strip().lower() in row.nameless


def _listed(row: Naming, value: str) -> tuple[str, ...]:
    if not isinstance(value, str):
        return ()
    spelled = value.strip().lower()
    if row.prefixes and spelled not in row.values:
        # A family's name is complete; a machine type goes on after the series ("p5.48xlarge").
        return next((ids for start, ids in row.values.items() if start[-1:] in ".-" and spelled.startswith(start)), ())
    return row.values.get(spelled, ())


def _slices(catalog: Catalog, labels: Mapping[str, str], resource: str | None) -> _Claim | None:
    """Return the claim for MIG slices: of the resource asked for, or of every profile that the labels offer; else None."""
    if resource is not None:
        return (
            _Claim(f"resource {_short(resource)}", _of_profile(catalog, resource)) if resource.startswith(MIG_PREFIX) else None
        )
    offered = {
        label: _product(catalog, label, value) if label.endswith(".product") else _of_profile(catalog, label)
        for label, value in labels.items()
        if isinstance(label, str) and label.startswith(MIG_PREFIX) and not (label.endswith(".count") and value == "0")
    }
    if not offered:
        return None
    by_product = {label: ids for label, ids in offered.items() if label.endswith(".product")} or offered
    return _Claim(" and ".join(_short(label) for label in by_product), frozenset[str]().union(*by_product.values()))


def _product(catalog: Catalog, label: str, value: str) -> frozenset[str]:
    ids = frozenset(catalog.matches(value))
    if not ids:
        raise UnknownGpuError(f"label {_written(label, value)} names a GPU unknown here", hint=catalog.suggest(value))
    return ids


def _of_profile(catalog: Catalog, label: str) -> frozenset[str]:
    """Return the slices of the profile in "nvidia.com/mig-1g.10gb", with or without a media extension or a field after it."""
    profile = _PROFILE.match(label.removeprefix(MIG_PREFIX))
    ids = catalog.slices.get(spelling.plain(profile[0]), ()) if profile else ()
    if not ids:
        known = sorted({catalog.profiles[id_].name.rpartition(" ")[2] for id_ in catalog.parents})
        raise UnknownGpuError(f"{_short(label)} names a MIG profile unknown here", hint=f"known: {', '.join(known)}")
    return frozenset(ids)


def _with_slices(catalog: Catalog, ids: frozenset[str]) -> frozenset[str]:
    return ids | frozenset(id_ for id_, parent in catalog.parents.items() if parent in ids)


def _properties(catalog: Catalog, labels: Mapping[str, str], *, of_card: bool) -> Iterator[_Claim]:
    """Yield the claims of properties. Under the mixed MIG strategy (`of_card`) they are those of the card, not of the slice."""
    for row in NARROWING:
        value = labels.get(row.label)
        if not isinstance(value, str):
            continue
        fitting = frozenset(
            profile.id
            for profile in catalog
            if row.fits(catalog.profiles[catalog.parents.get(profile.id, profile.id)] if of_card else profile, value)
        )
        yield _Claim(_written(row.label, value), fitting)


def _refuse_nameless(labels: Mapping[str, str]) -> None:
    for row in NAMING:
        value = labels.get(row.label)
        if value is not None and _says_nothing(row, value):
            raise UnknownGpuError(
                f"label {_written(row.label, value)} says that there is a GPU but not which ({row.ecosystem})",
                hint="name the type with --gpu, or add node.kubernetes.io/instance-type to the node selector",
            )


def _contradict(catalog: Catalog, seen: Iterable[_Claim], claim: _Claim) -> None:
    others = [earlier for earlier in seen if not earlier.ids & claim.ids] or list(seen)
    if not others:
        raise UnknownGpuError(f"no GPU type here fits {claim.text}", hint="`warmstart gpus` lists what is known")
    said = "; ".join(f"{other.text} means {_few(catalog, other.ids)}" for other in (*others, claim))
    raise UnknownGpuError(f"labels contradict each other: {said}", hint="correct one of them")


def _few(catalog: Catalog, ids: frozenset[str], most: int = 6) -> str:
    named = [id_ for id_ in catalog.ids() if id_ in ids]
    rest = f" and {len(named) - most} more" if len(named) > most else ""
    return (", ".join(named[:most]) + rest) or "no type known here"


def _written(label: str, value: object) -> str:
    return f"{label}={_short(value)}"


def _short(text: object) -> str:
    return shorten(text, _LONGEST_QUOTE)
