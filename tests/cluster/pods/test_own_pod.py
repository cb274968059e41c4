"""The init container of a real pod reads its own pod from a real API server, with the pod's own service account."""

from __future__ import annotations

import base64
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.cluster.conftest import Account, Rules
from tests.cluster.pods.conftest import Played, Pods, fresh_claim

from warmstart.cluster.api import Api
from warmstart.cluster.resources import PODS

pytestmark = pytest.mark.cluster

READ = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]
_TOKEN_FOLDER = "/var/run/secrets/kubernetes.io/serviceaccount"


def test_the_spec_comes_from_the_api_server(
    pods: Pods, admin: Api, account: Callable[[Rules], Account], kubeconfig: Path
) -> None:
    """Nothing is handed over: model, options and GPU type are those of the pod as the API server holds it."""
    result = _play(pods, admin, account(READ), kubeconfig).result()
    assert result["outcome"] == "miss", result
    assert (result["model"], result["gpu"]) == ("/models/qwen3", "NVIDIA H200")


def test_a_pod_that_may_not_be_read_says_which_rule_is_missing_and_starts(
    pods: Pods, admin: Api, account: Callable[[Rules], Account], kubeconfig: Path
) -> None:
    played = _play(pods, admin, account([]), kubeconfig)
    result = played.result()
    assert (result["outcome"], result["error"]) == ("failed", "AccessDenied")
    assert 'resources: ["pods"], verbs: ["get"]' in result["reason"]
    assert played.init().exit_code == 0
    assert played.server().exit_code == 0


def _play(pods: Pods, admin: Api, account: Account, kubeconfig: Path) -> Played:
    """Create the pod in the cluster, and run the same one here as its kubelet would: with token, CA and address.

    The chart hands the spec over in a variable; here it is taken out, so that the pod has to be read.
    """
    values = {"store": {"url": "", "claim": {"existingClaim": fresh_claim()}}, "init": {"onMiss": "skip"}}
    spec = pods.render(values)
    name = pods.name()
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {**spec, "schedulerName": "nobody"}}
    admin.create(PODS, account.namespace, pod)

    cluster = yaml.safe_load(kubeconfig.read_text())["clusters"][0]["cluster"]
    host, _, port = cluster["server"].removeprefix("https://").rpartition(":")
    folder = pods.folder / "serviceaccount"
    folder.mkdir()
    (folder / "token").write_text(account.token)
    (folder / "ca.crt").write_bytes(_authority(cluster))
    spec["volumes"].append({"name": "token", "hostPath": {"path": str(folder), "type": "Directory"}})
    (init,) = spec["initContainers"]
    init["env"] = [entry for entry in init["env"] if entry["name"] != "WARMSTART_POD_SPEC"]
    init["volumeMounts"].append({"name": "token", "mountPath": _TOKEN_FOLDER, "readOnly": True})
    init["env"] += [{"name": "KUBERNETES_SERVICE_HOST", "value": host}, {"name": "KUBERNETES_SERVICE_PORT", "value": port}]
    return pods.play(spec, name=name, namespace=account.namespace, network="host")


def _authority(cluster: dict[str, Any]) -> bytes:
    if "certificate-authority-data" in cluster:
        return base64.b64decode(cluster["certificate-authority-data"])
    return Path(cluster["certificate-authority"]).read_bytes()
