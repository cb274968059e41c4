"""JSON from outside into values, by the types that their fields are declared with: strict, and without any library to import.

What msgspec does as well; importing that takes longer than the rest of a hit's JSON altogether.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from warmstart.value import MISSING, Value

Read = TypeVar("Read", bound=Value)
Reader = Callable[[Any, str], Any]

_KNOWN: dict[tuple[type[Value], bool], Mapping[str, Reader]] = {}
_NAMES = {str: "str", bool: "bool", int: "int", float: "float", list: "array", dict: "object", type(None): "null"}


def loads(data: bytes) -> Any:
    """Return what a JSON document holds. ValueError for all that is none: not UTF-8, NaN, half characters."""
    try:
        document = json.loads(data.decode(), parse_constant=_constant)
        if b"\\u" in data:
            json.dumps(document, ensure_ascii=False).encode()
    except RecursionError:
        raise ValueError("it is nested too deep") from None
    return document


def dumps(document: object, *, sort: bool = False) -> bytes:
    """Return a document as compact JSON in UTF-8; with `sort`, names in order: equal bytes for equal documents."""
    return json.dumps(document, sort_keys=sort, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()


def read(kind: type[Read], document: Any, *, strict: bool = False, at: str = "$") -> Read:
    """Return the value that an object of a JSON document spells. With `strict`, fields that `kind` does not have are refused.

    Raises ValueError that says where it is wrong and what was expected there.
    """
    if not isinstance(document, dict):
        raise _unexpected("object", document, at)
    readers = _KNOWN.get((kind, strict)) or _KNOWN.setdefault((kind, strict), _readers(kind, strict))
    found: dict[str, Any] = {}
    for name, value in document.items():
        reader = readers.get(name)
        if reader is not None:
            found[name] = reader(value, f"{at}.{name}")
        elif strict:
            raise ValueError(f"Object contains unknown field `{name}` - at `{at}`")
    for name, field in kind.__fields__.items():
        if name not in found and field.default is MISSING and field.default_factory is MISSING:
            raise ValueError(f"Object missing required field `{name}` - at `{at}`")
    return kind(**found)


def _constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _unexpected(wanted: str, found: object, at: str) -> ValueError:
    return ValueError(f"Expected `{wanted}`, got `{_NAMES.get(type(found), 'value')}` - at `{at}`")


def _readers(kind: type[Value], strict: bool) -> Mapping[str, Reader]:
    """Return what reads each field, from the text of its annotation."""
    return {name: _reader(kind.__annotations__[name], kind.__module__, strict) for name in kind.__fields__}


def _reader(annotation: str, module: str, strict: bool) -> Reader:
    if annotation in ("str", "int", "bool", "float"):
        return _plain({"str": str, "int": int, "bool": bool, "float": float}[annotation])
    if annotation == "Any":
        return lambda value, _at: value
    outer, _, inner = annotation.removesuffix("]").partition("[")
    if outer == "dict":
        return _mapping(_reader(inner.removeprefix("str, "), module, strict))
    if outer == "list" or annotation.endswith(", ...]"):
        return _sequence(_reader(inner.removesuffix(", ..."), module, strict), list if outer == "list" else tuple)
    if outer == "tuple":
        return _row([_reader(part, module, strict) for part in inner.split(", ")])
    nested: type[Value] = getattr(sys.modules[module], annotation)
    return lambda value, at: read(nested, value, strict=strict, at=at)


def _plain(wanted: type) -> Reader:
    def reader(value: Any, at: str) -> Any:
        if type(value) is wanted or (wanted is float and type(value) is int):
            return value
        raise _unexpected(_NAMES[wanted], value, at)

    return reader


def _mapping(item: Reader) -> Reader:
    def reader(value: Any, at: str) -> Any:
        if not isinstance(value, dict):
            raise _unexpected("object", value, at)
        return {name: item(inner, f"{at}.{name}") for name, inner in value.items()}

    return reader


def _sequence(item: Reader, kind: Callable[[Any], Any]) -> Reader:
    def reader(value: Any, at: str) -> Any:
        if not isinstance(value, list):
            raise _unexpected("array", value, at)
        return kind(item(inner, f"{at}[…]") for inner in value)

    return reader


def _row(items: list[Reader]) -> Reader:
    def reader(value: Any, at: str) -> Any:
        if not isinstance(value, list) or len(value) != len(items):
            raise _unexpected("array", value, at)
        return tuple(item(inner, at) for item, inner in zip(items, value, strict=True))

    return reader
