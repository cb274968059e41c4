"""Real Helm 3 and 4 and kubectl, and strict schemas of Kubernetes, as `make chart-tools` puts them into .venv-chart."""

from __future__ import annotations

import atexit
import dataclasses
import functools
import json
import re
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "helm" / "warmstart"
BIN = ROOT / ".venv-chart" / "bin"
HERE = Path(__file__).parent
# The oldest version that the chart supports, one between, the first with the admission policy, the newest.
KUBERNETES = ("1.31", "1.34", "1.36", "1.37")
STORE = {"store": {"url": "s3://bucket/prefix"}}

Object = dict[str, Any]
# HOME of helm: neither plugins nor repositories of this machine's user count.
_ENV = {"PATH": "/usr/bin:/bin", "HOME": "/nonexistent", "HELM_CACHE_HOME": "/nonexistent", "HELM_CONFIG_HOME": "/nonexistent"}


def program(name: str) -> Path:
    """Return a program of .venv-chart, or say how to get it."""
    path = BIN / name
    if not path.exists():
        pytest.fail(f"{path} is missing; `make chart-tools` installs it")
    return path


@dataclasses.dataclass(frozen=True)
class Rendered:
    """What helm printed: objects where it succeeded, else the error in one line."""

    objects: tuple[Object, ...]
    error: str
    notes: str = ""

    def of(self, kind: str) -> list[Object]:
        """Return the objects of a kind."""
        return [item for item in self.objects if item["kind"] == kind]

    def one(self, kind: str, end: str = "") -> Object:
        """Return the only object of a kind (whose name ends so)."""
        found = [item for item in self.of(kind) if item["metadata"]["name"].endswith(end)]
        assert len(found) == 1, [item["metadata"]["name"] for item in found]
        return found[0]


class Helm:
    """One helm binary."""

    def __init__(self, binary: str) -> None:
        self.name = binary
        self._binary = program(binary)

    def template(
        self,
        *values: Mapping[str, Any] | Path,
        chart: Path = CHART,
        kubernetes: str = KUBERNETES[-1],
        release: str = "rel",
        namespace: str = "models",
    ) -> Rendered:
        """Render with values files or mappings, later ones over earlier ones."""
        command = ["template", release, str(chart), "--namespace", namespace, "--kube-version", kubernetes]
        done = self._call([*command, *_values(values)], values)
        if done.returncode:
            return Rendered((), " ".join(done.stderr.split()))
        return Rendered(tuple(split(done.stdout)), "")

    def notes(self, *values: Mapping[str, Any] | Path) -> str:
        """Return what NOTES.txt says after an install."""
        command = ["install", "rel", str(CHART), "--namespace", "models", *_dry_run(self.name)]
        done = self._call([*command, *_values(values)], values)
        assert done.returncode == 0, done.stderr
        return done.stdout.partition("NOTES:\n")[2]

    def lint(self, *values: Mapping[str, Any] | Path, chart: Path = CHART) -> str:
        """Lint strictly; return the findings, empty where there are none."""
        command = ["lint", "--strict", "--quiet", str(chart), "--kube-version", KUBERNETES[-1], *_values(values)]
        done = self._call(command, values)
        return "" if done.returncode == 0 else done.stdout + done.stderr

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Call helm with arguments."""
        return self._call(list(arguments), ())

    def _call(self, command: list[str], values: Sequence[Any]) -> subprocess.CompletedProcess[str]:
        given = [value for value in values if not isinstance(value, Path)]
        merged: Object = {}
        for value in given:
            merged = merge(merged, value)
        return subprocess.run(
            [self._binary, *command], input=json.dumps(merged), capture_output=True, text=True, check=False, env=_ENV
        )


def merge(base: Mapping[str, Any], over: Mapping[str, Any]) -> Object:
    """Merge mappings as helm merges values."""
    merged = dict(base)
    for name, value in over.items():
        deep = isinstance(value, Mapping) and isinstance(merged.get(name), Mapping)
        merged[name] = merge(merged[name], value) if deep else value
    return merged


def split(text: str) -> Iterator[Object]:
    """Yield the objects of what helm printed."""
    for document in yaml.safe_load_all(text):
        if document is not None:
            yield document


class _Validator:
    """The validating program, started once: its imports and schemas take longer than its checks."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [program("python"), HERE / "validate_objects.py"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        atexit.register(self._process.terminate)

    def check(self, objects: Iterable[Object], version: str) -> list[str]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"version": version, "objects": list(objects)}) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        assert answer, "the validating program has ended"
        return list(json.loads(answer))


_validator = functools.cache(_Validator)


def invalid(objects: Iterable[Object], version: str) -> list[str]:
    """Return what a strict API server of that version would say against the objects."""
    return _validator().check(objects, version)


def pods(objects: Iterable[Object]) -> Iterator[tuple[str, Object]]:
    """Yield kind and pod spec of every object that holds one."""
    for item in objects:
        spec = item.get("spec") or {}
        if item["kind"] == "Pod":
            yield "Pod", spec
        elif item["kind"] == "MutatingAdmissionPolicy":
            yield "Injection", injected(item)
        elif item["kind"] == "CronJob":
            yield "CronJob", spec["jobTemplate"]["spec"]["template"]["spec"]
        elif "template" in spec:
            yield item["kind"], spec["template"]["spec"]


def injected(policy: Object) -> Object:
    """Return what an admission policy puts into a pod, as a pod spec: its CEL literals are JSON with dyn() around each part."""
    literals = {one["name"]: one["expression"] for one in policy["spec"]["variables"]}

    def plain(name: str) -> Any:
        text = re.sub(r'"(?:\\.|[^"\\])*"|dyn\(|\)', lambda found: found[0] if found[0][0] == '"' else "", literals[name])
        return json.loads(text)

    return {"containers": [plain("init")], "volumes": plain("givenVolumes")}


def containers(pod: Object) -> list[Object]:
    """Return warmstart's own containers of a pod spec."""
    return [one for one in [*pod.get("initContainers", ()), *pod["containers"]] if one["name"] == "warmstart"]


def env_of(container: Object) -> dict[str, str]:
    """Return the literal env of a container."""
    return {entry["name"]: entry["value"] for entry in container.get("env", ()) if "value" in entry}


def cases() -> list[Path]:
    """Return the values files that together set every value."""
    return sorted((HERE / "values").glob("*.yaml"))


def _values(values: Sequence[Any]) -> list[str]:
    files = [part for value in values if isinstance(value, Path) for part in ("--values", str(value))]
    return [*files, "--values", "-"] if any(not isinstance(value, Path) for value in values) else files


def _dry_run(name: str) -> list[str]:
    return ["--dry-run=client"] if name == "helm4" else ["--dry-run"]
