"""How many GPUs a pod asks for, and which types it can land on.

The types come from an argument, an annotation, DRA claims, or node selector and affinity: the first that says something.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from warmstart.errors import SpecError, UnsupportedError, shorten
from warmstart.podspec import claims
from warmstart.podspec.objects import Objects
from warmstart.podspec.plain import Plain, mapping, mappings, strings, text, texts
from warmstart.podspec.request import Unresolved
from warmstart.podspec.workloads import PodTemplate

if TYPE_CHECKING:
    from warmstart.gpus.catalog import Catalog
    from warmstart.gpus.profile import GpuProfile

ANNOTATION = "warmstart.dev/gpu"
_MIG = "nvidia.com/mig-"
_WHOLE = ("nvidia.com/gpu", "nvidia.com/gpu.shared")
_OTHER_VENDORS = ("amd.com/", "gpu.intel.com/", "habana.ai/", "aws.amazon.com/neuron", "google.com/tpu")
_MOST_ALTERNATIVES = 256


class Accelerators(NamedTuple):
    """GPU types (catalog ids, in the spec's order), how many the container asks for, and what could not be known."""

    gpus: tuple[str, ...]
    number: int
    notes: tuple[Unresolved, ...]


def resolve(
    pod: PodTemplate, container: Plain, objects: Objects, catalog: Catalog, named: str | None, where: str
) -> Accelerators:
    """Return what a container's GPUs are.

    `named` (an argument) wins over the annotation, that over what the pod asks the scheduler for. Several names are
    separated by commas. Raises UnknownGpuError: a name or label that the catalog does not hold. SpecError: a count that is
    none. UnsupportedError: a GPU of another vendor.
    """
    count, resource = _resources(container, where)
    claimed = claims.claimed(pod, container, objects, where)
    count += claimed.number
    names = named or pod.annotations.get(ANNOTATION, "")
    if names.strip():
        gpus = tuple(dict.fromkeys(catalog.get(name.strip()).id for name in names.split(",") if name.strip()))
        return Accelerators(gpus, count, ())
    notes = list(claimed.notes)
    found: list[GpuProfile] = [profile for product in claimed.products for profile in catalog.from_dra(product)]
    if not found and not notes:
        found, notes = _from_labels(pod, catalog, resource)
    return Accelerators(tuple(dict.fromkeys(profile.id for profile in found)), count, tuple(notes))


def _resources(container: Plain, where: str) -> tuple[int, str | None]:
    """Return how many GPUs the container asks for, and the resource that it names them by."""
    resources = mapping(container, "resources", where)
    asked = {**mapping(resources, "requests", f"{where}.resources"), **mapping(resources, "limits", f"{where}.resources")}
    other = next((name for name in asked if name.startswith(_OTHER_VENDORS)), None)
    if other is not None:
        raise UnsupportedError(f"{where} asks for {shorten(other, 60)}", hint="warmstart compiles for NVIDIA GPUs")
    counts = {
        name: _count(value, f"{where} {name}") for name, value in asked.items() if name in _WHOLE or name.startswith(_MIG)
    }
    asked_for = [name for name, count in counts.items() if count]
    if len(asked_for) > 1:
        raise SpecError(f"{where} asks for several kinds of GPU: {', '.join(asked_for)}")
    return (counts[asked_for[0]], asked_for[0]) if asked_for else (0, None)


def _count(value: object, what: str) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1000:
        return value
    if isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) < 4:
        return int(value)
    raise SpecError(f"{what} must be a whole number of GPUs, not {shorten(value, 40)!r}")


def _from_labels(pod: PodTemplate, catalog: Catalog, resource: str | None) -> tuple[list[GpuProfile], list[Unresolved]]:
    found: list[GpuProfile] = []
    silent = False
    for labels in itertools.islice(_alternatives(pod), _MOST_ALTERNATIVES + 1):
        profiles = catalog.from_labels(labels, resource=resource)
        silent |= not profiles
        found += profiles
    if not silent:
        return found, []
    if found:
        why = "one alternative of the node affinity names no GPU type"
    else:
        why = "no node selector, affinity, claim or annotation of the pod names a GPU type"
    return found, [Unresolved("gpu", f"{why}; name it with --gpu or the annotation {ANNOTATION}", compiles=True)]


def _alternatives(pod: PodTemplate) -> Iterator[Mapping[str, str]]:
    """Yield the labels of each kind of node that the pod can land on, as its selector and required affinity put them."""
    selector = strings(pod.spec, "nodeSelector", pod.where)
    affinity = mapping(mapping(pod.spec, "affinity", pod.where), "nodeAffinity", pod.where)
    required = mapping(affinity, "requiredDuringSchedulingIgnoredDuringExecution", pod.where)
    terms = mappings(required, "nodeSelectorTerms", pod.where) or [{}]
    yielded = 0
    for term in terms:
        choices: dict[str, Sequence[str]] = {}
        excluded: dict[str, set[str]] = {}
        for expression in mappings(term, "matchExpressions", pod.where):
            key, values = text(expression, "key", pod.where), texts(expression, "values", pod.where)
            operator = text(expression, "operator", pod.where)
            if operator == "In":
                before = choices.get(key, values)
                choices[key] = [value for value in values if value in before]
            elif operator == "NotIn":
                excluded.setdefault(key, set()).update(values)
        for key, value in selector.items():
            choices[key] = [value] if value in choices.get(key, [value]) else []
        lists = [[value for value in values if value not in excluded.get(key, ())] for key, values in choices.items()]
        for combination in itertools.product(*lists):
            yielded += 1
            if yielded > _MOST_ALTERNATIVES:
                raise SpecError(f"{pod.where}: the node affinity has more than {_MOST_ALTERNATIVES} alternatives")
            yield dict(zip(choices, combination, strict=True))
