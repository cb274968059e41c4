"""Pods as the chart renders them, run by podman with this machine's own Python, vLLM and warmstart inside."""

from __future__ import annotations

import dataclasses
import json
import shutil
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.chart.tools import Helm, merge
from tests.cluster.pods.podman import IMAGE, Container, Podman, environment, machine_mounts

HERE = Path(__file__).parent
CHART_TESTS = HERE.parents[1] / "chart"
EXAMPLE = HERE.parents[2] / "examples" / "qwen3-0.6b" / "model"
CACHE = "/var/cache/vllm"


@pytest.fixture(scope="session")
def podman() -> Podman:
    """Return podman with the image of the pods, or say how to get it."""
    if missing := Podman.missing():
        pytest.fail(f"{', '.join(missing)} not found; run tests/cluster/setup.sh as root")
    made = Podman()
    made.build_pod_image()
    return made


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a copy of the example model's files that any user may read."""
    folder = tmp_path_factory.mktemp("model")
    for file in EXAMPLE.iterdir():
        shutil.copyfile(file, folder / file.name)
    folder.chmod(0o755)
    return folder


@dataclasses.dataclass
class Pods:
    """Renders and plays pods, and removes them in the end."""

    podman: Podman
    helm: Helm
    model: Path
    folder: Path
    names: list[str] = dataclasses.field(default_factory=list)

    def render(self, values: dict[str, Any], *, check: str = "files", **call: Any) -> dict[str, Any]:
        """Return the pod spec that a chart makes which includes ours, for a server on the mounted model.

        `call` goes to the chart's template beside the pod.
        """
        given = {"how": "whole", "call": call, "pod": self._server(check), "warmstart": merge(_IMAGE_VALUES, values)}
        rendered = self.helm.template(given, chart=self._chart())
        assert not rendered.error, rendered.error
        spec: dict[str, Any] = rendered.one("Deployment")["spec"]["template"]["spec"]
        return spec

    def play(self, spec: dict[str, Any], *, name: str = "", **options: Any) -> Played:
        """Run a pod to its end; `options` are those of `Podman.play`."""
        name = name or self.name()
        done = self.podman.play(name, spec, **options)
        return Played(self.podman, name, done.code, done.out + done.log)

    def name(self) -> str:
        """Return a new pod's name; the pod is removed in the end."""
        self.names.append(f"pod-{uuid.uuid4().hex[:8]}")
        return self.names[-1]

    def _server(self, check: str) -> dict[str, Any]:
        volumes, mounts = machine_mounts()
        env = {"CHECK": check, "CHECK_GPU": "h200", "PATH": f"{sys.prefix}/bin:/usr/local/bin:/usr/bin:/bin", **environment()}
        return {
            "nodeSelector": {"nvidia.com/gpu.product": "NVIDIA-H200"},
            "volumes": [
                *volumes,
                {"name": "model", "hostPath": {"path": str(self.model), "type": "Directory"}},
                {"name": "server", "hostPath": {"path": str(HERE / "server"), "type": "File"}},
                {"name": "tmp", "emptyDir": {}},
            ],
            "containers": [
                {
                    "name": "vllm",
                    "image": IMAGE,
                    "command": ["/opt/vllm", "serve", "/models/qwen3"],
                    "args": ["--max-model-len", "2048"],
                    "env": [{"name": name, "value": value} for name, value in env.items()],
                    "volumeMounts": [
                        *mounts,
                        {"name": "model", "mountPath": "/models/qwen3"},
                        {"name": "server", "mountPath": "/opt/vllm"},
                        {"name": "tmp", "mountPath": "/tmp"},  # noqa: S108 - inside the container
                    ],
                }
            ],
        }

    def _chart(self) -> Path:
        """Return a chart that includes ours, as tests/chart has it."""
        from tests.chart.tools import CHART

        target = self.folder / "chart"
        if not target.exists():
            shutil.copytree(CHART_TESTS / "parent", target)
            shutil.copytree(CHART, target / "charts" / "warmstart")
        return target


@dataclasses.dataclass(frozen=True)
class Played:
    """A pod that was started: podman's own exit code and words, and its containers."""

    podman: Podman
    name: str
    code: int
    said: str

    def init(self) -> Container:
        """Return the init container."""
        return self.podman.container(self.name, "warmstart")

    def server(self) -> Container:
        """Return the server, once it has ended."""
        return self.podman.wait(self.name, "vllm")

    def result(self) -> dict[str, Any]:
        """Return what `warmstart run` printed as its result."""
        return last_result(self.init().log)


def last_result(log: str) -> dict[str, Any]:
    """Return the JSON document on standard output among the lines of a container's log."""
    found = [json.loads(line) for line in log.splitlines() if line.startswith('{"command"')]
    assert found, log[-4000:]
    last: dict[str, Any] = found[-1]
    return last


@pytest.fixture
def pods(podman: Podman, model: Path, tmp_path: Path) -> Iterator[Pods]:
    """Yield a way to run pods; all are removed in the end."""
    made = Pods(podman, Helm("helm3"), model, tmp_path)
    yield made
    for name in made.names:
        podman.remove(name)


def fresh_claim() -> str:
    """Return the name of a claim (a podman volume) that nobody has used."""
    return f"store-{uuid.uuid4().hex[:8]}"


_IMAGE_VALUES: dict[str, Any] = {
    "image": {"repository": IMAGE.rpartition(":")[0], "tag": IMAGE.rpartition(":")[2], "pullPolicy": "Never"},
    "cache": {"path": CACHE},
    "log": {"format": "json"},
}
