"""The pod that this process runs in, read from the API server.

One GET at every start of a server, on the way of `warmstart run`: so it is made with the standard library. Importing the
Kubernetes client takes longer (0.5 s) than everything else that a hit needs.
"""

from __future__ import annotations

import os
import ssl
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from warmstart.cluster import failures
from warmstart.cluster.resources import PODS, Object, decode, sentence
from warmstart.errors import AccessDenied, TemporaryError

if TYPE_CHECKING:
    from collections.abc import Mapping

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


class _Place(NamedTuple):
    """The API server as a pod sees it."""

    host: str
    port: int
    token: str
    context: ssl.SSLContext


def own_pod(
    namespace: str,
    name: str,
    *,
    timeout_seconds: float = 10.0,
    service_account: Path = SERVICE_ACCOUNT,
    env: Mapping[str, str] | None = None,
) -> Object:
    """Return the pod as the API server holds it: plain data, with `apiVersion` and `kind`.

    `namespace` and `name` come from the Downward API (metadata.namespace and metadata.name). Needs the verb `get` on `pods` in
    that namespace, and what the kubelet gives a pod whose service account token is mounted: `service_account` and the variables
    KUBERNETES_SERVICE_HOST and _PORT of `env` (default: this process's).

    Raises `AccessDenied` (without a token, or with the rule that is missing), `ObjectNotFound`, `UsageError` where the server's
    certificate is not of the cluster's CA, or `TemporaryError` where nothing answers.
    """
    doing = sentence("GET", PODS, namespace, name)
    place = _place(service_account, os.environ if env is None else env)
    try:
        status, body = _get(place, PODS.path(namespace, name), timeout_seconds, doing)
    except TemporaryError:  # a connection that was not made, or broke: reading is safe to repeat once
        status, body = _get(place, PODS.path(namespace, name), timeout_seconds, doing)
    if status == 404:
        raise failures.ObjectNotFound(
            f"there is no pod {name} in namespace {namespace}",
            hint="set WARMSTART_POD_NAME and WARMSTART_POD_NAMESPACE from metadata.name and metadata.namespace (Downward API)",
        )
    if status != 200:
        raise failures.from_status(status, body, doing)
    return decode(body, doing)


def _place(folder: Path, env: Mapping[str, str]) -> _Place:
    """Read what the kubelet has put into the pod."""
    try:
        # Without a token the server would answer as to anybody, which says nothing of what is wrong here.
        token = (folder / "token").read_text(encoding="ascii").split()[0]
        context = ssl.create_default_context(cafile=str(folder / "ca.crt"))
        return _Place(env["KUBERNETES_SERVICE_HOST"], int(env["KUBERNETES_SERVICE_PORT"]), token, context)
    except KeyError as error:
        raise AccessDenied(f"{error.args[0]} is not set: this is not a pod of a cluster", hint=_WITHOUT) from error
    except IndexError:
        raise AccessDenied(f"the service account token under {folder} is empty", hint=_WITHOUT) from None
    except (OSError, ValueError) as error:
        raise AccessDenied(f"no usable service account token under {folder}: {failures.plain(error)}", hint=_WITHOUT) from error


_WITHOUT = "set automountServiceAccountToken: true on the pod, or hand the spec over in WARMSTART_POD_SPEC"


def _get(place: _Place, path: str, timeout_seconds: float, doing: str) -> tuple[int, bytes]:
    import http.client

    connection = http.client.HTTPSConnection(place.host, place.port, timeout=timeout_seconds, context=place.context)
    try:
        connection.request("GET", path, headers={"Authorization": f"Bearer {place.token}", "Accept": "application/json"})
        answer = connection.getresponse()
        return answer.status, answer.read()
    except (OSError, http.client.HTTPException) as error:
        raise failures.from_transport(error, f"https://{place.host}:{place.port}", doing) from error
    finally:
        connection.close()
