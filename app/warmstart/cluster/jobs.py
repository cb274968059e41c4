"""The Job that precompiles for one workload and one GPU type, as a manifest.

The Job needs no API access and no other object: the workload's spec travels in an annotation of the Job's own pods, which the Downward
API shows as a file. (A variable would not do: the kubelet expands `$(NAME)` in it, and a spec is full of such text.)
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from warmstart.cluster.api import Object
from warmstart.errors import UsageError

if TYPE_CHECKING:
    from warmstart.cluster.config import JobOptions

CONTAINER = "warmstart"
MANAGED_BY = "app.kubernetes.io/managed-by"
KEY = "warmstart.dev/key"
WORKLOAD = "warmstart.dev/workload"
QUEUE = "kueue.x-k8s.io/queue-name"

_SPEC = "warmstart.dev/spec"
_SPEC_FOLDER = "/etc/warmstart/spec"
_SCRATCH = "/scratch"
_LONGEST_NAME = 63
_LARGEST_SPEC = 200 * 1024  # all annotations of an object together may take 256 KiB
# The pass failed in a way that the next try will repeat: a wrong configuration, a model that does not compile.
_HOPELESS_EXITS = [2, 12]
# Volumes that hold what a server is told to read, and that a pod on another node can mount as well.
_PORTABLE_VOLUMES = frozenset({"persistentVolumeClaim", "configMap", "secret", "projected", "nfs", "csi", "image", "ephemeral"})


@dataclasses.dataclass(frozen=True, kw_only=True)
class JobSubject:
    """What one Job compiles. `manifest` is the workload's object, `template` its pod template, both plain data.

    `container` names the vLLM container in it, `paths` the absolute paths that the server's arguments name, `gpu` the catalog's id.
    `identity` is the request key where it is known, else a digest of the request: equal servers get equal names. `key` is empty
    where the key is not known.
    """

    manifest: Object
    template: Object
    container: str
    paths: tuple[str, ...]
    gpu: str
    identity: str
    key: str = ""


def render_job(subject: JobSubject, options: JobOptions) -> Object:
    """Return the Job. The same subject and options give the same manifest, name included.

    Raises `UsageError` where the workload's spec is larger than an annotation can be.
    """
    metadata = subject.manifest.get("metadata") or {}
    labels = _labels(subject, options)
    annotations = {
        **options.annotations,
        WORKLOAD: "/".join(part for part in (subject.manifest.get("kind"), metadata.get("namespace"), metadata.get("name")) if part),
        **({KEY: subject.key} if subject.key else {}),
    }
    job: Object = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": job_name(subject), "labels": labels, "annotations": annotations},
        "spec": {
            **({"suspend": True} if options.suspend or options.queue else {}),
            "backoffLimit": options.backoff_limit,
            "activeDeadlineSeconds": options.deadline_seconds,
            **({"ttlSecondsAfterFinished": options.ttl_seconds} if options.ttl_seconds is not None else {}),
            # A second pod only once the first is gone: two compiling for one key is work done twice.
            "podReplacementPolicy": "Failed",
            "podFailurePolicy": {
                "rules": [
                    {
                        "action": "FailJob",
                        "onExitCodes": {"containerName": CONTAINER, "operator": "In", "values": _HOPELESS_EXITS},
                    },
                    {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
                ]
            },
            "template": {
                "metadata": {"labels": labels, "annotations": {**annotations, _SPEC: _spec_text(subject)}},
                "spec": _pod_spec(subject, options),
            },
        },
    }
    if metadata.get("namespace"):
        job["metadata"]["namespace"] = metadata["namespace"]
    if metadata.get("uid"):
        job["metadata"]["ownerReferences"] = [_owner(subject.manifest)]
    return job


def job_name(subject: JobSubject) -> str:
    """Return the Job's name: workload, GPU and the start of the identity, a DNS label of at most 63 characters."""
    name = str((subject.manifest.get("metadata") or {}).get("name") or "workload")
    tail = f"-warmstart-{_dns(subject.gpu)}-{subject.identity[:10]}"
    return _dns(name)[: _LONGEST_NAME - len(tail)].rstrip("-") + tail


def _labels(subject: JobSubject, options: JobOptions) -> dict[str, str]:
    return {
        **options.labels,
        "app.kubernetes.io/name": "warmstart",
        "app.kubernetes.io/component": "precompile",
        MANAGED_BY: options.managed_by,
        "warmstart.dev/gpu": _dns(subject.gpu),
        **({QUEUE: options.queue} if options.queue else {}),
    }


def _pod_spec(subject: JobSubject, options: JobOptions) -> Object:
    pod = subject.template.get("spec") or {}
    volumes, mounts = _carried_volumes(pod, subject)
    spec: Object = {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}, **options.pod_security_context},
        "containers": [_container(subject, options, mounts)],
        "volumes": [
            {
                "name": "warmstart-spec",
                "downwardAPI": {
                    "items": [{"path": "workload.json", "fieldRef": {"fieldPath": f"metadata.annotations['{_SPEC}']"}}],
                },
            },
            {"name": "warmstart-scratch", "emptyDir": {"sizeLimit": options.scratch_size}},
            *volumes,
            *options.volumes,
        ],
    }
    selector = {**_architecture(pod), **options.node_selector}
    optional = {
        "serviceAccountName": options.service_account,
        "priorityClassName": options.priority_class,
        "nodeSelector": selector,
        "tolerations": options.tolerations,
        "affinity": options.affinity,
        "imagePullSecrets": _unique([*(pod.get("imagePullSecrets") or ()), *({"name": name} for name in options.image_pull_secrets)]),
    }
    return {**spec, **{field: value for field, value in optional.items() if value}}


def _container(subject: JobSubject, options: JobOptions, mounts: list[Object]) -> Object:
    server = _server(subject)
    literals = {"HOME": _SCRATCH, "TMPDIR": _SCRATCH, **options.env}
    if options.store:
        literals["WARMSTART_STORE"] = options.store
    referenced = [entry for entry in server.get("env") or () if _reads_object(entry) and entry["name"] not in literals]
    container: Object = {
        "name": CONTAINER,
        "image": options.image,
        "args": ["precompile", "-f", f"{_SPEC_FOLDER}/workload.json", "--container", subject.container, "--gpu", subject.gpu],
        "env": [*referenced, *({"name": name, "value": value.replace("$(", "$$(")} for name, value in literals.items())],
        "envFrom": [*(server.get("envFrom") or ()), *options.env_from],
        "resources": {
            "requests": {"cpu": options.cpu, "memory": options.memory},
            "limits": {"memory": options.memory},
        },
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": [
            {"name": "warmstart-spec", "mountPath": _SPEC_FOLDER, "readOnly": True},
            {"name": "warmstart-scratch", "mountPath": _SCRATCH},
            *mounts,
            *options.volume_mounts,
        ],
    }
    if options.image_pull_policy:
        container["imagePullPolicy"] = options.image_pull_policy
    return container


def _server(subject: JobSubject) -> Object:
    for container in (subject.template.get("spec") or {}).get("containers") or ():
        if container.get("name") == subject.container:
            return dict(container)
    raise UsageError(f"the pod template has no container {subject.container}")


def _reads_object(entry: Mapping[str, Any]) -> bool:
    """Whether an env entry is read from a Secret or ConfigMap: the one thing about the server's env that its spec does not say."""
    return bool({"secretKeyRef", "configMapKeyRef"} & set(entry.get("valueFrom") or ()))


def _carried_volumes(pod: Mapping[str, Any], subject: JobSubject) -> tuple[list[Object], list[Object]]:
    """Return volumes and read-only mounts of the server that hold a path which its arguments name (a model on a claim, say)."""
    by_name = {volume["name"]: volume for volume in pod.get("volumes") or ()}
    volumes: dict[str, Object] = {}
    mounts: list[Object] = []
    for mount in _server(subject).get("volumeMounts") or ():
        volume = by_name.get(mount["name"], {})
        if _PORTABLE_VOLUMES & volume.keys() and any(_holds(mount["mountPath"], path) for path in subject.paths):
            volumes[mount["name"]] = volume
            mounts.append({**mount, "readOnly": True})
    return list(volumes.values()), mounts


def _holds(folder: str, path: str) -> bool:
    return path == folder.rstrip("/") or path.startswith(folder.rstrip("/") + "/")


def _architecture(pod: Mapping[str, Any]) -> dict[str, str]:
    """Return the node selector that keeps the Job on the server's processor architecture, where the workload names one."""
    selector = pod.get("nodeSelector") or {}
    return {label: selector[label] for label in ("kubernetes.io/arch",) if label in selector}


def _spec_text(subject: JobSubject) -> str:
    """Return the workload as one line of JSON, without what only the API server is interested in."""
    metadata = subject.manifest.get("metadata") or {}
    kept = {field: metadata[field] for field in ("name", "namespace", "labels", "annotations") if metadata.get(field)}
    kept.setdefault("annotations", {})
    kept["annotations"] = {name: text for name, text in kept["annotations"].items() if name.startswith("warmstart.dev/")}
    manifest = {field: value for field, value in subject.manifest.items() if field not in ("metadata", "status")}
    text = json.dumps({**manifest, "metadata": kept}, sort_keys=True, separators=(",", ":"))
    if len(text.encode()) > _LARGEST_SPEC:
        raise UsageError(
            f"the spec of {metadata.get('name')} takes {len(text.encode())} bytes, more than the {_LARGEST_SPEC} that an annotation can hold",
            hint="give `warmstart job` a Pod with the vLLM container alone",
        )
    return text


def _owner(manifest: Object) -> Object:
    metadata = manifest["metadata"]
    return {
        "apiVersion": manifest["apiVersion"],
        "kind": manifest["kind"],
        "name": metadata["name"],
        "uid": metadata["uid"],
        # Neither field is set: blockOwnerDeletion would ask for update on the owner's finalizers.
    }


def _unique(values: Iterable[Object]) -> list[Object]:
    kept: list[Object] = []
    for value in values:
        if value not in kept:
            kept.append(value)
    return kept


def _dns(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-") or "x"
