"""What the API server answers becomes one line of ours, with nothing in it that a log should not hold."""

from __future__ import annotations

import json
import ssl

import pytest

from warmstart.cluster.failures import ObjectConflict, ObjectInvalid, ObjectNotFound, from_status, from_transport
from warmstart.errors import AccessDenied, TemporaryError, UsageError, WarmstartError

FORBIDDEN = 'pods "web" is forbidden: User "system:serviceaccount:a:b" cannot get resource "pods" in API group "" {}'


def _status(message: str, reason: str = "") -> bytes:
    return json.dumps({"kind": "Status", "message": message, "reason": reason}).encode()


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, ObjectInvalid),
        (401, AccessDenied),
        (403, AccessDenied),
        (404, ObjectNotFound),
        (405, UsageError),
        (408, TemporaryError),
        (409, ObjectConflict),
        (410, TemporaryError),
        (422, ObjectInvalid),
        (429, TemporaryError),
        (500, TemporaryError),
        (503, TemporaryError),
    ],
)
def test_each_status_has_its_class(status: int, kind: type[WarmstartError]) -> None:
    error = from_status(status, _status("why"), "get pods web")
    assert type(error) is kind
    assert str(error).startswith("get pods web: ")
    assert "\n" not in str(error)


@pytest.mark.parametrize(
    ("scope", "where"), [('in the namespace "a"', "a Role in namespace a"), ("at the cluster scope", "a ClusterRole")]
)
def test_forbidden_names_the_rule(scope: str, where: str) -> None:
    error = from_status(403, _status(FORBIDDEN.format(scope)), "get pods web")
    assert where in error.hint
    assert 'resources: ["pods"], verbs: ["get"]' in error.hint


def test_a_refusal_by_admission_keeps_its_reason() -> None:
    error = from_status(403, _status('admission webhook "policy.example.com" denied the request: no'), "create jobs")
    assert "denied the request: no" in error.message


@pytest.mark.parametrize(
    "body", [b"<html>token=hunter2</html>", b"\xff\xfe", b"[]", b'{"kind":"Secret","data":{"a":"hunter2"}}', b""]
)
def test_a_body_that_is_no_status_never_passes(body: bytes) -> None:
    error = from_status(500, body, "get pods web")
    assert "hunter2" not in str(error)
    assert "500" in str(error)


def test_a_long_message_is_cut() -> None:
    assert len(str(from_status(422, _status("x" * 5000), "create jobs"))) < 400


def test_no_answer_is_temporary_and_a_bad_certificate_is_not() -> None:
    assert type(from_transport(ConnectionRefusedError("refused"), "https://h", "get pods")) is TemporaryError
    assert type(from_transport(ssl.SSLEOFError("EOF"), "https://h", "get pods")) is TemporaryError
    wrapped = OSError("wrapped", ssl.SSLCertVerificationError("certificate verify failed"))
    assert type(from_transport(wrapped, "https://h", "get pods")) is UsageError
