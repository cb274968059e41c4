"""Write the chart's values.schema.json and README.md from values.yaml, its comments and definitions.yaml.

`python helm/warmstart/generate.py` writes both; `--check` only says whether they are as they would be written (exit 1 if not).
Comments are helm-docs' own (`# -- text` above a key); a line `# @schema {JSON}` before it is merged into the key's schema.
README.md.gotmpl uses the placeholders of helm-docs that are listed in `render`.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

CHART = Path(__file__).resolve().parent
_KEY = re.compile(r"^( *)([A-Za-z][A-Za-z0-9]*):(?: |$)")
_OWN_SHAPES = {
    "precompileEntry": "precompile.NAME",
    "watchedResource": "prewarm.workloads[]",
    "nodePool": "prewarm.nodePools[]",
    "imageRule": "prewarm.images[]",
}


@dataclasses.dataclass(frozen=True)
class Comment:
    """What stands above a key: its text, and what narrows its type."""

    text: str
    schema: Mapping[str, Any]


def comments(text: str) -> dict[tuple[str, ...], Comment]:
    """Return the comment of each key of values.yaml, by the path of the key."""
    found: dict[tuple[str, ...], Comment] = {}
    path: list[str] = []
    lines: list[str] = []
    schema: dict[str, Any] = {}
    for line in text.splitlines():
        stripped = line.strip()
        if stripped.startswith("# @schema "):
            schema = json.loads(stripped.removeprefix("# @schema "))
        elif stripped.startswith("# -- "):
            lines = [stripped.removeprefix("# -- ")]
        elif stripped.startswith("# ") and lines:
            lines.append(stripped.removeprefix("# "))
        elif key := _KEY.match(line):
            path = [*path[: len(key[1]) // 2], key[2]]
            found[tuple(path)] = Comment(" ".join(lines), schema)
            lines, schema = [], {}
        else:
            lines, schema = [], {}
    return found


def schema(values: Any, known: Mapping[tuple[str, ...], Comment], path: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return the schema of a value: the type of its default, closed, narrowed by its comment."""
    comment = known.get(path, Comment("", {}))
    described = {"description": comment.text} if comment.text else {}
    if "$ref" in comment.schema:
        return {**described, "default": values, "allOf": [dict(comment.schema)]}
    if isinstance(values, dict) and not comment.schema:
        properties = {name: schema(value, known, (*path, name)) for name, value in values.items()}
        return {**described, "type": "object", "additionalProperties": False, "properties": properties}
    if isinstance(values, dict):
        return {**described, "type": "object", "default": values, **comment.schema}
    if "enum" in comment.schema:
        return {**described, "default": values, **comment.schema}
    kinds = {bool: "boolean", int: "integer", float: "number", str: "string", list: "array"}
    return {**described, "type": kinds[type(values)], "default": values, **comment.schema}


def leaves(
    values: Mapping[str, Any], known: Mapping[tuple[str, ...], Comment], path: tuple[str, ...] = ()
) -> Iterator[tuple[str, Any, str]]:
    """Yield name, default and text of every value that a user sets."""
    for name, value in values.items():
        here = (*path, name)
        comment = known[here]
        if isinstance(value, dict) and not comment.schema:
            yield from leaves(value, known, here)
        else:
            yield ".".join(here), value, comment.text


def whole_schema(values: Mapping[str, Any], known: Mapping[tuple[str, ...], Comment], shapes: Mapping[str, Any]) -> str:
    """Return values.schema.json. Helm itself puts `global` into the values of a dependency."""
    root = schema(values, known)
    root["properties"]["global"] = {"description": "Values that Helm shares between charts; unused here.", "type": "object"}
    document = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "Values of the warmstart chart",
        **root,
        "definitions": shapes,
    }
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def values_table(values: Mapping[str, Any], known: Mapping[tuple[str, ...], Comment], shapes: Mapping[str, Any]) -> str:
    """Return the tables of README.md: all values, then the entries of the lists and maps that are warmstart's own."""
    rows = ["| value | default | meaning |", "| --- | --- | --- |"]
    rows += [_row(name, f"`{_compact(default)}`", text) for name, default, text in leaves(values, known)]
    rows += ["", "Entries of maps and lists:", "", "| value | type | meaning |", "| --- | --- | --- |"]
    for shape, prefix in _OWN_SHAPES.items():
        required = shapes[shape].get("required", [])
        for name, field in shapes[shape]["properties"].items():
            kind = field.get("type", "object")
            named = " or ".join(kind) if isinstance(kind, list) else kind
            rows.append(_row(f"{prefix}.{name}", named + (", required" if name in required else ""), field["description"]))
    return "\n".join(rows)


def render(template: str, chart: Mapping[str, Any], table: str) -> str:
    """Return README.md: the template with its placeholders filled in."""
    filled = {
        "chart.header": f"# {chart['name']}",
        "chart.description": str(chart["description"]),
        "chart.version": str(chart["version"]),
        "chart.appVersion": str(chart["appVersion"]),
        "chart.kubeVersion": str(chart["kubeVersion"]),
        "chart.valuesTable": table,
    }
    note = "<!-- Generated from README.md.gotmpl and values.yaml by generate.py. -->\n"
    return note + re.sub(r"\{\{ template \"([a-zA-Z.]+)\" \. \}\}", lambda found: filled[found[1]], template)


def documents(chart: Path = CHART) -> dict[Path, str]:
    """Return what each generated file must hold."""
    text = (chart / "values.yaml").read_text(encoding="utf-8")
    values, known = yaml.safe_load(text), comments(text)
    undescribed = [name for name, _, described in leaves(values, known) if not described]
    if undescribed:
        raise SystemExit(f"values.yaml: no comment above {', '.join(undescribed)}")
    shapes = yaml.safe_load((chart / "definitions.yaml").read_text(encoding="utf-8"))
    about = yaml.safe_load((chart / "Chart.yaml").read_text(encoding="utf-8"))
    template = (chart / "README.md.gotmpl").read_text(encoding="utf-8")
    return {
        chart / "values.schema.json": whole_schema(values, known, shapes),
        chart / "README.md": render(template, about, values_table(values, known, shapes)),
    }


def main(argv: list[str] | None = None) -> int:
    """Write the files, or check them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 where a file differs")
    check = parser.parse_args(argv).check
    stale = [path for path, text in documents().items() if not path.exists() or path.read_text(encoding="utf-8") != text]
    for path in stale:
        if check:
            print(f"{path.name} is not what values.yaml says; run {Path(__file__).name}", file=sys.stderr)
        else:
            path.write_text(documents()[path], encoding="utf-8")
    return 1 if check and stale else 0


def _row(name: str, middle: str, text: str) -> str:
    return f"| `{name}` | {middle.replace('|', chr(92) + '|')} | {text.replace('|', chr(92) + '|')} |"


def _compact(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


if __name__ == "__main__":
    sys.exit(main())
