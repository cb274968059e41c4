"""Check objects against Kubernetes' own schemas, strictly. Run by the Python of .venv-chart, which has kubernetes-validate.

Reads {"version": "1.37", "objects": […]} from standard input and prints a JSON list of findings. A kind that no schema knows (a
custom resource) is a finding too.
"""

from __future__ import annotations

import json
import sys

import kubernetes_validate


def main() -> None:
    """Check what standard input holds."""
    request = json.load(sys.stdin)
    findings = []
    for item in request["objects"]:
        name = f"{item['kind']}/{item.get('metadata', {}).get('name')}"
        try:
            kubernetes_validate.validate(item, request["version"], strict=True)
        except kubernetes_validate.ValidationError as error:
            findings.append(f"{name} {'.'.join(map(str, error.path))}: {error.message[:300]}")
        except kubernetes_validate.SchemaNotFoundError as error:
            findings.append(f"{name}: {error.message}")
    json.dump(findings, sys.stdout)


if __name__ == "__main__":
    main()
