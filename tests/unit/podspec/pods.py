"""Small pod specs for tests, as JSON text: one vLLM container that the keyword arguments change."""

from __future__ import annotations

import json
from typing import Any

from warmstart.podspec import ServeRequest, load

IMAGE = "vllm/vllm-openai:v0.33.0"


def container(*command: str, **fields: Any) -> dict[str, Any]:
    """Return a container that runs a command."""
    return {"name": "vllm", "image": IMAGE} | ({"command": list(command)} if command else {}) | fields


def pod(*containers: dict[str, Any], annotations: dict[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    """Return a Pod on an H200 node."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", "namespace": "models", "annotations": annotations or {}},
        "spec": {"containers": list(containers), "nodeSelector": {"nvidia.com/gpu.product": "NVIDIA-H200"}} | spec,
    }


def text(*objects: object) -> str:
    """Return objects as JSON documents, one after the other."""
    return "\n".join(json.dumps(item) for item in objects)


def request(
    *command: str, objects: tuple[object, ...] = (), load_with: dict[str, Any] | None = None, **fields: Any
) -> ServeRequest:
    """Return the one request of a pod whose container runs a command."""
    (found,) = load(text(pod(container(*command, **fields)), *objects), source="spec", **(load_with or {}))
    return found


def script(source: str, *positional: str, **fields: Any) -> ServeRequest:
    """Return the one request of a pod that runs a shell script."""
    return request("/bin/bash", "-c", source, *positional, **fields)


def variables(**values: str) -> list[dict[str, str]]:
    """Return literal env entries."""
    return [{"name": name, "value": value} for name, value in values.items()]


def config_map(name: str, **data: str) -> dict[str, Any]:
    """Return a ConfigMap."""
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "models"}, "data": data}
