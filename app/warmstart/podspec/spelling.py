"""What vLLM does to an argument list before argparse sees it: underscores, `-O`, and dotted options.

Follows `FlexibleArgumentParser.parse_args` of vLLM 0.33; a test compares the two on generated lists.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from warmstart.errors import SpecError, shorten
from warmstart.podspec.values import human_int

_LEVELS = frozenset("0123")


def folded(args: Sequence[str]) -> list[str]:
    """Return the list in vLLM's own spelling: dashes, `--optimization-level`, dotted options merged to JSON at the end.

    Raises SpecError: a dotted option without a value, or nested too deep.
    """
    try:
        return _merged(_dashed(args))
    except RecursionError:
        raise SpecError("a dotted option of vLLM is nested too deep") from None


def _dashed(args: Sequence[str]) -> list[str]:
    words: list[str] = []
    for i, word in enumerate(args):
        if word.startswith("--"):
            name, equals, value = word.partition("=")
            head, dot, path = name.partition(".")
            words.append(head.replace("_", "-") + dot + path + equals + value)
        elif word == "-O" and args[i + 1 : i + 2] and args[i + 1] in _LEVELS:
            words.append("--optimization-level")
        elif word.startswith("-O") and word != "-O":
            words += ["--optimization-level", word[3:] if word[2] == "=" else word[2:]]
        else:
            words.append(word)
    return words


def _merged(words: list[str]) -> list[str]:
    """Collect `--config.key value` words into one JSON object per spelled option; the objects come last."""
    kept: list[str] = []
    objects: dict[str, dict[str, Any]] = {}
    pending = iter(enumerate(words))
    for i, word in pending:
        name, equals, value = word.partition("=")
        if not word.startswith("-") or "." not in name:
            kept.append(word)
            continue
        if not equals:
            if i + 1 == len(words):
                raise SpecError(f"{shorten(word, 80)} has no value")
            value = next(pending)[1]
        if name.endswith("+"):
            name = name[:-1]
            value = json.dumps(value.split(","))
        option, *path = name.split(".")
        nested: Any = _value(value)
        for key in reversed(path):
            nested = {key: nested}
        _update(objects.setdefault(option, {}), nested)
    for option, merged in objects.items():
        kept += [option, json.dumps(merged)]
    return kept


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        pass
    except (ValueError, RecursionError) as error:
        raise SpecError(f"{shorten(text, 60)!r} is no JSON value") from error
    try:
        return human_int(text)
    except ValueError:
        return text


def _update(merged: dict[str, Any], more: dict[str, Any]) -> None:
    for key, value in more.items():
        old = merged.get(key)
        if isinstance(value, dict) and isinstance(old, dict):
            _update(old, value)
        elif isinstance(value, list) and isinstance(old, list):
            old += value
        else:
            merged[key] = value
