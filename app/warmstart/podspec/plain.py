"""Typed access to plain data from outside: what is missing is empty, what has the wrong type is one clear line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NoReturn

from warmstart.errors import SpecError, shorten

Plain = Mapping[str, object]
"""A mapping out of YAML or JSON; `documents.read` has seen to it that every key is text."""

_KINDS = {
    dict: "a mapping",
    list: "a list",
    str: "text",
    bool: "a boolean",
    int: "a number",
    float: "a number",
    type(None): "null",
}


def kind(value: object) -> str:
    """Return what a value is, in words."""
    return _KINDS.get(type(value), type(value).__name__)


def mapping(parent: Plain, key: str, where: str) -> Plain:
    """Return the mapping under `key`, empty where there is none. Raises SpecError where it is something else."""
    value = parent.get(key)
    if value is None:
        return {}
    return value if isinstance(value, dict) else _refuse(where, key, "a mapping", value)


def mappings(parent: Plain, key: str, where: str) -> list[Plain]:
    """Return the list of mappings under `key`, empty where there is none. Raises SpecError where it is something else."""
    value = parent.get(key)
    if value is None:
        return []
    if not isinstance(value, list):
        _refuse(where, key, "a list", value)
    for position, item in enumerate(value):
        if not isinstance(item, dict):
            _refuse(where, f"{key}[{position}]", "a mapping", item)
    return value


def text(parent: Plain, key: str, where: str) -> str:
    """Return the text under `key`, empty where there is none. Raises SpecError where it is something else."""
    value = parent.get(key)
    if value is None:
        return ""
    return value if isinstance(value, str) else _refuse(where, key, "text", value)


def texts(parent: Plain, key: str, where: str) -> list[str]:
    """Return the list of texts under `key`, empty where there is none. Raises SpecError where it is something else."""
    value = parent.get(key)
    if value is None:
        return []
    if not isinstance(value, list):
        _refuse(where, key, "a list of text", value)
    for position, item in enumerate(value):
        if not isinstance(item, str):
            _refuse(where, f"{key}[{position}]", "text", item)
    return value


def strings(parent: Plain, key: str, where: str) -> dict[str, str]:
    """Return the mapping of texts under `key`, empty where there is none. Raises SpecError where it is something else."""
    found = mapping(parent, key, where)
    return {name: text(found, name, f"{where}.{key}") for name in found}


def first(parent: Plain, keys: Sequence[str]) -> str | None:
    """Return the first of the keys that is set."""
    return next((key for key in keys if parent.get(key) is not None), None)


def _refuse(where: str, key: str, wanted: str, found: object) -> NoReturn:
    hint = "put it in quotes" if wanted == "text" and isinstance(found, (bool, int, float)) else ""
    raise SpecError(f"{where}.{shorten(key, 80)} must be {wanted}, not {kind(found)}", hint=hint)
