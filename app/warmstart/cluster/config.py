"""The file that says what pre-warming looks after. Spelled as Kubernetes spells things (camelCase).

Checked by pydantic, which takes a third of a second to import: import this module only where it is needed.
"""

from __future__ import annotations

import fnmatch
import os
import re
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError, field_validator
from pydantic.alias_generators import to_camel

from warmstart.cluster.resources import DEPLOYMENTS, LEADER_WORKER_SETS, STATEFUL_SETS, Object, Resource
from warmstart.errors import UsageError, shorten

_Text = Annotated[str, StringConstraints(min_length=1, strip_whitespace=True)]
_RESOURCE = re.compile(r"(?P<plural>[a-z0-9]+)\.(?P<version>v\d+((alpha|beta)\d+)?)(\.(?P<group>[a-z0-9.-]+))?")
BUILT_IN = (DEPLOYMENTS, STATEFUL_SETS, LEADER_WORKER_SETS)


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, alias_generator=to_camel, validate_by_name=True)


class ImageRule(_Model):
    """What goes with a server's image: `server` is a pattern in which `*` stands for any text.

    `image` is the one that compiles for it. `code` is a file with the code fingerprint of that image (`warmstart plan
    --factors`, run in it): with it, pre-warming computes the server's key itself and asks the store before it makes a Job.
    """

    server: _Text
    image: str = ""
    code: str = ""


class NodePool(_Model):
    """Nodes that an autoscaler can make: the labels and taints that they will have."""

    name: _Text
    labels: dict[str, str]
    taints: tuple[Object, ...] = ()


class PrewarmConfig(_Model):
    """What `warmstart prewarm` looks after, and the Jobs it makes.

    `image` is that of the Jobs where no rule of `images` fits: empty stands for the server's own. `namespaces` empty means
    all. `resources` are kinds beside the built-in ones, as PLURAL.VERSION.GROUP. `gpus` are catalog ids that a workload can
    land on where neither its spec nor a node pool tells. `queue` is a Kueue LocalQueue. `jobTemplate` is a Job whose fields go
    over the built-in one's.
    """

    image: str = ""
    images: tuple[ImageRule, ...] = ()
    store: str = ""
    queue: str = ""
    job_template: Object = {}
    selector: _Text = "warmstart.dev/prewarm=true"
    namespaces: tuple[_Text, ...] = ()
    resources: tuple[_Text, ...] = ()
    node_pools: tuple[NodePool, ...] = ()
    use_nodes: bool = True
    gpus: tuple[_Text, ...] = ()
    concurrency: Annotated[int, Field(ge=1)] = 2
    resync_seconds: Annotated[float, Field(ge=1)] = 300.0

    @field_validator("resources")
    @classmethod
    def _are_resources(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        for name in names:
            if not _RESOURCE.fullmatch(name):
                raise ValueError(f"{name} is not PLURAL.VERSION.GROUP, such as inferenceservices.v1beta1.serving.kserve.io")
        return names

    def image_for(self, server_image: str) -> str:
        """Return the image that compiles for a server's: of the first rule that fits, else `image`, else the server's own."""
        for rule in self.images:
            if rule.image and fnmatch.fnmatchcase(server_image, rule.server):
                return rule.image
        return self.image or server_image

    def code_for(self, server_image: str) -> Path | None:
        """Return the file with the code fingerprint of a server's image, None where no rule names one."""
        for rule in self.images:
            if rule.code and fnmatch.fnmatchcase(server_image, rule.server):
                return Path(rule.code)
        return None

    def watched(self) -> tuple[Resource, ...]:
        """Return every kind of workload to look at, the built-in ones first."""
        extra = [match for match in map(_RESOURCE.fullmatch, self.resources) if match]
        return (*BUILT_IN, *(Resource(match["group"] or "", match["version"], match["plural"]) for match in extra))


def prewarm_config(path: str | os.PathLike[str] | None = None, **given: Any) -> PrewarmConfig:
    """Return the checked configuration: a YAML or JSON file's, with what is `given` (and not None) over it, by field name.

    Raises `UsageError`, naming file and field.
    """
    document = {} if path is None else read_mapping(Path(path))
    names = {field.alias or name: name for name, field in PrewarmConfig.model_fields.items()}
    fields = {names.get(name, name): value for name, value in document.items()}
    fields |= {name: value for name, value in given.items() if value is not None}
    try:
        return PrewarmConfig.model_validate(fields)
    except ValidationError as error:
        wrong = [f"{'.'.join(to_camel(str(part)) for part in one['loc'])}: {one['msg'].lower()}" for one in error.errors()]
        source = "the options" if path is None else str(path)
        raise UsageError(f"{source}: {shorten('; '.join(wrong))}", hint="docs/operations.md lists the fields") from error


def read_mapping(path: Path) -> Object:
    """Return a YAML or JSON file that holds one mapping. Raises `UsageError`."""
    import yaml

    try:
        document = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} is not YAML: {shorten(error, 160)}") from error
    if not isinstance(document, dict):
        raise UsageError(f"{path} holds no mapping")
    return document
