"""What pre-warming reads from the API server: workloads that opted in, node pools, Jobs made earlier."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from typing import Literal

from warmstart.cluster.api import Api
from warmstart.cluster.failures import ObjectNotFound
from warmstart.cluster.landing import Pool, pool_of
from warmstart.cluster.resources import JOBS, NODES, Object, Resource

RESOURCE_CLAIMS = Resource("resource.k8s.io", "v1", "resourceclaims")
RESOURCE_CLAIM_TEMPLATES = Resource("resource.k8s.io", "v1", "resourceclaimtemplates")

State = Literal["suspended", "running", "done", "failed"]


@dataclasses.dataclass(frozen=True)
class JobState:
    """Where a Job stands; `why` is the reason that Kubernetes gives for a failure."""

    state: State
    why: str = ""

    @property
    def finished(self) -> bool:
        """Whether nothing more will come of it."""
        return self.state in ("done", "failed")


def opted_in(api: Api, resources: Iterable[Resource], namespaces: Iterable[str], selector: str) -> Iterator[Object]:
    """Yield every workload that a label selector opts in, of the kinds that this cluster has. No namespaces means all.

    A kind that the cluster does not have (a CustomResourceDefinition that is not installed) yields nothing. An object on its
    way out is left out.
    """
    for resource in resources:
        for namespace in tuple(namespaces) or ("",):
            try:
                for manifest in api.list(resource, namespace, labels=selector):
                    if not manifest["metadata"].get("deletionTimestamp"):
                        yield manifest
            except ObjectNotFound:
                break


def node_pools(api: Api) -> list[Pool]:
    """Return the nodes of the cluster as pools, equal ones once."""
    pools: dict[object, Pool] = {}
    for node in api.list(NODES):
        pool = pool_of(node)
        # The name of a node, and the labels that differ on every node, say nothing that another one does not say.
        labels = {name: value for name, value in pool.labels.items() if name != "kubernetes.io/hostname"}
        pools.setdefault((frozenset(labels.items()), repr(pool.taints)), pool)
    return list(pools.values())


def claims_of(api: Api, namespace: str, pod: Object) -> list[Object]:
    """Return the DRA claims, or templates of claims, that a pod spec names; those that are not there are left out."""
    found = []
    for claim in pod.get("resourceClaims") or ():
        for field, resource in (
            ("resourceClaimTemplateName", RESOURCE_CLAIM_TEMPLATES),
            ("resourceClaimName", RESOURCE_CLAIMS),
        ):
            if claim.get(field):
                try:
                    found.append(api.get(resource, namespace, claim[field]))
                except ObjectNotFound:
                    continue
    return found


def jobs_by_name(api: Api, namespaces: Iterable[str], selector: str) -> dict[tuple[str, str], JobState]:
    """Return the state of every Job that a label selector picks, by namespace and name."""
    return {
        (job["metadata"]["namespace"], job["metadata"]["name"]): job_state(job)
        for namespace in tuple(namespaces) or ("",)
        for job in api.list(JOBS, namespace, labels=selector)
    }


def job_state(job: Object) -> JobState:
    """Return where a Job stands. One that is about to fail (FailureTarget) counts as failed."""
    conditions = {one["type"]: one for one in (job.get("status") or {}).get("conditions") or () if one.get("status") == "True"}
    if "Complete" in conditions or "SuccessCriteriaMet" in conditions:
        return JobState("done")
    for kind in ("Failed", "FailureTarget"):
        if kind in conditions:
            reason, message = conditions[kind].get("reason", ""), conditions[kind].get("message", "")
            return JobState("failed", ": ".join(part for part in (reason, message) if part))
    return JobState("suspended" if (job.get("spec") or {}).get("suspend") else "running")
