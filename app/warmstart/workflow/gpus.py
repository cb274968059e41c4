"""`warmstart gpus`: the catalog, and the GPU of this machine as an entry."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from warmstart.settings import Settings


def listing(settings: Settings) -> list[dict[str, Any]]:
    """Return every known GPU type with the spellings that name it, in the catalog's order."""
    from warmstart.gpus import load_catalog

    catalog = load_catalog(settings.gpu_file)
    spellings: dict[str, list[str]] = {}
    for spelling, ids in catalog.spellings.items():
        for id_ in ids:
            spellings.setdefault(id_, []).append(spelling)
    return [
        {
            "id": profile.id,
            "name": profile.name,
            "capability": f"{profile.capability[0]}.{profile.capability[1]}",
            "multiprocessors": profile.multiprocessors,
            "memory_bytes": profile.memory_bytes,
            "verified": profile.verified,
            "spellings": sorted(spellings.get(profile.id, [])),
        }
        for profile in catalog
    ]


def table(rows: list[dict[str, Any]]) -> str:
    """Return the listing for people."""
    lines = [f"{'id':<26}{'name':<44}{'sm':>5}{'SMs':>6}{'memory':>10}  verified"]
    lines += [
        f"{row['id']:<26}{row['name']:<44}{row['capability']:>5}{row['multiprocessors']:>6}"
        f"{row['memory_bytes'] / 2**30:>6.0f} GiB  {'yes' if row['verified'] else 'no'}"
        for row in rows
    ]
    return "\n".join(lines)


def described() -> dict[str, Any]:
    """Return the GPU of this machine as a document for --gpu-file. Raises UsageError where there is none."""
    from warmstart.gpus import describe, to_document

    return to_document(describe())
