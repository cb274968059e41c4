"""The init container reads its own pod through the API server."""

from __future__ import annotations

import base64
import dataclasses
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from tests.cluster.conftest import Account, Rules, make_pod

from warmstart.cluster.api import Api, connect
from warmstart.cluster.failures import ObjectNotFound
from warmstart.cluster.pods import own_pod
from warmstart.cluster.resources import PODS, Object
from warmstart.errors import AccessDenied, TemporaryError, UsageError

pytestmark = pytest.mark.cluster

READ_PODS = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]


@dataclasses.dataclass(frozen=True)
class Inside:
    """What a kubelet gives a pod: a folder with token and CA, and the API server's address in variables."""

    folder: Path
    env: dict[str, str]

    def own_pod(self, namespace: str, name: str) -> Object:
        """Read the pod as from inside it."""
        return own_pod(namespace, name, service_account=self.folder, env=self.env)


@pytest.fixture
def inside(account: Callable[[Rules], Account], kubeconfig: Path, tmp_path: Path) -> Callable[[Rules], Inside]:
    """Look like a pod whose service account has some rules."""

    def make(rules: Rules) -> Inside:
        cluster = yaml.safe_load(kubeconfig.read_text())["clusters"][0]["cluster"]
        host, _, port = cluster["server"].removeprefix("https://").rpartition(":")
        folder = tmp_path / "serviceaccount"
        folder.mkdir()
        (folder / "token").write_text(account(rules).token)
        if "certificate-authority-data" in cluster:
            (folder / "ca.crt").write_bytes(base64.b64decode(cluster["certificate-authority-data"]))
        else:
            (folder / "ca.crt").write_bytes(Path(cluster["certificate-authority"]).read_bytes())
        return Inside(folder, {"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": port})

    return make


def test_the_pod_arrives_as_the_api_server_holds_it(inside: Callable[[Rules], Inside], admin: Api, namespace: str) -> None:
    limits = {"limits": {"nvidia.com/gpu": 1}}
    containers = [{"name": "vllm", "image": "vllm/vllm-openai:v0.33.0", "args": ["Qwen/Qwen3-0.6B"], "resources": limits}]
    make_pod(admin, namespace, "web", containers=containers)

    pod = inside(READ_PODS).own_pod(namespace, "web")

    assert (pod["apiVersion"], pod["kind"]) == ("v1", "Pod")
    assert pod["spec"]["containers"][0]["args"] == ["Qwen/Qwen3-0.6B"]
    assert pod["spec"]["containers"][0]["resources"]["limits"] == {"nvidia.com/gpu": "1"}
    assert pod == admin.get(PODS, namespace, "web")


def test_a_refusal_names_the_rule_that_is_missing(inside: Callable[[Rules], Inside], admin: Api, namespace: str) -> None:
    make_pod(admin, namespace, "web")

    with pytest.raises(AccessDenied) as refused:
        inside([]).own_pod(namespace, "web")

    line = str(refused.value)
    assert f"a Role in namespace {namespace}" in line
    assert 'apiGroups: [""], resources: ["pods"], verbs: ["get"]' in line
    assert "\n" not in line


def test_a_pod_that_is_not_there_is_named(inside: Callable[[Rules], Inside], namespace: str) -> None:
    with pytest.raises(ObjectNotFound, match=rf"no pod ghost in namespace {namespace}.*WARMSTART_POD_NAME"):
        inside(READ_PODS).own_pod(namespace, "ghost")


@pytest.mark.parametrize("token", [None, "", "\n"])
def test_without_a_token_it_says_how_to_go_without_the_api(inside: Callable[[Rules], Inside], token: str | None) -> None:
    made = inside([])
    (made.folder / "token").unlink()
    if token is not None:
        (made.folder / "token").write_text(token)
    with pytest.raises(AccessDenied, match=r"token.*automountServiceAccountToken"):
        made.own_pod("default", "web")


def test_outside_of_a_cluster_it_says_so(inside: Callable[[Rules], Inside]) -> None:
    with pytest.raises(AccessDenied, match="KUBERNETES_SERVICE_HOST is not set: this is not a pod"):
        dataclasses.replace(inside([]), env={}).own_pod("default", "web")


def test_a_token_that_is_not_accepted_is_access_denied(inside: Callable[[Rules], Inside], namespace: str) -> None:
    made = inside([])
    (made.folder / "token").write_text("eyJ-secret-looking-rubbish")
    with pytest.raises(AccessDenied) as refused:
        made.own_pod(namespace, "web")
    assert "secret-looking" not in str(refused.value)


def test_another_clusters_ca_is_a_clear_error(inside: Callable[[Rules], Inside], namespace: str) -> None:
    made = inside(READ_PODS)
    (made.folder / "ca.crt").write_text(_other_authority())
    with pytest.raises(UsageError, match=r"TLS to https://.* failed.*CA certificate"):
        made.own_pod(namespace, "web")


def test_a_ca_that_is_no_certificate_is_named(inside: Callable[[Rules], Inside], namespace: str) -> None:
    made = inside(READ_PODS)
    (made.folder / "ca.crt").write_text("no certificate")
    with pytest.raises(AccessDenied, match="no usable service account token"):
        made.own_pod(namespace, "web")


def test_an_api_server_that_is_down_is_temporary(inside: Callable[[Rules], Inside], namespace: str) -> None:
    made = inside(READ_PODS)
    down = dataclasses.replace(made, env={**made.env, "KUBERNETES_SERVICE_PORT": "1"})
    with pytest.raises(TemporaryError, match="does not answer"):
        down.own_pod(namespace, "web")


def test_reading_the_pod_does_not_import_the_client() -> None:
    """Half a second that a hit does not have."""
    script = (
        "import sys, warmstart.cluster.pods; sys.exit(bool({'kubernetes', 'urllib3', 'yaml', 'requests'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


def test_the_client_uses_the_service_account_too(
    inside: Callable[[Rules], Inside], admin: Api, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Claims and pre-warm go through the client, with the same token."""
    make_pod(admin, namespace, "web")
    made = inside(READ_PODS)
    for name, value in made.env.items():
        monkeypatch.setenv(name, value)
    assert connect(service_account=made.folder).get(PODS, namespace, "web")["metadata"]["name"] == "web"
    (made.folder / "token").unlink()
    with pytest.raises(AccessDenied, match="automountServiceAccountToken"):
        connect(service_account=made.folder)


def _other_authority() -> str:
    """Return a certificate that signed nothing here."""
    import datetime

    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "somebody else")])
    now = datetime.datetime.now(datetime.UTC)
    builder = x509.CertificateBuilder(name, name, key.public_key(), 1, now, now + datetime.timedelta(days=1))
    return builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM).decode()
