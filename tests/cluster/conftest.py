"""A cluster for the tests beside this file: the control plane of `control_plane.py`, or any other one.

WARMSTART_TEST_KUBECONFIG names a kubeconfig with the rights of cluster-admin; the tests then use that cluster (1.36 or newer
for the admission policy) and make and delete their own namespaces in it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest
import yaml
from tests.cluster import control_plane

from warmstart.cluster.api import Api, connect
from warmstart.cluster.failures import ObjectConflict, ObjectNotFound
from warmstart.cluster.resources import PODS, Object, Resource

NAMESPACES = Resource("", "v1", "namespaces")
SERVICE_ACCOUNTS = Resource("", "v1", "serviceaccounts")
ROLES = Resource("rbac.authorization.k8s.io", "v1", "roles")
ROLE_BINDINGS = Resource("rbac.authorization.k8s.io", "v1", "rolebindings")
CRDS = Resource("apiextensions.k8s.io", "v1", "customresourcedefinitions")
CLUSTER_ROLES = Resource("rbac.authorization.k8s.io", "v1", "clusterroles")
CLUSTER_ROLE_BINDINGS = Resource("rbac.authorization.k8s.io", "v1", "clusterrolebindings")

Rules = list[Object]
Value = TypeVar("Value")


@pytest.fixture(scope="session")
def kubeconfig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Yield the kubeconfig of a cluster's administrator."""
    given = os.environ.get("WARMSTART_TEST_KUBECONFIG")
    if given:
        yield Path(given)
        return
    with control_plane.running(tmp_path_factory.mktemp("control-plane")) as plane:
        yield plane.kubeconfig


@pytest.fixture(scope="session")
def admin(kubeconfig: Path) -> Iterator[Api]:
    """Yield the API server, as its administrator."""
    api = connect(kubeconfig)
    yield api
    api.close()


@pytest.fixture
def namespace(admin: Api) -> Iterator[str]:
    """Yield a namespace of the test's own, ready for pods."""
    with _namespace(admin) as name:
        yield name


@pytest.fixture(scope="module")
def module_namespace(admin: Api) -> Iterator[str]:
    """Yield a namespace that the tests of one file share."""
    with _namespace(admin) as name:
        yield name


@contextlib.contextmanager
def _namespace(admin: Api) -> Iterator[str]:
    name = f"test-{uuid.uuid4().hex[:8]}"
    admin.create(NAMESPACES, "", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    eventually(lambda: admin.get(SERVICE_ACCOUNTS, name, "default"))
    try:
        yield name
    finally:
        admin.delete(NAMESPACES, "", name)


@dataclasses.dataclass(frozen=True)
class Account:
    """A service account: its name, a token, and a kubeconfig that shows the token."""

    namespace: str
    name: str
    token: str
    kubeconfig: Path

    def connect(self) -> Api:
        """Return the API server as this account."""
        return connect(self.kubeconfig)


@pytest.fixture
def account(admin: Api, namespace: str, kubeconfig: Path, tmp_path: Path) -> Callable[[Rules], Account]:
    """Make a service account that may do exactly what some rules of a Role say, in the test's namespace."""

    def make(rules: Rules) -> Account:
        name = f"account-{uuid.uuid4().hex[:6]}"
        admin.create(SERVICE_ACCOUNTS, namespace, {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name}})
        role = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": name}, "rules": rules}
        admin.create(ROLES, namespace, role)
        binding = {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "RoleBinding",
            "metadata": {"name": name},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name},
            "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": namespace}],
        }
        admin.create(ROLE_BINDINGS, namespace, binding)
        return account_of(admin, namespace, name, kubeconfig, tmp_path)

    return make


def account_of(admin: Api, namespace: str, name: str, kubeconfig: Path, folder: Path) -> Account:
    """Return an existing service account with a token of its own (an hour, as a pod's)."""
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 3600}}
    token = admin.create(SERVICE_ACCOUNTS, namespace, request, name=name, subresource="token")["status"]["token"]
    return Account(namespace, name, token, with_token(kubeconfig, token, folder / f"{name}.kubeconfig"))


def with_token(kubeconfig: Path, token: str, target: Path) -> Path:
    """Write a kubeconfig for the same cluster that shows another token."""
    document = yaml.safe_load(kubeconfig.read_text())
    document["users"] = [{"name": "other", "user": {"token": token}}]
    for context in document["contexts"]:
        context["context"]["user"] = "other"
    target.write_text(yaml.safe_dump(document))
    return target


def eventually(look: Callable[[], Value], *, seconds: float = 30.0) -> Value:
    """Return what `look` returns once it is neither an error of absence nor false; fail when it never is."""
    give_up = time.monotonic() + seconds
    while True:
        try:
            value: Any = look()
            absent = None
        except (ObjectNotFound, ObjectConflict, AssertionError) as error:
            value, absent = None, error
        if value:
            return value
        if time.monotonic() > give_up:
            raise AssertionError(f"not within {seconds} s") from absent
        time.sleep(0.05)


def make_pod(admin: Api, namespace: str, name: str, **spec: Any) -> Object:
    """Create a pod that no node takes."""
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {"schedulerName": "nobody", "containers": [{"name": "vllm", "image": "vllm/vllm-openai:v0.33.0"}], **spec},
    }
    return admin.create(PODS, namespace, pod)


def end_pod(admin: Api, pod: Object, exit_code: int, *, disrupted: bool = False, message: str = "") -> None:
    """Do what a kubelet does when a pod's only container has ended: write its exit code and the pod's phase.

    `disrupted` adds the condition that an eviction, a preemption or a drained node leaves.
    """
    name, namespace = pod["metadata"]["name"], pod["metadata"]["namespace"]
    container = pod["spec"]["containers"][0]
    ended = {"exitCode": exit_code, "reason": "Completed" if exit_code == 0 else "Error", "message": message}
    status: Object = {
        "phase": "Succeeded" if exit_code == 0 else "Failed",
        "containerStatuses": [
            {
                "name": container["name"],
                "image": container["image"],
                "imageID": "",
                "ready": False,
                "restartCount": 0,
                "state": {"terminated": ended},
            }
        ],
    }
    if disrupted:
        status["conditions"] = [{"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"}]
    admin.merge(PODS, namespace, name, {"status": status}, subresource="status")
