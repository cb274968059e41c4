"""The chart, installed by real helm into the tests' cluster."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.chart.tools import CHART, program


@dataclasses.dataclass(frozen=True)
class Release:
    """One release in one namespace."""

    kubeconfig: Path
    namespace: str
    helm: str = "helm3"
    name: str = "rel"

    def install(self, values: Mapping[str, Any], *, upgrade: bool = False) -> str:
        """Install or upgrade with values; return what helm says, notes included."""
        verb = ["upgrade"] if upgrade else ["install"]
        return self._call([*verb, self.name, str(CHART), "--values", "-", "--timeout", "60s"], json.dumps(values))

    def uninstall(self) -> str:
        """Remove the release."""
        return self._call(["uninstall", self.name, "--wait", "--timeout", "60s"], "")

    def _call(self, arguments: list[str], stdin: str) -> str:
        env = {
            **os.environ,
            "KUBECONFIG": str(self.kubeconfig),
            "HELM_CACHE_HOME": "/nonexistent",
            "HELM_CONFIG_HOME": "/nonexistent",
        }
        command = [program(self.helm), *arguments, "--namespace", self.namespace]
        done = subprocess.run(command, input=stdin, capture_output=True, text=True, check=False, env=env)
        assert done.returncode == 0, done.stderr
        return done.stdout
