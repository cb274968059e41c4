"""docs/operations.md: the chart takes its values, API servers its objects, and what it promises about them is so."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from tests.chart.tools import ROOT, STORE, Helm, Object, invalid, merge, program

from warmstart.cluster.config import PrewarmConfig
from warmstart.cluster.landing import Pool, fits
from warmstart.gpus import load_catalog

TEXT = (ROOT / "docs" / "operations.md").read_text()
_BLOCK = re.compile(r"^( *)```(\w+)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
# Objects of other projects, whose schemas are not here.
_FOREIGN = {"ScaledObject", "NodePool", "LocalQueue"}


def blocks(language: str) -> list[str]:
    return [re.sub(f"^{match[1]}", "", match[3], flags=re.MULTILINE) for match in _BLOCK.finditer(TEXT) if match[2] == language]


def starting(first: str) -> list[Object]:
    return [yaml.safe_load(block) for block in blocks("yaml") if block.startswith(first)]


VALUES = starting("# values.yaml")
OBJECTS = starting("apiVersion:")
PODS = starting("# in the Deployment's pod template")


def test_every_yaml_block_is_of_a_known_kind() -> None:
    """So that none goes unchecked."""
    assert len(VALUES) + len(OBJECTS) + len(PODS) + len(starting("# job.yaml")) == len(blocks("yaml"))
    assert len(VALUES) >= 10


@pytest.mark.parametrize("helm", ["helm3", "helm4"])
@pytest.mark.parametrize("number", range(len(VALUES)))
def test_the_chart_takes_the_values(helm: str, number: int) -> None:
    """Each block alone, with a store where it names none."""
    values = VALUES[number] if "store" in VALUES[number] else merge(STORE, VALUES[number])
    rendered = Helm(helm).template(values)
    assert rendered.error == ""
    assert invalid(rendered.objects, "1.37") == []


def test_api_servers_take_the_objects() -> None:
    """Those of Kubernetes itself, strictly; the others are only read."""
    assert {one["kind"] for one in OBJECTS} == {"HorizontalPodAutoscaler", *_FOREIGN}
    assert invalid([one for one in OBJECTS if one["kind"] not in _FOREIGN], "1.37") == []


def test_the_declared_pools_say_which_types_the_pod_can_land_on() -> None:
    """Karpenter: the pod of one type names it itself; the other fits on both pools, and each pool is of one type."""
    catalog = load_catalog()
    one, several = PODS
    assert [gpu.id for gpu in catalog.from_labels(one["nodeSelector"])] == ["h200"]
    (pools,) = [values["prewarm"]["nodePools"] for values in VALUES if "nodePools" in values.get("prewarm", {})]
    found = [Pool(pool["name"], pool["labels"], tuple(pool["taints"])) for pool in pools]
    assert all(fits(several, pool) for pool in found)
    assert not any(fits({**several, "tolerations": []}, pool) for pool in found)
    assert [[gpu.id for gpu in catalog.from_labels(pool.labels)] for pool in found] == [["h200"], ["l40s"]]
    (node_pool,) = [one for one in OBJECTS if one["kind"] == "NodePool"]
    (family,) = node_pool["spec"]["template"]["spec"]["requirements"]
    assert family["values"] == [pool.labels[family["key"]] for pool in found]


def test_the_job_template_goes_over_the_built_in_job(tmp_path: Path) -> None:
    """It adds the Secret and the account, and takes nothing away."""
    (template,) = starting("# job.yaml")
    file = tmp_path / "job.yaml"
    file.write_text(yaml.safe_dump(template))
    spec = ROOT / "examples" / "kubernetes" / "injected-deployment.yaml"
    command = [sys.executable, "-m", "warmstart", "job", "-f", str(spec), "--store", "s3://models/warmstart", "--image", "x:1"]
    done = subprocess.run([*command, "--job-template", str(file)], capture_output=True, text=True, check=True)
    (job,) = json.loads(done.stdout)["items"]
    pod = job["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert pod["serviceAccountName"] == "compiler"
    assert container["envFrom"] == [{"secretRef": {"name": "warmstart-store"}}]
    assert {"name": "WARMSTART_STORE", "value": "s3://models/warmstart"} in container["env"]
    assert invalid([job], "1.37") == []


def test_every_field_of_pre_warms_configuration_is_described() -> None:
    """An error about that file points to this page."""
    (section,) = re.findall(r"^### Pre-warm's configuration\n(.*?)^## ", TEXT, re.MULTILINE | re.DOTALL)
    for name, field in PrewarmConfig.model_fields.items():
        assert f"`{field.alias or name}`" in section


def test_the_policies_are_json() -> None:
    """Reader and writer; only the writer may delete, and may put everywhere."""
    reader, writer = (json.loads(block)["Statement"] for block in blocks("json"))
    assert "s3:DeleteObject" not in json.dumps(reader)
    assert [one["Resource"] for one in reader if one["Action"] == "s3:PutObject"] == ["arn:aws:s3:::models/warmstart/used/*"]
    assert "s3:PutObject" in writer[1]["Action"]


def test_the_message_of_a_pod_is_where_kubectl_looks_for_it(tmp_path: Path) -> None:
    """The paths of the page, by kubectl itself: an init container of a server's pod, the container of a Job's."""
    terminated = {"name": "warmstart", "state": {"terminated": {"message": '{"outcome":"hit"}'}}}
    status = {"initContainerStatuses": [{"name": "other"}, terminated], "containerStatuses": [terminated]}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": []}, "status": status}
    file = tmp_path / "pod.json"
    file.write_text(json.dumps(pod))
    paths = re.findall(r"jsonpath='([^']+)'", TEXT)
    assert len(paths) == 2
    for path in paths:
        # Of a list the page's command goes through the items; here is one pod.
        one = path.replace("{range .items[*]}", "").replace("{end}", "")
        command = [program("kubectl"), "label", "--local", "-f", str(file), "a=b", "-o", f"jsonpath={one}"]
        done = subprocess.run(command, capture_output=True, text=True, check=True, env={"HOME": "/nonexistent", "PATH": ""})
        assert done.stdout.strip().rpartition("\t")[2] == '{"outcome":"hit"}'


@pytest.mark.parametrize("target", sorted(set(re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", TEXT))))
def test_every_page_that_it_links_to_is_there(target: str) -> None:
    """Pages of this repository; addresses outside are left alone."""
    assert target.startswith("https://") or (ROOT / "docs" / target).exists()


def test_every_section_that_it_links_to_is_there() -> None:
    """By the anchors that a heading gets."""
    headings = re.findall(r"^#+ (.*)$", TEXT, re.MULTILINE)
    anchors = {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}
    assert set(re.findall(r"\]\(#([^)]+)\)", TEXT)) <= anchors


def test_every_value_that_it_names_is_one_of_the_charts() -> None:
    """No name that a reader would look for in vain."""
    values = yaml.safe_load((ROOT / "helm" / "warmstart" / "values.yaml").read_text())

    def known(path: str) -> bool:
        node = values
        for part in path.split("."):
            if not isinstance(node, dict) or (part not in node and node):
                return False
            node = node.get(part, {})
        return True

    named = set(re.findall(r"`((?:" + "|".join(values) + r")(?:\.\w+)+)`", TEXT)) - {"job.yaml"}
    named = {path for path in named if not path.startswith("precompile.NAME")}  # its fields are an entry's
    assert len(named) > 20
    assert [path for path in sorted(named) if not known(path)] == []
