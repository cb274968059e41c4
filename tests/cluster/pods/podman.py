"""Pods run by podman on this machine: init containers before the server, emptyDirs shared, claims as podman volumes.

What a kubelet does and podman 4.3 does not: emptyDirs of a pod's own and its namespace in the Downward API are made here, the
tests have the termination message written to a file on a volume, and a volume belongs to its first user. All lies below
.cache/image, as for tests/image.
"""

from __future__ import annotations

import copy
import dataclasses
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import yaml
from tests.image import conftest as images
from tests.image.engine import CACHE, ROOT, Engine, Finished

IMAGE = "localhost/warmstart-test/pod:v0.33.0"
# Without it podman forgets an init container, and its log and exit code, once it has run.
_KEEP = {"io.podman.annotations.init.container.type": "always"}


@dataclasses.dataclass(frozen=True)
class Container:
    """How one container of a pod stands."""

    name: str
    running: bool
    exit_code: int
    log: str


class Podman(Engine):
    """Plays pods."""

    def build_pod_image(self) -> str:
        """Make an image whose Python, vLLM and warmstart are this machine's own, mounted at the paths where they are here."""
        images.python_base(self)
        context = CACHE / "pod-context"
        shutil.rmtree(context, ignore_errors=True)
        context.mkdir()
        # The mounted interpreter may lie below /root, which a user in a pod must be able to pass through.
        lines = [
            f"FROM {images.PYTHON_BASE}",
            "RUN chmod 755 /root",
            f'ENTRYPOINT ["{_program()}"]',
            "USER 65532:0",
            "ENV HOME=/tmp",
        ]
        (context / "Containerfile").write_text("\n".join(lines) + "\n")
        self.build(context / "Containerfile", IMAGE, context=context)
        return IMAGE

    def play(
        self, name: str, spec: dict[str, Any], *, namespace: str = "default", network: str = "none", seconds: float = 600
    ) -> Finished:
        """Start a pod; return once its init containers are done and its containers have been started."""
        command = [*self._command(), "kube", "play", "--quiet", "--network", network, "-"]
        return self._call(command, seconds, stdin=_manifest(name, spec, namespace))

    def start(self, name: str, spec: dict[str, Any], folder: Path) -> subprocess.Popen[bytes]:
        """Start a pod in the background."""
        file = folder / f"{name}.yaml"
        file.write_text(_manifest(name, spec))
        command = [*self._command(), "kube", "play", "--quiet", "--network", "none", str(file)]
        return subprocess.Popen(command, env=self._env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def container(self, pod: str, name: str) -> Container:
        """Return how a container stands. Raises LookupError where there is none (yet)."""
        full = f"{pod}-{name}"
        found = self._call([*self._command(), "inspect", "--type", "container", full], 60)
        if found.code != 0:
            raise LookupError(found.log)
        state = json.loads(found.out)[0]["State"]
        log = self._call([*self._command(), "logs", full], 60)
        return Container(name, bool(state["Running"]), int(state["ExitCode"]), log.out + log.log)

    def wait(self, pod: str, name: str, *, seconds: float = 120) -> Container:
        """Wait until a container has ended."""
        give_up = time.monotonic() + seconds
        while (container := self.container(pod, name)).running:
            assert time.monotonic() < give_up, container.log[-4000:]
            time.sleep(0.1)
        return container

    def stop(self, pod: str, name: str, *, grace: int = 30) -> Finished:
        """Send SIGTERM to a container as a kubelet does, and SIGKILL after the grace period."""
        return self._call([*self._command(), "stop", "--time", str(grace), f"{pod}-{name}"], grace + 30)

    def remove(self, pod: str) -> None:
        """Remove a pod and its volumes."""
        self._call([*self._command(), "pod", "rm", "--force", "--time", "0", pod], 120)
        self._call([*self._command(), "volume", "prune", "--force"], 120)

    def _command(self) -> list[str]:
        return ["podman", *self._storage]


def machine_mounts() -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return volumes and mounts that bring this machine's Python environment and the checkout into a container, read-only."""
    folders = {str(Path(path).resolve()) for path in (sys.prefix, sys.base_prefix, ROOT / "app")}
    volumes, mounts = [], []
    for number, folder in enumerate(sorted(folders)):
        volumes.append({"name": f"machine-{number}", "hostPath": {"path": folder, "type": "Directory"}})
        mounts.append({"name": f"machine-{number}", "mountPath": folder, "readOnly": True})
    return volumes, mounts


def _program() -> str:
    return str(Path(sys.prefix) / "bin" / "warmstart")


def _manifest(name: str, spec: dict[str, Any], namespace: str = "default") -> str:
    """Return the pod for podman. Never restarted: that would hide how a container ended."""
    pod = copy.deepcopy({**spec, "restartPolicy": "Never"})
    containers = (*pod.get("initContainers", ()), *pod["containers"])
    # To podman an emptyDir is a volume by that name, which all pods would share.
    renamed = {volume["name"]: f"{name}-{volume['name']}" for volume in pod["volumes"] if "emptyDir" in volume}
    for one in (*pod["volumes"], *(mount for container in containers for mount in container.get("volumeMounts") or ())):
        one["name"] = renamed.get(one["name"], one["name"])
    for container in containers:
        for entry in container.get("env") or ():
            if entry.get("valueFrom", {}).get("fieldRef", {}).get("fieldPath") == "metadata.namespace":
                del entry["valueFrom"]
                entry["value"] = namespace
    return yaml.safe_dump({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "annotations": _KEEP}, "spec": pod})


def environment() -> dict[str, str]:
    """Return the variables of this process that a container of the same machine needs."""
    return {name: os.environ[name] for name in ("OPENBLAS_CORETYPE",) if name in os.environ}
