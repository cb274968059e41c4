"""Why two keys differ: factor by factor, with the old value, the new one, the likely cause, and what to change."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

from warmstart.errors import shorten
from warmstart.identity import environment
from warmstart.identity.causes import cause_of
from warmstart.identity.key import Identity

_LONGEST_VALUE = 200
_MISSING = object()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Difference:
    """One factor that differs. `old` and `new` are None where the factor is missing on that side."""

    factor: str
    old: Any
    new: Any
    cause: str
    change: str

    def text(self) -> str:
        """Return the difference for people."""
        return (
            f"{self.factor}\n  a: {_shown(self.old)}\n  b: {_shown(self.new)}\n  cause: {self.cause}\n  change: {self.change}"
        )


def explain(a: Identity | Mapping[str, Any], b: Identity | Mapping[str, Any]) -> list[Difference]:
    """Return every factor in which `a` and `b` differ, in order of name.

    Each is an identity, or a document of `serverlog` (vLLM's cache_key_factors.json, or a server's log). Of two that are not
    of one kind, what both speak of is compared. An empty list means that they are equal as far as they can be compared.
    """
    left, right = _document(a), _document(b)
    kinds = (_kind(left), _kind(right))
    complete = kinds == ("request", "request") or set(left) == set(right)
    return list(_differences("", left, right, complete=complete, kinds=kinds))


def _document(side: Identity | Mapping[str, Any]) -> Mapping[str, Any]:
    return side.factors if isinstance(side, Identity) else side


def _kind(document: Mapping[str, Any]) -> str:
    return "request" if "format" in document else "vllm"


def _differences(path: str, a: Any, b: Any, *, complete: bool, kinds: tuple[str, str]) -> Iterator[Difference]:
    if complete and not path.startswith("arguments."):
        # A whole part that one side lacks is shown by its factors; an option of the server stays one option.
        a = {} if a is _MISSING and isinstance(b, Mapping) else a
        b = {} if b is _MISSING and isinstance(a, Mapping) else b
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        for name in sorted({*a, *b}):
            inside = f"{path}.{name}" if path else str(name)
            left, right = a.get(name, _MISSING), b.get(name, _MISSING)
            missing = left is _MISSING or right is _MISSING
            if missing and not complete and not _one_sided(path, str(name), left, right, kinds):
                continue
            yield from _differences(inside, left, right, complete=complete or path == "arguments", kinds=kinds)
        return
    if not _equal(a, b):
        old, new = (None if side is _MISSING else side for side in (a, b))
        cause, change = cause_of(path, old, new)
        yield Difference(factor=path, old=old, new=new, cause=cause, change=change)


def _one_sided(path: str, name: str, left: Any, right: Any, kinds: tuple[str, str]) -> bool:
    """Whether a factor that one side lacks is a difference, between documents that do not hold the same parts.

    A document of vLLM's lists every variable with its default, ours those that are set; so one that only vLLM's has says
    nothing unless it changes from pod to pod, and one that only ours has was not set for the server. What torch alone reads
    (CXX, TORCHINDUCTOR_…) is not in vLLM's document at all.
    """
    if path == "arguments":
        return True
    if path != "environment":
        return False
    ours = kinds[0] == "request" if right is _MISSING else kinds[1] == "request"
    value = left if right is _MISSING else right
    if ours:
        return environment.listed_by_vllm(name)
    return name in environment.PER_POD and value is not None


def _equal(a: Any, b: Any) -> bool:
    if a is _MISSING or b is _MISSING:
        return False
    return bool(a == b) or _plain(a) == _plain(b)


def _plain(value: Any) -> str:
    """Return one spelling for what vLLM parses and what a pod spec writes: 1, "1", true, "True"."""
    text = str(value).strip().lower()
    return {"true": "1", "false": "0", "none": "", "1.0": "1", "0.0": "0"}.get(text, text)


def _shown(value: Any) -> str:
    return "(not set)" if value is None else shorten(value, _LONGEST_VALUE)
