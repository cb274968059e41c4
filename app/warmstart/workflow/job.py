"""`warmstart job`: the manifests of the Jobs that precompile for a pod spec, one for each GPU type it can land on."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from warmstart.errors import SpecError, UnknownGpuError, UsageError

if TYPE_CHECKING:
    from warmstart.cluster.jobs import JobOptions, JobSubject
    from warmstart.podspec.request import ServeRequest
    from warmstart.settings import Settings
    from warmstart.workflow.stopping import Stop

_ABSOLUTE_PATH = re.compile(r"(?:^|[=\"'\s])(/[^\s\"',}\]]+)")


@dataclasses.dataclass(frozen=True)
class Manifests:
    """Jobs, as plain data."""

    jobs: tuple[dict[str, Any], ...]

    def document(self) -> dict[str, Any]:
        """Return them as one JSON document that `kubectl apply -f -` takes."""
        return {"apiVersion": "v1", "kind": "List", "items": list(self.jobs)}

    def text(self) -> str:
        """Return them as a YAML stream that `kubectl apply -f -` takes."""
        import yaml

        class Plain(yaml.SafeDumper):
            """Writes values out where they stand twice: anchors are not for people."""

            def ignore_aliases(self, data: Any) -> bool:
                del data
                return True

        return str(yaml.dump_all(self.jobs, Dumper=Plain, sort_keys=False, explicit_start=True, width=2**31))


def main(settings: Settings, stop: Stop, *, image: str | None = None, namespace: str | None = None) -> Manifests:
    """Return the Jobs for the spec that the settings name. Asks neither the store nor the cluster.

    `image` is the Jobs' image (default: the server's own), `namespace` where they run (default: the workload's).

    Raises `SpecError` for a spec without a server, `UnknownGpuError` where it does not say which GPU, `UsageError` where the
    store is a folder that no volume of the Job holds.
    """
    from warmstart import podspec
    from warmstart.cluster.config import read_mapping
    from warmstart.cluster.jobs import JobOptions, render_job
    from warmstart.gpus import load_catalog
    from warmstart.workflow import resolve

    del stop
    text, source = resolve.read_spec(settings)
    catalog = load_catalog(settings.gpu_file)
    requests = podspec.load(
        text,
        source=source,
        container=settings.container,
        gpu=settings.gpu,
        catalog=catalog,
        version=resolve.image_version,
    )
    template = read_mapping(settings.job_template) if settings.job_template else {}
    jobs: dict[str, dict[str, Any]] = {}
    for request in requests:
        options = JobOptions(image=image or request.image, store=settings.store or "", template=template)
        if not request.gpus:
            raise UnknownGpuError(
                f"{request.workload} does not say which GPU it runs on", hint="give --gpu NAME; `warmstart gpus` lists them"
            )
        manifest = manifest_of(request, text, source, namespace)
        for gpu in request.gpus:
            job = render_job(subject_of(request, manifest, gpu), options)
            _check_store(options, job)
            jobs.setdefault(job["metadata"]["name"], job)
    return Manifests(tuple(jobs.values()))


def manifest_of(request: ServeRequest, text: str, source: str, namespace: str | None = None) -> dict[str, Any]:
    """Return the object that a request was read from, put into a namespace where one is given."""
    from warmstart.podspec.documents import read

    for read_one in read(text, source):
        document: dict[str, Any] = dict(read_one)
        metadata = document.get("metadata") or {}
        name = metadata.get("name") or metadata.get("generateName") or ""
        if (document["kind"], metadata.get("namespace") or "", name) == dataclasses.astuple(request.workload):
            return {**document, "metadata": {**metadata, **({"namespace": namespace} if namespace else {})}}
    raise SpecError(f"{source} holds no {request.workload}")


def subject_of(request: ServeRequest, manifest: dict[str, Any], gpu: str, key: str = "") -> JobSubject:
    """Return what a Job compiles for one request on one GPU type."""
    from warmstart.cluster.jobs import JobSubject, pod_specs

    pod = next((pod for pod in pod_specs(manifest) if _holds(pod, request)), None)
    if pod is None:
        raise SpecError(f"{request.workload} has no container {request.container} with image {request.image}")
    return JobSubject(
        manifest=manifest,
        pod=pod,
        container=request.container,
        paths=tuple(absolute_paths(request)),
        gpu=gpu,
        identity=key or digest(request, gpu),
        key=key,
    )


def digest(request: ServeRequest, gpu: str) -> str:
    """Return 64 hex digits that are equal for servers that run the same thing on the same GPU type."""
    what = [request.image, request.model, request.args, sorted(request.env.items()), request.gpu_count, gpu]
    return hashlib.sha256(json.dumps(what, separators=(",", ":")).encode()).hexdigest()


def absolute_paths(request: ServeRequest) -> Iterator[str]:
    """Yield the absolute paths that the server is told to read: the model, and what its options name, JSON values included."""
    for text in (request.model, *request.args):
        yield from _ABSOLUTE_PATH.findall(text)


def _holds(pod: dict[str, Any], request: ServeRequest) -> bool:
    return any(one.get("name") == request.container and (one.get("image") or "") == request.image for one in pod["containers"])


def _check_store(options: JobOptions, job: dict[str, Any]) -> None:
    """Refuse a Job that would publish into its own container's file system, from where nobody ever gets it."""
    folder = options.store.removeprefix("file://") if "://" not in options.store or options.store.startswith("file://") else ""
    containers = job["spec"]["template"]["spec"]["containers"]
    mounts = [mount["mountPath"].rstrip("/") for one in containers for mount in one.get("volumeMounts") or ()]
    if folder and not any(folder == mount or folder.startswith(mount + "/") for mount in mounts):
        raise UsageError(
            f"the store {options.store} is a folder, and the Job mounts no volume there",
            hint="give --job-template FILE with a volume mounted there into container warmstart, or an s3:// store",
        )
