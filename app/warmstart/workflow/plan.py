"""`warmstart plan`: what a pod spec resolves to, and whether the store has it. Compiles and writes nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from warmstart.errors import EntryInvalid, EntryNotFound, UsageError, WarmstartError
from warmstart.value import Value
from warmstart.workflow import entries, resolve

if TYPE_CHECKING:
    from warmstart import identity
    from warmstart.gpus.catalog import Catalog
    from warmstart.podspec.request import ServeRequest
    from warmstart.settings import Settings
    from warmstart.store import Store
    from warmstart.workflow.stopping import Stop


class Plan(Value, kw_only=True):
    """One server on one GPU type. `state` is hit, miss, invalid, nothing-to-compile, unknown (no store), or problem."""

    facts: dict[str, Any]
    state: str
    reason: str = ""
    unresolved: tuple[dict[str, Any], ...] = ()
    warnings: tuple[str, ...] = ()
    factors: dict[str, Any] | None = None

    def document(self, *, factors: bool) -> dict[str, Any]:
        """Return the plan as a JSON object, with every factor of the key where asked for."""
        document = {
            **self.facts,
            "state": self.state,
            "reason": self.reason,
            "unresolved": list(self.unresolved),
            "warnings": list(self.warnings),
        }
        return {**document, "factors": self.factors} if factors else document

    def text(self) -> str:
        """Return the plan for people."""
        facts = self.facts
        lines = [f"{facts['workload']} container {facts['container']}" + (f" ({facts['role']})" if facts["role"] else "")]
        lines += [f"  {name:<9} {value}" for name, value in _rows(facts)]
        lines.append(f"  {'state':<9} {self.state}" + (f": {self.reason}" if self.reason else ""))
        lines += [f"  {'open':<9} {item['what']}: {item['why']}" for item in self.unresolved]
        lines += [f"  {'warning':<9} {warning}" for warning in self.warnings]
        return "\n".join(lines)


def plan(settings: Settings, stop: Stop) -> list[Plan]:
    """Return a plan for each server of the spec and each GPU type that it can land on; at least one.

    What cannot be known of one of them (its model's files, its GPU) is said in its plan. Raises what concerns the whole spec.
    """
    del stop
    own = not settings.pod_spec and bool(settings.pod_name)
    found, catalog = resolve.requests(settings, own_environment=own)
    fingerprint = resolve.code(settings)
    store = entries.open_from(settings, []) if settings.store else None
    return [one for request in found for one in _request_plans(settings, request, catalog, fingerprint, store)]


def _request_plans(
    settings: Settings, request: ServeRequest, catalog: Catalog, fingerprint: identity.CodeFingerprint, store: Store | None
) -> list[Plan]:
    return [_one(settings, request, catalog, gpu, fingerprint, store) for gpu in request.gpus or ("",)]


def _one(
    settings: Settings,
    request: ServeRequest,
    catalog: Catalog,
    gpu: str,
    fingerprint: identity.CodeFingerprint,
    store: Store | None,
) -> Plan:
    unresolved = tuple(item.items() for item in request.unresolved)
    facts: dict[str, Any] = {
        "workload": str(request.workload),
        "container": request.container,
        "role": request.role,
        "image": request.image,
        "model": request.model,
        "args": list(request.args),
        "gpu": gpu,
        "gpu_name": catalog.get(gpu).name if gpu else "",
        "gpu_count": request.gpu_count,
        "layout": {},
        "vllm": fingerprint.packages.get("vllm", "").partition(" ")[0],
        "request_key": "",
        "cache_root": _cache_root(settings, request),
    }
    try:
        if reason := resolve.nothing_to_compile(request):
            return Plan(facts=facts, state="nothing-to-compile", reason=reason, unresolved=unresolved)
        if not gpu:
            return Plan(
                facts=facts, state="problem", reason="the pod spec names no GPU type; give --gpu", unresolved=unresolved
            )
        target = resolve.target(settings, request, catalog.get(gpu), fingerprint)
    except WarmstartError as error:
        return Plan(facts=facts, state="problem", reason=str(error), unresolved=unresolved)
    facts |= {"layout": dict(target.identity.factors["layout"]), "request_key": target.key}
    state, reason = _state(store, target.key)
    return Plan(
        facts=facts,
        state=state,
        reason=reason,
        unresolved=unresolved,
        warnings=target.warnings,
        factors=dict(target.identity.factors),
    )


def _cache_root(settings: Settings, request: ServeRequest) -> str:
    """Return where the server keeps its cache, empty where that is not known: only `run` needs it."""
    try:
        return str(resolve.cache_root(settings, {**resolve.image_environment(), **request.env}))
    except UsageError:
        return ""


def _state(store: Store | None, key: str) -> tuple[str, str]:
    from warmstart.archive import parse_manifest

    if store is None:
        return "unknown", "no store is given"
    try:
        entries.check_factors(parse_manifest(store.lookup(key).manifest, key=key))
    except EntryNotFound:
        return "miss", f"{store.url} has no entry for this key"
    except EntryInvalid as error:
        return "invalid", str(error)
    return "hit", ""


def _rows(facts: dict[str, Any]) -> list[tuple[str, str]]:
    layout = facts["layout"]
    ranks = (
        f"{layout['ranks']} (tensor {layout['tensor']}, pipeline {layout['pipeline']}, data {layout['data']})"
        if layout
        else "?"
    )
    return [
        ("image", facts["image"]),
        ("model", facts["model"]),
        ("args", " ".join(facts["args"])),
        ("gpu", f"{facts['gpu_name'] or '?'} x {facts['gpu_count'] or '?'}"),
        ("ranks", ranks),
        ("vllm", facts["vllm"]),
        ("cache", facts["cache_root"] or "?"),
        ("key", facts["request_key"] or "?"),
    ]
