"""The file that says how Jobs look and what pre-warming looks after. Spelled as Kubernetes spells things (camelCase).

Checked here by pydantic, which takes a third of a second to import: import this module only where a Job is made.
"""

from __future__ import annotations

import fnmatch
import os
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError
from pydantic.alias_generators import to_camel

from warmstart.cluster.api import DEPLOYMENTS, LEADER_WORKER_SETS, STATEFUL_SETS, Object, Resource
from warmstart.errors import UsageError, shorten

_Text = Annotated[str, StringConstraints(min_length=1, strip_whitespace=True)]
_Quantity = Annotated[str, StringConstraints(pattern=r"^[0-9]+(\.[0-9]+)?(m|k|Ki|M|Mi|G|Gi|T|Ti)?$")]
_Objects = tuple[Object, ...]


class _Model(BaseModel):
    model_config = ConfigDict(
        extra="forbid", frozen=True, alias_generator=to_camel, validate_by_alias=True, validate_by_name=True, coerce_numbers_to_str=True
    )


_Checked = TypeVar("_Checked", bound=_Model)


class JobOptions(_Model):
    """How a precompile Job looks. Everything that Kubernetes defines is written as Kubernetes writes it."""

    image: _Text
    image_pull_policy: Literal["", "Always", "IfNotPresent", "Never"] = ""
    image_pull_secrets: tuple[_Text, ...] = ()
    store: str = ""
    env: dict[str, str] = {}
    env_from: _Objects = ()
    volumes: _Objects = ()
    volume_mounts: _Objects = ()
    service_account: str = ""
    cpu: _Quantity = "2"
    memory: _Quantity = "4Gi"
    scratch_size: _Quantity = "10Gi"
    node_selector: dict[str, str] = {}
    tolerations: _Objects = ()
    affinity: Object = {}
    priority_class: str = ""
    pod_security_context: Object = {}
    queue: str = ""
    suspend: bool = False
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    ttl_seconds: Annotated[int, Field(ge=0)] | None = 86400
    deadline_seconds: Annotated[int, Field(gt=0)] = 3600
    backoff_limit: Annotated[int, Field(ge=0)] = 3
    managed_by: _Text = "warmstart"


class ImageRule(_Model):
    """Which image compiles for a server's image: `server` is a pattern in which `*` stands for any text."""

    server: _Text
    image: _Text


class NodePool(_Model):
    """Nodes that an autoscaler can make: the labels and taints that they will have."""

    name: _Text
    labels: dict[str, str] = {}
    taints: _Objects = ()


class WatchedResource(_Model):
    """A kind of workload. `template` is the path of its pod template, such as spec.template."""

    group: str
    version: _Text
    plural: _Text
    template: _Text = "spec.template"

    @property
    def resource(self) -> Resource:
        """Where the API server has it."""
        return Resource(self.group, self.version, self.plural)


def _watched(resource: Resource, template: str = "spec.template") -> WatchedResource:
    return WatchedResource(group=resource.group, version=resource.version, plural=resource.plural, template=template)


BUILT_IN = (
    _watched(DEPLOYMENTS),
    _watched(STATEFUL_SETS),
    _watched(LEADER_WORKER_SETS, "spec.leaderWorkerTemplate.workerTemplate"),
)


class PrewarmConfig(_Model):
    """What `warmstart prewarm` looks after, and the Jobs it makes."""

    job: JobOptions
    images: tuple[ImageRule, ...] = ()
    selector: str = "warmstart.dev/prewarm=true"
    namespaces: tuple[_Text, ...] = ()
    resources: tuple[WatchedResource, ...] = ()
    node_pools: tuple[NodePool, ...] = ()
    use_nodes: bool = True
    concurrency: Annotated[int, Field(ge=1)] = 2
    resync_seconds: Annotated[float, Field(ge=5)] = 300.0

    def image_for(self, server_image: str) -> str:
        """Return the image that compiles for a server's image: the first rule that fits, else the Job's own."""
        for rule in self.images:
            if fnmatch.fnmatchcase(server_image, rule.server):
                return rule.image
        return self.job.image


def read_prewarm_config(path: str | os.PathLike[str]) -> PrewarmConfig:
    """Return the checked configuration of a YAML or JSON file. Raises `UsageError` with each field that is wrong."""
    return _validated(PrewarmConfig, _read(Path(path)), str(path))


def job_options(given: Object, *, path: str | os.PathLike[str] | None = None) -> JobOptions:
    """Return the options of Jobs: those of a file's `job` section (or a file with nothing else) where one is given, with `given` over them."""
    base: Object = {}
    if path is not None:
        document = _read(Path(path))
        base = document.get("job", document)
    source = str(path) if path is not None else "the options of the Job"
    return _validated(JobOptions, {**base, **given} if isinstance(base, dict) else base, source)


def _read(path: Path) -> Object:
    import yaml

    try:
        document = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} is not YAML: {shorten(error, 160)}") from error
    if not isinstance(document, dict):
        raise UsageError(f"{path} is not a mapping", hint="docs/operations.md shows a whole file")
    return document


def _validated(model: type[_Checked], document: Any, source: str) -> _Checked:
    try:
        return model.model_validate(document)
    except ValidationError as error:
        wrong = [f"{'.'.join(map(str, part['loc'])) or 'it'}: {part['msg'].lower()}" for part in error.errors()]
        raise UsageError(f"{source}: {shorten('; '.join(wrong))}", hint="docs/operations.md lists the fields") from error
