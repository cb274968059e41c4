"""A user's own GPU entries: read from a JSON or YAML file and checked strictly before any of them is used.

The form is the built-in catalog's. What a file gets wrong is said in one line that names the file, the entry and the field.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import msgspec

from warmstart.errors import UsageError, shorten
from warmstart.gpus import user_text
from warmstart.gpus.device import READ_FROM_DEVICE
from warmstart.gpus.entries import MIG_FIGURES, SCHEMA, SOURCED, Entry, decode
from warmstart.gpus.spelling import LONGEST_NAME

_ID = re.compile(r"[a-z0-9][a-z0-9.-]{0,62}")
_CAPABILITY = re.compile(r"[0-9]{1,2}\.[0-9]")
_HINT = "docs/gpus.md gives the form; `warmstart gpus describe` writes an entry"


class _Range(NamedTuple):
    low: int
    high: int
    unit: str


_RANGES = {
    "multiprocessors": _Range(1, 4096, "a count"),
    "memory_bytes": _Range(2**30, 2**43, "bytes, not MiB or GiB"),
    "shared_memory_per_block": _Range(2**14, 2**22, "bytes, not KiB"),
    "shared_memory_per_block_optin": _Range(2**14, 2**22, "bytes, not KiB"),
    "shared_memory_per_multiprocessor": _Range(2**14, 2**22, "bytes, not KiB"),
    "registers_per_multiprocessor": _Range(2**12, 2**20, "a count of 32-bit registers"),
    "max_threads_per_multiprocessor": _Range(32, 2**16, "a count"),
    "max_threads_per_block": _Range(32, 2**16, "a count"),
    "l2_cache_bytes": _Range(2**17, 2**34, "bytes, not KiB or MiB"),
    "warp_size": _Range(16, 128, "a count"),
    "clock_khz": _Range(100_000, 20_000_000, "kHz, not MHz"),
    "memory_clock_khz": _Range(100_000, 50_000_000, "kHz, not MHz"),
    "memory_bus_bits": _Range(32, 2**17, "bits, not bytes"),
}


class _Slice(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    multiprocessors: int
    memory_bytes: int
    l2_cache_bytes: int
    memory_bus_bits: int
    sources: dict[str, str]
    verified: bool = False


class _Card(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    name: str
    capability: str
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
    sources: dict[str, str]
    aliases: list[str] = []
    mig: dict[str, _Slice] = {}
    verified: bool = False
    replaces: bool = False


class _Document(msgspec.Struct, forbid_unknown_fields=True, frozen=True, rename={"schema_": "schema"}):
    schema_: int
    gpus: dict[str, Any]
    sources: dict[str, str] = {}


def read_entries(path: Path, known: Iterable[Entry]) -> tuple[Entry, ...]:
    """Return the entries of the file. Raises UsageError for whatever is wrong with it or with one of them."""
    raw = user_text.read(path, _HINT)
    try:
        document = msgspec.convert(raw, _Document)
    except msgspec.ValidationError as error:
        raise UsageError(f"GPU file {path}: {shorten(error)}", hint=_HINT) from None
    if document.schema_ != SCHEMA:
        raise UsageError(f"GPU file {path}: schema is {document.schema_}, this program reads {SCHEMA}", hint=_HINT)
    built_in = {entry.profile.id for entry in known}
    for id_, entry in document.gpus.items():
        _Check(path, id_, document.sources).card(entry, known=id_ in built_in)
    return decode(raw)


class _Check(NamedTuple):
    """Where a check stands, for its message: the file and the entry."""

    path: Path
    id: str
    texts: dict[str, str]

    def card(self, raw: Any, *, known: bool) -> None:
        if not _ID.fullmatch(self.id):
            self.fail("the id", "must be up to 63 lower-case letters, digits, dots and dashes")
        try:
            card = msgspec.convert(raw, _Card)
        except msgspec.ValidationError as error:
            self.fail("", shorten(error))
        if known != card.replaces:
            self.fail(
                "replaces",
                "must be true to replace the built-in entry of that id" if known else "is true, but there is no such entry",
            )
        if not _CAPABILITY.fullmatch(card.capability):
            self.fail("capability", f'is {shorten(card.capability, 40)!r}, must be like "9.0"')
        for text in (card.name, *card.aliases):
            if not text.strip() or len(text) > LONGEST_NAME or not (text.isascii() and text.isprintable()):
                self.fail(
                    "name", f"and aliases must be printable ASCII of up to {LONGEST_NAME} characters, not {shorten(text, 40)!r}"
                )
        self.figures(card, _RANGES)
        self.order(card)
        self.sources(card, SOURCED)
        for profile, part in card.mig.items():
            self._replace(id=f"{self.id}-mig-{shorten(profile, 40)}").slice(profile, part, card)

    def slice(self, profile: str, part: _Slice, card: _Card) -> None:
        if not _ID.fullmatch(profile):
            self.fail("mig", 'profiles must be written like "3g.20gb"')
        self.figures(part, MIG_FIGURES)
        for figure in MIG_FIGURES:
            if getattr(part, figure) > getattr(card, figure):
                self.fail(figure, f"is {getattr(part, figure)}, more than the card's {getattr(card, figure)}")
        self.sources(part, MIG_FIGURES)

    def figures(self, values: _Card | _Slice, names: Iterable[str]) -> None:
        for name in names:
            low, high, unit = _RANGES[name]
            value = getattr(values, name)
            if not low <= value <= high:
                self.fail(name, f"is {value}, must be from {low} to {high} ({unit})")

    def order(self, card: _Card) -> None:
        block, optin, whole = (
            card.shared_memory_per_block,
            card.shared_memory_per_block_optin,
            card.shared_memory_per_multiprocessor,
        )
        if not block <= optin <= whole:
            self.fail(
                "shared_memory_per_block_optin",
                f"is {optin}, must lie between that per block ({block}) and that per SM ({whole})",
            )

    def sources(self, values: _Card | _Slice, names: Iterable[str]) -> None:
        given = values.sources
        unknown = next((name for name in given if name not in SOURCED and name != "*"), None)
        if unknown is not None:
            self.fail("sources", f"names {shorten(unknown, 40)!r}, which is no figure")
        for name in names:
            source = given.get(name, given.get("*", "")).strip()
            if not source:
                self.fail("sources", f'lacks {name} (or "*" for all that are not named)')
            if values.verified and not self.texts.get(source, source).startswith(READ_FROM_DEVICE):
                self.fail("verified", f"is true, but the source of {name} is not {READ_FROM_DEVICE!r}")

    def fail(self, field: str, what: str) -> NoReturn:
        where = f"{field} {what}" if field else what
        raise UsageError(f"GPU file {self.path}: entry {shorten(self.id, 80)!r}: {where}", hint=_HINT)
