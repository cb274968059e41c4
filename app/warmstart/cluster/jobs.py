"""The Job that precompiles for one workload and one GPU type, as a manifest.

The Job needs no API access and no other object: the workload's spec travels in an annotation of the Job's own pods, which the
Downward API shows as a file. (A variable would not do: the kubelet expands `$(NAME)` in it, and a spec is full of such text.)
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from warmstart.cluster.overlay import overlay
from warmstart.cluster.resources import Object
from warmstart.errors import UsageError

CONTAINER = "warmstart"
# What tells our Jobs from all others.
SELECTED = {"app.kubernetes.io/managed-by": "warmstart", "app.kubernetes.io/component": "precompile"}
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
_PORTABLE_VOLUMES = frozenset({"persistentVolumeClaim", "configMap", "secret", "projected", "nfs", "csi", "image"})
_CPU = "2"
_MEMORY = "4Gi"
_SCRATCH_SIZE = "10Gi"
_DEADLINE_SECONDS = 3600
_TTL_SECONDS = 24 * 3600
_BACKOFF_LIMIT = 3


@dataclasses.dataclass(frozen=True, kw_only=True)
class JobSubject:
    """What one Job compiles. `manifest` is the workload's object and `pod` the pod spec in it, both plain data.

    `container` names the vLLM container in it, `paths` the absolute paths that the server's arguments name, `gpu` the
    catalog's id. `identity` is the request key where it is known, else a digest of the request: equal servers get equal names.
    `key` is empty where the key is not known.
    """

    manifest: Object
    pod: Object
    container: str
    paths: tuple[str, ...]
    gpu: str
    identity: str
    key: str = ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class JobOptions:
    """How the Jobs look. `template` is a Job, or part of one, whose fields go over those of the built-in Job (see `overlay`).

    `queue` names a Kueue LocalQueue: the Job is then made suspended, for Kueue to start. `container_args` are further options
    of `warmstart precompile`.
    """

    image: str
    store: str = ""
    queue: str = ""
    container_args: tuple[str, ...] = ()
    template: Object = dataclasses.field(default_factory=dict)


def render_job(subject: JobSubject, options: JobOptions) -> Object:
    """Return the Job. The same subject and options give the same manifest, name included.

    Raises `UsageError` where the workload's spec is larger than an annotation can be.
    """
    metadata = subject.manifest.get("metadata") or {}
    labels = {
        "app.kubernetes.io/name": "warmstart",
        **SELECTED,
        "warmstart.dev/gpu": _dns(subject.gpu),
        **({QUEUE: options.queue} if options.queue else {}),
    }
    annotations = {
        WORKLOAD: "/".join(
            part for part in (subject.manifest.get("kind"), metadata.get("namespace"), metadata.get("name")) if part
        ),
        **({KEY: subject.key} if subject.key else {}),
    }
    built_in: Object = {
        "metadata": {"labels": labels, "annotations": annotations},
        "spec": {
            "backoffLimit": _BACKOFF_LIMIT,
            "activeDeadlineSeconds": _DEADLINE_SECONDS,
            "ttlSecondsAfterFinished": _TTL_SECONDS,
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
    template = {field: value for field, value in options.template.items() if field in ("metadata", "spec")}
    job: Object = overlay(built_in, template)
    # What makes it this Job is not the template's to change.
    job["metadata"] |= {"name": job_name(subject)}
    if metadata.get("namespace"):
        job["metadata"]["namespace"] = metadata["namespace"]
    if metadata.get("uid"):
        job["metadata"]["ownerReferences"] = [_owner(subject.manifest)]
    if options.queue:
        job["spec"]["suspend"] = True
    return {"apiVersion": "batch/v1", "kind": "Job", **job}


def job_name(subject: JobSubject) -> str:
    """Return the Job's name: workload, GPU and the start of the identity, a DNS label of at most 63 characters."""
    name = str((subject.manifest.get("metadata") or {}).get("name") or "workload")
    tail = f"-warmstart-{_dns(subject.gpu)}-{subject.identity[:10]}"
    return _dns(name)[: _LONGEST_NAME - len(tail)].rstrip("-") + tail


def pod_specs(manifest: Any) -> Iterator[Object]:
    """Yield every pod spec inside an object, whatever its kind: each mapping with a list of containers."""
    if isinstance(manifest, Mapping):
        if isinstance(manifest.get("containers"), list):
            yield dict(manifest)
        for value in manifest.values():
            yield from pod_specs(value)
    elif isinstance(manifest, list):
        for value in manifest:
            yield from pod_specs(value)


def _pod_spec(subject: JobSubject, options: JobOptions) -> Object:
    volumes, mounts = _carried_volumes(subject)
    spec: Object = {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [_container(subject, options, mounts)],
        "volumes": [
            {
                "name": "warmstart-spec",
                "downwardAPI": {
                    "items": [
                        {
                            "path": "workload.json",
                            "fieldRef": {"apiVersion": "v1", "fieldPath": f"metadata.annotations['{_SPEC}']"},
                        }
                    ],
                },
            },
            {"name": "warmstart-scratch", "emptyDir": {"sizeLimit": _SCRATCH_SIZE}},
            *volumes,
        ],
    }
    optional = {"nodeSelector": _architecture(subject.pod), "imagePullSecrets": subject.pod.get("imagePullSecrets")}
    return {**spec, **{field: value for field, value in optional.items() if value}}


def _container(subject: JobSubject, options: JobOptions, mounts: list[Object]) -> Object:
    server = _server(subject)
    literals = {"HOME": _SCRATCH, "TMPDIR": _SCRATCH, **({"WARMSTART_STORE": options.store} if options.store else {})}
    return {
        "name": CONTAINER,
        "image": options.image,
        "args": [
            "precompile",
            *("-f", f"{_SPEC_FOLDER}/workload.json"),
            *("--container", subject.container),
            *("--gpu", subject.gpu),
            *options.container_args,
        ],
        "env": [
            *(entry for entry in server.get("env") or () if _reads_object(entry)),
            *({"name": name, "value": value.replace("$(", "$$(")} for name, value in literals.items()),
        ],
        **({"envFrom": server["envFrom"]} if server.get("envFrom") else {}),
        "resources": {"requests": {"cpu": _CPU, "memory": _MEMORY}, "limits": {"memory": _MEMORY}},
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
        ],
    }


def _server(subject: JobSubject) -> Object:
    for container in subject.pod["containers"]:
        if container.get("name") == subject.container:
            return dict(container)
    raise UsageError(f"the pod template has no container {subject.container}")


def _reads_object(entry: Mapping[str, Any]) -> bool:
    """Whether an env entry is read from a Secret or ConfigMap: what the spec alone does not say about the env."""
    return bool({"secretKeyRef", "configMapKeyRef"} & set(entry.get("valueFrom") or ()))


def _carried_volumes(subject: JobSubject) -> tuple[list[Object], list[Object]]:
    """Return volumes and read-only mounts of the server that hold a path which its arguments name (a model on a claim, say)."""
    by_name = {volume["name"]: volume for volume in subject.pod.get("volumes") or ()}
    volumes: dict[str, Object] = {}
    mounts: list[Object] = []
    for mount in _server(subject).get("volumeMounts") or ():
        volume = by_name.get(mount["name"], {})
        if _PORTABLE_VOLUMES & volume.keys() and any(_within(path, mount["mountPath"]) for path in subject.paths):
            volumes[mount["name"]] = volume
            mounts.append({**mount, "readOnly": True})
    return list(volumes.values()), mounts


def _within(path: str, folder: str) -> bool:
    return path == folder.rstrip("/") or path.startswith(folder.rstrip("/") + "/")


def _architecture(pod: Mapping[str, Any]) -> dict[str, str]:
    """Return the node selector that keeps the Job on the server's processor architecture, where the workload names one."""
    selector = pod.get("nodeSelector") or {}
    return {label: selector[label] for label in ("kubernetes.io/arch",) if label in selector}


def _spec_text(subject: JobSubject) -> str:
    """Return the workload as one line of JSON, without what only the API server is interested in."""
    metadata = subject.manifest.get("metadata") or {}
    kept = {field: metadata[field] for field in ("name", "namespace", "labels") if metadata.get(field)}
    ours = {name: text for name, text in (metadata.get("annotations") or {}).items() if name.startswith("warmstart.dev/")}
    manifest = {field: value for field, value in subject.manifest.items() if field not in ("metadata", "status")}
    text = json.dumps({**manifest, "metadata": {**kept, "annotations": ours}}, sort_keys=True, separators=(",", ":"))
    if len(text.encode()) > _LARGEST_SPEC:
        raise UsageError(
            f"the spec of {metadata.get('name')} takes {len(text.encode())} bytes, an annotation at most {_LARGEST_SPEC}",
            hint="give `warmstart job` a Pod with the vLLM container alone",
        )
    return text


def _owner(manifest: Object) -> Object:
    """Return the reference that lets the workload's deletion take the Job along.

    Neither `controller` nor `blockOwnerDeletion` is set: the first is the Job controller's own business, the second asks for
    more rights.
    """
    metadata = manifest["metadata"]
    return {"apiVersion": manifest["apiVersion"], "kind": manifest["kind"], "name": metadata["name"], "uid": metadata["uid"]}


def _dns(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-") or "x"
