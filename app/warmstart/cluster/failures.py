"""What the API server, the network to it, or a kubeconfig answered, as one of our errors with one clear line.

The client library's own exceptions print response headers and whole bodies; a body can hold a Secret that the server quotes
back. So only the `message` of a Status object passes, shortened, and the original is chained for a debugger, never logged.
"""

from __future__ import annotations

import json
import re
import ssl
from collections.abc import Iterator

from warmstart.errors import AccessDenied, TemporaryError, UsageError, WarmstartError, shorten


class ObjectNotFound(UsageError):
    """The API server knows no such object, or no such kind of object."""


class ObjectConflict(TemporaryError):
    """The object exists already, or it was changed by someone else since it was read."""


class ObjectInvalid(UsageError):
    """The API server, or an admission policy in front of it, refuses the object as it is."""


_FORBIDDEN = re.compile(
    r'User "(?P<user>[^"]*)" cannot (?P<verb>\w+) resource "(?P<resource>[^"]*)" in API group "(?P<group>[^"]*)"'
    r'(?: in the namespace "(?P<namespace>[^"]*)"| at the cluster scope)'
)


def from_status(status: int, body: bytes, doing: str) -> WarmstartError:
    """Return the error for an HTTP answer that is no success. `doing` reads like "get pods web in default"."""
    message, reason = _status_message(body)
    said = f"{doing}: {message}" if message else f"{doing}: the API server answered {status}"
    if status == 401:
        return AccessDenied(
            f"{doing}: the API server does not accept the credentials",
            hint="check that the service account's token is mounted and not expired",
        )
    if status == 403:
        return _forbidden(message, doing)
    if status == 404:
        return ObjectNotFound(said)
    if status == 409:
        return ObjectConflict(said)
    if status in (400, 422):
        return ObjectInvalid(said)
    if status in (408, 410, 429) or status >= 500:
        return TemporaryError(f"{said} ({status}{' ' + reason if reason else ''})", hint="try again")
    return UsageError(said)


def from_transport(error: Exception, host: str, doing: str) -> WarmstartError:
    """Return the error for a call that got no answer: refused, timed out, or a certificate that does not verify."""
    causes = list(_causes(error))
    text = shorten(causes[-1], 160)
    if any(isinstance(cause, ssl.SSLCertVerificationError) for cause in causes):
        return UsageError(f"{doing}: TLS to {host} failed: {text}", hint="check the cluster's CA certificate")
    return TemporaryError(f"{doing}: the API server at {host} does not answer: {text}", hint="try again")


def plain(error: Exception) -> str:
    """Return a local error (a file, a number) as a few words."""
    return shorten(getattr(error, "strerror", None) or error, 120)


def _forbidden(message: str, doing: str) -> WarmstartError:
    match = _FORBIDDEN.search(message)
    if match is None:
        return AccessDenied(f"{doing}: {message or 'forbidden'}")
    group, namespace = match["group"], match["namespace"]
    where = f"a Role in namespace {namespace}" if namespace else "a ClusterRole"
    return AccessDenied(
        f"{doing}: {match['user']} may not {match['verb']} {match['resource']}",
        hint=f'give it {where} with apiGroups: ["{group}"], resources: ["{match["resource"]}"], verbs: ["{match["verb"]}"]',
    )


def _status_message(body: bytes) -> tuple[str, str]:
    """Return message and reason of a Status object; nothing of any other body."""
    try:
        status = json.loads(body)
    except (UnicodeDecodeError, ValueError):
        return "", ""
    if not isinstance(status, dict) or status.get("kind") != "Status":
        return "", ""
    return shorten(status.get("message") or ""), shorten(status.get("reason") or "", 60)


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and what it wraps, the innermost last: urllib3 wraps a refused connection three times."""
    seen: set[int] = set()
    cause: BaseException | None = error
    while cause is not None and id(cause) not in seen:
        seen.add(id(cause))
        yield cause
        wrapped = [getattr(cause, "reason", None), *cause.args, cause.__cause__, cause.__context__]
        cause = next((one for one in wrapped if isinstance(one, BaseException)), None)
