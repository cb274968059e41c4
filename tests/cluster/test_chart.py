"""The chart on a real API server: installed, upgraded and removed by real helm, and what its accounts may do."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.chart.tools import HERE as CHART_TESTS
from tests.chart.tools import ROOT
from tests.cluster.conftest import Account, account_of, eventually, make_pod
from tests.cluster.releases import Release
from tests.cluster.test_injection import _create, _inits
from tests.cluster.test_prewarm import _deploy

from warmstart.cluster.api import Api
from warmstart.cluster.leases import LeaseClaims
from warmstart.cluster.resources import CONFIG_MAPS, JOBS, PODS, Object, Resource
from warmstart.errors import AccessDenied
from warmstart.settings import Settings
from warmstart.workflow import prewarm
from warmstart.workflow.stopping import Stop

pytestmark = pytest.mark.cluster

ACCESS_REVIEWS = Resource("authorization.k8s.io", "v1", "subjectaccessreviews")
DEPLOYMENTS = Resource("apps", "v1", "deployments")
CRON_JOBS = Resource("batch", "v1", "cronjobs")
STORE = {"store": {"url": "s3://bucket/cache"}}


@pytest.fixture(params=["helm3", "helm4"])
def release(request: pytest.FixtureRequest, kubeconfig: Path, namespace: str) -> Iterator[Release]:
    """Yield a release that is not installed yet; it is removed in the end."""
    one = Release(kubeconfig, namespace, helm=request.param, name=f"rel-{namespace[-4:]}")
    yield one
    one.uninstall()


@pytest.mark.parametrize("values", sorted((CHART_TESTS / "values").glob("*.yaml")), ids=lambda path: path.stem)
def test_every_branch_of_the_values_installs(kubeconfig: Path, namespace: str, values: Path) -> None:
    """The server's own defaulting, strict validation and admission see every object that the chart can make."""
    release = Release(kubeconfig, namespace, name=f"rel-{namespace[-4:]}")
    chosen = yaml.safe_load(values.read_text()) or {}
    if chosen.get("prewarm", {}).get("namespaces"):
        chosen["prewarm"]["namespaces"] = [namespace, "default"]
    release.install(chosen)
    release.uninstall()


def test_install_upgrade_and_removal(release: Release, admin: Api) -> None:
    values: Object = {**STORE, "precompile": {"qwen3": {"model": "Qwen/Qwen3-0.6B", "gpus": ["h200", "l4"]}}}
    said = release.install(values)
    assert release.name in said
    assert len(list(admin.list(JOBS, release.namespace))) == 2
    release.install({**values, "prewarm": {"enabled": True, "mode": "cron"}}, upgrade=True)
    assert len(list(admin.list(CRON_JOBS, release.namespace))) == 1
    assert len(list(admin.list(JOBS, release.namespace))) == 2, "an upgrade that changes no entry makes no new Job"


def test_the_default_installation_has_no_rights(kubeconfig: Path, admin: Api, namespace: str) -> None:
    """No feature, no rule: nothing that the release created is a Role or a binding."""
    release = Release(kubeconfig, namespace, name=f"rel-{namespace[-4:]}")
    release.install(STORE)
    for kind in ("roles", "rolebindings"):
        assert list(admin.list(Resource("rbac.authorization.k8s.io", "v1", kind), namespace)) == []
    release.uninstall()


def test_injection_works_again_after_it_was_removed(kubeconfig: Path, admin: Api, namespace: str) -> None:
    """With parameters in an object of a built-in kind it would not: an API server (1.36.3) never reads that kind again."""
    release = Release(kubeconfig, namespace, name=f"rel-{namespace[-4:]}")
    for _ in range(2):
        release.install({**STORE, "injection": {"enabled": True}})
        eventually(lambda: _inits(_create(admin, namespace, dry_run=True)) == ["warmstart"])
        release.uninstall()
        eventually(lambda: _inits(_create(admin, namespace, dry_run=True)) == [])


@dataclasses.dataclass(frozen=True)
class Prewarm:
    """An installed pre-warm: its account, and the configuration file that its pod would see."""

    account: Account
    config: Path


@pytest.fixture
def installed(kubeconfig: Path, admin: Api, namespace: str, tmp_path: Path) -> Iterator[Callable[[Any], Prewarm]]:
    """Install pre-warm with some values, and become its service account."""
    release = Release(kubeconfig, namespace, name=f"rel-{namespace[-4:]}")

    def install(prewarm_values: Any) -> Prewarm:
        release.install({**STORE, "prewarm": {"enabled": True, **prewarm_values}})
        (deployment,) = admin.list(DEPLOYMENTS, namespace, labels="app.kubernetes.io/component=prewarm")
        name = deployment["spec"]["template"]["spec"]["serviceAccountName"]
        (config,) = admin.list(CONFIG_MAPS, namespace, labels="app.kubernetes.io/component=prewarm")
        file = tmp_path / "shipped.yaml"
        file.write_text(config["data"]["config.yaml"])
        return Prewarm(account_of(admin, namespace, name, kubeconfig, tmp_path), file)

    yield install
    release.uninstall()


def test_prewarm_works_with_the_rights_and_the_configuration_as_shipped(
    installed: Callable[[Any], Prewarm], admin: Api, namespace: str
) -> None:
    shipped = installed({"namespaces": [namespace]})
    _deploy(admin, namespace, "qwen3")
    look = eventually(lambda: prewarm.main(Settings(), Stop(), kubeconfig=shipped.account.kubeconfig, config=shipped.config))
    assert [target.state for target in look.targets] == ["created"]
    (job,) = admin.list(JOBS, namespace, labels="app.kubernetes.io/managed-by=warmstart")
    container = job["spec"]["template"]["spec"]["containers"][0]
    assert [one["name"] for one in job["spec"]["template"]["spec"]["containers"]] == ["warmstart"]
    assert container["args"][0] == "precompile"
    env = {entry["name"]: entry.get("value") for entry in container["env"]}
    assert env["WARMSTART_STORE"] == "s3://bucket/cache"
    said = admin.list(Resource("events.k8s.io", "v1", "events"), namespace)
    assert "PrecompileStarted" in {event["reason"] for event in said}


def test_the_shipped_pod_runs_with_its_own_command_and_env(
    installed: Callable[[Any], Prewarm], admin: Api, namespace: str, tmp_path: Path
) -> None:
    """The command line of the Deployment's container, its variables and its mounted configuration, in a process of its own."""
    shipped = installed({"namespaces": [namespace]})
    _deploy(admin, namespace, "qwen3")
    (deployment,) = admin.list(DEPLOYMENTS, namespace, labels="app.kubernetes.io/component=prewarm")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    mounted = next(mount["mountPath"] for mount in container["volumeMounts"] if mount["name"] == "warmstart-prewarm")
    (tmp_path / "config.yaml").write_text(shipped.config.read_text())
    args = [argument.replace(mounted, str(tmp_path)) for argument in container["args"] if argument != "--watch"]
    env = {entry["name"]: entry["value"].replace(mounted, str(tmp_path)) for entry in container["env"] if entry.get("value")}
    done = subprocess.run(
        [sys.executable, "-m", "warmstart", *args, "--kubeconfig", str(shipped.account.kubeconfig)],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT / "app"), "HOME": str(tmp_path), **env},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert [target["state"] for target in json.loads(done.stdout)["targets"]] == ["created"]


# Everything that pre-warming calls, and what nothing of it may ever call.
NEEDED = {
    ("apps", "deployments"): {"list", "watch"},
    ("apps", "statefulsets"): {"list", "watch"},
    ("leaderworkerset.x-k8s.io", "leaderworkersets"): {"list", "watch"},
    ("resource.k8s.io", "resourceclaims"): {"get"},
    ("resource.k8s.io", "resourceclaimtemplates"): {"get"},
    ("batch", "jobs"): {"list", "watch", "create"},
    ("events.k8s.io", "events"): {"create", "get", "patch"},
}
NEVER = {
    ("", "secrets"): {"get", "list"},
    ("", "configmaps"): {"get", "list"},
    ("", "pods"): {"get", "list", "create", "delete"},
    ("apps", "deployments"): {"create", "update", "patch", "delete"},
    ("batch", "jobs"): {"update", "patch", "delete"},
    ("batch", "cronjobs"): {"create"},
    ("", "serviceaccounts/token"): {"create"},
    ("rbac.authorization.k8s.io", "roles"): {"create", "escalate", "bind"},
    ("", "nodes"): {"update", "patch", "delete"},
}


def test_prewarm_may_do_what_it_does_and_nothing_else(installed: Callable[[Any], Prewarm], admin: Api, namespace: str) -> None:
    shipped = installed({"namespaces": [namespace]})
    for (group, resource), verbs in NEEDED.items():
        for verb in verbs:
            assert _may(admin, shipped.account, namespace, verb, group, resource), f"{verb} {resource} is missing"
    for (group, resource), verbs in NEVER.items():
        for verb in verbs:
            assert not _may(admin, shipped.account, namespace, verb, group, resource), f"{verb} {resource} is too much"
    for (group, resource), verbs in NEEDED.items():
        for verb in verbs:
            assert not _may(admin, shipped.account, "default", verb, group, resource), (
                f"{verb} {resource} in default is too much"
            )
    assert _may(admin, shipped.account, "", "list", "", "nodes")


def test_a_call_outside_the_rules_is_denied(installed: Callable[[Any], Prewarm], namespace: str) -> None:
    """Not a review but the call itself, with the account's own token."""
    shipped = installed({"namespaces": [namespace]})
    api = shipped.account.connect()
    with pytest.raises(AccessDenied, match=r'resources: \["secrets"\], verbs: \["list"\]'):
        list(api.list(Resource("", "v1", "secrets"), namespace))
    with pytest.raises(AccessDenied, match=r'resources: \["jobs"\], verbs: \["delete"\]'):
        api.delete(JOBS, namespace, "any")
    with pytest.raises(AccessDenied, match="a ClusterRole"):
        list(api.list(DEPLOYMENTS))


def test_without_nodes_no_cluster_role_is_needed(installed: Callable[[Any], Prewarm], admin: Api, namespace: str) -> None:
    shipped = installed({"namespaces": [namespace], "useNodes": False})
    assert not _may(admin, shipped.account, "", "list", "", "nodes")
    _deploy(admin, namespace, "qwen3")
    look = prewarm.main(Settings(), Stop(), kubeconfig=shipped.account.kubeconfig, config=shipped.config)
    assert [target.state for target in look.targets] == ["created"]


def test_servers_accounts_may_read_their_pod_and_claim_by_lease(
    kubeconfig: Path, admin: Api, namespace: str, tmp_path: Path
) -> None:
    release = Release(kubeconfig, namespace, name=f"rel-{namespace[-4:]}")
    release.install({**STORE, "claims": "lease", "rbac": {"readOwnPod": True, "serverAccounts": ["default"]}})
    make_pod(admin, namespace, "web")
    api = account_of(admin, namespace, "default", kubeconfig, tmp_path).connect()
    assert api.get(PODS, namespace, "web")["metadata"]["name"] == "web"
    claim = LeaseClaims(api, namespace).claim("ab" * 32, "web", 60)
    assert claim is not None
    assert claim.heartbeat()
    claim.release()
    with pytest.raises(AccessDenied):
        list(api.list(PODS, namespace))
    with pytest.raises(AccessDenied):
        api.delete(PODS, namespace, "web")
    release.uninstall()


def _may(admin: Api, account: Account, namespace: str, verb: str, group: str, resource: str) -> bool:
    """Ask the API server whether an account may do something."""
    plural, _, subresource = resource.partition("/")
    asked = {"verb": verb, "group": group, "resource": plural, "subresource": subresource, "namespace": namespace}
    groups = ["system:serviceaccounts", f"system:serviceaccounts:{account.namespace}", "system:authenticated"]
    spec = {"user": f"system:serviceaccount:{account.namespace}:{account.name}", "groups": groups, "resourceAttributes": asked}
    review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}
    return bool(admin.create(ACCESS_REVIEWS, "", review)["status"]["allowed"])
