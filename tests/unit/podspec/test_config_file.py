"""`--config FILE`: where the file is found, and what is said where it is not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.unit.podspec.pods import config_map, container, pod, request, text

from warmstart.errors import SpecError
from warmstart.podspec import load

COMMAND = ("vllm", "serve", "M", "--config", "/etc/vllm/c.yaml", "--port", "1")
MOUNT = [{"name": "options", "mountPath": "/etc/vllm"}]
EXPECTED = ("--seed", "7", "--port", "1")


def _load(volume: dict[str, Any], *objects: object, mount: list[dict[str, str]] = MOUNT) -> tuple[str, ...]:
    spec = text(pod(container(*COMMAND, volumeMounts=mount), volumes=[{"name": "options"} | volume]), *objects)
    return load(spec, source="spec")[0].args


@pytest.mark.parametrize(
    ("volume", "key", "mount"),
    [
        ({"configMap": {"name": "c"}}, "c.yaml", MOUNT),
        ({"configMap": {"name": "c", "items": [{"key": "k", "path": "c.yaml"}]}}, "k", MOUNT),
        ({"configMap": {"name": "c"}}, "k", [{"name": "options", "mountPath": "/etc/vllm/c.yaml", "subPath": "k"}]),
        ({"projected": {"sources": [{"secret": {"name": "no"}}, {"configMap": {"name": "c"}}]}}, "c.yaml", MOUNT),
    ],
)
def test_a_config_map_of_the_stream_is_read_through_its_mount(
    volume: dict[str, Any], key: str, mount: list[dict[str, str]]
) -> None:
    """By key, by item, by subPath, and out of a projected volume."""
    assert _load(volume, config_map("c", **{key: "seed: 7"}), mount=mount) == EXPECTED


def test_a_secret_of_the_stream_is_read_too() -> None:
    """It names its object `secretName`."""
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "stringData": {"c.yaml": "seed: 7"}}
    assert _load({"secret": {"secretName": "s"}}, secret) == EXPECTED


def test_a_file_can_be_handed_in() -> None:
    """For what the spec does not hold."""
    assert request(*COMMAND, load_with={"files": {"/etc/vllm/c.yaml": "seed: 7"}}).args == EXPECTED


def test_inside_the_pod_the_file_is_on_disk(tmp_path: Path) -> None:
    """An environment that is handed in says that this runs in the pod."""
    path = tmp_path / "c.yaml"
    path.write_text("seed: 7", encoding="utf-8")
    command = ("vllm", "serve", "M", "--config", str(path))
    assert request(*command, load_with={"env": {}}).args == ("--seed", "7")
    with pytest.raises(SpecError, match="is in the image"):
        request(*command)
    path.unlink()
    with pytest.raises(SpecError, match=r"cannot be read here: .*; mount it at the same path in the init container"):
        request(*command, load_with={"env": {}})


def test_a_file_that_is_not_at_hand_is_named_with_its_volume() -> None:
    """What to do about it stands in the line."""
    with pytest.raises(
        SpecError, match=r"is on volume 'options' \(configMap\), which the spec does not hold; add its ConfigMap"
    ):
        _load({"configMap": {"name": "c"}})


def test_the_model_can_come_from_the_file() -> None:
    """Where the command names none."""
    files = {"/c.yaml": "model: N\nport: 3"}
    found = request("vllm", "serve", "--config", "/c.yaml", load_with={"files": files})
    assert (found.model, found.args) == ("N", ("--port", "3"))


@pytest.mark.parametrize(
    ("path", "content", "said"),
    [
        ("/c.json", "{}", "only .yaml and .yml"),
        ("/c.yaml", "[1, 2]", "not one mapping of options"),
        ("/c.yaml", "", "not one mapping of options"),
        ("/c.yaml", "a: [", "not valid YAML"),
        ("/c.yaml", "1: 2", "is not text"),
        ("/c.yaml", "a: {b: 2020-01-01}", "not JSON serializable"),
        ("/c.yaml", "max-model-lenn: 3", "no option --max-model-lenn; did you mean --max-model-len"),
        (
            "/c.yaml",
            "a: &a [x, x]\nb: &b [*a, *a]\n" + "".join(f"k{i}: &n{i} [{'*b, ' * 9000}1]\n" for i in range(9)),
            "unfold",
        ),
    ],
)
def test_a_broken_file_is_one_clear_line(path: str, content: str, said: str) -> None:
    """Hostile or wrong, the message names file and fault."""
    with pytest.raises(SpecError, match=said):
        request("vllm", "serve", "M", "--config", path, load_with={"files": {path: content}})
