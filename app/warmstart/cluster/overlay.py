"""Laying a user's partial manifest over ours, as a strategic merge does it: mappings by field, named lists by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# Lists whose items have an identity, and the field that holds it; any other list is replaced whole.
_NAMED = {
    "containers": "name",
    "initContainers": "name",
    "volumes": "name",
    "env": "name",
    "imagePullSecrets": "name",
    "volumeMounts": "mountPath",
}
# An item of the others is a whole: `value` and `valueFrom` exclude each other, and so do the sources of a volume.
_DEEP = frozenset({"containers", "initContainers"})


def overlay(base: Any, over: Any, field: str = "") -> Any:
    """Return `base` with `over` laid on it; neither is changed.

    A field that is null in `over` is removed. A container is merged into the one of the same name, other named items replace
    theirs, new ones follow.
    """
    if isinstance(base, Mapping) and isinstance(over, Mapping):
        merged = dict(base)
        for name, value in over.items():
            if value is None:
                merged.pop(name, None)
            else:
                merged[name] = overlay(base[name], value, name) if name in base else value
        return merged
    if field in _NAMED and isinstance(base, list) and isinstance(over, list):
        return _overlay_named(base, over, _NAMED[field], deep=field in _DEEP)
    return over


def _overlay_named(base: list[Any], over: list[Any], key: str, *, deep: bool) -> list[Any]:
    merged = {_identity(item, key, position): item for position, item in enumerate(base)}
    for position, item in enumerate(over, start=len(base)):
        identity = _identity(item, key, position)
        merged[identity] = overlay(merged[identity], item) if deep and identity in merged else item
    return list(merged.values())


def _identity(item: Any, key: str, position: int) -> Any:
    return item.get(key, position) if isinstance(item, Mapping) else position
