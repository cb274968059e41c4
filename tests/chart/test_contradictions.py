"""Values that contradict each other are refused, with the fix."""

from __future__ import annotations

from typing import Any

import pytest
from tests.chart.tools import STORE, Helm, merge

_CLAIM = {"claim": {"existingClaim": "c"}}
_READ_ONLY = {"url": "", "claim": {"existingClaim": "c", "readOnly": True}}
_MODEL = {"model": "m", "gpus": ["h200"]}


@pytest.mark.parametrize(
    ("values", "fix"),
    [
        ({"store": {"url": ""}}, "set store.url"),
        ({"store": {"url": "", "claim": {"create": True, "existingClaim": "c"}}}, "remove one"),
        ({"store": _CLAIM}, "remove store.url, or remove store.claim"),
        ({"store": {"url": "file:///mnt"}}, "set store.claim.existingClaim"),
        ({"store": {"url": "gs://b", "region": "x"}}, "set store.url to s3://"),
        ({"store": {"claim": {"readOnly": True}}}, "set store.claim.existingClaim"),
        ({"store": _READ_ONLY}, "set init.onMiss to skip"),
        (
            {
                "store": {"url": "", "claim": {"existingClaim": "c", "readOnly": True}},
                "init": {"onMiss": "skip"},
                "precompile": {"a": _MODEL},
            },
            "set it to false",
        ),
        ({"trust": {"trustedKeys": {"a.pub": "x"}, "trustedKeysConfigMap": {"name": "k", "keys": ["a"]}}}, "remove one"),
        ({"trust": {"trustedKeysConfigMap": {"name": "k"}}}, "list the ConfigMap's keys"),
        ({"trust": {"requireSignature": True}}, "set trust.trustedKeys"),
        (
            {"trust": {"requireSignature": True, "trustedKeys": {"a.pub": "x"}}, "precompile": {"a": _MODEL}},
            "set trust.signingKeySecret.name",
        ),
        (
            {"init": {"gpuCount": 1}, "securityContext": {"readOnlyRootFilesystem": True}},
            "remove securityContext.readOnlyRootFilesystem",
        ),
        ({"init": {"pullOnly": True}}, "set init.onMiss to skip"),
        ({"init": {"pullOnly": True, "onMiss": "skip"}}, "set init.code.configMap"),
        ({"init": {"modelFiles": {"configMap": "a", "existingClaim": "b"}}}, "remove one"),
        ({"cache": {"path": "/tmp/cache"}}, "choose another folder"),  # noqa: S108
        ({"cache": {"path": "/warmstart/cache"}}, "choose another folder"),
        ({"precompile": {"a": {"model": "m", "manifest": {"kind": "Pod"}, "gpus": ["l4"]}}}, "remove one"),
        ({"precompile": {"a": {"gpus": ["l4"]}}}, "set manifest"),
        ({"precompile": {"a": {"model": "m"}}}, "set gpus"),
        ({"precompile": {"a": {"manifest": {"kind": "Pod"}, "args": ["x"]}}}, "a manifest has its own"),
        ({"precompile": {"a": {**_MODEL, "modelFiles": {"configMap": "a", "existingClaim": "b"}}}}, "remove one"),
        ({"gc": {"enabled": True}}, "set gc.olderThan"),
        ({"rbac": {"readOwnPod": True}}, "set rbac.serverAccounts"),
        ({"prewarm": {"enabled": True}, "claims": "lease"}, "set prewarm.jobServiceAccount"),
        ({"prewarm": {"images": [{"server": "*", "code": "x.json"}]}}, "prewarm.codeConfigMap is not set"),
        ({"injection": {"enabled": True}, "init": {"gpuCount": 1}}, "set init.gpuCount to 0"),
        ({"injection": {"enabled": True}, "init": {"failClosed": True}}, "set init.failClosed to false"),
    ],
)
def test_a_contradiction_is_refused_with_the_fix(helm: Helm, values: dict[str, Any], fix: str) -> None:
    """The message starts with our name, so that a user of a parent chart knows whose it is, and says what to change."""
    error = helm.template(merge(STORE, values)).error
    assert "warmstart: " in error
    assert fix in error


def test_injection_below_kubernetes_1_36_is_refused_with_the_way_out(helm: Helm) -> None:
    """The policy does not exist there; the chart's templates do the same."""
    error = helm.template(merge(STORE, {"injection": {"enabled": True}}), kubernetes="1.35").error
    assert "1.36" in error
    assert "use the chart's templates" in error
