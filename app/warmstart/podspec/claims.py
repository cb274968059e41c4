"""Dynamic resource allocation: the GPUs that a container claims, read from the claims and templates of the same stream.

Products are read from CEL selectors of the plain forms (`productName == "…"`, `productName in ["…", …]`); any other test of
the product is named, not evaluated.
"""

from __future__ import annotations

from typing import NamedTuple

from warmstart.errors import shorten
from warmstart.pattern import pattern
from warmstart.podspec.objects import Objects
from warmstart.podspec.plain import Plain, mapping, mappings, text
from warmstart.podspec.request import Unresolved
from warmstart.podspec.workloads import PodTemplate

_CLASSES = ("gpu.nvidia.com", "mig.nvidia.com")
_QUOTED = r"(?:\"([^\"\\]*)\"|'([^'\\]*)')"
_EQUALS = pattern(r"\.productName\s*==\s*" + _QUOTED)
_ONE_OF = pattern(r"\.productName\s+in\s+\[([^\]]*)\]")
_TEXT = pattern(_QUOTED)
_NOT = pattern(r"!(?!=)|\?")


class Claimed(NamedTuple):
    """Product names that any claimed GPU can have, how many are claimed, and what could not be known."""

    products: tuple[str, ...]
    number: int
    notes: tuple[Unresolved, ...]


def claimed(pod: PodTemplate, container: Plain, objects: Objects, where: str) -> Claimed:
    """Return what a container's resource claims say of its GPUs. Raises SpecError on fields of the wrong type."""
    products: dict[str, None] = {}
    notes: list[Unresolved] = []
    count = 0
    own = {text(claim, "name", pod.where): claim for claim in mappings(pod.spec, "resourceClaims", pod.where)}
    for used in mappings(mapping(container, "resources", where), "claims", f"{where}.resources"):
        claim = own.get(text(used, "name", f"{where}.resources.claims"), {})
        name, spec = _devices(claim, pod, objects)
        if spec is None:
            notes.append(Unresolved("gpu", f"{name} is not in the spec; add it, or name the GPU", compiles=True))
            continue
        for request in mappings(mapping(spec, "devices", name), "requests", name):
            wanted = text(used, "request", f"{where}.resources.claims")
            if wanted and text(request, "name", name) != wanted:
                continue
            for exact in _exact(request, name):
                found = _products(exact, name)
                if found is None:
                    notes.append(Unresolved("gpu", f"{name} selects its device by more than a product name", compiles=True))
                else:
                    products |= dict.fromkeys(found)
            count += _count(request, name)
    return Claimed(tuple(products), count, tuple(dict.fromkeys(notes)))


def _devices(claim: Plain, pod: PodTemplate, objects: Objects) -> tuple[str, Plain | None]:
    """Return a claim's name in words and its spec, None where the stream does not hold it."""
    namespace = pod.workload.namespace
    template = text(claim, "resourceClaimTemplateName", pod.where)
    if template:
        name = f"ResourceClaimTemplate/{template}"
        found = objects.find("ResourceClaimTemplate", namespace, template)
        return name, None if found is None else mapping(mapping(found, "spec", name), "spec", name)
    direct = text(claim, "resourceClaimName", pod.where)
    name = f"ResourceClaim/{direct}"
    found = objects.find("ResourceClaim", namespace, direct)
    return name, None if found is None else mapping(found, "spec", name)


def _exact(request: Plain, where: str) -> list[Plain]:
    """Return the alternatives of one request, of any API version: `exactly`, `firstAvailable`, or in place."""
    options = mappings(request, "firstAvailable", where) or [mapping(request, "exactly", where) or request]
    return [option for option in options if text(option, "deviceClassName", where) in _CLASSES]


def _count(request: Plain, where: str) -> int:
    counts = [option.get("count", 1) for option in _exact(request, where)]
    return max((count for count in counts if isinstance(count, int) and 0 < count < 1000), default=0)


def _products(request: Plain, where: str) -> tuple[str, ...] | None:
    """Return the products that a request allows, none where it allows every product; None where they cannot be read."""
    if text(request, "deviceClassName", where) == "mig.nvidia.com":
        return None  # the slice's profile decides too, and is not read
    allowed: tuple[str, ...] | None = None
    for selector in mappings(request, "selectors", where):
        expression = text(mapping(selector, "cel", where), "expression", where)
        if ".productName" not in expression:
            continue
        found = _read(expression)
        if found is None:
            return None
        allowed = found if allowed is None else tuple(name for name in allowed if name in found)
    return allowed or ()


def _read(expression: str) -> tuple[str, ...] | None:
    found = ["".join(pair) for pair in _EQUALS.findall(expression)]
    lists = _ONE_OF.findall(expression)
    found += ["".join(pair) for listed in lists for pair in _TEXT.findall(listed)]
    read_all = expression.count(".productName") == len(_EQUALS.findall(expression)) + len(lists)
    bare = _TEXT.sub("", expression)
    every_way = all(".productName" in part for part in expression.split("||"))
    return tuple(shorten(name, 100) for name in found) if read_all and every_way and not _NOT.search(bare) else None
