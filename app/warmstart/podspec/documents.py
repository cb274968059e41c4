"""Text → the Kubernetes objects in it, as plain data. The text may be hostile; what comes out is bounded.

JSON (one document, or several after each other) needs no YAML library. YAML is scanned once as events, which cannot grow,
before any data is built: aliases, merge keys and nesting can make a few bytes of YAML into gigabytes of data.
"""

from __future__ import annotations

import json
from typing import Any

from warmstart.errors import SpecError, shorten
from warmstart.podspec.plain import Plain, kind

MAX_CHARACTERS = 4_000_000
"""etcd holds no object over 1.5 MB; a rendered chart is rarely over 1 MB."""
MAX_DEPTH = 100
MAX_NODES = 300_000
_LONGEST_NAME = 253


def read(text: str, source: str) -> list[Plain]:
    """Return the Kubernetes objects in a YAML or JSON text, the items of a List in its place, in order.

    `source` names the text in errors. Raises SpecError: not YAML or JSON, too large, or a document that is no Kubernetes
    object.
    """
    if len(text) > MAX_CHARACTERS:
        raise SpecError(
            f"{source} has {len(text)} characters, more than {MAX_CHARACTERS}", hint="give only the workload's own objects"
        )
    objects: list[Plain] = []
    for position, document in enumerate(_documents(text, source), start=1):
        if document is not None:
            _collect(document, f"{source}, document {position}", objects)
    if not objects:
        raise SpecError(f"{source} holds no Kubernetes object")
    return objects


def _collect(document: object, where: str, objects: list[Plain]) -> None:
    if not isinstance(document, dict):
        raise SpecError(f"{where} is {kind(document)}, not a Kubernetes object")
    for key in ("apiVersion", "kind"):
        if not isinstance(document.get(key), str) or not 0 < len(document[key]) <= _LONGEST_NAME:
            raise SpecError(f"{where} is not a Kubernetes object: it has no {key}")
    items = document.get("items")
    if document["kind"].endswith("List") and items is not None:
        if not isinstance(items, list):
            raise SpecError(f"{where}: items must be a list, not {kind(items)}")
        for position, item in enumerate(items):
            _collect(item, f"{where}, item {position}", objects)
    else:
        objects.append(document)


def _documents(text: str, source: str) -> list[Any]:
    stripped = text.lstrip("\ufeff \t\r\n")
    if stripped.startswith(("{", "[")):
        try:
            return _json(stripped)
        except RecursionError:
            raise SpecError(f"{source} is nested too deep") from None
        except ValueError as error:
            # A YAML flow mapping also starts with a brace; only a quoted key makes it certain that JSON was meant.
            if stripped[1:].lstrip()[:1] == '"':
                raise SpecError(f"{source} is not valid JSON: {shorten(error, 120)}") from None
    return yaml_documents(text, source)


def _json(text: str) -> list[Any]:
    decoder = json.JSONDecoder(object_pairs_hook=_object, parse_constant=_constant)
    documents: list[Any] = []
    position = 0
    while position < len(text):
        document, position = decoder.raw_decode(text, position)
        documents.append(document)
        while position < len(text) and text[position] in " \t\r\n":
            position += 1
    return documents


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"key {next(name for name in names if names.count(name) > 1)!r} is given twice")
    return found


def _constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def yaml_documents(text: str, source: str, *, strict: bool = True) -> list[Any]:
    """Return the documents of a YAML text, as plain data.

    Read as Kubernetes reads it: a key given twice is an error, and dates stay text. With `strict` false, as PyYAML alone
    reads it.
    Raises SpecError: not YAML, a key that is no text or (strict) given twice, or more than this program builds.
    """
    import yaml  # 0.07 s that JSON does not need

    base: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

    class Loader(base):  # type: ignore[misc]
        def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
            keys = [
                key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode) and key.tag != "tag:yaml.org,2002:merge"
            ]
            if strict and len(set(keys)) != len(keys):
                again = next(key for key in keys if keys.count(key) > 1)
                raise yaml.constructor.ConstructorError(None, None, f"key {again!r} is given twice", node.start_mark)
            found: dict[Any, Any] = super().construct_mapping(node, deep=deep)
            for key in found:
                if not isinstance(key, str):
                    raise yaml.constructor.ConstructorError(None, None, f"key {key!r} is not text", node.start_mark)
            return found

    if strict:
        Loader.yaml_implicit_resolvers = {
            first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
            for first, resolvers in base.yaml_implicit_resolvers.items()
        }
    try:
        _measure(yaml.parse(text, Loader=base), source)
        return list(yaml.load_all(text, Loader=Loader))
    except yaml.YAMLError as error:
        raise SpecError(f"{source} is not valid YAML: {_problem(error)}") from None
    except (ValueError, RecursionError, AttributeError, TypeError) as error:
        # PyYAML lets these escape on texts that look like numbers, dates or merge keys and are none.
        raise SpecError(f"{source} is not valid YAML: {shorten(error, 120)}") from None


def _problem(error: Exception) -> str:
    mark = getattr(error, "problem_mark", None)
    place = f"line {mark.line + 1}: " if mark is not None else ""
    return place + shorten(getattr(error, "problem", None) or error, 120)


def _measure(events: Any, source: str) -> None:
    """Refuse a stream whose data would be larger or deeper than any spec, counting each alias as what it stands for."""
    sizes: dict[str, int] = {}
    open_: list[list[Any]] = [[None, 0]]  # anchor and node count of each collection that is open
    for event in events:
        name = type(event).__name__
        if name in ("MappingStartEvent", "SequenceStartEvent"):
            open_.append([event.anchor, 1])
            if len(open_) > MAX_DEPTH:
                raise SpecError(f"{source} is nested more than {MAX_DEPTH} deep")
        elif name in ("MappingEndEvent", "SequenceEndEvent"):
            anchor, count = open_.pop()
            if anchor is not None:
                sizes[anchor] = count
            open_[-1][1] += count
        elif name == "ScalarEvent":
            if event.anchor is not None:
                sizes[event.anchor] = 1
            open_[-1][1] += 1
        elif name == "AliasEvent":
            # An alias to a collection that is still open would make the data contain itself.
            if any(anchor == event.anchor for anchor, _ in open_[1:]):
                raise SpecError(f"{source}: alias *{shorten(event.anchor, 40)} stands inside what it names")
            open_[-1][1] += sizes.get(event.anchor, 1)
        if open_[-1][1] > MAX_NODES:
            raise SpecError(f"{source} would unfold to more than {MAX_NODES} values", hint="no Kubernetes object is that large")
