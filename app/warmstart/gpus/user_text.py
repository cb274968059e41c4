"""From the bytes of a user's GPU file to plain data: JSON, or YAML where the file's name ends so.

Refuses what either parser would take silently: a key given twice, and YAML aliases, whose expansion can be endless.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from warmstart.errors import UsageError, shorten

_LARGEST_FILE = 4 * 2**20
_LONGEST_QUOTE = 80


def read(path: Path, hint: str) -> Any:
    """Return what the file says. Raises UsageError: it cannot be read, is too large, or is not of its language."""
    content = _bytes(path, hint)
    language, parse = ("YAML", _yaml) if path.suffix.lower() in (".yaml", ".yml") else ("JSON", _json)
    try:
        return parse(content)
    except _TwiceError as error:
        raise UsageError(f"GPU file {path}: {shorten(error, _LONGEST_QUOTE)!r} is given twice", hint=hint) from None
    except (ValueError, RecursionError) as error:
        raise UsageError(f"GPU file {path} is not {language}: {shorten(error)}", hint=hint) from None


class _TwiceError(Exception):
    """A key stands twice in one table."""


def _bytes(path: Path, hint: str) -> bytes:
    try:
        with path.open("rb") as file:
            content = file.read(_LARGEST_FILE + 1)
    except OSError as error:
        raise UsageError(f"GPU file {path} cannot be read: {error.strerror or error}") from None
    if len(content) > _LARGEST_FILE:
        raise UsageError(f"GPU file {path} is larger than {_LARGEST_FILE // 2**20} MiB", hint=hint)
    return content


def _unique(pairs: list[tuple[Any, Any]]) -> dict[Any, Any]:
    table: dict[Any, Any] = {}
    for key, value in pairs:
        if key in table:
            raise _TwiceError(key)
        table[key] = value
    return table


def _json(content: bytes) -> Any:
    return json.loads(content, object_pairs_hook=_unique)


def _yaml(content: bytes) -> Any:
    import yaml

    class Loader(yaml.SafeLoader):  # type: ignore[misc, unused-ignore]
        """The safe loader, without aliases and without repeated keys."""

        def compose_node(self, parent: Any, index: Any) -> Any:
            if self.check_event(yaml.AliasEvent):
                raise ValueError("aliases are not taken")
            return super().compose_node(parent, index)

        def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
            keys = [self.construct_object(key, deep=True) for key, _ in node.value]
            if not all(isinstance(key, str) for key in keys):
                raise ValueError("keys must be text")
            _unique([(key, None) for key in keys])
            table: dict[Any, Any] = super().construct_mapping(node, deep=deep)
            return table

    try:
        return yaml.load(content, Loader)  # noqa: S506 - a subclass of SafeLoader
    except yaml.YAMLError as error:
        raise ValueError(str(error)) from None
