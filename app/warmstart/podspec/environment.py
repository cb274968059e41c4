"""The environment that the kubelet gives a container, as far as the spec says it.

Values out of ConfigMaps and Secrets come from objects of the same stream, else from the environment handed in (the init
container's own, which is given the same references), else they are marked unknown and named.
"""

from __future__ import annotations

from collections.abc import Mapping

from warmstart.errors import SpecError, shorten
from warmstart.pattern import pattern
from warmstart.podspec.compile_env import changes_compilation
from warmstart.podspec.kubelet import expand
from warmstart.podspec.objects import Objects
from warmstart.podspec.plain import Plain, first, mapping, mappings, text, texts
from warmstart.podspec.request import Unresolved
from warmstart.podspec.unknowns import Unknowns
from warmstart.podspec.workloads import PodTemplate

SERVICE_VARIABLE = pattern(r"\b[A-Z][A-Z0-9_]*_SERVICE_(?:HOST|PORT)(?:_[A-Z0-9_]+)?\b")


class Environment:
    """Variables of one container. A value may hold marks of `unknowns`; `notes` say what could not be known."""

    def __init__(self, variables: dict[str, str], unknowns: Unknowns, notes: dict[Unresolved, None] | None = None) -> None:
        self.variables = variables
        self.unknowns = unknowns
        self.notes: dict[Unresolved, None] = {} if notes is None else notes

    def copy(self) -> Environment:
        """Return a copy whose variables can change on their own; notes and marks are shared."""
        return Environment(dict(self.variables), self.unknowns, self.notes)

    def note(self, what: str, why: str, *, compiles: bool) -> None:
        """Add a note, once."""
        self.notes[Unresolved(shorten(what, 200), shorten(why), compiles)] = None

    def literal(self) -> dict[str, str]:
        """Return the variables whose values are known, and note those that are not."""
        known: dict[str, str] = {}
        for name, value in self.variables.items():
            missing = self.unknowns.within(value)
            if not missing:
                known[name] = value
            else:
                why = "; ".join(dict.fromkeys(unknown.why for unknown in missing))
                self.note(name, why, compiles=changes_compilation(name))
        return known


def resolve(container: Plain, pod: PodTemplate, objects: Objects, own: Mapping[str, str] | None, where: str) -> Environment:
    """Return a container's environment: `envFrom` first, then `env` in order, each able to refer to what stands before it.

    Raises SpecError: an entry that the API server would refuse, or a key that the stream's own ConfigMap or Secret lacks.
    """
    environment = Environment(dict(pod.injected), Unknowns())
    for name, why in {**_services(container, where), **pod.injected_unknown}.items():
        environment.variables[name] = environment.unknowns.mark(f"$({name})", why)
    for position, source in enumerate(mappings(container, "envFrom", where)):
        _add_all(environment, source, pod, objects, own, f"{where}.envFrom[{position}]")
    for position, entry in enumerate(mappings(container, "env", where)):
        name = text(entry, "name", f"{where}.env[{position}]")
        if not name or "=" in name or "\0" in name:
            raise SpecError(f"{where}.env[{position}] has no usable name")
        value = _value(environment, name, entry, pod, objects, own, f"{where}.env[{position}]")
        if value is not None:
            environment.variables[name] = value
    return environment


def _services(container: Plain, where: str) -> dict[str, str]:
    """Return the variables of Kubernetes services that a container refers to: the kubelet sets them, the spec does not."""
    values = [entry.get("value") for entry in mappings(container, "env", where)]
    words = [*texts(container, "command", where), *texts(container, "args", where), *(v for v in values if isinstance(v, str))]
    names = dict.fromkeys(name for word in words for name in (SERVICE_VARIABLE.findall(word) if "_SERVICE_" in word else ()))
    return dict.fromkeys(names, "the kubelet sets it for a Service of the namespace")


def _add_all(
    environment: Environment, source: Plain, pod: PodTemplate, objects: Objects, own: Mapping[str, str] | None, where: str
) -> None:
    key = first(source, ("configMapRef", "secretRef"))
    if key is None:
        raise SpecError(f"{where} names no configMapRef and no secretRef")
    kind = "ConfigMap" if key == "configMapRef" else "Secret"
    reference = mapping(source, key, where)
    name = text(reference, "name", f"{where}.{key}")
    prefix = text(source, "prefix", where)
    data = objects.data(kind, pod.workload.namespace, name)
    if data is not None:
        environment.variables |= {prefix + item: value for item, value in data.items()}
    elif own is not None:
        # Which of our own variables came from it cannot be told; those that matter to compilation are the container's too.
        taken = {item: value for item, value in own.items() if changes_compilation(item) and item.startswith(prefix)}
        environment.variables |= taken
        environment.note(
            f"envFrom {kind}/{name}",
            "not in the spec; compile-relevant variables were read from this environment",
            compiles=False,
        )
    else:
        environment.note(f"envFrom {kind}/{name}", "not in the spec, so its variables are not known", compiles=True)


def _value(
    environment: Environment,
    name: str,
    entry: Plain,
    pod: PodTemplate,
    objects: Objects,
    own: Mapping[str, str] | None,
    where: str,
) -> str | None:
    """Return a variable's value, a mark where it is not known, None where the kubelet would not set it."""
    value = text(entry, "value", where)
    source = mapping(entry, "valueFrom", where)
    if value or not source:
        return expand(value, environment.variables)
    key = first(source, ("configMapKeyRef", "secretKeyRef", "fieldRef", "resourceFieldRef", "fileKeyRef"))
    if key is None:
        raise SpecError(f"{where}.valueFrom names no source that Kubernetes has")
    reference = mapping(source, key, f"{where}.valueFrom")
    at = f"{where}.valueFrom.{key}"
    why = f"{_source(key, reference, at)} is read in the cluster"
    if key in ("configMapKeyRef", "secretKeyRef"):
        kind = "ConfigMap" if key == "configMapKeyRef" else "Secret"
        data = objects.data(kind, pod.workload.namespace, text(reference, "name", at))
        if data is not None:
            item = text(reference, "key", at)
            if item not in data and reference.get("optional") is not True:
                raise SpecError(f"{at}: {kind}/{text(reference, 'name', at)} has no key {item!r}")
            return data.get(item)
    elif key == "fieldRef":
        known = _field(text(reference, "fieldPath", at), pod)
        if known is not None:
            return known
    if own is not None and name in own:
        return own[name]
    return environment.unknowns.mark(f"$({name})", why)


def _source(key: str, reference: Plain, where: str) -> str:
    if key in ("configMapKeyRef", "secretKeyRef"):
        kind = "ConfigMap" if key == "configMapKeyRef" else "Secret"
        return f"{kind}/{text(reference, 'name', where)} key {text(reference, 'key', where)}"
    if key == "fieldRef":
        return f"the pod's {text(reference, 'fieldPath', where)}"
    if key == "resourceFieldRef":
        return f"the container's {text(reference, 'resource', where)}"
    return f"the file {text(reference, 'path', where)}"


def _field(path: str, pod: PodTemplate) -> str | None:
    """Return a field of the pod that the template already fixes."""
    if path == "metadata.namespace":
        return pod.workload.namespace or None
    for key, values in (("metadata.labels", pod.labels), ("metadata.annotations", pod.annotations)):
        if path.startswith(f"{key}['") and path.endswith("']"):
            return values.get(path[len(key) + 2 : -2])
    return None
