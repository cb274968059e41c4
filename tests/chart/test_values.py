"""values.yaml, its schema and README: complete, closed, and made from one source."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from tests.chart.tools import CHART, STORE, Helm, cases, merge

# What is Kubernetes' own and checked by the API server, and what the store's file system defines.
_OPEN = {"store.options", "podSecurityContext", "securityContext", "global"}
_OPEN_SHAPES = {
    "affinity.nodeAffinity",
    "affinity.podAffinity",
    "affinity.podAntiAffinity",
    "envVar.valueFrom",
    "precompileEntry.manifest",
}


def _values() -> dict[str, Any]:
    return dict(yaml.safe_load((CHART / "values.yaml").read_text()))


def _schema() -> dict[str, Any]:
    return dict(yaml.safe_load((CHART / "values.schema.json").read_text()))


def _leaves(values: dict[str, Any], schema: dict[str, Any], path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for name, value in values.items():
        described = schema["properties"][name]
        if isinstance(value, dict) and "properties" in described:
            yield from _leaves(value, described, (*path, name))
        else:
            yield (*path, name)


def _at(values: Any, path: tuple[str, ...]) -> Any:
    for name in path:
        values = values[name]
    return values


def test_schema_and_readme_are_what_values_yaml_says() -> None:
    """Nobody edits a generated file, and nobody forgets to generate it."""
    import importlib.util

    spec = importlib.util.spec_from_file_location("generate", CHART / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    import sys

    generate = importlib.util.module_from_spec(spec)
    sys.modules["generate"] = generate
    spec.loader.exec_module(generate)
    assert generate.main(["--check"]) == 0


def _use(path: tuple[str, ...]) -> str:
    """Return the pattern of a use: a value at the top by its whole name, one in a part of the values by its last one."""
    return rf"\.Values\.{path[0]}\b" if len(path) == 1 else rf"\.{path[-1]}\b"


def test_every_value_is_used_by_a_template() -> None:
    """A value that nothing reads is a promise that nobody keeps. `enabled` is the parent chart's."""
    templates = "".join(path.read_text() for path in (CHART / "templates").iterdir())
    unused = [path for path in _leaves(_values(), _schema()) if not re.search(_use(path), templates)]
    assert unused == [("enabled",)]


def test_every_template_uses_values_that_exist() -> None:
    """A misspelt value would silently be empty."""
    values = _values()
    for path in (CHART / "templates").iterdir():
        for chain in re.findall(r"\.Values((?:\.[a-zA-Z]+)+)", path.read_text()):
            node: Any = values
            for name in chain.strip(".").split("."):
                if not isinstance(node, dict) or not node:
                    break  # below a free map
                assert name in node, f"{path.name}: .Values{chain}"
                node = node[name]


def test_the_cases_set_every_value_to_something_else() -> None:
    """So that the other tests have rendered each branch of each template with and without it."""
    values, schema = _values(), _schema()
    untouched = set(_leaves(values, schema)) - {("enabled",)}
    for case in cases():
        merged = merge(values, yaml.safe_load(case.read_text()))
        untouched -= {path for path in untouched if _at(merged, path) != _at(values, path)}
    assert untouched == set()


def test_the_schema_is_closed_everywhere() -> None:
    """Every object names its fields or the type of its values, but for Kubernetes' own types and the store's options."""
    schema = _schema()
    found = set(_open_objects(schema, ""))
    shapes = {name for shape, content in schema["definitions"].items() for name in _open_objects(content, shape)}
    assert found == _OPEN
    assert shapes == _OPEN_SHAPES


def _open_objects(schema: Any, path: str) -> Iterator[str]:
    if not isinstance(schema, dict):
        return
    kind = schema.get("type", "")
    if (kind == "object" or "object" in kind) and schema.get("additionalProperties", True) is True:
        yield path
    for name, child in schema.get("properties", {}).items():
        yield from _open_objects(child, f"{path}.{name}".strip("."))
    yield from _open_objects(schema.get("items"), f"{path}[]")
    if isinstance(schema.get("additionalProperties"), dict):
        yield from _open_objects(schema["additionalProperties"], f"{path}.*")


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({"sotre": {}}, "sotre"),
        ({"init": {"onMis": "skip"}}, "onMis"),
        ({"init": {"onMiss": "ignore"}}, "onMiss"),
        ({"init": {"deadline": "soon"}}, "deadline"),
        ({"init": {"gpuCount": -1}}, "gpuCount"),
        ({"init": {"resources": {"request": {}}}}, "request"),
        ({"init": {"extraEnv": [{"value": "x"}]}}, "name"),
        ({"cache": {"path": "relative"}}, "path"),
        ({"cache": {"path": "/"}}, "path"),
        ({"cache": {"serverEnv": {"VLLM_CACHE_ROOT": "/x"}}}, "VLLM_CACHE_ROOT"),
        ({"cache": {"serverEnv": {"TRITON_CACHE_DIR": "/x"}}}, "TRITON_CACHE_DIR"),
        ({"cache": {"serverEnv": {"TORCHINDUCTOR_CACHE_DIR": "/x"}}}, "TORCHINDUCTOR_CACHE_DIR"),
        ({"claims": "flock"}, "claims"),
        ({"store": {"url": "bucket/prefix"}}, "url"),
        ({"store": {"claim": {"accessModes": ["Shared"]}}}, "accessModes"),
        ({"image": {"digest": "latest"}}, "digest"),
        ({"image": {"pullPolicy": "Sometimes"}}, "pullPolicy"),
        ({"precompile": {"a": {"modle": "x"}}}, "modle"),
        ({"precompile": {"a": {"model": "x", "gpus": "h200"}}}, "gpus"),
        ({"precompile": {"a": {"model": "x", "gpus": ["h200", "h200"]}}}, "gpus"),
        ({"job": {"tolerations": [{"keys": "x"}]}}, "keys"),
        ({"job": {"backoffLimit": "3"}}, "backoffLimit"),
        ({"prewarm": {"mode": "daily"}}, "mode"),
        ({"prewarm": {"nodePools": [{"labels": {}}]}}, "name"),
        ({"prewarm": {"workloads": [{"plural": "x"}]}}, "version"),
        ({"gc": {"olderThan": "a month"}}, "olderThan"),
        ({"injection": {"enabled": "yes"}}, "enabled"),
        ({"trust": {"trustedKeys": {"../key": "x"}}}, "../key"),
    ],
)
def test_the_schema_refuses_and_names_what_is_wrong(helm: Helm, values: dict[str, Any], named: str) -> None:
    """A misspelt key or a value of the wrong form never renders."""
    error = helm.template(merge(STORE, values)).error
    assert "schema" in error
    assert named in error
