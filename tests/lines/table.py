"""What came of each line, as a table for people: from the committed `results-VERSION.json` (see conftest.py)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent
_HEAD = (
    "| line | case | result | AOT key | ranks | modules | graphs | MB | CPU s |",
    "| --- | --- | --- | --- | --- | --- | --- | --- | --- |",
)


def read(folder: Path = FOLDER) -> list[dict[str, Any]]:
    """Return the results of every line, the newest first."""
    found = [json.loads(path.read_text()) for path in folder.glob("results-*.json")]
    return sorted(found, key=lambda line: [int(part) for part in line["vllm"].split(".")], reverse=True)


def table(folder: Path = FOLDER) -> str:
    """Return a Markdown table with a row for each case of each line."""
    return "\n".join([*_HEAD, *(_row(line, case) for line in read(folder) for case in line["cases"])])


def travelled(folder: Path = FOLDER) -> str:
    """Return a sentence for each line: what a second start below another root read and compiled."""
    return "\n".join(
        f"- vLLM {line['vllm']}, torch {line['torch']} ({line['date']}): {told['files']} files, {told['bytes'] / 1e6:.1f} MB "
        f"({told['stored_bytes'] / 1e6:.2f} MB stored); a process below another root loaded {told['modules_loaded']} module "
        f"and compiled {told['graphs_compiled']} graphs."
        for line in read(folder)
        if (told := line.get("travelled"))
    )


def _row(line: dict[str, Any], case: dict[str, Any]) -> str:
    keys = ", ".join(f"`{key[:12]}`" for key in case.get("keys", ()))
    cells = (
        f"{line['vllm']} / torch {line['torch']}",
        case["name"].removeprefix("line-"),
        case["status"] + (f": {case['why']}" if case.get("why") else ""),
        keys,
        case.get("ranks", ""),
        case.get("modules", ""),
        case.get("graphs", ""),
        f"{case['bytes'] / 1e6:.1f}" if case.get("bytes") else "",
        case.get("cpu_seconds", ""),
    )
    return f"| {' | '.join(map(str, cells))} |"
