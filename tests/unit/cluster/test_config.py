"""The configuration of pre-warming: what it takes, and what is said about what it does not take."""

from __future__ import annotations

from pathlib import Path

import pytest

from warmstart.cluster.config import PrewarmConfig, prewarm_config
from warmstart.cluster.resources import DEPLOYMENTS, Resource
from warmstart.errors import UsageError


def _file(folder: Path, text: str) -> Path:
    path = folder / "prewarm.yaml"
    path.write_text(text)
    return path


def test_an_empty_file_is_all_defaults(tmp_path: Path) -> None:
    assert prewarm_config(_file(tmp_path, "{}")) == PrewarmConfig()


def test_fields_are_spelt_as_kubernetes_spells(tmp_path: Path) -> None:
    config = prewarm_config(_file(tmp_path, "resyncSeconds: 60\nuseNodes: false\nnodePools: [{name: a, labels: {b: c}}]\n"))
    assert (config.resync_seconds, config.use_nodes, config.node_pools[0].labels) == (60, False, {"b": "c"})


def test_what_is_given_goes_over_the_file(tmp_path: Path) -> None:
    path = _file(tmp_path, "concurrency: 3\nselector: a=b\n")
    config = prewarm_config(path, concurrency=7, selector=None)
    assert (config.concurrency, config.selector) == (7, "a=b")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("concurrency: 0", "concurrency: input should be greater than or equal to 1"),
        ("concurrency: many", "concurrency: input should be a valid integer"),
        ("concurency: 1", "concurency: extra inputs are not permitted"),
        ("resources: [inferenceservices]", "is not plural.version.group"),
        ("nodePools: [{name: a}]", "nodePools.0.labels: field required"),
        ("- a\n- b", "holds no mapping"),
        ("a: [", "is not YAML"),
        ("\x00", "is not YAML"),
    ],
)
def test_what_is_wrong_is_named_with_the_file(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(UsageError) as wrong:
        prewarm_config(_file(tmp_path, text))
    assert said in str(wrong.value)
    assert "prewarm.yaml" in str(wrong.value)
    assert "\n" not in str(wrong.value)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"cannot read .*nowhere: No such file"):
        prewarm_config(tmp_path / "nowhere")


def test_resources_are_read_as_kubectl_writes_them() -> None:
    config = PrewarmConfig(resources=("inferenceservices.v1beta1.serving.kserve.io", "podtemplates.v1"))
    assert config.watched()[0] == DEPLOYMENTS
    assert config.watched()[-2:] == (
        Resource("serving.kserve.io", "v1beta1", "inferenceservices"),
        Resource("", "v1", "podtemplates"),
    )


@pytest.mark.parametrize(
    ("server", "image"),
    [
        ("vllm/vllm-openai:v0.33.0", "ours:0.33"),
        ("vllm/vllm-openai:v0.32.1", "ours:other"),
        ("nginx", "ours:default"),
    ],
)
def test_the_first_rule_that_fits_names_the_image(tmp_path: Path, server: str, image: str) -> None:
    rules = """
image: ours:default
images:
- {server: "*:v0.33.*", image: "ours:0.33", code: /code/33.json}
- {server: "vllm/*", image: "ours:other"}
"""
    config = prewarm_config(_file(tmp_path, rules))
    assert config.image_for(server) == image
    assert config.code_for(server) == (Path("/code/33.json") if "0.33" in server else None)


def test_without_an_image_the_servers_own_compiles() -> None:
    assert PrewarmConfig().image_for("a/b:c") == "a/b:c"
