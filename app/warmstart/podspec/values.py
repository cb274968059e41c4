"""How vLLM's parser reads one value of an option, by the class of the option. Every reader raises ValueError."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from warmstart.pattern import pattern

_HUMAN = pattern(r"(\d+(?:\.\d+)?)([kKmMgGtT])")
_DECIMAL = {"k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_BINARY = {"K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
_STRINGS = pattern(r'("(?:[^"\\]|\\.)*")')
_BARE_HUMAN = pattern(r"\b\d+(?:\.\d+)?[kKmMgGtT]\b")
_OBJECT = pattern(r"(?s)\s*{.*}\s*")


def human_int(text: str) -> int:
    """Read 8192, 8k (8000) or 8K (8192); decimals only with the decimal suffixes k, m, g, t."""
    text = text.strip()
    match = _HUMAN.fullmatch(text)
    if match is None:
        return int(text)
    number, suffix = match.groups()
    # The float is vLLM's: 2.3k is what float("2.3") * 1000 truncates to.
    return int(float(number) * _DECIMAL[suffix]) if suffix in _DECIMAL else int(number) * _BINARY[suffix]


def human_int_or_auto(text: str) -> int:
    """Read a human-readable integer, or -1 from "auto" and "-1"."""
    return -1 if text.strip() == "-1" or text.strip().lower() == "auto" else human_int(text)


def config(text: str) -> Any:
    """Read a config object's JSON, in which bare numbers may have suffixes: {"cpu_bytes_to_use": 80m}."""
    parts = _STRINGS.split(text)
    parts[::2] = [_BARE_HUMAN.sub(lambda found: str(human_int(found.group())), part) for part in parts[::2]]
    value = json.loads("".join(parts))
    if not isinstance(value, dict):
        raise ValueError("a config is a JSON object")  # noqa: TRY004 - readers raise ValueError
    return value


def json_or_str(text: str) -> Any:
    """Read JSON where the text looks like an object, else the text itself."""
    return json.loads(text) if _OBJECT.fullmatch(text) else text


def device_ids(text: str) -> list[int | str]:
    """Read comma-separated device numbers or UUIDs."""
    return [int(part) if part.isdigit() else part for part in (piece.strip() for piece in text.split(","))]


def backend(text: str) -> str:
    """Read a backend's name: case and dashes do not matter."""
    return text.lower().replace("-", "_")


def reasoning_parser(text: str) -> str:
    """Read a reasoning parser's name; `none` is the same as unset."""
    return "" if text.lower() == "none" else text


READERS: Mapping[str, Callable[[str], Any]] = {
    "str": str,
    "int": int,
    "float": float,
    "json": json.loads,
    "human_int": human_int,
    "human_int_or_auto": human_int_or_auto,
    "config": config,
    "json_or_str": json_or_str,
    "device_ids": device_ids,
    "backend": backend,
    "reasoning_parser": reasoning_parser,
}
NAMES: Mapping[str, str] = {
    "str": "text",
    "int": "integer",
    "float": "number",
    "json": "JSON value",
    "human_int": "integer (8192, 8k, 8K)",
    "human_int_or_auto": "integer (8192, 8k, 8K) or auto",
    "config": "JSON object",
    "json_or_str": "JSON object or text",
    "device_ids": "list of devices",
    "backend": "backend",
    "reasoning_parser": "parser",
}
