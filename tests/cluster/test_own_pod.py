"""The init container reads its own pod through the API server."""

from __future__ import annotations

import base64
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from tests.cluster.conftest import Account, Rules, make_pod

from warmstart.cluster.api import PODS, Api, connect
from warmstart.cluster.failures import ObjectNotFound
from warmstart.cluster.pods import own_pod
from warmstart.errors import AccessDenied, TemporaryError, UsageError

pytestmark = pytest.mark.cluster

READ_PODS = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]


@pytest.fixture
def in_pod(
    account: Callable[[Rules], Account], kubeconfig: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[Rules], Path]:
    """Look like a pod whose service account has some rules: the kubelet's variables, and its folder with token and CA."""

    def make(rules: Rules) -> Path:
        cluster = yaml.safe_load(kubeconfig.read_text())["clusters"][0]["cluster"]
        host, _, port = cluster["server"].removeprefix("https://").rpartition(":")
        monkeypatch.setenv("KUBERNETES_SERVICE_HOST", host)
        monkeypatch.setenv("KUBERNETES_SERVICE_PORT", port)
        folder = tmp_path / "serviceaccount"
        folder.mkdir()
        (folder / "token").write_text(account(rules).token)
        if "certificate-authority-data" in cluster:
            (folder / "ca.crt").write_bytes(base64.b64decode(cluster["certificate-authority-data"]))
        else:
            (folder / "ca.crt").write_bytes(Path(cluster["certificate-authority"]).read_bytes())
        return folder

    return make


def test_the_pod_arrives_as_the_api_server_holds_it(in_pod: Callable[[Rules], Path], admin: Api, namespace: str) -> None:
    limits = {"limits": {"nvidia.com/gpu": 1}}
    containers = [{"name": "vllm", "image": "vllm/vllm-openai:v0.33.0", "args": ["Qwen/Qwen3-0.6B"], "resources": limits}]
    make_pod(admin, namespace, "web", containers=containers)
    api = connect(service_account=in_pod(READ_PODS))

    pod = own_pod(namespace, "web", api=api)

    assert (pod["apiVersion"], pod["kind"]) == ("v1", "Pod")
    assert pod["spec"]["containers"][0]["args"] == ["Qwen/Qwen3-0.6B"]
    assert pod["spec"]["containers"][0]["resources"]["limits"] == {"nvidia.com/gpu": "1"}
    assert pod == admin.get(PODS, namespace, "web")


def test_a_refusal_names_the_rule_that_is_missing(in_pod: Callable[[Rules], Path], admin: Api, namespace: str) -> None:
    make_pod(admin, namespace, "web")
    api = connect(service_account=in_pod([]))

    with pytest.raises(AccessDenied) as refused:
        own_pod(namespace, "web", api=api)

    line = str(refused.value)
    assert f"a Role in namespace {namespace}" in line
    assert 'apiGroups: [""], resources: ["pods"], verbs: ["get"]' in line
    assert "\n" not in line


def test_a_pod_that_is_not_there_is_named(in_pod: Callable[[Rules], Path], namespace: str) -> None:
    api = connect(service_account=in_pod(READ_PODS))
    with pytest.raises(ObjectNotFound, match=rf"no pod ghost in namespace {namespace}.*POD_NAME"):
        own_pod(namespace, "ghost", api=api)


def test_a_pod_without_a_token_is_told_how_to_go_without_the_api(
    in_pod: Callable[[Rules], Path],
) -> None:
    folder = in_pod([])
    (folder / "token").unlink()
    with pytest.raises(AccessDenied, match=r"token.*automountServiceAccountToken"):
        connect(service_account=folder)


def test_a_token_that_is_not_accepted_is_access_denied(in_pod: Callable[[Rules], Path], namespace: str) -> None:
    folder = in_pod([])
    (folder / "token").write_text("eyJ-secret-looking-rubbish")
    with pytest.raises(AccessDenied) as refused:
        own_pod(namespace, "web", api=connect(service_account=folder))
    assert "secret-looking" not in str(refused.value)


def test_another_clusters_ca_is_a_clear_error(in_pod: Callable[[Rules], Path], namespace: str) -> None:
    folder = in_pod(READ_PODS)
    (folder / "ca.crt").write_text(_other_authority())
    with pytest.raises(UsageError, match=r"TLS to https://.* failed.*CA certificate"):
        own_pod(namespace, "web", api=connect(service_account=folder))


def test_an_api_server_that_is_down_is_temporary(
    in_pod: Callable[[Rules], Path], namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = in_pod(READ_PODS)
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "1")
    with pytest.raises(TemporaryError, match="does not answer"):
        own_pod(namespace, "web", api=connect(service_account=folder))


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
