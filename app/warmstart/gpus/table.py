"""The generated parts of docs/gpus.md: `python -m warmstart.gpus.table docs/gpus.md` writes them anew."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from warmstart.gpus.catalog import Catalog, load_catalog
from warmstart.gpus.labels import NAMING, NARROWING
from warmstart.gpus.profile import GpuProfile

_BEGIN, _END = "<!-- generated: {} -->", "<!-- end: {} -->"


def render(document: str, catalog: Catalog | None = None) -> str:
    """Return the document with every generated part replaced. Raises ValueError where a part's marks are missing."""
    catalog = catalog or load_catalog()
    parts = {"types": types(catalog), "limits": limits(catalog), "sources": sources(catalog), "labels": labels()}
    for name, text in parts.items():
        begin, end = _BEGIN.format(name), _END.format(name)
        before, found, rest = document.partition(begin)
        _, closed, after = rest.partition(end)
        if not found or not closed:
            raise ValueError(f"{begin} … {end} is missing")
        document = f"{before}{begin}\n\n{text}\n\n{end}{after}"
    return document


def types(catalog: Catalog) -> str:
    """Return one row for each type; memory in MiB as `nvidia-smi` shows it."""
    rows = [
        (
            f"`{profile.id}`",
            profile.name,
            _capability(profile),
            str(profile.multiprocessors),
            f"{profile.memory_bytes / 2**20:.0f}",
            f"{profile.l2_cache_bytes / 2**20:g}",
            f"{profile.clock_khz // 1000}",
            f"{profile.memory_clock_khz // 1000}",
            str(profile.memory_bus_bits),
            "yes" if profile.verified else "",
            _where(catalog, profile),
        )
        for profile in catalog
    ]
    head = ["id", "name as the driver reports it", "cc", "SMs", "memory, MiB", "L2, MiB", "clock, MHz", "memory clock, MHz"]
    head += ["bus, bit", "verified", "sources"]
    return _table(head, rows)


def limits(catalog: Catalog) -> str:
    """Return what every card of a compute capability shares."""
    by_capability = {profile.capability: profile for profile in catalog}
    rows = [
        (
            _capability(profile),
            str(profile.shared_memory_per_block),
            str(profile.shared_memory_per_block_optin),
            str(profile.shared_memory_per_multiprocessor),
            str(profile.registers_per_multiprocessor),
            str(profile.max_threads_per_multiprocessor),
            str(profile.max_threads_per_block),
            str(profile.warp_size),
        )
        for _, profile in sorted(by_capability.items())
    ]
    head = (
        "cc",
        "shared memory per block",
        "opt-in",
        "per SM",
        "registers per SM",
        "threads per SM",
        "threads per block",
        "warp",
    )
    return _table(head, rows)


def sources(catalog: Catalog) -> str:
    """Return the numbered list of every source."""
    return "\n".join(f"{number}. {text}" for text, number in _numbers(catalog).items())


def labels() -> str:
    """Return one row for each label that is read, with the values whose meaning is not their spelling."""
    rows = []
    for row in NAMING:
        special = "; ".join(f"`{value}` → {', '.join(ids)}" for value, ids in row.values.items())
        nameless = "".join(f"`{value}` names no model" for value in row.nameless)
        rows.append((row.ecosystem, f"`{row.label}`", "a model", special or nameless or "as spelled", row.source))
    rows.extend((row.ecosystem, f"`{row.label}`", "a property, narrows", "", row.source) for row in NARROWING)
    return _table(("where", "label", "value is", "values", "source"), rows)


def _capability(profile: GpuProfile) -> str:
    return ".".join(map(str, profile.capability))


def _numbers(catalog: Catalog) -> dict[str, int]:
    texts = dict.fromkeys(text for profile in catalog for text in profile.sources.values())
    return {text: number for number, text in enumerate(texts, start=1)}


def _where(catalog: Catalog, profile: GpuProfile) -> str:
    numbers = _numbers(catalog)
    return ", ".join(str(number) for number in sorted({numbers[text] for text in profile.sources.values()}))


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---" for _ in head], *rows]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


if __name__ == "__main__":
    target = Path(sys.argv[1])
    target.write_text(render(target.read_text()))
