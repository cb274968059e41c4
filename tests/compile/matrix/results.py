"""Results as data: a JSON file with a line for each case, in the order of the registry."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import json
import threading
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from tests.compile.matrix.case import Case
from tests.compile.matrix.judge import Result

FILE = Path(__file__).parent / "results.json"
_lock = threading.Lock()


def read(path: Path = FILE) -> dict[str, Result]:
    """Return the results in a file, by case."""
    if not path.is_file():
        return {}
    return {entry["name"]: _result(entry) for entry in json.loads(path.read_text())["cases"]}


def write(path: Path, new: Iterable[Result], known: Mapping[str, Case]) -> None:
    """Write results into a file, beside those of other cases that are in it and still known."""
    with _lock:
        found = read(path)
        found.update({result.name: result for result in new})
        lines = [_line(found[name]) for name in known if name in found]
        versions = {name: importlib.metadata.version(name) for name in ("vllm", "torch")}
        path.write_text(f'{{"versions": {json.dumps(versions)}, "cases": [\n' + ",\n".join(lines) + "\n]}\n")


def _line(result: Result) -> str:
    fields = {name: value for name, value in dataclasses.asdict(result).items() if value}
    return json.dumps(fields)


def _result(entry: dict[str, Any]) -> Result:
    lists = {name: tuple(entry[name]) for name in ("keys", "chosen") if name in entry}
    return Result(**{**entry, **lists})
