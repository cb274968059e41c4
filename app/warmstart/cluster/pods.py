"""The pod that this process runs in, read from the API server."""

from __future__ import annotations

from warmstart.cluster.api import PODS, Api, Object, connect
from warmstart.cluster.failures import ObjectNotFound


def own_pod(namespace: str, name: str, *, api: Api | None = None, timeout_seconds: float = 10.0) -> Object:
    """Return the pod as the API server holds it: plain data, with `apiVersion` and `kind`.

    `namespace` and `name` come from the Downward API (metadata.namespace and metadata.name). Needs the verb `get` on `pods` in
    that namespace. Raises `AccessDenied` (with the rule that is missing), `ObjectNotFound`, or `TemporaryError` where nothing
    answers.
    """
    connection = api or connect(timeout_seconds=timeout_seconds)
    try:
        return connection.get(PODS, namespace, name)
    except ObjectNotFound as error:
        raise ObjectNotFound(
            f"there is no pod {name} in namespace {namespace}",
            hint="set POD_NAME and POD_NAMESPACE from metadata.name and metadata.namespace (Downward API)",
        ) from error
    finally:
        if api is None:
            connection.close()
