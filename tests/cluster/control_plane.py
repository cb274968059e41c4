"""A real control plane on loopback: etcd, kube-apiserver, kube-controller-manager and kube-scheduler.

Built once by controlplane/build.sh, started on free ports with the API server's default admission plugins, RBAC and bound
service account tokens, and stopped with everything it wrote. There is no kubelet: a test that needs a pod to run plays its
part.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import secrets
import shutil
import socket
import ssl
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import yaml

_BUILD = Path(__file__).parent / "controlplane" / "build.sh"
_READY_SECONDS = 90.0


@dataclasses.dataclass(frozen=True)
class ControlPlane:
    """One that runs: where, and the kubeconfig of its administrator (group system:masters)."""

    server: str
    kubeconfig: Path
    certificate: Path


@contextlib.contextmanager
def running(folder: Path) -> Iterator[ControlPlane]:
    """Start a control plane whose files are all below `folder`, and stop it in the end."""
    binaries = Path(subprocess.run([_BUILD], check=True, stdout=subprocess.PIPE, text=True).stdout.strip())
    etcd_port, peer_port, api_port, manager_port, scheduler_port = _free_ports(5)
    server = f"https://127.0.0.1:{api_port}"
    certificates = folder / "certificates"
    certificates.mkdir(parents=True)
    token = secrets.token_hex(16)
    (folder / "tokens.csv").write_text(f'{token},admin,admin,"system:masters"\n')
    _make_key(folder / "service-accounts.key")
    plane = ControlPlane(server, folder / "admin.kubeconfig", certificates / "apiserver.crt")
    with contextlib.ExitStack() as stack:
        start = _Starter(binaries, folder, stack)
        etcd = f"http://127.0.0.1:{etcd_port}"
        start(
            "etcd",
            f"--data-dir={folder / 'etcd'}",
            f"--listen-client-urls={etcd}",
            f"--advertise-client-urls={etcd}",
            f"--listen-peer-urls=http://127.0.0.1:{peer_port}",
            f"--initial-advertise-peer-urls=http://127.0.0.1:{peer_port}",
            f"--initial-cluster=default=http://127.0.0.1:{peer_port}",
            # Nothing here has to outlive the machine, and tests write a lot.
            "--unsafe-no-fsync",
        )
        start(
            "kube-apiserver",
            f"--etcd-servers={etcd}",
            "--bind-address=127.0.0.1",
            "--advertise-address=127.0.0.1",
            f"--secure-port={api_port}",
            f"--cert-dir={certificates}",
            "--service-cluster-ip-range=10.0.0.0/24",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={folder / 'service-accounts.key'}",
            f"--service-account-signing-key-file={folder / 'service-accounts.key'}",
            f"--token-auth-file={folder / 'tokens.csv'}",
            "--authorization-mode=Node,RBAC",
            "--allow-privileged=true",
            "--endpoint-reconciler-type=none",
        )
        _wait_ready(server, token, folder)
        _write_kubeconfig(plane.kubeconfig, server, plane.certificate, token)
        start(
            "kube-controller-manager",
            f"--kubeconfig={plane.kubeconfig}",
            f"--secure-port={manager_port}",
            "--bind-address=127.0.0.1",
            f"--cert-dir={folder / 'manager'}",
            "--leader-elect=false",
            "--use-service-account-credentials=true",
            f"--service-account-private-key-file={folder / 'service-accounts.key'}",
            f"--root-ca-file={plane.certificate}",
            # A kubelet would renew its nodes' Leases; nodes of tests must not turn NotReady meanwhile.
            "--node-monitor-grace-period=24h",
            # The collector of pods fails those that are on their way out of no node, every 20 s: here a test plays the kubelet.
            "--controllers=*,-nodelifecycle,-nodeipam,-route,-service-lb-controller,-podgc",
        )
        start(
            "kube-scheduler",
            f"--kubeconfig={plane.kubeconfig}",
            f"--secure-port={scheduler_port}",
            "--bind-address=127.0.0.1",
            f"--cert-dir={folder / 'scheduler'}",
            "--leader-elect=false",
        )
        yield plane


class _Starter:
    """Starts programs, each with its own log, and has them ended in reverse order."""

    def __init__(self, binaries: Path, folder: Path, stack: contextlib.ExitStack) -> None:
        self._binaries = binaries
        self._folder = folder
        self._stack = stack

    def __call__(self, name: str, *arguments: str) -> None:
        log = self._stack.enter_context((self._folder / f"{name}.log").open("wb"))
        # Proxies of the environment are for the world outside.
        env = {key: value for key, value in os.environ.items() if not key.lower().endswith("_proxy")}
        # A test run that is killed takes its servers along.
        leash = ["setpriv", "--pdeathsig", "TERM"] if shutil.which("setpriv") else []
        command = [*leash, str(self._binaries / name), *arguments]
        process = subprocess.Popen(command, stdout=log, stderr=log, env=env, cwd=self._folder)
        self._stack.callback(_end, process)


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(5)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _free_ports(count: int) -> list[int]:
    """Return ports that nobody listens on now; all are held until the last is found, so that they differ."""
    with contextlib.ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


def _make_key(path: Path) -> None:
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import rsa

    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    path.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
        )
    )


def _wait_ready(server: str, token: str, folder: Path) -> None:
    """Wait until the API server says that it is ready; its certificate is not checked, for it is being made."""
    context = ssl._create_unverified_context()  # noqa: S323
    request = urllib.request.Request(  # noqa: S310 - made here, https
        f"{server}/readyz", headers={"Authorization": f"Bearer {token}"}
    )
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context))
    give_up = time.monotonic() + _READY_SECONDS
    while True:
        try:
            opener.open(request, timeout=5).close()
        except OSError as error:
            if time.monotonic() > give_up:
                log = (folder / "kube-apiserver.log").read_text(errors="replace")[-2000:]
                raise TimeoutError(f"the API server is not ready after {_READY_SECONDS} s: {error}\n{log}") from error
            time.sleep(0.2)
        else:
            return


def _write_kubeconfig(path: Path, server: str, certificate: Path, token: str) -> None:
    cluster = {"server": server, "certificate-authority": str(certificate)}
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "test", "cluster": cluster}],
        "users": [{"name": "test", "user": {"token": token}}],
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
        "current-context": "test",
    }
    path.write_text(yaml.safe_dump(document))
    path.chmod(0o600)
