"""The API server, spoken to in plain JSON: dictionaries in and out, our errors, a time limit on every call.

The official client does authentication, TLS, proxies and token renewal. Its typed models are not used: they drop fields that
they do not know and refuse quantities written as numbers, and a pod spec must arrive here exactly as the server holds it.
"""

from __future__ import annotations

import contextlib
import datetime
import email.utils
import os
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from warmstart.cluster import failures
from warmstart.cluster.pods import SERVICE_ACCOUNT
from warmstart.cluster.resources import Object, Resource, decode, sentence
from warmstart.errors import AccessDenied, TemporaryError, UsageError, shorten

_PAGE = 250


class Api:
    """One connection. Every method raises errors of `failures`; none retries: the caller knows what may be repeated."""

    def __init__(self, client: Any, *, timeout_seconds: float) -> None:
        self._client = client
        self._timeout = timeout_seconds
        self._server_clock: tuple[float, float] | None = None

    @property
    def host(self) -> str:
        """The API server's address, for messages."""
        return str(self._client.configuration.host)

    def get(self, resource: Resource, namespace: str, name: str) -> Object:
        """Return one object as the server holds it."""
        return self._call("GET", resource, namespace, name)

    def list(
        self, resource: Resource, namespace: str = "", *, labels: str = "", fields: str = "", page: int = _PAGE
    ) -> Iterator[Object]:
        """Yield every object, `page` at a call; all namespaces where `namespace` is empty. `labels`, `fields`: selectors."""
        query = {"limit": str(page), "labelSelector": labels, "fieldSelector": fields}
        while True:
            answer = self._call("GET", resource, namespace, query=query)
            for item in answer.get("items") or ():
                # Items of a list carry no apiVersion and kind of their own.
                yield {"apiVersion": answer["apiVersion"], "kind": answer["kind"].removesuffix("List"), **item}
            token = (answer.get("metadata") or {}).get("continue")
            if not token:
                return
            query["continue"] = token

    def watch(self, resource: Resource, namespace: str = "", *, labels: str = "", seconds: int = 60) -> Iterator[Object]:
        """Yield what changes from now on, as {"type": ADDED, MODIFIED or DELETED, "object": …}; ends after `seconds`."""
        page = self._call("GET", resource, namespace, query={"limit": "1", "labelSelector": labels})
        query = {
            "watch": "true",
            "labelSelector": labels,
            "resourceVersion": page["metadata"]["resourceVersion"],
            "timeoutSeconds": str(seconds),
        }
        doing = f"watch {resource}"
        answer = self._answer("GET", resource.path(namespace), None, query, doing, seconds + self._timeout)
        with answer as response, contextlib.closing(response.response) as stream:
            yield from _changes(stream.stream(1 << 16), doing)

    def create(
        self, resource: Resource, namespace: str, body: Object, *, name: str = "", subresource: str = "", dry_run: bool = False
    ) -> Object:
        """Create an object, or a subresource of the one called `name`; unknown fields are an error on the server.

        `dry_run` runs admission and validation only.
        """
        query = {"fieldValidation": "Strict", "dryRun": "All" if dry_run else ""}
        return self._call("POST", resource, namespace, name, subresource=subresource, body=body, query=query)

    def replace(self, resource: Resource, namespace: str, name: str, body: Object) -> Object:
        """Replace an object; `ObjectConflict` where its resourceVersion is no longer the one in `body`."""
        return self._call("PUT", resource, namespace, name, body=body, query={"fieldValidation": "Strict"})

    def merge(self, resource: Resource, namespace: str, name: str, body: Object, *, subresource: str = "") -> Object:
        """Apply a JSON merge patch (RFC 7386)."""
        return self._call("PATCH", resource, namespace, name, body=body, subresource=subresource)

    def delete(self, resource: Resource, namespace: str, name: str, *, resource_version: str = "") -> None:
        """Delete an object and, in the background, what it owns; only that very version where one is given."""
        body: Object = {"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Background"}
        if resource_version:
            body["preconditions"] = {"resourceVersion": resource_version}
        self._call("DELETE", resource, namespace, name, body=body)

    def now(self) -> datetime.datetime:
        """Return the API server's time (UTC, to the second): its last answer's Date, carried on by the monotonic clock."""
        if self._server_clock is None:
            raise TemporaryError("the API server's time is not known before its first answer")
        epoch, seen = self._server_clock
        return datetime.datetime.fromtimestamp(epoch + time.monotonic() - seen, tz=datetime.UTC)

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def _call(
        self,
        method: str,
        resource: Resource,
        namespace: str,
        name: str = "",
        *,
        subresource: str = "",
        body: Object | None = None,
        query: Mapping[str, str] | None = None,
    ) -> Object:
        doing = sentence(method, resource, namespace, name)
        path = resource.path(namespace, name, subresource)
        with self._answer(method, path, body, query or {}, doing, self._timeout) as response:
            return decode(response.read(), doing)

    @contextlib.contextmanager
    def _answer(
        self, method: str, path: str, body: Object | None, query: Mapping[str, str], doing: str, timeout: float
    ) -> Iterator[Any]:
        """Send one request and give its successful answer; what goes wrong while it is read is mapped as well."""
        import urllib3
        from kubernetes.client import ApiException

        headers = {"Accept": "application/json"}
        if body is not None:
            headers["Content-Type"] = "application/merge-patch+json" if method == "PATCH" else "application/json"
        try:
            request = self._client.param_serialize(
                method=method,
                resource_path=path,
                query_params=[(key, value) for key, value in query.items() if value],
                header_params=headers,
                body=body,
                auth_settings=["BearerToken"],
            )
            response = self._client.call_api(*request, _request_timeout=timeout)
            self._note_time(response.getheader("Date"))
            if not 200 <= response.status < 300:
                raise failures.from_status(response.status, response.read(), doing)
            yield response
        except ApiException as error:
            raise failures.from_transport(error, self.host, doing) from error
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise failures.from_transport(error, self.host, doing) from error

    def _note_time(self, date: str | None) -> None:
        with contextlib.suppress(TypeError, ValueError):
            self._server_clock = (email.utils.parsedate_to_datetime(date or "").timestamp(), time.monotonic())


def connect(
    kubeconfig: str | os.PathLike[str] | None = None,
    *,
    context: str | None = None,
    timeout_seconds: float = 10.0,
    service_account: Path = SERVICE_ACCOUNT,
) -> Api:
    """Return a connection: by `kubeconfig` where given, else as the pod's service account, else by $KUBECONFIG or ~/.kube.

    Raises `AccessDenied` where there are no credentials at all, `UsageError` where a kubeconfig is broken. Nothing is sent yet.
    """
    import urllib3
    from kubernetes import client, config

    configuration = client.Configuration()
    # One more try for a connection that was not made; a request that was sent is never repeated behind the caller's back.
    configuration.retries = urllib3.Retry(total=None, connect=1, read=0, redirect=0, status=0, other=0)
    in_pod = "KUBERNETES_SERVICE_HOST" in os.environ and kubeconfig is None
    try:
        if in_pod:
            _load_service_account(configuration, service_account)
        else:
            path = None if kubeconfig is None else os.fspath(kubeconfig)
            config.load_kube_config(path, context=context, client_configuration=configuration, persist_config=False)
    except (config.ConfigException, OSError, ValueError, TypeError) as error:
        if in_pod:
            raise AccessDenied(
                f"no usable service account token under {service_account}: {shorten(error, 120)}",
                hint="set automountServiceAccountToken: true on the pod, or give a kubeconfig",
            ) from error
        where = kubeconfig or os.environ.get("KUBECONFIG") or "~/.kube/config"
        raise UsageError(f"kubeconfig {where} is not usable: {shorten(error, 120)}") from error
    return Api(client.ApiClient(configuration), timeout_seconds=timeout_seconds)


def _load_service_account(configuration: Any, folder: Path) -> None:
    from kubernetes.config.incluster_config import InClusterConfigLoader

    InClusterConfigLoader(token_filename=str(folder / "token"), cert_filename=str(folder / "ca.crt")).load_and_set(
        configuration
    )


def _changes(chunks: Iterable[bytes], doing: str) -> Iterator[Object]:
    """Yield the JSON documents, one a line, of a watch."""
    rest = b""
    for chunk in chunks:
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            change = decode(line, doing)
            if change.get("type") == "ERROR":
                raise TemporaryError(f"{doing}: the API server ended the watch", hint="try again")
            yield change
