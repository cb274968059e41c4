"""Check objects against Kubernetes' own schemas, strictly. Run by the Python of .venv-chart, which has kubernetes-validate.

Reads lines {"version": "1.37", "objects": […]} from standard input and answers each with a JSON list of findings in one line. A
kind that no schema knows (a custom resource) is a finding too.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Any

import kubernetes_validate


def findings(version: str, objects: list[dict[str, Any]]) -> Iterator[str]:
    """Yield what is wrong with each object."""
    for item in objects:
        name = f"{item['kind']}/{item.get('metadata', {}).get('name')}"
        try:
            kubernetes_validate.validate(item, version, strict=True)
        except kubernetes_validate.ValidationError as error:
            yield f"{name} {'.'.join(map(str, error.path))}: {error.message[:300]}"
        except kubernetes_validate.SchemaNotFoundError as error:
            yield f"{name}: {error.message}"


def main() -> None:
    """Answer until standard input ends."""
    for line in sys.stdin:
        request = json.loads(line)
        print(json.dumps(list(findings(request["version"], request["objects"]))), flush=True)


if __name__ == "__main__":
    main()
