"""What vLLM says of its cache: `cache_key_factors.json`, and the lines of a server's log.

The patterns are those of vLLM 0.33.0's own messages; a test takes them from the installed source, so that a new wording shows.
"""

from __future__ import annotations

import ast
import dataclasses
import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from warmstart.errors import UsageError, shorten
from warmstart.podspec.neutral import NEUTRAL

LOADED = re.compile(r"Directly load AOT compilation from path (\S+)")
AGAIN = re.compile(r"Compiling model again due to a load failure from (\S+), reason: (.*)")
SAVED = re.compile(r"saved AOT compiled function to (\S+)")
UNSAVED = re.compile(r"unable to save AOT compiled function to (\S+): (.*)")
COMPILED_GRAPH = re.compile(r"Compiling a graph for compile range (.+?) takes ([\d.]+) s")
CACHE_FOLDER = re.compile(r"Using cache directory: (\S+) for vLLM's torch\.compile")
DISABLED = re.compile(r"vLLM's torch\.compile cache is disabled")
FACTORS = re.compile(r"torch\.compile cache factors: env=(\w+) cfg=(\w+) comp=(\w+) code=(\w+) dir=(\S+)")
ENGINE = re.compile(r"Initializing a V1 LLM engine \(v(\S+)\) with config: (.*)")
ARGUMENTS = re.compile(r"non-default args: (\{.*\})")
_MODEL_NAMES = ("model_tag", "model")
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_MOST_LINES = 2_000_000


@dataclasses.dataclass
class ServerLog:
    """What a server's log tells of compiling. Paths are those of AOT artifacts (`…/torch_aot_compile/<key>/rank_0_0/model`)."""

    vllm: str = ""
    loaded: list[str] = dataclasses.field(default_factory=list)
    saved: list[str] = dataclasses.field(default_factory=list)
    refused: dict[str, str] = dataclasses.field(default_factory=dict)
    graphs_compiled: int = 0
    folders: list[str] = dataclasses.field(default_factory=list)
    disabled: bool = False
    factors: dict[str, Any] = dataclasses.field(default_factory=dict)
    arguments: dict[str, Any] = dataclasses.field(default_factory=dict)
    config: dict[str, str] = dataclasses.field(default_factory=dict)

    @property
    def started(self) -> bool:
        """Whether the log says anything of an engine or of compiling at all."""
        return bool(self.vllm or self.loaded or self.saved or self.refused or self.folders or self.factors or self.disabled)

    def document(self) -> dict[str, Any]:
        """Return what of it can be compared: vLLM's hashes, the arguments, the engine's configuration."""
        given = {name: value for name, value in self.arguments.items() if name not in NEUTRAL and name not in _MODEL_NAMES}
        model = next((self.arguments[name] for name in _MODEL_NAMES if self.arguments.get(name)), None)
        parts = {
            "vllm": self.vllm,
            "vllm_key": self.factors,
            "arguments": given,
            "model": {"name": model} if model else {},
            "engine": self.config,
        }
        return {name: value for name, value in parts.items() if value}


def read_log(lines: Iterable[str]) -> ServerLog:
    """Read a server's log, line by line; what is not vLLM's, or cut short, is passed over."""
    log = ServerLog()
    for number, raw in enumerate(lines):
        if number >= _MOST_LINES:
            break
        line = _COLOUR.sub("", raw) if "\x1b" in raw else raw
        _read_line(log, line.rstrip("\n"))
    return log


def _read_line(log: ServerLog, line: str) -> None:
    if match := LOADED.search(line):
        log.loaded.append(match[1])
    elif match := AGAIN.search(line):
        log.refused[match[1]] = shorten(match[2], 200)
    elif match := UNSAVED.search(line):
        log.refused.setdefault(match[1], shorten(match[2], 200))
    elif match := SAVED.search(line):
        log.saved.append(match[1])
    elif COMPILED_GRAPH.search(line):
        log.graphs_compiled += 1
    elif match := CACHE_FOLDER.search(line):
        log.folders.append(match[1])
    elif DISABLED.search(line):
        log.disabled = True
    elif match := FACTORS.search(line):
        log.factors = {"env_hash": match[1], "config_hash": match[2], "compiler_hash": match[3], "code_hash": match[4]}
    elif match := ENGINE.search(line):
        log.vllm = match[1]
        log.config = split_config(match[2])
    elif match := ARGUMENTS.search(line):
        log.arguments = _literal(match[1])


def split_config(text: str) -> dict[str, str]:
    """Take `a=1, b=[1, 2], c='x, y'` apart at the commas that are outside of brackets and quotes."""
    parts: dict[str, str] = {}
    depth, quote, begin = 0, "", 0
    for position, letter in enumerate(f"{text.rstrip(', ')}, "):
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "'\"":
            quote = letter
        elif letter in "([{<":
            depth += 1
        elif letter in ")]}>":
            depth -= 1
        elif letter == "," and depth <= 0:
            name, _, value = text[begin:position].strip().partition("=")
            if value and name.isidentifier():
                parts[name] = value
            begin = position + 1
    return parts


def read_factors(content: bytes, where: str) -> dict[str, Any]:
    """Return vLLM's `cache_key_factors.json` as a document to compare: `{"environment": …, "vllm_key": …}`.

    Raises UsageError where it is something else.
    """
    try:
        document = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{where} is not JSON: {shorten(error, 120)}") from error
    if not is_factors(document):
        raise UsageError(f"{where} is no cache_key_factors.json of vLLM")
    return {
        "environment": {name: _plain(value) for name, value in document["env"].items()},
        "vllm_key": {name: str(document[name]) for name in ("config_hash", "code_hash", "compiler_hash") if name in document},
    }


def is_factors(document: object) -> bool:
    """Return whether a JSON value has the shape of vLLM's cache_key_factors.json."""
    return isinstance(document, dict) and isinstance(document.get("env"), dict) and "config_hash" in document


def _plain(value: Any) -> Any:
    """Undo what vLLM does to a value for hashing: enums come as [class, value]."""
    if isinstance(value, list) and len(value) == 2 and isinstance(value[0], str) and "." in value[0]:
        return value[1]
    return value


def _literal(text: str) -> dict[str, Any]:
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return split_config(text[1:-1].replace("': ", "'="))
    return {str(name): _json(item) for name, item in value.items()} if isinstance(value, Mapping) else {}


def _json(value: Any) -> Any:
    return json.loads(json.dumps(value, default=str))
