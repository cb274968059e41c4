"""Collecting garbage, in two steps: a plan that touches nothing, and its execution, which checks again.

Never removed: a blob that any manifest names, and anything younger than the grace period on the server's clock. A publish
brings its blobs anew where they are older than an hour (publish.REFRESH_SECONDS) and the grace is at least two, so the blobs of
a publish in progress are always too young to go.
"""

from __future__ import annotations

import fnmatch
from collections import defaultdict
from collections.abc import Iterable

from warmstart.errors import EntryInvalid, UsageError
from warmstart.store import names
from warmstart.store.backend import Backend, ObjectInfo
from warmstart.store.care import entries, read_manifests
from warmstart.store.care_model import Collected, EntrySummary, GcPlan, GcPolicy
from warmstart.store.clock import ServerClock
from warmstart.store.publish import REFRESH_SECONDS
from warmstart.store.trust import Trust
from warmstart.store.view import ManifestView

LEAST_GRACE = 2 * REFRESH_SECONDS
_BLOB_BATCH = 64


def plan(backend: Backend, trust: Trust, clock: ServerClock, policy: GcPolicy, parallel: int) -> GcPlan:
    """Return what a collection would remove."""
    if policy.grace < LEAST_GRACE:
        raise UsageError(f"the grace period is {policy.grace:.0f} s, less than {LEAST_GRACE:.0f} s: a publish could lose blobs")
    now = clock.now()
    summaries = list(entries(backend, trust, parallel))
    going = {
        names.entry(summary.key, summary.name): reason
        for summary, reason in _choose(summaries, policy, now)
        if now - max(summary.created, summary.used) > policy.grace
    }
    blobs, freed, blocked = _orphans(backend, parallel, frozenset(going), now - policy.grace)
    manifest_bytes = {info.name: info.size for info in backend.objects(names.ENTRIES)}
    others = tuple(sorted(_others(backend, {names.entry(s.key, s.name) for s in summaries} - going.keys(), now - policy.grace)))
    return GcPlan(
        entries=going,
        blobs=tuple(blobs),
        others=others,
        freed=freed + sum(manifest_bytes.get(name, 0) for name in going),
        kept_entries=len(summaries) - len(going),
        grace=policy.grace,
        blocked=blocked,
    )


def collect(backend: Backend, clock: ServerClock, planned: GcPlan, parallel: int) -> Collected:
    """Remove what the plan says and is still true.

    Manifests go first, so that no reader is pointed at blobs that are going. Before each batch of blobs every manifest is read
    again: a blob that has come back into use is spared.
    """
    if planned.grace < LEAST_GRACE:
        raise UsageError(f"the plan's grace period is {planned.grace:.0f} s, less than {LEAST_GRACE:.0f} s")
    before = clock.now() - planned.grace
    used = {names.entry(info.name.removeprefix(names.USED)): info.modified for info in backend.objects(names.USED)}
    removed, freed, spared = 0, 0, 0
    for name in planned.entries:
        info = backend.stat(name)
        if info is None:
            continue
        if used.get(name, 0.0) > before or info.modified > before:
            spared += 1
            continue
        backend.delete(name)
        removed, freed = removed + 1, freed + info.size
    blobs = 0
    for start in range(0, len(planned.blobs), _BLOB_BATCH):
        batch = planned.blobs[start : start + _BLOB_BATCH]
        live = _live(backend, parallel, frozenset())
        for name in batch:
            info = backend.stat(name)
            if info is None:
                continue
            if isinstance(live, str) or name in live or info.modified > before:
                spared += 1
                continue
            backend.delete(name)
            blobs, freed = blobs + 1, freed + info.size
    others = _remove_old(backend, planned.others, before) + backend.sweep(before)
    return Collected(entries=removed, blobs=blobs, others=others, freed=freed, spared=spared)


def _choose(summaries: list[EntrySummary], policy: GcPolicy, now: float) -> Iterable[tuple[EntrySummary, str]]:
    """Yield the entries that a rule lets go, with the rule's reason; the least recently used first to go."""
    kept, stored = 0, 0
    for summary in sorted(summaries, key=lambda s: (max(s.created, s.used), s.key), reverse=True):
        reason = _reason(summary, policy, now)
        if not reason and policy.keep is not None and kept >= policy.keep:
            reason = f"more than {policy.keep} entries"
        if not reason and policy.max_bytes is not None and stored + summary.stored_bytes > policy.max_bytes:
            reason = f"more than {policy.max_bytes} bytes"
        if reason:
            yield summary, reason
        else:
            kept, stored = kept + 1, stored + summary.stored_bytes


def _reason(summary: EntrySummary, policy: GcPolicy, now: float) -> str:
    age = now - max(summary.created, summary.used)
    if policy.max_age is not None and age > policy.max_age:
        return f"not used for {age / 86400:.1f} days"
    matching = [pattern for pattern in policy.vllm if summary.vllm and fnmatch.fnmatchcase(summary.vllm, pattern)]
    return f"of vLLM {summary.vllm}" if matching else ""


def _orphans(backend: Backend, parallel: int, going: frozenset[str], before: float) -> tuple[list[str], int, str]:
    """Return the blobs that no manifest names but those in `going`, old enough to go; their bytes; and what is in the way."""
    live = _live(backend, parallel, going)
    if isinstance(live, str):
        return [], 0, live
    blobs = [info for info in backend.objects(names.BLOBS) if names.parse_blob(info.name)]
    orphans = [info for info in blobs if info.name not in live and info.modified <= before]
    return sorted(info.name for info in orphans), sum(info.size for info in orphans), ""


def _live(backend: Backend, parallel: int, going: frozenset[str]) -> set[str] | str:
    """Return the blobs that manifests name; or the manifest that cannot be read, since it might name any of them."""
    live: set[str] = set()
    for info, _, seen in read_manifests(backend, parallel):
        if info.name in going:
            continue
        if isinstance(seen, EntryInvalid):
            return info.name
        live |= _blobs_of(seen)
    return live


def _blobs_of(seen: ManifestView) -> set[str]:
    return {names.blob(layer.digest) for layer in seen.layers}


def _others(backend: Backend, kept: set[str], before: float) -> Iterable[str]:
    """Yield claims that are long over and use marks of entries that are gone."""
    claims: dict[str, list[ObjectInfo]] = defaultdict(list)
    for info in backend.objects(names.CLAIMS):
        if parsed := names.parse_claim(info.name):
            claims[parsed[0]].append(info)
    for infos in claims.values():
        # A key's claims go together or not at all: the newest keeps the count of generations.
        if max(info.modified for info in infos) <= before:
            yield from (info.name for info in infos)
    entries_left = {left[0] for name in kept if (left := names.parse_entry(name))}
    for info in backend.objects(names.USED):
        if info.name.removeprefix(names.USED) not in entries_left and info.modified <= before:
            yield info.name


def _remove_old(backend: Backend, planned: Iterable[str], before: float) -> int:
    removed = 0
    for name in planned:
        info = backend.stat(name)
        if info is not None and info.modified <= before:
            backend.delete(name)
            removed += 1
    return removed
