"""`warmstart store …`: what is in a store, whether it is sound, and what can go."""

from __future__ import annotations

import dataclasses
import datetime
import re
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from warmstart.errors import UsageError, shorten
from warmstart.settings import count, seconds
from warmstart.workflow import entries
from warmstart.workflow.transfer import full_key

if TYPE_CHECKING:
    from warmstart.settings import Settings
    from warmstart.store import EntrySummary, Store

_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]?)(i?)b?", re.IGNORECASE)
_POWER = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}


@dataclasses.dataclass(frozen=True)
class Said:
    """A JSON value, and the same for people. `sound` is false where `verify` found something."""

    document: Any
    text: str
    sound: bool = True


@dataclasses.dataclass(frozen=True, kw_only=True)
class Limits:
    """The limits of `gc`, as typed."""

    older_than: str | None = None
    keep: str | None = None
    max_bytes: str | None = None
    vllm: tuple[str, ...] = ()
    grace: str | None = None
    execute: bool = False


def ls(settings: Settings) -> Said:
    """List the entries, the ones used last first."""
    found = sorted(entries.open_from(settings, []).entries(), key=lambda entry: -max(entry.used, entry.created))
    return Said([_document(entry) for entry in found], _table(found))


def du(settings: Settings) -> Said:
    """Count objects and bytes."""
    usage = dataclasses.asdict(entries.open_from(settings, []).usage())
    lines = [
        f"{name.replace('_', ' '):<16}{_bytes(value) if name.endswith('bytes') else value:>12}" for name, value in usage.items()
    ]
    return Said(usage, "\n".join(lines))


def verify(settings: Settings, keys: Sequence[str]) -> Said:
    """Check every digest and signature of the entries named, or of all."""
    store = entries.open_from(settings, [])
    verified = store.verify([full_key(store, key) for key in keys])
    text = f"{verified.entries} entries, {verified.blobs} blobs, {_bytes(verified.bytes)}: " + (
        f"{len(verified.findings)} problems" if verified.findings else "all sound"
    )
    lines = [text, *(f"  {finding.name}: {finding.problem}" for finding in verified.findings)]
    return Said(dataclasses.asdict(verified), "\n".join(lines), sound=not verified.findings)


def rm(settings: Settings, keys: Sequence[str]) -> Said:
    """Remove entries. Their blobs go with the next `gc`."""
    if not keys:
        raise UsageError("it is not said which entries to remove", hint="give their keys")
    store = entries.open_from(settings, [])
    full = [full_key(store, key) for key in keys]
    removed = {key: store.remove(key) for key in full}
    return Said({"removed": removed}, "\n".join(f"{key}: {objects} objects removed" for key, objects in removed.items()))


def gc(settings: Settings, limits: Limits) -> Said:
    """Say what the limits let go, and with `execute` remove it."""
    from warmstart.store import GcPolicy

    policy: dict[str, Any] = {"vllm": limits.vllm}
    if limits.older_than is not None:
        policy["max_age"] = _read(seconds, limits.older_than, "--older-than")
    if limits.keep is not None:
        policy["keep"] = _read(count, limits.keep, "--keep")
    if limits.max_bytes is not None:
        policy["max_bytes"] = _read(size, limits.max_bytes, "--max-bytes")
    if limits.grace is not None:
        policy["grace"] = _read(seconds, limits.grace, "--grace")
    store: Store = entries.open_from(settings, [])
    planned = store.plan_gc(GcPolicy(**policy))
    document: dict[str, Any] = {"plan": dataclasses.asdict(planned), "executed": limits.execute}
    lines = [f"{name.removeprefix('entries/')}  {reason}" for name, reason in planned.entries.items()]
    lines.append(
        f"{len(planned.entries)} entries, {len(planned.blobs)} blobs and {len(planned.others)} other objects "
        f"{'go' if limits.execute else 'would go'}, {_bytes(planned.freed)}; {planned.kept_entries} entries stay"
    )
    if limits.execute:
        collected = store.collect(planned)
        document["collected"] = dataclasses.asdict(collected)
        lines.append(f"removed {collected.entries} entries, {collected.blobs} blobs, {_bytes(collected.freed)} freed")
    else:
        lines.append("nothing was removed; add --execute")
    return Said(document, "\n".join(lines))


def keygen(names: Sequence[str]) -> Said:
    """Write a new key pair: the private key to the file named, the public one beside it."""
    from warmstart.store.trust import keygen as make

    if len(names) != 1:
        raise UsageError("keygen takes one file, for the private key", hint="warmstart store keygen signing-key.pem")
    private = Path(names[0])
    public = make(private)
    return Said({"private": str(private), "public": str(public)}, f"private key: {private}\npublic key:  {public}")


def size(value: str) -> int:
    """Read a number of bytes: 500, 10GB, 1.5TiB."""
    match = _SIZE.fullmatch(value.strip())
    if match is None:
        raise ValueError("it is not a size such as 500GB or 1TiB")
    return int(float(match[1]) * (1024 if match[3] else 1000) ** _POWER[match[2].lower()])


def _read(reader: Any, value: str, option: str) -> Any:
    try:
        return reader(value)
    except ValueError as error:
        raise UsageError(f"{option}: cannot use {shorten(value, 40)!r}: {error}") from error


def _document(entry: EntrySummary) -> dict[str, Any]:
    document = dataclasses.asdict(entry)
    return document | {"created": _when(entry.created), "used": _when(entry.used), "signed_by": list(entry.signed_by)}


def _when(moment: float) -> str:
    return datetime.datetime.fromtimestamp(moment, tz=datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ") if moment else ""


def _table(found: Sequence[EntrySummary]) -> str:
    if not found:
        return "the store holds no entry"
    lines = [f"{'key':<18}{'model':<34}{'gpu':<26}{'vllm':<10}{'stored':>9}{'raw':>10}  {'age':<7}{'used':<7}signed"]
    for entry in found:
        if entry.problem:
            lines.append(f"{entry.key[:16]:<18}{shorten(entry.problem, 100)}")
            continue
        lines.append(
            f"{entry.key[:16]:<18}{shorten(entry.model, 32):<34}{shorten(entry.gpu, 24):<26}{entry.vllm:<10}"
            f"{_bytes(entry.stored_bytes):>9}{_bytes(entry.raw_bytes):>10}  {_ago(entry.created):<7}{_ago(entry.used):<7}"
            f"{'yes' if entry.signed_by else 'no'}"
        )
    return "\n".join(lines)


def _ago(moment: float) -> str:
    if not moment:
        return "-"
    age = max(0.0, time.time() - moment)
    for unit, length in (("d", 86400), ("h", 3600), ("m", 60)):
        if age >= length:
            return f"{age / length:.0f}{unit}"
    return f"{age:.0f}s"


def _bytes(value: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if value < 1000:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.1f} TB"
